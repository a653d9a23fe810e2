// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace kvlab {

// What the thread blocks of an attention call read, as they told it while simt ran them: not what
// the launcher planned, but what the kernel did.
//
//   AttentionWalk ── AttentionLaunch ── AttentionThreadBlock ── AttentionRun ── AttentionRead
//   a call           a region of rows   (x, y, z) of the grid   rows together   a table entry

// An entry of a block table, followed: the positions [begin, end) that were looked up through it
// side by side.
struct AttentionRead {
    int block_idx = 0;  // logical
    int block = 0;      // physical
    int begin = 0;
    int end = 0;
    int round = 0;  // of the kernel's loop, from 0
    bool operator==(const AttentionRead&) const = default;
};

// Rows that walk a sequence's cache together, for query heads of one KV head.
struct AttentionRun {
    int seq_idx = 0;  // row of the block tables
    int row_begin = 0;
    int row_end = 0;
    int kv_head = 0;
    int first_head = 0;  // query head
    int num_heads = 0;
    int begin = 0;  // of the positions: this thread block's part
    int end = 0;
    int positions_per_round = 0;
    std::vector<AttentionRead> reads;  // by position
    int64_t num_key_rows = 0;          // different ones; a row is a KV head's values of a token
    int64_t num_value_rows = 0;
    int64_t num_repeated = 0;  // loads of a K or V row beyond the first
    bool operator==(const AttentionRun&) const = default;
};

struct AttentionThreadBlock {
    int x = 0, y = 0, z = 0;         // tile of rows; KV head and slice; part of the context
    std::vector<AttentionRun> runs;  // by row
    bool operator==(const AttentionThreadBlock&) const = default;
};

struct AttentionLaunch {
    std::string kernel;
    int grid_x = 0, grid_y = 0, grid_z = 0;
    int num_threads = 0;       // of a thread block
    int64_t shared_bytes = 0;  // of a thread block
    int num_rows = 0;
    int rows_per_thread_block = 0;
    int num_slices = 0;  // of a KV head's query heads
    int num_splits = 0;  // parts of each context; above 1 a merge is launched afterwards
    std::vector<AttentionThreadBlock> thread_blocks;  // x first, then y, then z
    bool operator==(const AttentionLaunch&) const = default;
};

struct AttentionWalk {
    int layer = 0;
    int block_size = 0;
    int num_kv_heads = 0;
    int64_t row_bytes = 0;  // of a K or V row, with its scale
    std::vector<AttentionLaunch> launches;
    bool operator==(const AttentionWalk&) const = default;
};

// Listens to pagedAttentionSimt.
struct AttentionTap {
    std::function<bool(int layer)> wants;  // asked before each call
    std::function<void(AttentionWalk)> on_walk;
};

namespace simt {
struct LaunchRecord;
}
// From the records of one call; what is no attention kernel is left out.
void addAttentionLaunches(const std::vector<simt::LaunchRecord>& records, AttentionWalk& walk);

}  // namespace kvlab
