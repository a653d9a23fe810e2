// SPDX-License-Identifier: MIT
#pragma once

#include "engine/model/weights.h"
#include "kernels/reference/llama_reference.h"

namespace kvlab {

// An engine's weights as the dense reference takes them; they must outlive it.
inline ReferenceWeights reference(const WeightMatrix& matrix) { return {matrix.data, matrix.type}; }

inline LlamaReferenceModel reference(const ModelWeights& weights) {
    const ModelConfig& c = weights.config;
    LlamaReferenceModel model;
    model.vocab_size = c.vocab_size;
    model.dim = c.embedding_dim;
    model.num_heads = c.num_heads;
    model.num_kv_heads = c.num_kv_heads;
    model.head_dim = c.head_dim;
    model.feed_forward_dim = c.feed_forward_dim;
    model.rope_dim = c.rope_dim;
    model.rope_base = c.rope_base;
    model.rope_style = c.rope_style;
    model.rope_scale = c.rope_scale;
    model.rope_divisors.assign(c.rope_divisors.begin(), c.rope_divisors.end());
    model.norm_epsilon = c.rms_epsilon;
    model.embedding = reference(weights.token_embedding);
    for (const LayerWeights& layer : weights.layers) {
        model.layers.push_back(
            {reference(layer.attention_norm), reference(layer.query), reference(layer.key),
             reference(layer.value), reference(layer.output), reference(layer.ffn_norm),
             reference(layer.gate), reference(layer.up), reference(layer.down),
             reference(layer.query_bias), reference(layer.key_bias), reference(layer.value_bias)});
        model.layers.back().window = c.window(static_cast<int>(model.layers.size()) - 1);
    }
    model.output_norm = reference(weights.output_norm);
    model.head = reference(weights.output);
    return model;
}

}  // namespace kvlab
