// SPDX-License-Identifier: MIT
#include "kernels/paged_attention/attention_walk.h"

#include <algorithm>
#include <map>
#include <utility>

#include "kernels/paged_attention/attention_task.cuh"

namespace kvlab {

namespace {

struct Slots {
    std::vector<std::pair<int, int>> looked_up;  // position, slot
    std::vector<int> keys, values;
};

int64_t distinct(std::vector<int>& numbers) {
    std::sort(numbers.begin(), numbers.end());
    return std::unique(numbers.begin(), numbers.end()) - numbers.begin();
}

void fillRun(AttentionRun& run, Slots slots, int block_size) {
    std::sort(slots.looked_up.begin(), slots.looked_up.end());
    for (const auto& [position, slot] : slots.looked_up) {
        const int round = (position - run.begin) / run.positions_per_round;
        const int block_idx = position / block_size;
        const int block = slot / block_size;
        if (run.reads.empty() || run.reads.back().block_idx != block_idx ||
            run.reads.back().round != round || run.reads.back().end != position) {
            run.reads.push_back({block_idx, block, position, position, round});
        }
        run.reads.back().end = position + 1;
    }
    const auto num_loads = static_cast<int64_t>(slots.keys.size() + slots.values.size());
    run.num_key_rows = distinct(slots.keys);
    run.num_value_rows = distinct(slots.values);
    run.num_repeated = num_loads - run.num_key_rows - run.num_value_rows;
}

}  // namespace

void addAttentionLaunches(const std::vector<simt::LaunchRecord>& records, AttentionWalk& walk) {
    for (const simt::LaunchRecord& record : records) {
        AttentionLaunch launch;
        launch.kernel = record.kernel;
        launch.grid_x = static_cast<int>(record.grid.x);
        launch.grid_y = static_cast<int>(record.grid.y);
        launch.grid_z = static_cast<int>(record.grid.z);
        launch.num_threads = static_cast<int>(record.thread_block.x);
        launch.shared_bytes = static_cast<int64_t>(record.shared_bytes);
        for (size_t i = 0; i < record.notes.size(); ++i) {
            const int at = static_cast<int>(i);
            AttentionThreadBlock thread_block;
            thread_block.x = at % launch.grid_x;
            thread_block.y = at / launch.grid_x % launch.grid_y;
            thread_block.z = at / launch.grid_x / launch.grid_y;
            std::map<int, std::pair<AttentionRun, Slots>> runs;  // by first row
            for (const simt::LaunchNote& note : record.notes[i]) {
                const int32_t* const v = note.value;
                switch (note.kind) {
                    case kNoteLaunch:
                        launch.num_rows = v[1];
                        launch.rows_per_thread_block = v[2];
                        launch.num_slices = v[3];
                        launch.num_splits = v[4];
                        break;
                    case kNoteRun: {
                        AttentionRun& run = runs[v[0]].first;
                        run.row_begin = v[0];
                        run.row_end = v[1];
                        run.seq_idx = v[2];
                        run.begin = v[3];
                        run.end = v[4];
                        run.kv_head = v[5];
                        run.first_head = v[6];
                        run.num_heads = v[7];
                        run.positions_per_round = v[8];
                        break;
                    }
                    case kNoteLookUp:
                        runs[v[0]].second.looked_up.emplace_back(v[1], v[2]);
                        break;
                    case kNoteKey:
                        runs[v[0]].second.keys.push_back(v[1]);
                        break;
                    case kNoteValue:
                        runs[v[0]].second.values.push_back(v[1]);
                        break;
                    default:
                        break;
                }
            }
            for (auto& [row, run] : runs) {
                fillRun(run.first, std::move(run.second), walk.block_size);
                thread_block.runs.push_back(std::move(run.first));
            }
            launch.thread_blocks.push_back(std::move(thread_block));
        }
        // A merge or attention mass tells nothing.
        if (launch.num_rows > 0) walk.launches.push_back(std::move(launch));
    }
}

}  // namespace kvlab
