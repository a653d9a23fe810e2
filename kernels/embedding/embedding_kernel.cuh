// SPDX-License-Identifier: MIT
#pragma once

// output[t] = table[token_ids[t]], widened to f32; NaN where there is no such row.
//
// In   table [vocab_size, dim] of a TensorType; token_ids [num_tokens]
// Out  output [num_tokens, dim] f32
//
// Who owns what
//   grid x   token t
//   grid y   1,024 values of its row
//   thread   values t, t + 256, t + 512, t + 768 of them
//
// Shared memory: none.
//
// Why so: it moves one row a token, a thousandth of what the step's weights are, so each thread
// works one value out by the description of the format and nothing is shared. The same kernel picks
// rows of an f32 matrix (the last token of each sequence before the language model head).

#include <cmath>
#include <cstdint>

#include "kernels/embedding/embedding.h"
#include "kernels/launch_check.h"
#include "kernels/simt/simt.h"
#include "kernels/stored_values.cuh"

namespace kvlab {

constexpr int kEmbeddingThreads = 256;
constexpr int kEmbeddingValues = 1024;  // of a thread block

template <TensorType kType>
__global__ void __launch_bounds__(kEmbeddingThreads) embeddingKernel(EmbeddingParams params) {
    waitForPredecessors();
    const int64_t token = static_cast<int64_t>(blockIdx.x);
    const int32_t id = params.token_ids[token];
    const bool exists = id >= 0 && id < params.vocab_size;
    const uint8_t* const row = static_cast<const uint8_t*>(params.table) +
                               (exists ? id : 0) * tensorBytes(kType, params.dim);
    float* const output = params.output + token * params.dim;
    const int first = static_cast<int>(blockIdx.y) * kEmbeddingValues;
    KVLAB_UNROLL
    for (int j = 0; j < kEmbeddingValues; j += kEmbeddingThreads) {
        const int i = first + j + static_cast<int>(threadIdx.x);
        if (i < params.dim) output[i] = exists ? storedValue<kType>(row, i) : NAN;
    }
}

namespace embedding_detail {

inline constexpr LaunchCheck require{"embedding"};

template <TensorType kType>
void launch(const EmbeddingParams& params, void* stream) {
    const dim3 grid(static_cast<unsigned>(params.num_tokens),
                    static_cast<unsigned>((params.dim + kEmbeddingValues - 1) / kEmbeddingValues));
    KVLAB_LAUNCH_EARLY(embeddingKernel<kType>, grid, kEmbeddingThreads, 0, stream, params);
}

}  // namespace embedding_detail

// Checks the shapes and launches; no tokens, no launch. `stream` is a cudaStream_t.
inline void launchEmbedding(const EmbeddingParams& params, void* stream) {
    using namespace embedding_detail;
    require(params.num_tokens >= 0, "num_tokens is negative");
    if (params.num_tokens == 0) return;
    require(params.table != nullptr && params.token_ids != nullptr && params.output != nullptr,
            "a pointer is null");
    require(params.vocab_size >= 1, "the table is empty");
    require(params.dim >= 1 && params.dim % tensorBlockValues(params.type) == 0,
            "dim must be a whole number of the type's blocks");
    require(isAligned(params.table, params.type == TensorType::kF32 ? 4 : 2),
            "the table is not aligned");
    withTensorType(params.type, [&](auto type) { launch<type.value>(params, stream); });
}

}  // namespace kvlab
