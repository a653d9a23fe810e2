// SPDX-License-Identifier: MIT
#include "app/cli/engine_options.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <unistd.h>

#include "app/cli/later_options.h"
#include "app/cli/option_text.h"
#include "engine/backend/devices.h"
#include "engine/error.h"
#include "engine/sizing/kv_size.h"

namespace kvlab {

EngineConfig EngineOptions::engineConfig() const {
    if (model && model->empty()) {
        throw EngineError(ErrorKind::kBadArgument,
                          "--model wants a GGUF file; leave it out for the bundled model");
    }
    EngineConfig config;
    config.backend = backend.value_or("auto");
    if (const std::string problem = cpuFallbackProblem(config.backend);
        cpu_fallback && !problem.empty()) {
        throw EngineError(ErrorKind::kBadArgument, problem);
    }
    config.cpu_fallback = cpu_fallback;
    if (threads && config.backend == "cuda" && !cpu_fallback) {
        throw EngineError(ErrorKind::kBadArgument,
                          "--threads is the CPU's, and --backend cuda takes none of it; leave it "
                          "out, or add --cpu-fallback");
    }
    config.on_fallback = [](const std::string& why) {
        // A line that tells progress may stand there.
        const char* const clear = isatty(STDERR_FILENO) != 0 ? "\r\033[K" : "";
        std::fprintf(stderr, "%skvlab-cli: running on the CPU: %s\n", clear, why.c_str());
    };
    config.cache.kv_dtype = parseKvDtype(kv_dtype.value_or("f16"));
    config.cache.block_size = static_cast<int>(parseWhole("--block-size", block_size, 1, 256, 16));
    // Slots are numbered with 32 bits.
    const int64_t most_blocks = std::numeric_limits<int32_t>::max() / config.cache.block_size;
    config.cache.num_blocks = static_cast<int>(parseWhole("--blocks", blocks, 1, most_blocks, 0));
    config.num_threads = static_cast<int>(parseWhole("--threads", threads, 1, 256, 0));
    config.token_budget =
        static_cast<int>(parseWhole("--token-budget", token_budget, 1, 1'000'000, 512));
    if (config.backend == "simt") noteThatSimtIsSlow("it is slow");
    return config;
}

void noteThatSimtIsSlow(const char* how_long) {
    std::fprintf(stderr,
                 "kvlab-cli: backend simt runs the CUDA kernels on the CPU, to check and to show "
                 "them; %s\n",
                 how_long);
}

void DrawOptions::apply(SamplingParams& sampling) const {
    sampling.temperature = static_cast<float>(parseReal("--temperature", temperature, 0, 1000, 0));
    sampling.top_k = static_cast<int>(parseWhole("--top-k", top_k, 0, 1'000'000'000, 0));
    sampling.top_p = static_cast<float>(parseReal("--top-p", top_p, 0, 1, 1));
    if (sampling.top_p <= 0) {
        throw EngineError(ErrorKind::kBadArgument,
                          "--top-p wants a number above 0 and at most 1: at 0 no token is left");
    }
    // Who says --temperature 0 knows that nothing is drawn.
    const char* const narrows = sampling.top_k > 0   ? "--top-k"
                                : sampling.top_p < 1 ? "--top-p"
                                                     : nullptr;
    if (narrows != nullptr && !temperature) {
        throw EngineError(ErrorKind::kBadArgument,
                          std::string(narrows) +
                              " says among which tokens to draw, and without --temperature the "
                              "best one is taken; add --temperature 1");
    }
}

void ScheduleOptions::apply(EngineConfig& config) const {
    CacheConfig& cache = config.cache;
    const int64_t most_blocks = std::numeric_limits<int32_t>::max() / cache.block_size;
    cache.num_host_blocks =
        static_cast<int>(parseWhole("--host-blocks", host_blocks, 0, most_blocks, 0));
    cache.max_len = static_cast<int>(
        parseWhole("--max-len", max_len, 1, std::numeric_limits<int32_t>::max(), 0));
    cache.slab_per_request = slab_length == "request";
    if (layout == "slab") {
        cache.layout = CacheLayout::kSlab;
    } else if (max_len || slab_length) {
        throw EngineError(ErrorKind::kBadArgument,
                          std::string(max_len ? "--max-len" : "--slab-length") +
                              " is the length that slabs are cut for; add --layout slab");
    }
    if (cache.slab_per_request && max_len) {
        throw EngineError(ErrorKind::kBadArgument,
                          "--max-len is one length for all slabs; leave it out with --slab-length "
                          "request");
    }
    if (preempt == "swap" && cache.num_host_blocks == 0) {
        throw EngineError(ErrorKind::kBadArgument,
                          "--preempt swap needs a place to swap to; add --host-blocks N");
    }
    // Who gives a host pool wants it used.
    const bool swaps = preempt ? *preempt == "swap" : cache.num_host_blocks > 0;
    config.preempt = swaps ? PreemptionKind::kSwap : PreemptionKind::kRecompute;
}

void checkTracePath(const std::optional<std::string>& trace,
                    const std::vector<std::string>& inputs) {
    if (!trace) return;
    checkOutputName("--trace", *trace);
    for (const std::string& input : inputs) {
        std::error_code error;
        if (!input.empty() && std::filesystem::equivalent(*trace, input, error)) {
            throw EngineError(ErrorKind::kBadArgument,
                              "--trace names a file that the run reads; give the trace a name of "
                              "its own");
        }
    }
}

void addScheduleOptions(CLI::App& app, ScheduleOptions& options) {
    addChoice(app, "--layout", &options.layout, {"paged", "slab"}, {},
              "how the pool is cut, default paged");
    app.add_option("--max-len", options.max_len,
                   "tokens that a slab is cut for (default: the longest request)")
        ->type_name("N");
    addChoice(app, "--slab-length", &options.slab_length, {"max", "request"}, {},
              "what a slab is cut for, default max: --max-len, one length for all; request: what "
              "its own request may grow to");
    app.add_option("--host-blocks", options.host_blocks,
                   "blocks of the host pool for swapped-out sequences, default 0; stays empty with "
                   "--preempt recompute")
        ->type_name("N");
    addChoice(app, "--preempt", &options.preempt, {"swap", "recompute"}, {},
              "what becomes of a sequence whose blocks another one needs, default recompute, with "
              "--host-blocks swap");
}

void addDrawOptions(CLI::App& app, DrawOptions& options) {
    app.add_option("--temperature", options.temperature, "0 (default) takes the best token")
        ->type_name("T");
    app.add_option("--top-k", options.top_k,
                   "with --temperature: draw among the K best; 0 (default): all")
        ->type_name("K");
    app.add_option("--top-p", options.top_p,
                   "with --temperature: draw among the best whose probabilities reach P, default 1")
        ->type_name("P");
}

void addEngineOptions(CLI::App& app, EngineOptions& options) {
    app.add_option("--model", options.model, "GGUF file (default: the bundled model)")
        ->type_name("F.gguf");
    addChoice(app, "--backend", &options.backend, {"auto", "cpu", "cuda", "simt"}, {},
              "where the model runs: auto takes a GPU if there is one, and the CPU when it fails; "
              "simt runs the CUDA kernels on the CPU, slowly, to check and to show them");
    app.add_flag("--cpu-fallback", options.cpu_fallback,
                 "with --backend cuda: go on on the CPU when the GPU cannot be used or fails");
    addChoice(app, "--kv-dtype", &options.kv_dtype, {"f32", "f16", "bf16", "int8"}, {},
              "storage of K and V, default f16");
    app.add_option("--block-size", options.block_size, "tokens per block, 1 to 256, default 16")
        ->type_name("B");
    app.add_option("--blocks", options.blocks, "blocks in the pool (default: enough)")
        ->type_name("N");
    app.add_option("--threads", options.threads,
                   "CPU threads (default: one per core); not for cuda")
        ->type_name("N");
    app.add_option("--token-budget", options.token_budget, "tokens of one step, default 512")
        ->type_name("N");
}

}  // namespace kvlab
