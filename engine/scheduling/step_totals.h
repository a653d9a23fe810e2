// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/trace/event.h"

namespace kvlab {

// The StepStats of a run, summed. Times in ms.
struct StepTotals {
    int64_t num_steps = 0;
    int64_t prefill_tokens = 0, decode_tokens = 0;
    int64_t recomputed_tokens = 0;  // of the prefill tokens
    int64_t attention_bytes = 0;    // K/V that attention read
    int64_t attention_bytes_repeated = 0;
    int64_t max_attention_bytes = 0;  // in one step
    int64_t num_waiting = 0;          // requests in the queue after a step
    int64_t max_waiting = 0;          // after one step
    double total_ms = 0;
    double attention_ms = 0, matmul_ms = 0, sample_ms = 0, copy_ms = 0;

    // Norms, rotations, writing K and V, planning.
    double otherMs() const {
        return std::max(0.0, total_ms - attention_ms - matmul_ms - sample_ms - copy_ms);
    }
    double perStep(int64_t sum) const {
        return num_steps > 0 ? static_cast<double>(sum) / static_cast<double>(num_steps) : 0;
    }

    void add(const StepStats& stats) {
        ++num_steps;
        prefill_tokens += stats.num_prefill_tokens;
        decode_tokens += stats.num_decode_tokens;
        recomputed_tokens += stats.num_recomputed_tokens;
        attention_bytes += stats.attention_bytes;
        attention_bytes_repeated += stats.attention_bytes_repeated;
        max_attention_bytes = std::max(max_attention_bytes, stats.attention_bytes);
        num_waiting += stats.num_waiting;
        max_waiting = std::max<int64_t>(max_waiting, stats.num_waiting);
        total_ms += stats.total_ms;
        attention_ms += stats.attention_ms;
        matmul_ms += stats.matmul_ms;
        sample_ms += stats.sample_ms;
        copy_ms += stats.copy_ms;
    }
};

}  // namespace kvlab
