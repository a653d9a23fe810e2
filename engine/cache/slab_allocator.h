// SPDX-License-Identifier: MIT
#pragma once

#include <map>

#include "engine/ids.h"

namespace kvlab {

// Free runs of a pool that is cut into slabs:
//
//   blocks   0 … 7 taken   8 … 19 free   20 … 27 taken   28 … 31 free
//   runs     { 8: 12, 28: 4 }            firstFit(6) = 8, firstFit(16): none, though 16 are free
//
// Neighbouring free runs are one run: blocks that come back join both their neighbours.
class SlabAllocator {
  public:
    explicit SlabAllocator(int num_blocks) {
        if (num_blocks > 0) runs_[0] = num_blocks;
    }
    // First block of the lowest run of at least `count` blocks; not valid() when there is none.
    BlockId firstFit(int count) const;
    // Takes blocks first … first + count - 1; they must be free.
    void take(BlockId first, int count);
    void free(BlockId block);

    int longestRun() const;  // blocks

  private:
    std::map<int, int> runs_;  // first block → length
};

}  // namespace kvlab
