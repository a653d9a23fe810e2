// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/config.h"
#include "engine/engine.h"
#include "engine/model/model_loader.h"

namespace kvlab {

class MachineSpeed;

// A ratio of two medians that were taken in turn within one run, and what it is meant to reach.
struct BenchRatio {
    std::string name;
    double value = 0;
    std::optional<double> at_least;
    std::optional<double> at_most;
};

struct BenchResult {
    std::string name;
    std::string unit;
    std::vector<std::pair<std::string, double>> medians;
    std::vector<BenchRatio> ratios;
    int num_repeats = 0;  // timings behind each median
};

struct BenchContext {
    LoadedModel model;  // bundled, or --model
    EngineConfig config;
    // Smallest sizes, one round, a generated model of a few thousand parameters: only shows that
    // everything runs.
    bool quick = false;

    int rounds() const { return quick ? 1 : 7; }
    int sized(int full, int small) const { return quick ? small : full; }
    MachineSpeed& machine() const;
    // Random weights in f16, 100 million of them (dim 768, 12 layers, vocabulary of 32,000).
    const LoadedModel& generated() const;

  private:
    mutable std::shared_ptr<MachineSpeed> machine_;
    mutable LoadedModel generated_;
};

ModelConfig generatedModelConfig(bool quick);

// One file a group of benches.
BenchResult benchDecode(const BenchContext& context);  // decode_bench.cpp
BenchResult benchGenerated(const BenchContext& context);
BenchResult benchPrefill(const BenchContext& context);
BenchResult benchMachine(const BenchContext& context);  // machine_speed.cpp
BenchResult benchLayout(const BenchContext& context);   // cache_bench.cpp
BenchResult benchPool(const BenchContext& context);
BenchResult benchFold(const BenchContext& context);  // log_bench.cpp
BenchResult benchTracing(const BenchContext& context);

// --- timing
// ---------------------------------------------------------------------------------------

double elapsedMs(const std::function<void()>& work);
// Of this thread alone: what other processes take of the machine does not count.
double threadCpuMs(const std::function<void()>& work);

// `prompt_len` tokens of the corpus document of this seed (without a tokenizer: some tokens),
// greedy, no end.
EngineRequest makeRequest(
    const LoadedModel& model, int prompt_len, int samples, int tokens, uint64_t seed = 0);
// With the requests submitted; a pool of 0 blocks becomes one that is large enough.
std::unique_ptr<Engine> makeEngine(const LoadedModel& model,
                                   EngineConfig config,
                                   const std::vector<EngineRequest>& requests);

struct DecodeTimes {
    double step_ms = 0;       // what `on_step` does with the step included
    double attention_ms = 0;  // of it
};
// Means over the steps that decode all samples of all requests and nothing else. Means, so that
// short and long steps suffer alike from other processes.
DecodeTimes timeDecode(const LoadedModel& model,
                       const EngineConfig& config,
                       const std::vector<EngineRequest>& requests,
                       const std::function<void(std::shared_ptr<const StepTrace>)>& on_step = {});

}  // namespace kvlab
