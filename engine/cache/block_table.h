// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "engine/ids.h"

namespace kvlab {

// Where one sequence's K/V lie:
//
//   position   0 … 15   16 … 31   32 …            block_size 16
//   block idx     0        1        2
//   blocks     [ 37 ]   [  4 ]   [ 12 ]           physical block of each logical index
//
// slot of position p = blocks[p / block_size] * block_size + p % block_size
//
// Blocks that have left a sliding window are given back; their entries stay, and name none:
//
//   blocks     [  - ]   [  4 ]   [ 12 ]           num_left 1
//
// While a sequence is swapped out, blocks that no running sequence holds lie in the host pool:
//
//   blocks       [ 37 ]   [  - ]   [  - ]
//   host_blocks  [  - ]   [  0 ]   [  1 ]         empty while nothing is on the host
struct BlockTable {
    std::vector<BlockId> blocks;
    std::vector<HostBlockId> host_blocks;
    int num_on_host = 0;  // valid entries of host_blocks
    int num_left = 0;     // leading entries that left the window: no block, no host block
    int kv_len = 0;       // tokens whose K/V are written
    int run_blocks = 0;   // slab: length of its run, which a preempted sequence asks for again
    bool swapped_out = false;

    // Entries that name a block, here or on the host.
    int64_t numHeld() const { return static_cast<int64_t>(blocks.size()) - num_left; }

    SlotIndex slotOf(int position, int block_size) const {
        const BlockId block = blocks[static_cast<size_t>(position / block_size)];
        return SlotIndex(static_cast<int64_t>(block.value) * block_size + position % block_size);
    }
};

}  // namespace kvlab
