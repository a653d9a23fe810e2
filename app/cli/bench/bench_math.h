// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "engine/config.h"
#include "engine/model/weights.h"
#include "engine/scheduling/percentiles.h"

namespace kvlab {

// What the benches compute from what they have timed.

// Of an even number of values: the mean of the two in the middle.
inline double median(std::vector<double> values) { return percentileOf(values, 50); }

// Multiply-adds of one decoded token whose row sees `context` tokens: every matrix once, and a
// product with K and one with V for each query head and token of the context. Norms, RoPE and
// softmax are left out: this is a floor.
inline int64_t multiplyAddsPerToken(const ModelConfig& c, int64_t context) {
    const int64_t query_dim = int64_t{c.num_heads} * c.head_dim;
    const int64_t kv_dim = int64_t{c.num_kv_heads} * c.head_dim;
    const int64_t layer = c.embedding_dim * (2 * query_dim + 2 * kv_dim) +
                          int64_t{3} * c.embedding_dim * c.feed_forward_dim;
    return c.num_layers * (layer + 2 * query_dim * context) +
           int64_t{c.vocab_size} * c.embedding_dim;
}

// Bytes of the matrices that every step reads once, in their stored type. Of the embedding only
// when it is the head too: a step reads few of its rows.
inline int64_t matrixBytesPerStep(const ModelWeights& weights) {
    const auto bytes = [](const WeightMatrix& m) {
        return tensorBytes(m.type, int64_t{m.num_rows} * m.num_cols);
    };
    int64_t sum = bytes(weights.output);
    for (const LayerWeights& w : weights.layers) {
        for (const WeightMatrix* m :
             {&w.query, &w.key, &w.value, &w.output, &w.gate, &w.up, &w.down}) {
            sum += bytes(*m);
        }
    }
    return sum;
}

// Tokens a second when a step of `num_sequences` does `work` (of all its tokens: multiply-adds or
// bytes) at `rate` a second and nothing else.
inline double tokensPerSecondAtRate(int num_sequences, double work, double rate) {
    return num_sequences * rate / work;
}

}  // namespace kvlab
