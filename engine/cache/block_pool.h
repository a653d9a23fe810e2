// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "engine/cache/free_queue.h"
#include "engine/ids.h"

namespace kvlab {

// The pool: who may use which block. It knows counts, not contents.
//
//   free queue   [ 7 ][ 8 ][ 9 ] …          front is taken next, released blocks join the end
//   block 0      ref_count 8  index_count 0   active: eight tables name it
//   block 7      ref_count 0  index_count 0   free
//
// Reference count: sequences whose tables name the block. Index count: prefix entries that name it
// (none until prefix reuse exists). Free: both 0. Cached: only the index count above 0. Active:
// reference count above 0. A caller that breaks the protocol gets EngineError(kInternal).
class BlockPool {
  public:
    // num_blocks >= 1; block_size tokens per block, 1 … 256; their product, the slots, at most 2^31
    // - 1. Throws kBadArgument otherwise.
    BlockPool(int num_blocks, int block_size);
    static void checkSize(int num_blocks, int block_size);
    // The second half of it, for who computes the number of blocks.
    static void checkBlockSize(int block_size);

    int numBlocks() const { return static_cast<int>(blocks_.size()); }
    int blockSize() const { return block_size_; }
    int numFree() const { return static_cast<int>(free_queue_.size()); }
    int numActive() const { return num_active_; }
    int numCached() const { return numBlocks() - numFree() - numActive(); }

    // Takes the front of the free queue; reference count 1, nothing written. Throws kOutOfMemory
    // when none is free.
    BlockId allocate();
    // Takes this block, wherever it stands in the free queue.
    void allocate(BlockId block);
    // Takes the front for a block that came back from the host with these counts.
    BlockId allocateFilled(int ref_count, int num_filled);
    void allocateFilled(BlockId block, int ref_count, int num_filled);
    // Its content went to the host: free at once, whoever named it.
    void vacate(BlockId block);
    void retain(BlockId block);  // one more table names it; it must be active
    // One table fewer. Returns true when the block became free.
    bool release(BlockId block);

    int refCount(BlockId block) const { return at(block).ref_count; }
    int indexCount(BlockId block) const { return at(block).index_count; }
    int numFilled(BlockId block) const { return at(block).num_filled; }
    void setFilled(BlockId block, int num_slots);  // slots whose K/V are written, 0 … block_size

    int64_t numSlotsFilled() const { return num_slots_filled_; }  // of active blocks
    int numShared() const { return num_shared_; }  // active blocks with a reference count above 1

    const FreeQueue<BlockId>& freeQueue() const { return free_queue_; }

  private:
    struct Block {
        int ref_count = 0;
        int index_count = 0;
        int num_filled = 0;
    };
    const Block& at(BlockId block) const;
    Block& at(BlockId block);

    int block_size_;
    int num_active_ = 0;
    int num_shared_ = 0;
    int64_t num_slots_filled_ = 0;
    std::vector<Block> blocks_;
    FreeQueue<BlockId> free_queue_;
};

}  // namespace kvlab
