// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "engine/kernel_walk.h"
#include "engine/trace/state.h"

namespace kvlab {

// A decode step of the scripted run: each sequence a row, two KV heads, the context in two
// parts, entries as the state's tables have them.
inline std::shared_ptr<const KernelWalk> walkOf(const CacheState& state, int layer) {
    auto walk = std::make_shared<KernelWalk>();
    AttentionWalk& attention = walk->attention;
    attention.layer = layer;
    attention.block_size = state.block_size;
    attention.num_kv_heads = 2;
    attention.row_bytes = 32;
    AttentionLaunch launch;
    launch.kernel = "(pagedAttentionKernel<T, kTeam>)";
    launch.num_rows = launch.grid_x = static_cast<int>(state.sequences.size());
    launch.grid_y = 2;
    launch.grid_z = launch.num_splits = 2;
    launch.num_threads = 128;
    launch.rows_per_thread_block = launch.num_slices = 1;
    for (int z = 0; z < 2; ++z) {
        for (int y = 0; y < 2; ++y) {
            for (int x = 0; x < launch.grid_x; ++x) {
                const SequenceState& sequence = state.sequences[static_cast<size_t>(x)];
                AttentionRun run;
                run.seq_idx = run.row_begin = x;
                run.row_end = x + 1;
                run.kv_head = run.first_head = y;
                run.num_heads = 1;
                const int half = static_cast<int>(sequence.table.size()) / 2;
                const int from = z == 0 ? 0 : half;
                const int to = z == 0 ? half : static_cast<int>(sequence.table.size());
                for (int i = from; i < to; ++i) {
                    run.reads.push_back({i, sequence.table[static_cast<size_t>(i)].value, i * 16,
                                         i * 16 + 16, (i - from) / 4});
                }
                run.begin = from * 16;
                run.end = to * 16;
                run.num_key_rows = run.num_value_rows = run.end - run.begin;
                launch.thread_blocks.push_back({x, y, z, {run}});
            }
        }
    }
    attention.launches.push_back(launch);
    for (const SequenceState& sequence : state.sequences) {
        walk->sequences.push_back(sequence.id);
    }
    return walk;
}

}  // namespace kvlab
