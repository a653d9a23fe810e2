// SPDX-License-Identifier: MIT
#include <algorithm>
#include <limits>
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
// Up to so many (row, head) pairs widen each for itself, in registers.
constexpr int kWidenForFew = 4;

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
    std::vector<float> key;    // [kAttentionTile, padded]; only where rows are widened first
    std::vector<float> value;  // [kAttentionTile, padded]
    // A tile of the cache: where its rows lie, stored or widened (int8 without the scale).
    const void* key_rows[kAttentionTile];
    const void* value_rows[kAttentionTile];
    float key_scale[kAttentionTile];
    float value_scale[kAttentionTile];
};

// K or V of one position. The scale is a factor that is still to be applied: one per score and
// weight is cheaper than one per value, and 1 changes no bit.
void findRow(
    const PagedKvView& kv, int64_t row_idx, float* widened, const void*& row, float& scale) {
    row = kv.data + row_idx * kv.head_dim * dataTypeBytes(kv.dtype);
    scale = kv.dtype == DataType::kInt8 ? kv.scales()[row_idx] : 1.f;
    if (widened == nullptr) return;
    vectorPaths().widen(row, kv.dtype, kv.head_dim, widened);
    row = widened;
}

// `row_states`, [num_rows, num_heads]: gets every (row, head)'s maximum and sum; null: not wanted.
void attendGroup(const PagedAttentionParams& p,
                 const RowGroup& group,
                 int kv_head,
                 Scratch& scratch,
                 OnlineSoftmax* row_states) {
    const VectorPaths& paths = vectorPaths();
    const int head_dim = p.kv.head_dim;
    const int padded = paddedToLanes(head_dim);
    const int group_size = p.num_heads / p.kv.num_kv_heads;
    const int num_states = group.num_rows * group_size;
    const int32_t* table =
        p.block_tables + static_cast<int64_t>(p.row_to_seq[group.first_row]) * p.max_blocks_per_seq;

    scratch.query.assign(static_cast<size_t>(num_states) * padded, 0.f);
    scratch.output.assign(static_cast<size_t>(num_states) * padded, 0.f);
    scratch.softmax.assign(static_cast<size_t>(num_states), OnlineSoftmax{});
    const bool widens_first = num_states > kWidenForFew || padded != head_dim;
    const DataType row_type = widens_first ? DataType::kF32 : p.kv.dtype;
    if (widens_first) {
        scratch.key.assign(static_cast<size_t>(kAttentionTile) * padded, 0.f);
        scratch.value.assign(static_cast<size_t>(kAttentionTile) * padded, 0.f);
    }

    int longest = 0;
    int first = std::numeric_limits<int>::max();  // position that any row sees
    for (int r = 0; r < group.num_rows; ++r) {
        const int context_len = p.context_lens[group.first_row + r];
        longest = std::max(longest, context_len);
        first = std::min(first, firstVisiblePosition(context_len, p.window));
        for (int g = 0; g < group_size; ++g) {
            const int head = kv_head * group_size + g;
            const float* query =
                p.query +
                (static_cast<int64_t>(group.first_row + r) * p.num_heads + head) * head_dim;
            std::copy_n(query, head_dim,
                        scratch.query.data() + int64_t{r * group_size + g} * padded);
        }
    }

    // Tiles count from position 0 whatever the window, so that a row's sums do not depend on its
    // group.
    for (int tile_begin = first / kAttentionTile * kAttentionTile; tile_begin < longest;
         tile_begin += kAttentionTile) {
        const int tile_len = std::min(kAttentionTile, longest - tile_begin);
        for (int j = std::max(0, first - tile_begin); j < tile_len;) {
            const int position = tile_begin + j;
            const int offset = position % p.kv.block_size;
            const int64_t slot =
                static_cast<int64_t>(table[position / p.kv.block_size]) * p.kv.block_size + offset;
            int64_t key_row = p.kv.rowIndex(p.layer, PagedKvView::kKey, slot, kv_head);
            int64_t value_row = p.kv.rowIndex(p.layer, PagedKvView::kValue, slot, kv_head);
            const int block_end = std::min(tile_len, j + p.kv.block_size - offset);
            for (; j < block_end; ++j) {
                findRow(p.kv, key_row,
                        widens_first ? scratch.key.data() + int64_t{j} * padded : nullptr,
                        scratch.key_rows[j], scratch.key_scale[j]);
                findRow(p.kv, value_row,
                        widens_first ? scratch.value.data() + int64_t{j} * padded : nullptr,
                        scratch.value_rows[j], scratch.value_scale[j]);
                key_row += p.kv.num_kv_heads;
                value_row += p.kv.num_kv_heads;
            }
        }
        for (int state_idx = 0; state_idx < num_states; ++state_idx) {
            const int row = group.first_row + state_idx / group_size;
            const int context_len = p.context_lens[row];
            const int begin = std::max(0, firstVisiblePosition(context_len, p.window) - tile_begin);
            const int end = std::min(tile_len, context_len - tile_begin);
            if (begin >= end) continue;
            const float* query = scratch.query.data() + int64_t{state_idx} * padded;
            float* output = scratch.output.data() + int64_t{state_idx} * padded;
            OnlineSoftmax& softmax = scratch.softmax[static_cast<size_t>(state_idx)];

            float scores[kAttentionTile];
            float weights[kAttentionTile];
            paths.dotRows(query, scratch.key_rows + begin, row_type, end - begin, padded,
                          scores + begin);
            float tile_max = -INFINITY;
            for (int j = begin; j < end; ++j) {
                scores[j] = p.scale * scores[j] * scratch.key_scale[j];
                tile_max = std::max(tile_max, scores[j]);
            }
            const float rescale = softmax.raise(tile_max);
            if (rescale != 1.f) paths.scale(output, rescale, padded);
            float tile_sum = 0.f;
            for (int j = begin; j < end; ++j) {
                const float weight = softmax.weight(scores[j]);
                tile_sum += weight;
                weights[j] = weight * scratch.value_scale[j];
            }
            paths.axpyRows(output, scratch.value_rows + begin, row_type, weights + begin,
                           end - begin, padded);
            softmax.sum += tile_sum;
        }
    }

    for (int state_idx = 0; state_idx < num_states; ++state_idx) {
        const int row = group.first_row + state_idx / group_size;
        const int head = kv_head * group_size + state_idx % group_size;
        if (row_states != nullptr) {
            row_states[static_cast<int64_t>(row) * p.num_heads + head] =
                scratch.softmax[static_cast<size_t>(state_idx)];
        }
        const float inverse = scratch.softmax[static_cast<size_t>(state_idx)].inverseSum();
        const float* output = scratch.output.data() + int64_t{state_idx} * padded;
        float* target = p.output + (static_cast<int64_t>(row) * p.num_heads + head) * head_dim;
        for (int d = 0; d < head_dim; ++d) target[d] = output[d] * inverse;
    }
}

// The scores a second time: only the end of the walk knows maximum and sum. One KV head is one
// thread's, and its rows are added in order.
void addMass(const PagedAttentionParams& p, int kv_head, const OnlineSoftmax* row_states) {
    const VectorPaths& paths = vectorPaths();
    const int head_dim = p.kv.head_dim;
    const size_t padded = static_cast<size_t>(paddedToLanes(head_dim));
    const int group_size = p.num_heads / p.kv.num_kv_heads;
    std::vector<float> query(static_cast<size_t>(group_size) * padded);
    std::vector<float> key(padded);
    for (int row = 0; row < p.num_rows; ++row) {
        const int32_t* table =
            p.block_tables + static_cast<int64_t>(p.row_to_seq[row]) * p.max_blocks_per_seq;
        float* mass =
            p.mass +
            (static_cast<int64_t>(p.row_to_seq[row]) * p.kv.num_kv_heads + kv_head) * p.mass_stride;
        const int64_t first_head = static_cast<int64_t>(row) * p.num_heads + kv_head * group_size;
        for (int g = 0; g < group_size; ++g) {
            std::copy_n(p.query + (first_head + g) * head_dim, head_dim,
                        query.data() + static_cast<size_t>(g) * padded);
        }
        const int context_len = p.context_lens[row];
        for (int i = firstVisiblePosition(context_len, p.window); i < context_len; ++i) {
            const int64_t slot =
                static_cast<int64_t>(table[i / p.kv.block_size]) * p.kv.block_size +
                i % p.kv.block_size;
            const void* widened_key = nullptr;
            float key_scale = 1.f;
            findRow(p.kv, p.kv.rowIndex(p.layer, PagedKvView::kKey, slot, kv_head), key.data(),
                    widened_key, key_scale);
            for (int g = 0; g < group_size; ++g) {
                const OnlineSoftmax& state = row_states[first_head + g];
                float score = 0.f;
                paths.dotRows(query.data() + static_cast<size_t>(g) * padded, &widened_key,
                              DataType::kF32, 1, static_cast<int>(padded), &score);
                score = p.scale * score * key_scale;
                mass[i] += state.weight(score) * state.inverseSum();
            }
        }
    }
}

}  // namespace

void pagedAttentionCpu(const PagedAttentionParams& params, ExecutionContext& context) {
    std::vector<OnlineSoftmax> row_states;
    if (params.mass != nullptr) {
        row_states.resize(static_cast<size_t>(params.num_rows) * params.num_heads);
    }
    const std::vector<RowGroup> groups = groupRows(params);
    const int64_t num_items = static_cast<int64_t>(groups.size()) * params.kv.num_kv_heads;
    context.threads->parallelFor(num_items, 1, [&](int64_t begin, int64_t end) {
        thread_local Scratch scratch;
        for (int64_t item = begin; item < end; ++item) {
            attendGroup(params, groups[static_cast<size_t>(item / params.kv.num_kv_heads)],
                        static_cast<int>(item % params.kv.num_kv_heads), scratch,
                        row_states.empty() ? nullptr : row_states.data());
        }
    });
    if (params.mass == nullptr) return;
    context.threads->parallelFor(params.kv.num_kv_heads, 1, [&](int64_t begin, int64_t end) {
        for (int64_t kv_head = begin; kv_head < end; ++kv_head) {
            addMass(params, static_cast<int>(kv_head), row_states.data());
        }
    });
}

}  // namespace kvlab
