// SPDX-License-Identifier: MIT
#include "engine/model/transformer.h"

#include <algorithm>
#include <cmath>

#include "engine/error.h"
#include "kernels/cpu/vector_paths.h"

namespace kvlab {

namespace {

std::vector<float> widened(const WeightMatrix& vector) {
    std::vector<float> values(static_cast<size_t>(vector.num_cols));
    vectorPaths().dequantise(vector.data, vector.type, vector.num_cols, values.data());
    return values;
}

}  // namespace

Transformer::Transformer(std::shared_ptr<const ModelWeights> weights, Backend& backend)
    : weights_(std::move(weights)), backend_(backend) {
    for (const LayerWeights& layer : weights_->layers) {
        norms_.push_back(widened(layer.attention_norm));
        norms_.push_back(widened(layer.ffn_norm));
    }
    norms_.push_back(widened(weights_->output_norm));
}

const float* Transformer::forward(const StepBatch& batch, const PagedKvView& kv) {
    const ModelConfig& c = weights_->config;
    const Ops& ops = backend_.ops();
    ExecutionContext& context = backend_.context();
    const int n = batch.numTokens();
    const size_t rows = static_cast<size_t>(n);
    const int query_dim = c.num_heads * c.head_dim;
    const int kv_dim = c.num_kv_heads * c.head_dim;
    hidden_.resize(rows * c.embedding_dim);
    normed_.resize(rows * c.embedding_dim);
    query_.resize(rows * query_dim);
    attention_.resize(rows * query_dim);
    key_.resize(rows * kv_dim);
    value_.resize(rows * kv_dim);
    gate_.resize(rows * c.feed_forward_dim);
    up_.resize(rows * c.feed_forward_dim);

    const auto normalise = [&](size_t norm, const float* input, float* output, int num_rows) {
        RmsNormParams p;
        p.input = input;
        p.weight = norms_[norm].data();
        p.output = output;
        p.num_rows = num_rows;
        p.dim = c.embedding_dim;
        p.epsilon = c.rms_epsilon;
        ops.rms_norm(p, context);
    };
    const auto multiply = [&](const float* input, const WeightMatrix& weight, float* output,
                              int num_rows, bool accumulate, const WeightMatrix& bias = {}) {
        MatmulParams p;
        p.input = input;
        p.weight = weight.data;
        p.type = weight.type;
        p.bias = static_cast<const float*>(bias.data);
        p.output = output;
        p.num_rows = num_rows;
        p.num_inputs = weight.num_cols;
        p.num_outputs = weight.num_rows;
        p.accumulate = accumulate;
        ops.matmul(p, context);
    };
    const auto rotate = [&](float* data, int num_heads) {
        RopeParams p;
        p.data = data;
        p.positions = batch.positions.data();
        p.num_tokens = n;
        p.num_heads = num_heads;
        p.head_dim = c.head_dim;
        p.rope_dim = c.rope_dim;
        p.base = c.rope_base;
        p.scale = c.rope_scale;
        p.divisors = c.rope_divisors.empty() ? nullptr : c.rope_divisors.data();
        p.style = c.rope_style;
        ops.rope(p, context);
    };

    EmbeddingParams embedding;
    embedding.table = weights_->token_embedding.data;
    embedding.type = weights_->token_embedding.type;
    embedding.token_ids = batch.token_ids.data();
    embedding.output = hidden_.data();
    embedding.num_tokens = n;
    embedding.vocab_size = c.vocab_size;
    embedding.dim = c.embedding_dim;
    ops.embedding(embedding, context);

    for (int layer = 0; layer < c.num_layers; ++layer) {
        const LayerWeights& w = weights_->layers[static_cast<size_t>(layer)];
        normalise(static_cast<size_t>(2 * layer), hidden_.data(), normed_.data(), n);
        multiply(normed_.data(), w.query, query_.data(), n, false, w.query_bias);
        multiply(normed_.data(), w.key, key_.data(), n, false, w.key_bias);
        multiply(normed_.data(), w.value, value_.data(), n, false, w.value_bias);
        rotate(query_.data(), c.num_heads);
        rotate(key_.data(), c.num_kv_heads);

        KvCacheWriteParams write;
        write.key = key_.data();
        write.value = value_.data();
        write.slot_mapping =
            batch.slot_mapping.data() + int64_t{layer} * c.num_kv_heads * batch.plane_stride;
        write.plane_stride = batch.plane_stride;
        write.num_tokens = n;
        write.layer = layer;
        write.kv = kv;
        ops.kv_cache_write(write, context);

        PagedAttentionParams attend;
        attend.query = query_.data();
        attend.kv = kv;
        attend.layer = layer;
        attend.window = c.window(layer);
        attend.block_tables = batch.block_tables.data();
        attend.max_blocks_per_seq = batch.max_blocks_per_seq;
        attend.row_to_seq = batch.row_to_seq.data();
        attend.context_lens = batch.context_lens.data();
        attend.num_rows = n;
        attend.num_seqs = batch.num_seqs;
        attend.num_heads = c.num_heads;
        attend.scale = 1.f / std::sqrt(static_cast<float>(c.head_dim));
        attend.output = attention_.data();
        ops.paged_attention(attend, context);
        multiply(attention_.data(), w.output, hidden_.data(), n, true);

        normalise(static_cast<size_t>(2 * layer + 1), hidden_.data(), normed_.data(), n);
        multiply(normed_.data(), w.gate, gate_.data(), n, false);
        multiply(normed_.data(), w.up, up_.data(), n, false);
        SiluMulParams silu;
        silu.gate = gate_.data();
        silu.up = up_.data();
        silu.output = gate_.data();
        silu.num_values = static_cast<int64_t>(rows) * c.feed_forward_dim;
        ops.silu_mul(silu, context);
        multiply(gate_.data(), w.down, hidden_.data(), n, true);
    }

    const int num_logit_rows = static_cast<int>(batch.logit_rows.size());
    for (int i = 0; i < num_logit_rows; ++i) {
        // Ascending rows: row i is never behind the row that is moved to it.
        std::copy_n(
            hidden_.data() + int64_t{batch.logit_rows[static_cast<size_t>(i)]} * c.embedding_dim,
            c.embedding_dim, hidden_.data() + int64_t{i} * c.embedding_dim);
    }
    logits_.resize(static_cast<size_t>(num_logit_rows) * c.vocab_size);
    if (num_logit_rows > 0) {
        normalise(norms_.size() - 1, hidden_.data(), normed_.data(), num_logit_rows);
        multiply(normed_.data(), weights_->output, logits_.data(), num_logit_rows, false);
    }
    return logits_.data();
}

}  // namespace kvlab
