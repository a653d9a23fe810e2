// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace kvlab {

class KvCacheManager;
class Scheduler;
struct Sequence;

// Where the pool's slots went, summed over the steps of a run (unit: slot · steps), so that any
// share is a mean over time. Paged: what a running sequence does not fill is the tail of its last
// block. Slab: it is either *reserved* (the sequence filled it later) or *never used*; which one is
// known when the sequence ends, so both count sequences that have left the engine.
struct WasteAccount {
    int64_t num_steps = 0;
    int64_t pool_slots = 0;        // of the whole pool
    int64_t used_slots = 0;        // K/V written, a shared token once
    int64_t tail_slots = 0;        // paged
    int64_t reserved_slots = 0;    // slab
    int64_t never_used_slots = 0;  // slab
    int64_t free_slots = 0;
    int64_t external_slots =
        0;                      // free, while the head of the queue found no run long enough (slab)
    int64_t num_running = 0;    // sequences that hold blocks and run, summed over steps
    int64_t max_running = 0;    // in one step
    int64_t blocks_held = 0;    // summed over steps: distinct
    int64_t table_entries = 0;  // summed over steps: what they would be without sharing

    double meanRunning() const { return perStep(num_running); }
    // Share of the pool, 0 … 1.
    double shareOf(int64_t slot_steps) const {
        return pool_slots > 0 ? static_cast<double>(slot_steps) / static_cast<double>(pool_slots)
                              : 0;
    }
    // Blocks that sharing saved, as a share of what would be held without it.
    double sharingSaved() const {
        return table_entries > 0
                   ? 1 - static_cast<double>(blocks_held) / static_cast<double>(table_entries)
                   : 0;
    }

    // After a step: counts of pool and running sequences.
    void addStep(const KvCacheManager& cache, const Scheduler& scheduler);
    // A sequence left with final_len tokens of K/V.
    void addLeft(const Sequence& sequence, int64_t run_slots, int64_t final_len);

  private:
    double perStep(int64_t sum) const {
        return num_steps > 0 ? static_cast<double>(sum) / static_cast<double>(num_steps) : 0;
    }
};

}  // namespace kvlab
