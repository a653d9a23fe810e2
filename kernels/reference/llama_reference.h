// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "kernels/data_type.h"
#include "kernels/rope/rope.h"
#include "kernels/tensor_type.h"

namespace kvlab {

// Weights that lie elsewhere, [outputs, inputs], rows contiguous, or a vector.
struct ReferenceWeights {
    const void* data = nullptr;
    TensorType type = TensorType::kF32;
};

struct LlamaReferenceLayer {
    ReferenceWeights attention_norm;     // [dim]
    ReferenceWeights query;              // [num_heads * head_dim, dim]
    ReferenceWeights key;                // [num_kv_heads * head_dim, dim]
    ReferenceWeights value;              // [num_kv_heads * head_dim, dim]
    ReferenceWeights output;             // [dim, num_heads * head_dim]
    ReferenceWeights feed_forward_norm;  // [dim]
    ReferenceWeights gate;               // [feed_forward_dim, dim]
    ReferenceWeights up;                 // [feed_forward_dim, dim]
    ReferenceWeights down;               // [dim, feed_forward_dim]
    ReferenceWeights query_bias;         // [num_heads * head_dim], or none; so the next two
    ReferenceWeights key_bias;           // [num_kv_heads * head_dim]
    ReferenceWeights value_bias;         // [num_kv_heads * head_dim]
    int window = 0;                      // positions that a row sees, its own included; 0: all
};

struct LlamaReferenceModel {
    int vocab_size = 0;
    int dim = 0;
    int num_heads = 0;
    int num_kv_heads = 0;
    int head_dim = 0;
    int feed_forward_dim = 0;
    int rope_dim = 0;  // even, <= head_dim
    double rope_base = 10000.;
    RopeStyle rope_style = RopeStyle::kInterleaved;
    double rope_scale = 1.;
    std::vector<double> rope_divisors;  // [rope_dim / 2], or empty
    double norm_epsilon = 1e-5;
    ReferenceWeights embedding;  // [vocab_size, dim]
    std::vector<LlamaReferenceLayer> layers;
    ReferenceWeights output_norm;  // [dim]
    ReferenceWeights head;         // [vocab_size, dim]; the embedding's pointer where they are tied
};

// A whole decoder of the Llama or Qwen 2 architecture in double precision: plain loops, no cache,
// no paging, no batch. The yardstick for every backend's forward pass.
//
//   x = embedding[token]
//   each layer:  n = rmsNorm(x) * attention_norm
//                x += output · attention(rope(query · n + bq), rope(key · n + bk), value · n + bv)
//                m = rmsNorm(x) * feed_forward_norm
//                x += down · (silu(gate · m) * (up · m))
//   logits = head · (rmsNorm(x) * output_norm)
//
// RoPE turns pair i of each head by position * rope_scale * rope_base^(-2i / rope_dim) /
// rope_divisors[i]; the pairs are adjacent or half a head apart, as rope_style says. The sequence
// starts at position 0. Weights may be stored in any TensorType; they are read one value at a time
// by dequantise_reference.h.
//
// With `kv_dtype`, K (after RoPE) and V are rounded to it before attention, as a paged pool holds
// them: what is left of a backend's difference is then its own arithmetic.
//
// Returns the logits, [num_tokens, vocab_size] or, with `last_only`, [vocab_size] of the last
// position. Throws std::invalid_argument on sizes that do not fit together and ids outside the
// vocabulary.
std::vector<double> llamaReference(const LlamaReferenceModel& model,
                                   const std::vector<int32_t>& token_ids,
                                   bool last_only = false,
                                   std::optional<DataType> kv_dtype = std::nullopt);

// Called for each layer with K (after RoPE) and V of all tokens as the reference computes them,
// [num_tokens, num_kv_heads, head_dim] each. Attention reads what it leaves there.
using KvSubstitute =
    std::function<void(int layer, std::vector<double>& keys, std::vector<double>& values)>;

// The same over K and V of another maker. A value beside the edge between two of a type's steps
// rounds here and there to different sides, and in int8 that moves logits by more than 1e-3: so a
// backend is compared over what it has stored itself, and what it has stored with the exact K and
// V.
std::vector<double> llamaReference(const LlamaReferenceModel& model,
                                   const std::vector<int32_t>& token_ids,
                                   bool last_only,
                                   const KvSubstitute& substitute);

}  // namespace kvlab
