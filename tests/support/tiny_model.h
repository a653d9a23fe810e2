// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "engine/config.h"
#include "engine/model/weights.h"

namespace kvlab {

// A generated decoder of a few thousand parameters.
inline ModelConfig tinyConfig(int num_layers = 2,
                              int num_heads = 4,
                              int num_kv_heads = 2,
                              int head_dim = 8) {
    ModelConfig config;
    config.name = "tiny";
    config.architecture = "llama";
    config.num_layers = num_layers;
    config.num_heads = num_heads;
    config.num_kv_heads = num_kv_heads;
    config.head_dim = head_dim;
    config.rope_dim = head_dim;
    config.embedding_dim = 24;
    config.feed_forward_dim = 40;
    config.vocab_size = 61;
    config.context_len = 512;
    return config;
}

inline std::shared_ptr<const ModelWeights> tinyModel(uint64_t seed = 1) {
    return ModelWeights::random(tinyConfig(), seed, true, DataType::kF32);
}

}  // namespace kvlab
