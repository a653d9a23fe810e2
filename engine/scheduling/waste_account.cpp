// SPDX-License-Identifier: MIT
#include "engine/scheduling/waste_account.h"

#include <algorithm>

#include "engine/scheduling/scheduler.h"

namespace kvlab {

void WasteAccount::addStep(const KvCacheManager& cache, const Scheduler& scheduler) {
    const BlockPool& pool = cache.pool();
    const int64_t block_size = pool.blockSize();
    ++num_steps;
    pool_slots += pool.numBlocks() * block_size;
    used_slots += pool.numSlotsFilled();
    free_slots += pool.numFree() * block_size;
    if (scheduler.isHeldUpByRuns()) external_slots += pool.numFree() * block_size;
    blocks_held += pool.numActive();
    table_entries += cache.numBlocksUnshared();
    // Who was cancelled after it had given way is on its way out and holds nothing.
    const auto holds = [&](const auto& sequence) {
        const BlockTable& table = cache.table(sequence->id);
        return table.numHeld() > 0 && !table.swapped_out;
    };
    const int64_t running =
        std::count_if(scheduler.running().begin(), scheduler.running().end(), holds);
    num_running += running;
    max_running = std::max(max_running, running);
    if (!cache.isSlab()) {
        tail_slots += pool.numActive() * block_size - pool.numSlotsFilled();
        return;
    }
    for (const auto& sequence : scheduler.running()) {
        if (!holds(sequence)) continue;
        ++sequence->num_steps_held;
        const BlockTable& table = cache.table(sequence->id);
        sequence->unused_slot_steps += table.run_blocks * block_size - table.kv_len;
    }
}

void WasteAccount::addLeft(const Sequence& sequence, int64_t run_slots, int64_t final_len) {
    const int64_t never = sequence.num_steps_held * (run_slots - final_len);
    never_used_slots += never;
    reserved_slots += sequence.unused_slot_steps - never;
}

}  // namespace kvlab
