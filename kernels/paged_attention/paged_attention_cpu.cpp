// SPDX-License-Identifier: MIT
#include <algorithm>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/vector_paths.h"
#include "kernels/online_softmax.h"
#include "kernels/paged_attention/paged_attention.h"

namespace kvlab {

namespace {

// Rows of one sequence that walk the cache together, so that a tile of K and V is widened once for
// all of them. Each row keeps its own sums in its own order: grouping never changes a result.
constexpr int kMaxGroupRows = 16;

struct RowGroup {
    int first_row;
    int num_rows;
};

std::vector<RowGroup> groupRows(const PagedAttentionParams& p) {
    std::vector<RowGroup> groups;
    for (int row = 0; row < p.num_rows; ++row) {
        if (!groups.empty() && groups.back().num_rows < kMaxGroupRows &&
            p.row_to_seq[groups.back().first_row] == p.row_to_seq[row]) {
            ++groups.back().num_rows;
        } else {
            groups.push_back({row, 1});
        }
    }
    return groups;
}

struct Scratch {
    std::vector<float> query;   // [rows * group_size, padded]
    std::vector<float> output;  // [rows * group_size, padded]
    std::vector<OnlineSoftmax> softmax;
    std::vector<float> key;    // [kAttentionTile, padded]
    std::vector<float> value;  // [kAttentionTile, padded]
};

void attendGroup(const PagedAttentionParams& p,
                 const RowGroup& group,
                 int kv_head,
                 Scratch& scratch) {
    const VectorPaths& paths = vectorPaths();
    const int head_dim = p.kv.head_dim;
    const int padded = paddedToLanes(head_dim);
    const int group_size = p.num_heads / p.kv.num_kv_heads;
    const int num_states = group.num_rows * group_size;
    const int value_bytes = dataTypeBytes(p.kv.dtype);
    const int32_t* table =
        p.block_tables + static_cast<int64_t>(p.row_to_seq[group.first_row]) * p.max_blocks_per_seq;

    scratch.query.assign(static_cast<size_t>(num_states) * padded, 0.f);
    scratch.output.assign(static_cast<size_t>(num_states) * padded, 0.f);
    scratch.softmax.assign(static_cast<size_t>(num_states), OnlineSoftmax{});
    scratch.key.assign(static_cast<size_t>(kAttentionTile) * padded, 0.f);
    scratch.value.assign(static_cast<size_t>(kAttentionTile) * padded, 0.f);

    int longest = 0;
    for (int r = 0; r < group.num_rows; ++r) {
        longest = std::max(longest, p.context_lens[group.first_row + r]);
        for (int g = 0; g < group_size; ++g) {
            const int head = kv_head * group_size + g;
            const float* query =
                p.query +
                (static_cast<int64_t>(group.first_row + r) * p.num_heads + head) * head_dim;
            std::copy_n(query, head_dim,
                        scratch.query.data() + int64_t{r * group_size + g} * padded);
        }
    }

    for (int tile_begin = 0; tile_begin < longest; tile_begin += kAttentionTile) {
        const int tile_len = std::min(kAttentionTile, longest - tile_begin);
        for (int j = 0; j < tile_len; ++j) {
            const int position = tile_begin + j;
            const int64_t slot =
                static_cast<int64_t>(table[position / p.kv.block_size]) * p.kv.block_size +
                position % p.kv.block_size;
            const int64_t key = p.kv.offset(p.layer, PagedKvView::kKey, slot, kv_head);
            const int64_t value = p.kv.offset(p.layer, PagedKvView::kValue, slot, kv_head);
            paths.widen(p.kv.data + key * value_bytes, p.kv.dtype, head_dim,
                        scratch.key.data() + int64_t{j} * padded);
            paths.widen(p.kv.data + value * value_bytes, p.kv.dtype, head_dim,
                        scratch.value.data() + int64_t{j} * padded);
        }
        for (int state_idx = 0; state_idx < num_states; ++state_idx) {
            const int row = group.first_row + state_idx / group_size;
            const int visible = std::min(tile_len, p.context_lens[row] - tile_begin);
            if (visible <= 0) continue;
            const float* query = scratch.query.data() + int64_t{state_idx} * padded;
            float* output = scratch.output.data() + int64_t{state_idx} * padded;
            OnlineSoftmax& softmax = scratch.softmax[static_cast<size_t>(state_idx)];

            float scores[kAttentionTile];
            float tile_max = -INFINITY;
            for (int j = 0; j < visible; ++j) {
                scores[j] =
                    p.scale * paths.dot(query, scratch.key.data() + int64_t{j} * padded, padded);
                tile_max = std::max(tile_max, scores[j]);
            }
            const float rescale = softmax.raise(tile_max);
            if (rescale != 1.f) paths.scale(output, rescale, padded);
            float tile_sum = 0.f;
            for (int j = 0; j < visible; ++j) {
                const float weight = softmax.weight(scores[j]);
                tile_sum += weight;
                paths.axpy(output, scratch.value.data() + int64_t{j} * padded, weight, padded);
            }
            softmax.sum += tile_sum;
        }
    }

    for (int state_idx = 0; state_idx < num_states; ++state_idx) {
        const int row = group.first_row + state_idx / group_size;
        const int head = kv_head * group_size + state_idx % group_size;
        const float inverse = scratch.softmax[static_cast<size_t>(state_idx)].inverseSum();
        const float* output = scratch.output.data() + int64_t{state_idx} * padded;
        float* target = p.output + (static_cast<int64_t>(row) * p.num_heads + head) * head_dim;
        for (int d = 0; d < head_dim; ++d) target[d] = output[d] * inverse;
    }
}

}  // namespace

void pagedAttentionCpu(const PagedAttentionParams& params, ExecutionContext& context) {
    const std::vector<RowGroup> groups = groupRows(params);
    const int64_t num_items = static_cast<int64_t>(groups.size()) * params.kv.num_kv_heads;
    context.threads->parallelFor(num_items, 1, [&](int64_t begin, int64_t end) {
        thread_local Scratch scratch;
        for (int64_t item = begin; item < end; ++item) {
            attendGroup(params, groups[static_cast<size_t>(item / params.kv.num_kv_heads)],
                        static_cast<int>(item % params.kv.num_kv_heads), scratch);
        }
    });
}

}  // namespace kvlab
