// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/config.h"

namespace CLI {
class App;
}

namespace kvlab {

// The options that every command with an engine shares, as typed.
struct EngineOptions {
    std::optional<std::string> model, backend, kv_dtype, block_size, blocks, threads, token_budget;
    bool cpu_fallback = false;

    std::string modelPath() const { return model.value_or(""); }
    // Throws EngineError(kBadArgument). num_blocks 0: the command sizes the pool.
    EngineConfig engineConfig() const;
};

// How the pool is cut, and what becomes of sequences that find it empty.
struct ScheduleOptions {
    std::optional<std::string> layout, max_len, slab_length, host_blocks, preempt;

    // Throws EngineError(kBadArgument). Slab with max_len 0: as long as the longest request.
    void apply(EngineConfig& config) const;
};

// How the next token is drawn, as typed.
struct DrawOptions {
    std::optional<std::string> temperature, top_k, top_p;

    // Sets all but the seed. Throws EngineError(kBadArgument), also for what would have no effect:
    // choosing among several tokens where the best one is taken.
    void apply(SamplingParams& sampling) const;
};

// The line on stderr that simt is slow; `how_long` ends it.
void noteThatSimtIsSlow(const char* how_long);

// The trace is written while the inputs are read, a model even mapped in memory: it must not be one
// of them. Throws EngineError(kBadArgument); an empty name among the inputs is none.
void checkTracePath(const std::optional<std::string>& trace,
                    const std::vector<std::string>& inputs);

// `options` must live as long as `app`.
void addScheduleOptions(CLI::App& app, ScheduleOptions& options);
void addDrawOptions(CLI::App& app, DrawOptions& options);
void addEngineOptions(CLI::App& app, EngineOptions& options);

}  // namespace kvlab
