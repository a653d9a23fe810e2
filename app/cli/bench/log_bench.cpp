// SPDX-License-Identifier: MIT
#include <filesystem>
#include <unistd.h>

#include "app/cli/bench/bench.h"
#include "app/cli/bench/bench_math.h"
#include "engine/model/weights.h"
#include "engine/trace/run_log.h"
#include "engine/trace/state.h"
#include "engine/trace/trace_io.h"

namespace kvlab {

namespace {

struct ScratchFile {
    std::string path = (std::filesystem::temp_directory_path() /
                        ("kvlab-bench-" + std::to_string(getpid()) + ".trace"))
                           .string();
    ~ScratchFile() {
        std::error_code ignored;
        std::filesystem::remove(path, ignored);
    }
};

}  // namespace

// Going through a log against making it.
BenchResult benchFold(const BenchContext& context) {
    const EngineRequest request =
        makeRequest(context.model, context.sized(256, 16), 8, context.sized(128, 4));
    const std::unique_ptr<Engine> engine = makeEngine(context.model, context.config, {request});
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
    const int num_folds = context.sized(20, 2);
    std::vector<double> times;
    for (int round = 0; round < context.rounds() + 1; ++round) {
        const double ms = elapsedMs([&] {
            for (int i = 0; i < num_folds; ++i) {
                CacheState state = initialState(engine->config().cache);
                for (const auto& step : steps) {
                    for (const Event& event : step->events) apply(state, event);
                }
            }
        });
        if (round > 0) times.push_back(ms);  // the first one warms up
    }
    const double fold_ms = median(times) / num_folds;
    return {"fold",
            "1/s",
            {{"events", static_cast<double>(num_events) * 1000.0 / fold_ms},
             {"entries", static_cast<double>(num_entries) * 1000.0 / fold_ms}},
            {{"run_to_fold", run_ms / fold_ms, {}, {}}},
            context.rounds()};
}

// Decode alone, and with everything that is kept of it: the log in memory and the file.
BenchResult benchTracing(const BenchContext& context) {
    const int num_tokens = context.sized(48, 3);
    const EngineRequest request =
        makeRequest(context.model, context.sized(256, 16), 8, num_tokens + 1);
    RunInfo info;
    info.model = context.model.weights->config;
    info.cache = context.config.cache;
    if (info.cache.num_blocks == 0) {
        info.cache.num_blocks = static_cast<int>(Engine::worstCaseBlocks(request, info.cache));
    }
    info.num_samples = request.num_samples;
    info.max_tokens = request.max_tokens;
    info.backend = context.config.backend;
    info.title = "bench";
    std::vector<double> plain, traced;
    for (int round = 0; round < context.rounds(); ++round) {
        plain.push_back(timeDecode(context.model, context.config, {request}).step_ms);
        const ScratchFile file;
        TraceWriter writer(file.path, info);
        RunLog log(info);
        const auto record = [&](const std::shared_ptr<const StepTrace>& step) {
            writer.append(*step);
            log.append(step);
        };
        traced.push_back(timeDecode(context.model, context.config, {request}, record).step_ms);
        writer.finish();
    }
    return {"tracing",
            "ms/step",
            {{"engine_alone", median(plain)}, {"with_log_and_file", median(traced)}},
            {{"with_to_without", median(traced) / median(plain), {}, 1.05}},
            context.rounds()};
}

}  // namespace kvlab
