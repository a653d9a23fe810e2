// SPDX-License-Identifier: MIT
#include "engine/cache/block_pool.h"

#include "engine/error.h"
#include "engine/text_format.h"

namespace kvlab {

void BlockPool::checkBlockSize(int block_size) {
    if (block_size < 1 || block_size > 256) {
        throw EngineError(ErrorKind::kBadArgument,
                          "a block of " + std::to_string(block_size) +
                              " tokens is not possible; choose a block size from 1 to 256");
    }
}

void BlockPool::checkSize(int num_blocks, int block_size) {
    checkBlockSize(block_size);
    if (num_blocks < 1) {
        throw EngineError(ErrorKind::kBadArgument,
                          "a pool of " + std::to_string(num_blocks) +
                              " blocks is not possible; give it at least one");
    }
    if (int64_t{num_blocks} * block_size > INT32_MAX) {
        throw EngineError(
            ErrorKind::kBadArgument,
            "a pool of " + formatCount(num_blocks) + " blocks of " + std::to_string(block_size) +
                " slots has more slots than a slot index counts; ask for fewer blocks");
    }
}

BlockPool::BlockPool(int num_blocks, int block_size) : block_size_(block_size) {
    checkSize(num_blocks, block_size);
    blocks_.resize(static_cast<size_t>(num_blocks));
    free_queue_ = FreeQueue<BlockId>(num_blocks);
}

const BlockPool::Block& BlockPool::at(BlockId block) const {
    KVLAB_CHECK(block.valid() && block.value < numBlocks(), "a block outside the pool");
    return blocks_[static_cast<size_t>(block.value)];
}

BlockPool::Block& BlockPool::at(BlockId block) {
    return const_cast<Block&>(static_cast<const BlockPool*>(this)->at(block));
}

BlockId BlockPool::allocate() { return allocateFilled(1, 0); }

void BlockPool::allocate(BlockId block) { allocateFilled(block, 1, 0); }

BlockId BlockPool::allocateFilled(int ref_count, int num_filled) {
    if (free_queue_.empty()) {
        throw EngineError(
            ErrorKind::kOutOfMemory,
            "all " + std::to_string(numBlocks()) + " blocks are in use; give the pool more blocks");
    }
    const BlockId block = free_queue_.front();
    allocateFilled(block, ref_count, num_filled);
    return block;
}

void BlockPool::allocateFilled(BlockId block, int ref_count, int num_filled) {
    KVLAB_CHECK(free_queue_.contains(block), "a block was taken that is not free");
    free_queue_.remove(block);
    at(block).ref_count = ref_count;
    num_shared_ += ref_count > 1;
    ++num_active_;
    setFilled(block, num_filled);
}

void BlockPool::vacate(BlockId block) {
    Block& entry = at(block);
    KVLAB_CHECK(entry.ref_count > 0 && entry.index_count == 0,
                "a block was vacated that nobody holds");
    num_shared_ -= entry.ref_count > 1;
    entry.ref_count = 1;
    release(block);
}

void BlockPool::retain(BlockId block) {
    KVLAB_CHECK(at(block).ref_count > 0, "a block that nobody holds was shared");
    if (++at(block).ref_count == 2) ++num_shared_;
}

bool BlockPool::release(BlockId block) {
    Block& entry = at(block);
    KVLAB_CHECK(entry.ref_count > 0, "a block that nobody holds was released");
    --entry.ref_count;
    if (entry.ref_count == 1) --num_shared_;
    if (entry.ref_count > 0) return false;
    --num_active_;
    num_slots_filled_ -= entry.num_filled;
    if (entry.index_count > 0) return false;
    entry.num_filled = 0;
    free_queue_.pushBack(block);
    return true;
}

void BlockPool::setFilled(BlockId block, int num_slots) {
    KVLAB_CHECK(num_slots >= 0 && num_slots <= block_size_, "more slots than the block has");
    num_slots_filled_ += num_slots - at(block).num_filled;
    at(block).num_filled = num_slots;
}

}  // namespace kvlab
