// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/ids.h"
#include "engine/scheduling/step_totals.h"
#include "engine/scheduling/waste_account.h"

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
    int num_beams = 1;        // above 1: beam search, with 1 sample
    int max_tokens = 64;      // sampled per sequence
    bool ignore_eos = false;  // go on past the end-of-text token
    SamplingParams sampling;
    int priority = 0;  // higher goes first
};

// Everything that makes a run: model, pool, requests. The same struct serves window, command line
// and lessons.
struct RunConfig {
    std::string model_path;  // "": the bundled model
    EngineConfig engine;     // num_blocks 0: enough for the requests without preemption;
                             // slab with max_len 0: as long as the longest request
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
    int64_t bytes_moved = 0;   // between device and host, both ways
    int64_t preemptions = 0;   // of running sequences
    int64_t prompt_tokens = 0, decode_tokens = 0;
    // Mean over the steps: blocks that sharing saved, as a share of the block tables' entries.
    double sharing_saved = 0;
    std::optional<double> prefill_ms, decode_ms, tokens_per_s;
};

// Sequences by request and sample; beams best first, by the sum of their log-probabilities.
struct RunResult {
    std::vector<std::string> texts;               // per sequence, sampled part
    std::vector<std::vector<TokenId>> token_ids;  // per sequence, sampled part
    // Per sequence: natural logarithm of a sampled token's probability, mean over its tokens.
    std::vector<double> mean_log_probability;
    int best = 0;  // sequence with the highest mean (best-of-n); beams: the first, by their sum
    WasteAccount waste;
    StepTotals steps;
    RunMetrics metrics;  // after the last step, before a sequence that stopped in it is freed
    std::vector<std::string> messages;  // as SessionCallbacks::on_message was told
    bool cancelled = false;
};

}  // namespace kvlab
