// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/model/gguf.h"

namespace kvlab {

// One matrix in its stored type, [num_rows (outputs), num_cols (inputs)], rows contiguous. A vector
// has one row.
struct WeightMatrix {
    const void* data = nullptr;
    DataType dtype = DataType::kF32;
    int num_rows = 0;
    int num_cols = 0;
};

// The norm vectors are always f32: other stored types are widened when the file is read.
struct LayerWeights {
    WeightMatrix attention_norm;  // [embedding_dim]
    WeightMatrix query;           // [num_heads * head_dim, embedding_dim]
    WeightMatrix key;             // [num_kv_heads * head_dim, embedding_dim]
    WeightMatrix value;           // [num_kv_heads * head_dim, embedding_dim]
    WeightMatrix output;          // [embedding_dim, num_heads * head_dim]
    WeightMatrix ffn_norm;        // [embedding_dim]
    WeightMatrix gate;            // [feed_forward_dim, embedding_dim]
    WeightMatrix up;              // [feed_forward_dim, embedding_dim]
    WeightMatrix down;            // [embedding_dim, feed_forward_dim]
};

// Weights of a Llama-architecture decoder. Q and K rows are in the order of `llama` GGUF files:
// RoPE turns adjacent pairs (2i, 2i + 1). The head is tied to the embedding when the file has no
// output.weight: then `output.data == token_embedding.data`.
struct ModelWeights {
    ModelConfig config;
    WeightMatrix token_embedding;  // [vocab_size, embedding_dim]
    std::vector<LayerWeights> layers;
    WeightMatrix output_norm;             // [embedding_dim]
    WeightMatrix output;                  // [vocab_size, embedding_dim]
    std::shared_ptr<const void> storage;  // keeps the mapped file or the generated numbers alive
    std::string sha256;                   // of the file; "" for generated weights

    // Throws kBadFile when a key or tensor is missing or impossible, or a tensor's shape
    // contradicts the configuration (names the tensor and both shapes); kUnsupported for another
    // architecture and for what this engine would otherwise leave out silently (biases, experts,
    // scaled RoPE).
    static std::shared_ptr<const ModelWeights> fromGguf(std::shared_ptr<const GgufFile> file);
    // Random weights of a given shape for tests and benchmarks: matrices of mean 0 and variance
    // 1/fan-in (normal but for the far tails), norm vectors near 1. The same numbers for the same
    // arguments on every machine. Throws kBadArgument for an impossible shape, kOutOfMemory.
    static std::shared_ptr<const ModelWeights> random(const ModelConfig& config,
                                                      uint64_t seed,
                                                      bool tied_output,
                                                      DataType dtype);
};

}  // namespace kvlab
