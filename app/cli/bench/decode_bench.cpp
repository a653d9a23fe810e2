// SPDX-License-Identifier: MIT
#include <array>

#include "app/cli/bench/bench.h"
#include "app/cli/bench/bench_math.h"
#include "app/cli/bench/machine_speed.h"

namespace kvlab {

namespace {

struct Batch {
    int num_sequences;
    int num_steps;  // timed, in each round
};

// Decode of one model with several batch sizes, in turn, and with them what the machine can do.
struct DecodeFigures {
    std::vector<double> tokens_per_s;  // by batch
    std::vector<double> floor_per_s;   // at the peak rate of multiply-adds
    std::vector<double> stream_per_s;  // at the speed of memory
};

DecodeFigures measure(const BenchContext& context,
                      const LoadedModel& model,
                      int prompt_len,
                      const std::vector<Batch>& batches) {
    std::vector<std::vector<double>> step_ms(batches.size());
    std::vector<double> rates, reads;
    for (int round = 0; round < context.rounds(); ++round) {
        rates.push_back(context.machine().multiplyAddsPerSecond());
        reads.push_back(context.machine().bytesPerSecond());
        for (size_t i = 0; i < batches.size(); ++i) {
            const EngineRequest request =
                makeRequest(model, prompt_len, batches[i].num_sequences, batches[i].num_steps + 1);
            step_ms[i].push_back(timeDecode(model, context.config, {request}).step_ms);
        }
    }
    DecodeFigures figures;
    const ModelConfig& config = model.weights->config;
    for (size_t i = 0; i < batches.size(); ++i) {
        const int n = batches[i].num_sequences;
        // In the middle of the run.
        const int64_t context_len = prompt_len + batches[i].num_steps / 2;
        const auto work = static_cast<double>(n * multiplyAddsPerToken(config, context_len));
        const auto bytes = static_cast<double>(
            matrixBytesPerStep(*model.weights) +
            n * context_len * config.kvBytesPerToken(context.config.cache.kv_dtype));
        figures.tokens_per_s.push_back(n * 1000.0 / median(step_ms[i]));
        figures.floor_per_s.push_back(tokensPerSecondAtRate(n, work, median(rates)));
        figures.stream_per_s.push_back(tokensPerSecondAtRate(n, bytes, median(reads)));
    }
    return figures;
}

}  // namespace

BenchResult benchDecode(const BenchContext& context) {
    const int prompt_len = context.sized(256, 16);
    const DecodeFigures f =
        measure(context, context.model, prompt_len,
                {{1, context.sized(96, 2)}, {8, context.sized(48, 2)}, {32, context.sized(24, 2)}});
    const auto& at = f.tokens_per_s;
    return {"decode",
            "tokens/s",
            {{"1_sequence", at[0]},
             {"8_sequences", at[1]},
             {"32_sequences", at[2]},
             {"flop_floor", f.floor_per_s[0]}},
            {{"8_sequences_to_1", at[1] / at[0], {}, {}},
             {"32_sequences_to_1", at[2] / at[0], {}, {}},
             {"1_sequence_to_floor", at[0] / f.floor_per_s[0], {}, {}},
             {"8_sequences_to_floor", at[1] / f.floor_per_s[1], {}, {}},
             {"32_sequences_to_floor", at[2] / f.floor_per_s[2], {}, {}}},
            context.rounds()};
}

BenchResult benchGenerated(const BenchContext& context) {
    const DecodeFigures f =
        measure(context, context.generated(), context.sized(64, 8),
                {{1, context.sized(24, 2)}, {8, context.sized(16, 2)}, {32, context.sized(8, 2)}});
    const auto& at = f.tokens_per_s;
    return {"generated",
            "tokens/s",
            {{"1_sequence", at[0]},
             {"8_sequences", at[1]},
             {"32_sequences", at[2]},
             {"at_memory_speed", f.stream_per_s[0]},
             {"flop_floor", f.floor_per_s[0]}},
            {{"8_sequences_to_1", at[1] / at[0], 3.0, {}},
             {"32_sequences_to_1", at[2] / at[0], {}, {}},
             {"1_sequence_to_memory_speed", at[0] / f.stream_per_s[0], 0.7, {}},
             {"8_sequences_to_floor", at[1] / f.floor_per_s[1], {}, {}},
             {"32_sequences_to_floor", at[2] / f.floor_per_s[2], {}, {}}},
            context.rounds()};
}

BenchResult benchPrefill(const BenchContext& context) {
    const int large = context.sized(512, 32);  // one chunk of the default token budget
    const std::array<int, 2> lengths = {large / 4, large};
    std::array<std::vector<double>, 2> times;
    for (int round = 0; round < context.rounds() + 1; ++round) {
        for (size_t i = 0; i < lengths.size(); ++i) {
            const EngineRequest request = makeRequest(context.model, lengths[i], 1, 1);
            const std::unique_ptr<Engine> engine =
                makeEngine(context.model, context.config, {request});
            const double ms = elapsedMs([&] {
                while (engine->step()) {
                }
            });
            if (round > 0) times[i].push_back(ms);  // the first one warms up
        }
    }
    const double small_per_s = lengths[0] * 1000.0 / median(times[0]);
    const double large_per_s = lengths[1] * 1000.0 / median(times[1]);
    return {"prefill",
            "tokens/s",
            {{"128_tokens", small_per_s}, {"512_tokens", large_per_s}},
            {{"512_tokens_to_128", large_per_s / small_per_s, {}, {}}},
            context.rounds()};
}

}  // namespace kvlab
