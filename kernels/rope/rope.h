// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/execution_context.h"

namespace kvlab {

// Rotary position embedding, in place, on adjacent pairs (2i, 2i + 1) of each head as in `llama`
// GGUF files: the pair turns by position * base^(-2i / rope_dim)   (Su et al. 2021). Values past
// rope_dim stay. Contract: each pair on its own; never depends on batch or threads.
struct RopeParams {
    float* data = nullptr;               // [num_tokens, num_heads, head_dim]
    const int32_t* positions = nullptr;  // [num_tokens]
    int num_tokens = 0;
    int num_heads = 0;
    int head_dim = 0;
    int rope_dim = 0;  // even, <= head_dim
    float base = 10000.f;
};

void ropeCpu(const RopeParams& params, ExecutionContext& context);

}  // namespace kvlab
