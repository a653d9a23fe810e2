// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/execution_context.h"
#include "kernels/tensor_type.h"

namespace kvlab {

// output[t] = table[token_ids[t]], widened to f32.
// Contract: the same bits everywhere, CUDA included. A wrong id is the caller's fault on the CPU,
// refused by the simt launcher, and gives a row of NaN on CUDA, where the launcher sees no ids.
struct EmbeddingParams {
    const void* table = nullptr;         // [vocab_size, dim], rows contiguous, of type `type`
    TensorType type = TensorType::kF16;  // dim is a multiple of tensorBlockValues(type)
    const int32_t* token_ids = nullptr;  // [num_tokens], 0 … vocab_size - 1
    float* output = nullptr;             // [num_tokens, dim]
    int num_tokens = 0;
    int vocab_size = 0;
    int dim = 0;
};

void embeddingCpu(const EmbeddingParams& params, ExecutionContext& context);
// Through kernels/simt: the CUDA source, run thread block by thread block on the CPU.
void embeddingSimt(const EmbeddingParams& params, ExecutionContext& context);
// Pointers are device memory. Present when KVLAB_CUDA is on.
void embeddingCuda(const EmbeddingParams& params, ExecutionContext& context);

}  // namespace kvlab
