// SPDX-License-Identifier: MIT
//
// make_seeds DIR: writes first inputs for each fuzz target into DIR/NAME/, so that no binary file
// lies in the repository and none goes stale when a format changes.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "engine/engine.h"
#include "engine/error.h"
#include "engine/model/gguf_writer.h"
#include "engine/trace/trace_io.h"
#include "engine/workload/corpus.h"
#include "engine/workload/request_trace.h"
#include "tests/support/tiny_model.h"

using namespace kvlab;

namespace {

namespace fs = std::filesystem;

void writeFile(const fs::path& path, const std::string& bytes) {
    std::ofstream file(path, std::ios::binary);
    file << bytes;
    if (!file.flush()) throw EngineError(ErrorKind::kBadFile, path.string() + " is not writable");
}

std::string readFile(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
}

void modelSeeds(const fs::path& folder) {
    int number = 0;
    for (const DataType dtype : {DataType::kF32, DataType::kF16}) {
        for (const int vocab_size : {30, 270}) {
            ModelConfig config = tinyConfig(1, 2, 1, 2);
            config.embedding_dim = 4;
            config.feed_forward_dim = 4;
            config.vocab_size = vocab_size;
            writeModelGguf(*ModelWeights::random(config, 1, vocab_size > 100, dtype),
                           folder / (std::to_string(number++) + ".gguf"));
        }
    }
    // A header with every kind of value that the writer knows, and no tensor.
    GgufWriter writer;
    writer.setUint32("a.number", 7);
    writer.setFloat32("a.float", 1.5f);
    writer.setBool("a.bool", true);
    writer.setString("general.name", "keys");
    writer.setStrings("some.strings", {"a", "", "key"});
    writer.setFloats("some.floats", {0.f, -1.f});
    writer.setInts("some.ints", {1, 2, 3});
    writer.write(folder / "keys.gguf");
}

void traceSeeds(const fs::path& folder) {
    for (int samples = 1; samples <= 3; ++samples) {
        EngineConfig config;
        config.cache.block_size = 4;
        config.cache.num_blocks = 12;
        config.num_threads = 1;
        config.token_budget = 8;
        Engine engine(tinyModel(), nullptr, config);
        EngineRequest request;
        request.prompt.assign(9, TokenId(3));
        request.num_samples = samples;
        request.max_tokens = 4;
        const RequestId id = engine.submit(request);
        RunInfo info;
        info.model = engine.model();
        info.cache = config.cache;
        info.title = "seed";
        const fs::path path = folder / "sealed";
        {
            TraceWriter writer(path, info);
            for (int i = 0; const auto step = engine.step(); ++i) {
                StepTrace named = *step;
                named.new_pieces = {{TokenId(i), i % 2 == 0 ? " key" : "\xE2\x82"}};
                writer.append(named);
                if (samples == 2 && i == 3) engine.cancel(id);
            }
            writer.finish();
        }
        // One sealed file as it is, the others without their seals (17 characters a line).
        const std::string sealed = readFile(path);
        if (samples == 1) writeFile(folder / "raw", "!" + sealed);
        std::string records;
        std::istringstream lines(sealed);
        for (std::string line; std::getline(lines, line);) records += line.substr(17) + "\n";
        writeFile(folder / ("records-" + std::to_string(samples)), records);
        fs::remove(path);
    }
}

// As many blocks as a header may claim, and steps in which nothing happens: reading them must take
// no time for the blocks.
void hugePoolSeed(const fs::path& folder) {
    RunInfo info;
    info.model = tinyConfig();
    info.cache.num_blocks = 4'194'304;
    const fs::path path = folder / "sealed";
    {
        TraceWriter writer(path, info);
        for (StepTrace step; step.step < 25; ++step.step) writer.append(step);
        writer.finish();
    }
    std::string records;
    std::istringstream lines(readFile(path));
    for (std::string line; std::getline(lines, line);) records += line.substr(17) + "\n";
    writeFile(folder / "huge-pool", records);
    fs::remove(path);
}

void requestSeeds(const fs::path& folder) {
    writeFile(folder / "fields",
              R"({"arrival_ms": 0, "prompt": "The br\u00e4ss key", "max_tokens": 64})"
              "\n\r\n"
              R"({"arrival_ms": 12.5, "prompt_tokens": 1020, "max_tokens": 1, "priority": -3,)"
              R"( "salt": "tenant", "cancel_ms": 1e3})"
              "\n"
              R"({"arrival_ms": 20, "prompt_tokens": [1, 5, 9], "max_tokens": 1})");
    RequestTraceOptions options;
    options.num_requests = 20;
    options.bursts = BurstOptions{};
    std::string text;
    for (const TraceRequest& request : generateRequestTrace(options)) {
        text += requestTraceLine(request) + "\n";
    }
    writeFile(folder / "generated", text);
}

void textSeeds(const fs::path& folder) {
    writeFile(folder / "document", generateDocument(CorpusOptions{}, 0, 60).text);
    writeFile(folder / "characters",
              "  \xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80 a\n\t\xff\x80 <s> <0x41>");
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::cerr << "usage: make_seeds DIR\n";
        return 2;
    }
    try {
        const auto folder = [&](const char* name) {
            const fs::path path = fs::path(argv[1]) / name;
            fs::create_directories(path);
            return path;
        };
        modelSeeds(folder("gguf"));
        traceSeeds(folder("trace"));
        hugePoolSeed(folder("trace"));
        requestSeeds(folder("request"));
        textSeeds(folder("tokenizer"));
    } catch (const std::exception& error) {
        std::cerr << "make_seeds: " << error.what() << "\n";
        return 1;
    }
    return 0;
}
