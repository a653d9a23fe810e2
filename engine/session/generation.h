// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/ids.h"

namespace kvlab {

// One request: a prompt and how many samples to draw from it. Exactly one of the three prompt
// fields is set.
struct GenerationRequest {
    std::optional<std::string> prompt_text;
    std::optional<int>
        prompt_num_tokens;  // the first N tokens (begin token included) of a corpus document
    std::optional<std::vector<TokenId>> prompt_tokens;
    uint64_t corpus_seed = 0;  // of the document for prompt_num_tokens
    int num_samples = 1;
    int max_tokens = 64;      // sampled per sequence
    bool ignore_eos = false;  // go on past the end-of-text token
    SamplingParams sampling;
};

// Everything that makes a run: model, pool, requests. The same struct serves window, command line
// and lessons.
struct RunConfig {
    std::string model_path;  // "": the bundled model
    EngineConfig engine;     // num_blocks 0: enough for the requests
    std::vector<GenerationRequest> requests;
    std::string trace_path;  // "": none is written
    std::string title;
};

// What a run measured. A value that was not measured is empty, never 0.
struct RunMetrics {
    int64_t blocks_held = 0, tokens_held = 0, slots_allocated = 0, slots_unused = 0;
    int64_t blocks_unshared = 0, tokens_unshared = 0, copy_on_write = 0;
    int64_t blocks_peak = 0;
    int64_t device_bytes = 0;  // of the pool
    int64_t prompt_tokens = 0, decode_tokens = 0;
    std::optional<double> prefill_ms, decode_ms, tokens_per_s;
};

struct RunResult {
    std::vector<std::string> texts;               // per sequence, sampled part
    std::vector<std::vector<TokenId>> token_ids;  // per sequence, sampled part
    RunMetrics metrics;  // after the last step, before a sequence that stopped in it is freed
    bool cancelled = false;
};

}  // namespace kvlab
