// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/paged_attention/paged_attention.h"

namespace kvlab {

// What the launchers decide on the host, from what the host can see: which rows share their reads,
// which kernel, how many parts each context is split into. Pure functions, so that the same call
// always makes the same launches.

// Neighbouring rows that one launch serves.
struct AttentionRegion {
    int first_row = 0;
    int num_rows = 0;
    bool is_shared = false;  // each row has a neighbour of its own sequence: a prefill chunk
};

// Without host_row_to_seq all rows are one region that shares nothing.
inline std::vector<AttentionRegion> attentionRegions(const int32_t* host_row_to_seq, int num_rows) {
    if (host_row_to_seq == nullptr) return {{0, num_rows, false}};
    std::vector<AttentionRegion> regions;
    for (int begin = 0; begin < num_rows;) {
        int end = begin + 1;
        while (end < num_rows && host_row_to_seq[end] == host_row_to_seq[begin]) ++end;
        const bool is_shared = end - begin > 1;
        if (regions.empty() || regions.back().is_shared != is_shared) {
            regions.push_back({begin, 0, is_shared});
        }
        regions.back().num_rows += end - begin;
        begin = end;
    }
    return regions;
}

constexpr int kAttentionMaxSplits = 128;
constexpr int kAttentionMinSplitLen = 128;  // positions; shorter parts cost more than they bring
// Thread blocks of 128 threads that fit a multiprocessor side by side, by their registers.
constexpr int kAttentionResidentThreadBlocks = 3;

// With so many waves their ends no longer show.
constexpr int kAttentionEnoughWaves = 4;

// How many parts to split contexts of up to `context_len` tokens into when `num_thread_blocks` walk
// them unsplit. Thread blocks run in waves of as many as fit; a wave takes as long as its longest
// part, plus what beginning, ending and merging cost, here as many positions as half the smallest
// part. The fewest parts of the quickest choice.
inline int attentionSplits(int64_t num_thread_blocks,
                           int64_t context_len,
                           int num_multiprocessors) {
    const int64_t num_resident =
        std::max<int64_t>(1, int64_t{num_multiprocessors} * kAttentionResidentThreadBlocks);
    if (num_thread_blocks >= kAttentionEnoughWaves * num_resident) return 1;
    const int64_t most =
        std::clamp<int64_t>(context_len / kAttentionMinSplitLen, 1, kAttentionMaxSplits);
    int best = 1;
    int64_t best_cost = 0;
    for (int splits = 1; splits <= most; ++splits) {
        const int64_t num_waves = (num_thread_blocks * splits + num_resident - 1) / num_resident;
        const int64_t part = (context_len + splits - 1) / splits;
        const int64_t cost = num_waves * (part + kAttentionMinSplitLen / 2);
        if (splits == 1 || cost < best_cost) {
            best = splits;
            best_cost = cost;
        }
    }
    return best;
}

// The shape of one region's launch.
struct AttentionPlan {
    bool use_mma = false;
    int vectors_per_tile = 1;  // query vectors, (row, head) pairs, that share a read of K and V
    int rows_per_tile = 1;     // whose
    int heads_per_tile = 1;    // heads, of one KV head's group, they are
    int num_slices = 1;        // tiles that a KV head's group needs
    int tiles_per_thread_block = 1;
    int num_splits = 1;

    int64_t numThreadBlocks(int num_rows, int num_kv_heads) const {
        const int rows = rows_per_tile * tiles_per_thread_block;
        return int64_t{(num_rows + rows - 1) / rows} * num_kv_heads * num_slices;
    }
};

constexpr int kAttentionChunk = 8;  // values of a row that a lane reads at once

// Rows can be read in pieces of kAttentionChunk values.
inline bool attentionRowsAreWhole(const void* key,
                                  const void* value,
                                  DataType dtype,
                                  int head_dim) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(key) | reinterpret_cast<uintptr_t>(value);
    return head_dim % kAttentionChunk == 0 && address % (dtype == DataType::kInt8 ? 8 : 16) == 0;
}

// From this many query heads on, matrix instructions win: with 4, plain multiply-adds, conversions
// and shuffles fill nearly every issue slot that the bandwidth of an H200 leaves (README.md).
constexpr int kAttentionMmaGroup = 3;

// `can_mma`: the device code at hand has fast matrix instructions.
inline AttentionPlan attentionPlan(bool is_shared,
                                   bool rows_are_whole,
                                   DataType dtype,
                                   int head_dim,
                                   int group,
                                   AttentionVariant variant,
                                   bool can_mma) {
    AttentionPlan plan;
    const bool possible = rows_are_whole && dtype != DataType::kF32;
    plan.use_mma = possible && (variant == AttentionVariant::kMma ||
                                (variant == AttentionVariant::kAuto && can_mma &&
                                 (is_shared || group >= kAttentionMmaGroup)));
    if (plan.use_mma) {
        plan.vectors_per_tile = head_dim > 128 || (!is_shared && group <= 8) ? 8 : 16;
        // Each warp has a tile of its own, and the four meet in the cache.
        if (is_shared) plan.tiles_per_thread_block = 4;
    } else if (is_shared || !rows_are_whole) {
        plan.vectors_per_tile = rows_are_whole ? 8 : 4;
    } else {
        plan.vectors_per_tile = group == 1 ? 1 : group == 2 ? 2 : group <= 4 ? 4 : 8;
    }
    plan.num_slices = (group + plan.vectors_per_tile - 1) / plan.vectors_per_tile;
    plan.heads_per_tile = (group + plan.num_slices - 1) / plan.num_slices;
    if (is_shared) plan.rows_per_tile = plan.vectors_per_tile / plan.heads_per_tile;
    return plan;
}

// Floats of the workspace that a part of one row's head takes: its weighted sum, maximum and sum.
inline int64_t attentionPartFloats(int head_dim) { return head_dim + 2; }

}  // namespace kvlab
