// SPDX-License-Identifier: MIT
#include "engine/cache/block_pool.h"

#include "engine/error.h"
#include "engine/text_format.h"

namespace kvlab {

void BlockPool::checkSize(int num_blocks, int block_size) {
    if (block_size < 1 || block_size > 256) {
        throw EngineError(ErrorKind::kBadArgument,
                          "a block of " + std::to_string(block_size) +
                              " tokens is not possible; choose a block size from 1 to 256");
    }
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
    for (int i = 0; i < num_blocks; ++i) free_queue_.push_back(BlockId(i));
}

const BlockPool::Block& BlockPool::at(BlockId block) const {
    KVLAB_CHECK(block.valid() && block.value < numBlocks(), "a block outside the pool");
    return blocks_[static_cast<size_t>(block.value)];
}

BlockPool::Block& BlockPool::at(BlockId block) {
    return const_cast<Block&>(static_cast<const BlockPool*>(this)->at(block));
}

BlockId BlockPool::allocate() {
    if (free_queue_.empty()) {
        throw EngineError(
            ErrorKind::kOutOfMemory,
            "all " + std::to_string(numBlocks()) + " blocks are in use; give the pool more blocks");
    }
    const BlockId block = free_queue_.front();
    free_queue_.pop_front();
    at(block).ref_count = 1;
    ++num_active_;
    return block;
}

void BlockPool::retain(BlockId block) {
    KVLAB_CHECK(at(block).ref_count > 0, "a block that nobody holds was shared");
    ++at(block).ref_count;
}

bool BlockPool::release(BlockId block) {
    Block& entry = at(block);
    KVLAB_CHECK(entry.ref_count > 0, "a block that nobody holds was released");
    if (--entry.ref_count > 0) return false;
    --num_active_;
    if (entry.index_count > 0) return false;
    entry.num_filled = 0;
    free_queue_.push_back(block);
    return true;
}

void BlockPool::setFilled(BlockId block, int num_slots) {
    KVLAB_CHECK(num_slots >= 0 && num_slots <= block_size_, "more slots than the block has");
    at(block).num_filled = num_slots;
}

}  // namespace kvlab
