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
    TensorType type = TensorType::kF32;
    int num_rows = 0;
    int num_cols = 0;
};

// Vectors (norms, biases) are always f32: other stored types are widened when the file is read.
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
    WeightMatrix query_bias;      // [num_heads * head_dim]; no data without has_attention_bias
    WeightMatrix key_bias;        // [num_kv_heads * head_dim]
    WeightMatrix value_bias;      // [num_kv_heads * head_dim]
};

// Weights of a decoder of the llama (mistral) or qwen2 architecture, as the file stores them. Q and
// K rows are in the order that config.rope_style turns. The head is tied to the embedding when the
// file has no output.weight: then `output.data == token_embedding.data`.
struct ModelWeights {
    ModelConfig config;
    WeightMatrix token_embedding;  // [vocab_size, embedding_dim]
    std::vector<LayerWeights> layers;
    WeightMatrix output_norm;              // [embedding_dim]
    WeightMatrix output;                   // [vocab_size, embedding_dim]
    std::shared_ptr<const void> storage;   // keeps the mapped file or the generated numbers alive
    std::shared_ptr<const GgufFile> file;  // empty for generated weights

    // Hexadecimal SHA-256 of the file; "" for generated weights. The first call reads the whole
    // file, so only what writes the name down asks for it.
    std::string sha256() const { return file ? file->sha256() : std::string(); }

    // Throws kBadFile when a key or tensor is missing or impossible, or a tensor's shape
    // contradicts the configuration (names the tensor and both shapes); kUnsupported for another
    // architecture or RoPE scaling, which it names, and for what this engine would otherwise leave
    // out silently (other biases, experts). Matrices stay in the mapped file.
    static std::shared_ptr<const ModelWeights> fromGguf(std::shared_ptr<const GgufFile> file);
    // The configuration alone, after the same checks.
    static ModelConfig configOf(std::shared_ptr<const GgufFile> file);
    // Random weights of a given shape for tests and benchmarks: matrices of mean 0 and variance
    // 1/fan-in (normal but for the far tails) stored as `type`, norm vectors near 1, biases (where
    // the configuration has them) near 0. The same numbers for the same arguments on every machine.
    // Throws kBadArgument for an impossible shape, kOutOfMemory.
    static std::shared_ptr<const ModelWeights> random(const ModelConfig& config,
                                                      uint64_t seed,
                                                      bool tied_output,
                                                      TensorType type);
    static std::shared_ptr<const ModelWeights> random(const ModelConfig& config,
                                                      uint64_t seed,
                                                      bool tied_output,
                                                      DataType dtype) {
        return random(config, seed, tied_output, tensorTypeOf(dtype));
    }
};

// Divisors of the RoPE frequencies by Llama 3.1's rule (Meta's llama-models, apply_scaling): waves
// shorter than original_context / high_freq_factor stay, those longer than original_context /
// low_freq_factor are stretched `factor` times, and between them the stretch goes over smoothly.
// [rope_dim / 2]; the same numbers as rope_freqs.weight in a converted file.
std::vector<float> llama3RopeDivisors(float rope_base,
                                      int rope_dim,
                                      double factor,
                                      double low_freq_factor,
                                      double high_freq_factor,
                                      double original_context);

}  // namespace kvlab
