// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/execution_context.h"

namespace kvlab {

// Which two values of a head turn together, i < rope_dim / 2.
enum class RopeStyle : uint8_t {
    kInterleaved,  // 2i and 2i + 1: `llama` GGUF files
    kHalfSplit,    // i and i + rope_dim / 2: `qwen2` GGUF files, GPT-NeoX
};

// Rotary position embedding, in place, on pairs of each head: pair i turns by
//
//   position * scale * base^(-2i / rope_dim) / divisors[i]           (Su et al. 2021)
//
// `scale` below 1 stretches all pairs alike (linear interpolation, Chen et al. 2023); the divisors
// stretch each by its own factor (Llama 3.1, `rope_freqs.weight` in its GGUF files). Values past
// rope_dim stay. Contract: each pair on its own; never depends on batch or threads, on CUDA
// neither.
struct RopeParams {
    float* data = nullptr;  // [num_tokens, num_heads, head_dim]
    // [num_tokens, num_more_heads, head_dim], or none: turned alike (keys beside queries).
    float* more_data = nullptr;
    const int32_t* positions = nullptr;  // [num_tokens]
    int num_tokens = 0;
    int num_heads = 0;
    int num_more_heads = 0;
    int head_dim = 0;
    int rope_dim = 0;  // even, <= head_dim; CUDA: <= 256
    float base = 10000.f;
    float scale = 1.f;
    const float* divisors = nullptr;  // [rope_dim / 2], above 0, or none: all 1
    RopeStyle style = RopeStyle::kInterleaved;
};

void ropeCpu(const RopeParams& params, ExecutionContext& context);
// Through kernels/simt: the CUDA source, run thread block by thread block on the CPU.
void ropeSimt(const RopeParams& params, ExecutionContext& context);
// Pointers are device memory. Present when KVLAB_CUDA is on.
void ropeCuda(const RopeParams& params, ExecutionContext& context);

}  // namespace kvlab
