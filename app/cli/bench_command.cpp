// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <unistd.h>

#include "app/cli/commands.h"
#include "app/cli/engine_options.h"
#include "app/cli/json_output.h"
#include "app/cli/option_text.h"
#include "engine/cache/block_pool.h"
#include "engine/engine.h"
#include "engine/error.h"
#include "engine/model/model_loader.h"
#include "engine/model/tokenizer.h"
#include "engine/model/utf8.h"
#include "engine/model/weights.h"
#include "engine/trace/run_log.h"
#include "engine/trace/trace_io.h"
#include "engine/workload/corpus.h"

// Timings on this machine, now. Absolute figures say little on a busy machine, so every bench also
// gives a ratio of two medians that were taken in turn within one run.
namespace kvlab {

namespace {

constexpr int kPromptTokens = 256;   // before decoding
constexpr int kPrefillTokens = 512;  // one chunk of the default token budget
constexpr int kDecodeSteps = 48;     // timed steps of a round
constexpr int kRounds = 7;
constexpr int kFolds = 20;  // of a log, in one timing

struct BenchOptions {
    EngineOptions engine;
    std::vector<std::string> names;
    bool json = false;
};

struct BenchResult {
    std::string name;
    std::string unit;
    std::vector<std::pair<std::string, double>> medians;
    std::string ratio_name;
    double ratio = 0;
    int num_repeats = 0;  // timings behind each median
};

struct BenchContext {
    LoadedModel model;
    EngineConfig config;
};

double elapsedMs(const std::function<void()>& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    const auto end = std::chrono::steady_clock::now();
    return std::chrono::duration<double, std::milli>(end - begin).count();
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

EngineRequest makeRequest(const BenchContext& context, int prompt_len, int samples, int tokens) {
    EngineRequest request;
    request.prompt =
        context.model.tokenizer->encode(generateDocument({}, 0, prompt_len).text, true);
    request.prompt.resize(static_cast<size_t>(prompt_len));
    request.num_samples = samples;
    request.max_tokens = tokens;
    request.ignore_eos = true;
    request.sampling.temperature = 1;
    return request;
}

std::unique_ptr<Engine> makeEngine(const BenchContext& context, const EngineRequest& request) {
    EngineConfig config = context.config;
    if (config.cache.num_blocks == 0) {
        config.cache.num_blocks =
            static_cast<int>(Engine::worstCaseBlocks(request, config.cache.block_size));
    }
    auto engine = std::make_unique<Engine>(context.model.weights, context.model.tokenizer, config);
    engine->submit(request);
    return engine;
}

using StepObserver = std::function<void(std::shared_ptr<const StepTrace>)>;

// Mean time of the pure decode steps of one run of `samples` sequences, what `on_step` does with
// them included, ms. A mean, so that short and long steps suffer alike from other processes.
double decodeStepMs(const BenchContext& context,
                    int samples,
                    int num_steps,
                    const StepObserver& on_step = {}) {
    const EngineRequest request = makeRequest(context, kPromptTokens, samples, num_steps + 1);
    const std::unique_ptr<Engine> engine = makeEngine(context, request);
    double sum_ms = 0;
    int num_timed = 0;
    while (true) {
        std::shared_ptr<const StepTrace> step;
        const double ms = elapsedMs([&] {
            step = engine->step();
            if (step && on_step) on_step(step);
        });
        if (!step) break;
        if (step->stats.num_prefill_tokens == 0 && step->stats.num_decode_tokens == samples) {
            sum_ms += ms;
            ++num_timed;
        }
    }
    KVLAB_CHECK(num_timed > 0, "no decode step was timed");
    return sum_ms / num_timed;
}

BenchResult benchDecode(const BenchContext& context) {
    std::vector<double> one, eight;
    for (int round = 0; round < kRounds; ++round) {
        one.push_back(decodeStepMs(context, 1, 2 * kDecodeSteps));
        eight.push_back(decodeStepMs(context, 8, kDecodeSteps));
    }
    const double one_per_s = 1000.0 / median(one);
    const double eight_per_s = 8 * 1000.0 / median(eight);
    return {"decode",
            "tokens/s",
            {{"1_sequence", one_per_s}, {"8_sequences", eight_per_s}},
            "8_sequences_to_1",
            eight_per_s / one_per_s,
            kRounds};
}

BenchResult benchPrefill(const BenchContext& context) {
    const auto tokens_per_s = [&](int prompt_len) {
        std::vector<double> times;
        const EngineRequest request = makeRequest(context, prompt_len, 1, 1);
        for (int round = 0; round < kRounds + 1; ++round) {
            const std::unique_ptr<Engine> engine = makeEngine(context, request);
            const double ms = elapsedMs([&] {
                while (engine->step()) {
                }
            });
            if (round > 0) times.push_back(ms);  // the first one warms up
        }
        return prompt_len * 1000.0 / median(times);
    };
    const double small = tokens_per_s(kPrefillTokens / 4);
    const double large = tokens_per_s(kPrefillTokens);
    return {"prefill",           "tokens/s",    {{"128_tokens", small}, {"512_tokens", large}},
            "512_tokens_to_128", large / small, kRounds};
}

BenchResult benchFold(const BenchContext& context) {
    const EngineRequest request = makeRequest(context, kPromptTokens, 8, 128);
    const std::unique_ptr<Engine> engine = makeEngine(context, request);
    std::vector<std::shared_ptr<const StepTrace>> steps;
    int64_t num_events = 0;
    int64_t num_entries = 0;
    const double run_ms = elapsedMs([&] {
        while (const auto step = engine->step()) steps.push_back(step);
    });
    for (const auto& step : steps) {
        num_events += static_cast<int64_t>(step->events.size());
        for (const Event& event : step->events) num_entries += numEntries(event);
    }
    std::vector<double> times;
    for (int round = 0; round < kRounds + 1; ++round) {
        const double ms = elapsedMs([&] {
            for (int i = 0; i < kFolds; ++i) {
                CacheState state = initialState(engine->config().cache);
                for (const auto& step : steps) {
                    for (const Event& event : step->events) apply(state, event);
                }
            }
        });
        if (round > 0) times.push_back(ms);
    }
    const double fold_ms = median(times) / kFolds;
    return {"fold",
            "1/s",
            {{"events", static_cast<double>(num_events) * 1000.0 / fold_ms},
             {"entries", static_cast<double>(num_entries) * 1000.0 / fold_ms}},
            "run_to_fold",
            run_ms / fold_ms,
            kRounds};
}

// Nanoseconds of one allocation and one release, all blocks taken and given back.
double poolPairNs(int num_blocks, int num_rounds) {
    BlockPool pool(num_blocks, 16);
    std::vector<BlockId> taken(static_cast<size_t>(num_blocks));
    std::vector<double> times;
    times.reserve(static_cast<size_t>(num_rounds));
    for (int round = 0; round < num_rounds; ++round) {
        times.push_back(elapsedMs([&] {
            for (BlockId& block : taken) block = pool.allocate();
            for (const BlockId block : taken) pool.release(block);
        }));
    }
    return median(times) * 1e6 / num_blocks;
}

BenchResult benchPool(const BenchContext& /*context*/) {
    BenchResult result{"pool", "ns/block", {}, "1000000_blocks_to_1000", 0, 0};
    result.num_repeats = kRounds;
    for (const int num_blocks : {1'000, 10'000, 100'000, 1'000'000}) {
        // Small pools are over within a clock tick or two, so they run more often.
        const int num_rounds = std::max(kRounds, 200'000 / num_blocks);
        result.medians.emplace_back(std::to_string(num_blocks) + "_blocks",
                                    poolPairNs(num_blocks, num_rounds));
    }
    result.ratio = result.medians.back().second / result.medians.front().second;
    return result;
}

struct ScratchFile {
    std::string path = (std::filesystem::temp_directory_path() /
                        ("kvlab-bench-" + std::to_string(getpid()) + ".trace"))
                           .string();
    ~ScratchFile() {
        std::error_code ignored;
        std::filesystem::remove(path, ignored);
    }
};

BenchResult benchTracing(const BenchContext& context) {
    std::vector<double> plain, traced;
    for (int round = 0; round < kRounds; ++round) {
        plain.push_back(decodeStepMs(context, 8, kDecodeSteps));
        const ScratchFile file;
        RunInfo info;
        info.model = context.model.weights->config;
        info.model_sha256 = context.model.weights->sha256;
        info.cache = context.config.cache;
        const EngineRequest request = makeRequest(context, kPromptTokens, 8, kDecodeSteps + 1);
        if (info.cache.num_blocks == 0) {
            info.cache.num_blocks =
                static_cast<int>(Engine::worstCaseBlocks(request, info.cache.block_size));
        }
        info.num_samples = 8;
        info.max_tokens = kDecodeSteps + 1;
        info.backend = context.config.backend;
        info.title = "bench";
        TraceWriter writer(file.path, info);
        RunLog log(info);
        const auto record = [&](const std::shared_ptr<const StepTrace>& step) {
            writer.append(*step);
            log.append(step);
        };
        traced.push_back(decodeStepMs(context, 8, kDecodeSteps, record));
        writer.finish();
    }
    const double plain_ms = median(plain);
    const double traced_ms = median(traced);
    return {"tracing",
            "ms/step",
            {{"engine_alone", plain_ms}, {"with_log_and_file", traced_ms}},
            "with_to_without",
            traced_ms / plain_ms,
            kRounds};
}

struct Bench {
    const char* name;
    BenchResult (*run)(const BenchContext&);
};
constexpr std::array<Bench, 5> kBenches = {{{"decode", benchDecode},
                                            {"prefill", benchPrefill},
                                            {"fold", benchFold},
                                            {"pool", benchPool},
                                            {"tracing", benchTracing}}};

Json resultJson(const BenchResult& result) {
    Json medians = Json::object();
    for (const auto& [name, value] : result.medians) medians[name] = value;
    return {{"name", result.name},
            {"unit", result.unit},
            {"medians", std::move(medians)},
            {"ratio", {{result.ratio_name, result.ratio}}},
            {"repeats", result.num_repeats}};
}

void runBench(const BenchOptions& options) {
    std::vector<Bench> chosen;
    for (const std::string& name : options.names) {
        const auto found = std::find_if(std::begin(kBenches), std::end(kBenches),
                                        [&](const Bench& b) { return name == b.name; });
        if (found == std::end(kBenches)) {
            throw EngineError(ErrorKind::kBadArgument,
                              "there is no bench " + quotedForMessage(name) +
                                  "; choose among decode, prefill, fold, pool and tracing");
        }
        chosen.push_back(*found);
    }
    if (chosen.empty()) chosen.assign(std::begin(kBenches), std::end(kBenches));

    BenchContext context;
    context.config = options.engine.engineConfig();
    context.model = loadModel(options.engine.modelPath());
    const EngineRequest probe = makeRequest(context, 1, 1, 1);
    const std::unique_ptr<Engine> engine = makeEngine(context, probe);
    Json benches = Json::array();
    for (const Bench& bench : chosen) {
        const BenchResult result = bench.run(context);
        benches.push_back(resultJson(result));
        if (options.json) continue;
        std::printf("%s, %s, median of %d\n", result.name.c_str(), result.unit.c_str(),
                    result.num_repeats);
        for (const auto& [name, value] : result.medians) {
            std::printf("  %-20s %14.2f\n", name.c_str(), value);
        }
        std::printf("  %-20s %14.3f (ratio)\n", result.ratio_name.c_str(), result.ratio);
    }
    if (!options.json) return;
    printJson({{"device", engine->deviceName()},
               {"backend", engine->config().backend},
               {"threads", engine->config().num_threads},
               {"model", engine->model().name},
               {"benches", std::move(benches)}});
}

}  // namespace

void addBenchCommand(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "bench", "medians and ratios on this machine: decode, prefill, fold, pool, tracing");
    const auto options = std::make_shared<BenchOptions>();
    command->add_option("names", options->names, "which (default: all)")->type_name("NAME");
    addEngineOptions(*command, options->engine);
    command->add_flag("--json", options->json, "print JSON");
    command->callback([options] { runBench(*options); });
}

}  // namespace kvlab
