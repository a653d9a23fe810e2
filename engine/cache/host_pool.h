// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "engine/cache/free_queue.h"
#include "engine/error.h"
#include "engine/ids.h"

namespace kvlab {

// The host pool: where blocks of swapped-out sequences wait. As in the block pool, a block's
// reference count is the number of tables that name it; a shared block moves once and keeps its
// count. It knows counts, not contents. May have no block at all.
class HostPool {
  public:
    explicit HostPool(int num_blocks)
        : blocks_(static_cast<size_t>(num_blocks)), free_queue_(num_blocks) {}

    int numBlocks() const { return static_cast<int>(blocks_.size()); }
    int numFree() const { return static_cast<int>(free_queue_.size()); }

    // Takes the front of the free queue for a block with these counts. Throws kOutOfMemory.
    HostBlockId allocate(int ref_count, int num_filled) {
        if (free_queue_.empty()) {
            throw EngineError(ErrorKind::kOutOfMemory,
                              "the host pool is full; give it more blocks");
        }
        const HostBlockId block = free_queue_.front();
        free_queue_.popFront();
        at(block) = {ref_count, num_filled};
        return block;
    }
    // One table fewer; free at reference count 0.
    void release(HostBlockId block) {
        KVLAB_CHECK(refCount(block) > 0, "a host block that nobody holds was released");
        if (--at(block).ref_count == 0) free(block);
    }
    // Its content went back to the device.
    void free(HostBlockId block) {
        at(block) = {};
        free_queue_.pushBack(block);
    }

    int refCount(HostBlockId block) const { return blocks_[checked(block)].ref_count; }
    int numFilled(HostBlockId block) const { return blocks_[checked(block)].num_filled; }
    const FreeQueue<HostBlockId>& freeQueue() const { return free_queue_; }

  private:
    struct Block {
        int ref_count = 0;
        int num_filled = 0;  // slots
    };
    size_t checked(HostBlockId block) const {
        KVLAB_CHECK(block.valid() && block.value < numBlocks(), "a block outside the host pool");
        return static_cast<size_t>(block.value);
    }
    Block& at(HostBlockId block) { return blocks_[checked(block)]; }

    std::vector<Block> blocks_;
    FreeQueue<HostBlockId> free_queue_;
};

}  // namespace kvlab
