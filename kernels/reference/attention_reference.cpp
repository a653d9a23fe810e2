// SPDX-License-Identifier: MIT
#include "kernels/reference/attention_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/half.h"

namespace kvlab {
namespace {

double storedValue(const PagedKvView& kv, int64_t index) {
    if (kv.dtype == DataType::kF32) {
        float value;
        std::memcpy(&value, kv.data + index * 4, sizeof value);
        return value;
    }
    if (kv.dtype == DataType::kInt8) {
        int8_t value;
        std::memcpy(&value, kv.data + index, sizeof value);
        return static_cast<double>(kv.scales()[index / kv.head_dim]) * value;
    }
    uint16_t bits;
    std::memcpy(&bits, kv.data + index * 2, sizeof bits);
    return kv.dtype == DataType::kF16 ? halfToFloat(bits) : bfloat16ToFloat(bits);
}

// [positions, num_kv_heads, head_dim] of one sequence's K or V.
std::vector<double> gather(const PagedAttentionParams& params,
                           int key_or_value,
                           int seq_idx,
                           const std::vector<int>& positions) {
    const PagedKvView& kv = params.kv;
    std::vector<double> dense;
    dense.reserve(positions.size() * static_cast<size_t>(kv.num_kv_heads * kv.head_dim));
    for (const int i : positions) {
        const int block_idx = i / kv.block_size;
        const int64_t block_id =
            params.block_tables[static_cast<int64_t>(seq_idx) * params.max_blocks_per_seq +
                                block_idx];
        const int64_t slot = block_id * kv.block_size + i % kv.block_size;
        for (int kv_head = 0; kv_head < kv.num_kv_heads; ++kv_head) {
            for (int d = 0; d < kv.head_dim; ++d) {
                dense.push_back(
                    storedValue(kv, kv.offset(params.layer, key_or_value, slot, kv_head) + d));
            }
        }
    }
    return dense;
}

// softmax(scale * query · keyᵀ) of one query head over the rows of its KV head.
std::vector<double> headWeights(const double* query,
                                const double* key,
                                int num_positions,
                                int num_kv_heads,
                                int kv_head,
                                int head_dim,
                                double scale) {
    std::vector<double> weights(static_cast<size_t>(num_positions));
    for (int i = 0; i < num_positions; ++i) {
        const double* row = key + (static_cast<int64_t>(i) * num_kv_heads + kv_head) * head_dim;
        double dot = 0;
        for (int d = 0; d < head_dim; ++d) dot += query[d] * row[d];
        weights[static_cast<size_t>(i)] = scale * dot;
    }
    const double max = *std::max_element(weights.begin(), weights.end());
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - max);
    for (double& weight : weights) weight /= sum;
    return weights;
}

std::vector<int> seenPositions(const PagedAttentionParams& params, int row) {
    const int own_position = params.context_lens[row] - 1;
    std::vector<int> positions;
    for (int i = 0; i <= own_position; ++i) {
        if (params.window == 0 || i > own_position - params.window) positions.push_back(i);
    }
    return positions;
}

}  // namespace

void denseAttention(const double* query,
                    const double* key,
                    const double* value,
                    int num_positions,
                    int num_heads,
                    int num_kv_heads,
                    int head_dim,
                    double scale,
                    double* output) {
    const int group = num_heads / num_kv_heads;
    for (int head = 0; head < num_heads; ++head) {
        const std::vector<double> weights =
            headWeights(query + static_cast<int64_t>(head) * head_dim, key, num_positions,
                        num_kv_heads, head / group, head_dim, scale);
        for (int d = 0; d < head_dim; ++d) {
            double total = 0;
            for (int i = 0; i < num_positions; ++i) {
                const double* row =
                    value + (static_cast<int64_t>(i) * num_kv_heads + head / group) * head_dim;
                total += weights[static_cast<size_t>(i)] * row[d];
            }
            output[static_cast<int64_t>(head) * head_dim + d] = total;
        }
    }
}

std::vector<double> attentionReference(const PagedAttentionParams& params) {
    const PagedKvView& kv = params.kv;
    const int64_t row_values = static_cast<int64_t>(params.num_heads) * kv.head_dim;
    std::vector<double> output(static_cast<size_t>(params.num_rows * row_values));
    for (int r = 0; r < params.num_rows; ++r) {
        const std::vector<int> positions = seenPositions(params, r);
        const int seq_idx = params.row_to_seq[r];
        const std::vector<double> key = gather(params, PagedKvView::kKey, seq_idx, positions);
        const std::vector<double> value = gather(params, PagedKvView::kValue, seq_idx, positions);
        const float* const q = params.query + r * row_values;
        const std::vector<double> query(q, q + row_values);
        denseAttention(query.data(), key.data(), value.data(), static_cast<int>(positions.size()),
                       params.num_heads, kv.num_kv_heads, kv.head_dim,
                       static_cast<double>(params.scale), output.data() + r * row_values);
    }
    return output;
}

std::vector<double> attentionMassReference(const PagedAttentionParams& params) {
    const PagedKvView& kv = params.kv;
    const int group = params.num_heads / kv.num_kv_heads;
    std::vector<double> mass(
        static_cast<size_t>(params.num_seqs * kv.num_kv_heads * params.mass_stride));
    for (int r = 0; r < params.num_rows; ++r) {
        const std::vector<int> positions = seenPositions(params, r);
        const int seq_idx = params.row_to_seq[r];
        const std::vector<double> key = gather(params, PagedKvView::kKey, seq_idx, positions);
        for (int head = 0; head < params.num_heads; ++head) {
            const float* const q =
                params.query + (static_cast<int64_t>(r) * params.num_heads + head) * kv.head_dim;
            const std::vector<double> query(q, q + kv.head_dim);
            const std::vector<double> weights = headWeights(
                query.data(), key.data(), static_cast<int>(positions.size()), kv.num_kv_heads,
                head / group, kv.head_dim, static_cast<double>(params.scale));
            for (size_t i = 0; i < positions.size(); ++i) {
                mass[static_cast<size_t>((int64_t{seq_idx} * kv.num_kv_heads + head / group) *
                                             params.mass_stride +
                                         positions[i])] += weights[i];
            }
        }
    }
    return mass;
}

}  // namespace kvlab
