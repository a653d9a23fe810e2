// SPDX-License-Identifier: MIT
//
// A request file from anywhere. What is accepted keeps its bounds and is read back from what
// requestTraceLine() makes of it.
#include <sstream>

#include "engine/workload/request_trace.h"
#include "tests/fuzz/fuzz_support.h"

using namespace kvlab;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    std::istringstream in{std::string(asText(data, size))};
    std::vector<TraceRequest> requests;
    try {
        requests = parseRequestTrace(in, "requests.jsonl");
    } catch (const EngineError& error) {
        checkRefusal(error);
        if (error.kind() != ErrorKind::kBadFile) fuzzFinding("another kind of error");
        return 0;
    }
    std::string text;
    double before = 0;
    for (const TraceRequest& request : requests) {
        const bool in_bounds = request.arrival_ms >= before &&
                               request.arrival_ms <= kMaxRequestMs && request.max_tokens >= 1 &&
                               request.max_tokens <= kMaxRequestTokens;
        if (!in_bounds) fuzzFinding("a request is out of bounds");
        before = request.arrival_ms;
        text += requestTraceLine(request) + "\n";
    }
    std::istringstream again(text);
    if (parseRequestTrace(again, "again") != requests) fuzzFinding("requests did not come back");
    return 0;
}
