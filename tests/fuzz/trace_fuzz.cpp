// SPDX-License-Identifier: MIT
//
// A trace from anywhere. Seals would stop nearly every input at its first record, so the input is
// the records without their seals, one a line, and the harness seals them as the writer does; an
// input that starts with '!' is read as it is. What is accepted must keep the invariants, and its
// export must not fail.
#include "engine/sha256.h"
#include "engine/trace/perfetto.h"
#include "engine/trace/trace_io.h"
#include "tests/fuzz/fuzz_support.h"

using namespace kvlab;

namespace {

std::string sealedRecords(std::string_view records) {
    std::string file;
    std::string seal;
    while (!records.empty()) {
        const std::string record(records.substr(0, records.find('\n')));
        records.remove_prefix(std::min(records.size(), record.size() + 1));
        seal = sha256Hex(seal + record).substr(0, 16);
        file += seal + " " + record + "\n";
    }
    return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view input = asText(data, size);
    const bool raw = !input.empty() && input[0] == '!';
    const MemoryFile memory(raw ? std::string(input.substr(1)) : sealedRecords(input));
    LoadedTrace trace;
    try {
        trace = loadTrace(memory.path());
    } catch (const EngineError& error) {
        checkRefusal(error);
        return 0;
    }
    if (trace.complete != trace.damage.empty()) fuzzFinding("damage that is none");
    const RunLog& log = *trace.log;
    const std::string broken = checkInvariants(log.lastState());
    if (!broken.empty()) fuzzFinding(broken);
    // Backwards as the window goes: the keyframes must agree with the fold.
    if (log.numSteps() > 0 && !(log.stateAt(log.end()) == log.lastState())) {
        fuzzFinding("the keyframe and the fold disagree");
    }
    static const std::string out = "/dev/shm/kvlab-trace-fuzz-" + std::to_string(::getpid());
    writePerfettoTrace(log, out);
    ::unlink(out.c_str());
    return 0;
}
