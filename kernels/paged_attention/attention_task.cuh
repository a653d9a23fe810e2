// SPDX-License-Identifier: MIT
#pragma once

// What the attention kernels of this folder share: their argument, where a position lies, which
// rows walk the cache together, and where results go.

#include <cstdint>

#include "kernels/online_softmax.h"
#include "kernels/paged_attention/paged_attention.h"
#include "kernels/simt/simt.h"
#include "kernels/simt/storage_types.h"

namespace kvlab {

constexpr int kAttentionThreads = 128;
constexpr int kAttentionWarps = kAttentionThreads / 32;

// One launch: the rows of a region (paged_attention_plan.h). Row i of the cache is head_dim values
// at key + i * head_dim, i = slot * num_kv_heads + kv_head; the layer is chosen already.
struct AttentionTask {
    const float* query;  // [all rows, num_heads, head_dim]
    float* output;       // the same
    const void* key;
    const void* value;
    const float* key_scales;  // int8 only, [slots, num_kv_heads]
    const float* value_scales;
    const int32_t* block_tables;  // [num_seqs, seq_stride]
    const int32_t* row_to_seq;    // [all rows]; null: row r is of sequence r
    const int32_t* context_lens;  // [all rows]
    int64_t seq_stride;           // entries of a table; contiguous: slots of a sequence
    int block_size;
    int block_shift;  // log2 of block_size, -1: no power of two
    int num_heads;
    int num_kv_heads;
    int head_dim;
    float scale;
    int window;
    int first_row;
    int num_rows;
    int rows_per_tile;
    int heads_per_tile;
    int num_slices;
    int num_splits;
    float* part_outputs;  // [num_rows, num_heads, num_splits, head_dim], not divided by their sums
    float* part_states;   // [num_rows, num_heads, num_splits, 2]: max, sum
    float* row_states;    // [all rows, num_heads, 2]: max, sum, for attention mass; null: none
};

// What the attention kernels tell when their launch is recorded (simt.h). attention_walk.h reads
// it.
enum AttentionNote : int {
    // By the first thread: first_row, num_rows, rows_per_thread_block, num_slices, num_splits
    kNoteLaunch,
    // Per run of rows, by one thread: row, row_end, seq_idx, begin, end (after takePart), kv_head,
    // first_head, num_heads, positions that are looked up side by side
    kNoteRun,
    kNoteLookUp,  // per position, by one lane: row of the run, position, slot
    kNoteKey,     // per row of the cache that is read, by one lane: row of the run, slot, kv_head
    kNoteValue,   // the same
};

// The slot of a position of sequence `seq_idx`: kPaged through its block table.
template <bool kPaged>
__device__ __forceinline__ int attentionSlot(const AttentionTask& task, int seq_idx, int position) {
    if constexpr (kPaged) {
        const int32_t* const table = task.block_tables + seq_idx * task.seq_stride;
        if (task.block_shift >= 0) {
            return (table[position >> task.block_shift] << task.block_shift) +
                   (position & (task.block_size - 1));
        }
        return table[position / task.block_size] * task.block_size + position % task.block_size;
    } else {
        return static_cast<int>(seq_idx * task.seq_stride) + position;
    }
}

// The query heads of this thread block: a slice of a KV head's group.
struct HeadSlice {
    int kv_head;
    int first_head;
    int num_heads;
};

__device__ __forceinline__ HeadSlice headSlice(const AttentionTask& task) {
    const int kv_head = static_cast<int>(blockIdx.y) / task.num_slices;
    const int group = task.num_heads / task.num_kv_heads;
    const int first_in_group = static_cast<int>(blockIdx.y) % task.num_slices * task.heads_per_tile;
    const int left = group - first_in_group;
    return {kv_head, kv_head * group + first_in_group,
            left < task.heads_per_tile ? left : task.heads_per_tile};
}

// The rows of a tile; those of the last one end with the region.
struct RowTile {
    int begin;
    int end;
};

__device__ __forceinline__ RowTile rowTile(const AttentionTask& task, int tile) {
    const int begin = task.first_row + tile * task.rows_per_tile;
    const int rows_end = task.first_row + task.num_rows;
    return {begin, begin + task.rows_per_tile < rows_end ? begin + task.rows_per_tile : rows_end};
}

// Rows from `row` on that walk the cache together: one sequence, and no position between them that
// none sees, because its block may be gone.
struct RowRun {
    int seq_idx;
    int row_end;
    int begin;  // of the positions
    int end;
};

// kShared: more than one row at all.
template <bool kShared>
__device__ __forceinline__ RowRun rowRun(const AttentionTask& task, int row, int tile_end) {
    RowRun run;
    run.seq_idx = task.row_to_seq != nullptr ? task.row_to_seq[row] : row;
    run.end = task.context_lens[row];
    run.begin = firstVisiblePosition(run.end, task.window);
    run.row_end = row + 1;
    if constexpr (kShared) {
        for (; run.row_end < tile_end; ++run.row_end) {
            if (task.row_to_seq[run.row_end] != run.seq_idx) break;
            const int end = task.context_lens[run.row_end];
            const int begin = firstVisiblePosition(end, task.window);
            if (begin > run.end || end < run.begin) break;
            run.begin = begin < run.begin ? begin : run.begin;
            run.end = end > run.end ? end : run.end;
        }
    }
    return run;
}

// Leaves of the run this thread block's part of the context. Parts are multiples of 32 positions,
// so that short contexts fill the first ones and leave the others empty.
__device__ __forceinline__ void takePart(const AttentionTask& task, RowRun& run) {
    if (task.num_splits == 1) return;
    const int split = static_cast<int>(blockIdx.z);
    const int part = ((run.end - run.begin + task.num_splits - 1) / task.num_splits + 31) / 32 * 32;
    // In 64 bits: the parts behind the last one may begin anywhere.
    const int64_t begin = run.begin + static_cast<int64_t>(split) * part;
    if (begin >= run.end) {
        run.begin = run.end;
        return;
    }
    run.begin = static_cast<int>(begin);
    run.end = run.end - run.begin > part ? run.begin + part : run.end;
}

// Where a (row, head)'s weighted sum goes, and what it is to be multiplied by there. Whoever writes
// the first value also writes the state.
struct AttentionTarget {
    float* values;
    float* state;  // null: not wanted
    float factor;
};

__device__ __forceinline__ AttentionTarget attentionTarget(const AttentionTask& task,
                                                           int row,
                                                           int head,
                                                           const OnlineSoftmax& softmax) {
    const int64_t item = static_cast<int64_t>(row) * task.num_heads + head;
    if (task.num_splits == 1) {
        return {task.output + item * task.head_dim,
                task.row_states != nullptr ? task.row_states + item * 2 : nullptr,
                softmax.inverseSum()};
    }
    const int64_t part =
        (item - static_cast<int64_t>(task.first_row) * task.num_heads) * task.num_splits +
        static_cast<int>(blockIdx.z);
    return {task.part_outputs + part * task.head_dim, task.part_states + part * 2, 1.f};
}

__device__ __forceinline__ float floatOfBits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

__device__ __forceinline__ uint32_t bitsOfFloat(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// Eight values that lie side by side, as stored. In words and not in values, because a compiler
// that sees eight int8 gives each a register of its own while they are under way.
template <typename T>
struct alignas(sizeof(T) == 1 ? 8 : 16) RowChunk {
    uint32_t word[2 * sizeof(T)];

    __device__ __forceinline__ float value(int i) const {
        if constexpr (sizeof(T) == 4) {
            return floatOfBits(word[i]);
        } else if constexpr (sizeof(T) == 2) {
            const auto bits = static_cast<uint16_t>(word[i / 2] >> (16 * (i % 2)));
            T stored;
            memcpy(&stored, &bits, sizeof stored);
            return toFloat(stored);
        } else {
            return toFloat(static_cast<int8_t>(word[i / 4] >> (8 * (i % 4))));
        }
    }
};

// kWhole: rows are aligned to eight values and head_dim is a multiple of eight.
template <bool kWhole, typename T>
__device__ __forceinline__ RowChunk<T> loadChunk(const T* row, int first, int head_dim) {
    RowChunk<T> chunk{};
    if constexpr (kWhole) {
        if (first < head_dim) chunk = *reinterpret_cast<const RowChunk<T>*>(row + first);
    } else {
        KVLAB_UNROLL
        for (int i = 0; i < 8; ++i) {
            if (first + i >= head_dim) continue;
            uint32_t bits = 0;
            memcpy(&bits, row + first + i, sizeof(T));
            chunk.word[i * sizeof(T) / 4] |= bits << (8 * (i * sizeof(T) % 4));
        }
    }
    return chunk;
}

}  // namespace kvlab
