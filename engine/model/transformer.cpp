// SPDX-License-Identifier: MIT
#include "engine/model/transformer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include "kernels/cpu/vector_paths.h"

namespace kvlab {

namespace {

// Rounded up, so that a growing context changes it seldom, but within the tables' room.
int longestContext(const StepBatch& batch, int block_size) {
    constexpr int kStep = 256;
    int longest = 0;
    for (const int32_t len : batch.context_lens) longest = std::max(longest, len);
    return static_cast<int>(std::min((int64_t{longest} + kStep - 1) / kStep * kStep,
                                     int64_t{batch.max_blocks_per_seq} * block_size));
}

}  // namespace

Transformer::Transformer(std::shared_ptr<const ModelWeights> weights, Backend& backend)
    : weights_(std::move(weights)), backend_(backend) {
    const ModelWeights& w = *weights_;
    token_embedding_ = moved(w.token_embedding);
    for (const LayerWeights& layer : w.layers) {
        LayerWeights there;
        there.query = moved(layer.query);
        there.key = moved(layer.key);
        there.value = moved(layer.value);
        there.output = moved(layer.output);
        there.gate = moved(layer.gate);
        there.up = moved(layer.up);
        there.down = moved(layer.down);
        there.query_bias = moved(layer.query_bias);
        there.key_bias = moved(layer.key_bias);
        there.value_bias = moved(layer.value_bias);
        layers_.push_back(there);
        norms_.push_back(widened(layer.attention_norm));
        norms_.push_back(widened(layer.ffn_norm));
    }
    norms_.push_back(widened(w.output_norm));
    output_ = w.output.data == w.token_embedding.data ? token_embedding_ : moved(w.output);
    if (!w.config.rope_divisors.empty()) {
        residents_.push_back(backend_.resident(
            w.config.rope_divisors.data(),
            static_cast<int64_t>(w.config.rope_divisors.size() * sizeof(float)), "the weights"));
        rope_divisors_ = reinterpret_cast<const float*>(residents_.back().get());
    }
}

WeightMatrix Transformer::moved(const WeightMatrix& matrix) {
    if (matrix.data == nullptr) return matrix;
    const int64_t num_values = int64_t{matrix.num_rows} * matrix.num_cols;
    residents_.push_back(
        backend_.resident(matrix.data, tensorBytes(matrix.type, num_values), "the weights"));
    WeightMatrix there = matrix;
    there.data = residents_.back().get();
    return there;
}

const float* Transformer::widened(const WeightMatrix& vector) {
    std::vector<float>& values = widened_norms_.emplace_back(static_cast<size_t>(vector.num_cols));
    vectorPaths().dequantise(vector.data, vector.type, vector.num_cols, values.data());
    residents_.push_back(backend_.resident(
        values.data(), static_cast<int64_t>(values.size() * sizeof(float)), "the weights"));
    return reinterpret_cast<const float*>(residents_.back().get());
}

void Transformer::grow(Buffer& buffer, int64_t num_values) {
    if (num_values <= buffer.num_values) return;
    buffer.num_values = 0;
    buffer.memory.reset();
    buffer.memory = backend_.allocate(num_values * int64_t{sizeof(float)}, "a step");
    buffer.num_values = num_values;
}

const float* Transformer::forward(const StepBatch& batch, const PagedKvView& kv) {
    const ModelConfig& c = weights_->config;
    const int64_t n = batch.numTokens();
    const int64_t num_logits = static_cast<int64_t>(batch.logit_rows.size()) * c.vocab_size;
    grow(hidden_, n * c.embedding_dim);
    grow(normed_, n * c.embedding_dim);
    grow(query_, n * c.num_heads * c.head_dim);
    grow(attention_, n * c.num_heads * c.head_dim);
    grow(key_, n * c.num_kv_heads * c.head_dim);
    grow(value_, n * c.num_kv_heads * c.head_dim);
    grow(gate_, n * c.feed_forward_dim);
    grow(up_, n * c.feed_forward_dim);
    grow(logits_, num_logits);

    const std::span<const int32_t> arrays[] = {
        batch.token_ids,  batch.positions,    batch.slot_mapping, batch.block_tables,
        batch.row_to_seq, batch.context_lens, batch.logit_rows};
    const int32_t* places[std::size(arrays)] = {};
    backend_.upload(arrays, places);
    const Arrays there{places[0], places[1], places[2], places[3], places[4], places[5], places[6]};

    // What the launches follow from: the arrays' sizes and all addresses; for attention also which
    // rows belong together and, roughly, the longest context.
    const auto address = [](const void* p) {
        return static_cast<int64_t>(std::bit_cast<intptr_t>(p));
    };
    std::vector<int64_t> key = {n,
                                batch.num_seqs,
                                batch.max_blocks_per_seq,
                                batch.plane_stride,
                                static_cast<int64_t>(batch.logit_rows.size()),
                                longestContext(batch, kv.block_size),
                                address(kv.data),
                                address(places[0])};
    for (const Buffer* buffer :
         {&hidden_, &normed_, &query_, &attention_, &key_, &value_, &gate_, &up_, &logits_}) {
        key.push_back(address(buffer->data()));
    }
    key.insert(key.end(), batch.row_to_seq.begin(), batch.row_to_seq.end());
    backend_.runRepeatable(key, [&] { run(batch, there, kv); });
    return backend_.toHost(logits_.data(), num_logits);
}

// Nothing here may follow from anything that the key above does not know.
void Transformer::run(const StepBatch& batch, const Arrays& arrays, const PagedKvView& kv) {
    const ModelConfig& c = weights_->config;
    const Ops& ops = backend_.ops();
    ExecutionContext& context = backend_.context();
    const int n = batch.numTokens();

    // Products of normalised rows, still without their matrices.
    const auto normed = [&](size_t norm, const float* input, int num_rows) {
        MatmulGroupParams p;
        p.input = input;
        p.norm_weight = norms_[norm];
        p.norm_epsilon = c.rms_epsilon;
        p.normed = normed_.data();
        p.num_rows = num_rows;
        p.num_inputs = c.embedding_dim;
        return p;
    };
    const auto addProduct = [&](const float* input, const WeightMatrix& weight) {
        MatmulParams p;
        p.input = input;
        p.weight = weight.data;
        p.type = weight.type;
        p.output = hidden_.data();
        p.num_rows = n;
        p.num_inputs = weight.num_cols;
        p.num_outputs = weight.num_rows;
        p.accumulate = true;
        ops.matmul(p, context);
    };
    const auto part = [](const WeightMatrix& weight, float* output, const WeightMatrix& bias = {}) {
        return MatmulPart{weight.data, weight.type, static_cast<const float*>(bias.data), output,
                          weight.num_rows};
    };

    EmbeddingParams embedding;
    embedding.table = token_embedding_.data;
    embedding.type = token_embedding_.type;
    embedding.token_ids = arrays.token_ids;
    embedding.output = hidden_.data();
    embedding.num_tokens = n;
    embedding.vocab_size = c.vocab_size;
    embedding.dim = c.embedding_dim;
    ops.embedding(embedding, context);

    for (int layer = 0; layer < c.num_layers; ++layer) {
        const LayerWeights& w = layers_[static_cast<size_t>(layer)];
        MatmulGroupParams project = normed(static_cast<size_t>(2 * layer), hidden_.data(), n);
        project.parts[0] = part(w.query, query_.data(), w.query_bias);
        project.parts[1] = part(w.key, key_.data(), w.key_bias);
        project.parts[2] = part(w.value, value_.data(), w.value_bias);
        project.num_parts = 3;
        ops.matmul_group(project, context);

        RopeParams rotate;
        rotate.data = query_.data();
        rotate.more_data = key_.data();
        rotate.positions = arrays.positions;
        rotate.num_tokens = n;
        rotate.num_heads = c.num_heads;
        rotate.num_more_heads = c.num_kv_heads;
        rotate.head_dim = c.head_dim;
        rotate.rope_dim = c.rope_dim;
        rotate.base = c.rope_base;
        rotate.scale = c.rope_scale;
        rotate.divisors = rope_divisors_;
        rotate.style = c.rope_style;
        ops.rope(rotate, context);

        KvCacheWriteParams write;
        write.key = key_.data();
        write.value = value_.data();
        write.slot_mapping =
            arrays.slot_mapping + int64_t{layer} * c.num_kv_heads * batch.plane_stride;
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
        attend.block_tables = arrays.block_tables;
        attend.max_blocks_per_seq = batch.max_blocks_per_seq;
        attend.row_to_seq = arrays.row_to_seq;
        attend.context_lens = arrays.context_lens;
        attend.num_rows = n;
        attend.num_seqs = batch.num_seqs;
        attend.num_heads = c.num_heads;
        attend.scale = 1.f / std::sqrt(static_cast<float>(c.head_dim));
        attend.output = attention_.data();
        attend.host_row_to_seq = batch.row_to_seq.data();
        attend.max_context_len = longestContext(batch, kv.block_size);
        ops.paged_attention(attend, context);
        addProduct(attention_.data(), w.output);

        MatmulGroupParams gate = normed(static_cast<size_t>(2 * layer + 1), hidden_.data(), n);
        gate.parts[0] = part(w.gate, gate_.data());
        gate.parts[1] = part(w.up, up_.data());
        gate.num_parts = 2;
        gate.silu_mul = true;
        ops.matmul_group(gate, context);
        addProduct(gate_.data(), w.down);
    }

    const int num_logit_rows = static_cast<int>(batch.logit_rows.size());
    if (num_logit_rows == 0) return;
    const float* wanted = hidden_.data();
    if (num_logit_rows < n) {
        // An embedding whose table is the hidden states gathers their rows.
        EmbeddingParams gather;
        gather.table = hidden_.data();
        gather.type = TensorType::kF32;
        gather.token_ids = arrays.logit_rows;
        gather.output = normed_.data();
        gather.num_tokens = num_logit_rows;
        gather.vocab_size = n;
        gather.dim = c.embedding_dim;
        ops.embedding(gather, context);
        wanted = normed_.data();
    }
    MatmulGroupParams unembed = normed(norms_.size() - 1, wanted, num_logit_rows);
    unembed.parts[0] = part(output_, logits_.data());
    unembed.num_parts = 1;
    ops.matmul_group(unembed, context);
}

}  // namespace kvlab
