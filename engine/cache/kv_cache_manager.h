// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "engine/cache/block_pool.h"
#include "engine/cache/block_table.h"
#include "engine/cache/host_pool.h"
#include "engine/cache/slab_allocator.h"
#include "engine/config.h"
#include "engine/ids.h"

namespace kvlab {

class TraceRecorder;

// A copy that must be done before the step's K/V are written. The copies of a step are done in
// their order: a block that was copied away may be the target of the next one.
struct BlockTransfer {
    enum class Kind : uint8_t { kCopy, kSwapOut, kSwapIn };
    Kind kind = Kind::kCopy;
    BlockId source;     // kCopy, kSwapOut
    BlockId target;     // kCopy, kSwapIn
    HostBlockId host;   // kSwapOut: to it, kSwapIn: from it
    int num_slots = 0;  // written slots of the source
};

// Tables of all sequences over one pool and its host pool: append, fork, copy-on-write, swap,
// release. Every change is recorded as it happens. A shared block is never written: the writer
// copies it first, and the last holder writes in place. With a sliding window that all layers
// share, a table gives back the blocks that its next token no longer sees.
//
// A swapped-out sequence keeps its references. Of its blocks, those that a running sequence holds
// stay on the device; the others move to the host. A block whose running holders all left later is
// an *orphan*: still on the device, but nobody reads it, so it may be moved at any time.
class KvCacheManager {
  public:
    KvCacheManager(const CacheConfig& config, TraceRecorder& recorder);
    KvCacheManager(int num_blocks, int block_size, TraceRecorder& recorder);  // paged, no host pool

    // Paged: an empty table. Slab: a run of so many blocks by first fit; throws kOutOfMemory.
    void add(SequenceId sequence, int64_t run_blocks = 0);
    // Children take the parent's table: one reference more on each of its blocks. Paged only.
    void fork(SequenceId parent,
              const std::vector<SequenceId>& children,
              const std::vector<int>& sample_idx);
    // Slab: the parent's written blocks are copied to the child's own run.
    void copyInto(SequenceId parent, SequenceId child, std::vector<BlockTransfer>& transfers);
    // Free blocks that an append takes, a copied tail block included.
    int64_t blocksToAppend(SequenceId sequence, int num_tokens) const;
    // Free blocks that it needs at a time to get num_tokens further in steps as small as they must
    // be: blocksToAppend() where nothing leaves a window.
    int64_t blocksToReach(SequenceId sequence, int num_tokens) const;
    // Tokens that an append can take without a free block, and with `free_blocks` of them.
    int64_t roomFor(SequenceId sequence, int64_t free_blocks) const;
    // Makes room for num_tokens more tokens: copies a shared tail block, allocates new ones. Copies
    // are appended to `transfers`. Throws kOutOfMemory when the pool is empty; blocks taken before
    // that stay with the sequence.
    void prepareAppend(SequenceId sequence, int num_tokens, std::vector<BlockTransfer>& transfers);
    // K/V of num_tokens tokens are in the prepared slots; blocks that left the window go back.
    void commitAppend(SequenceId sequence, int num_tokens);
    // Gives back the whole table, last block first, and forgets the sequence.
    void release(SequenceId sequence);

    // Host blocks that swapOut() takes.
    int64_t blocksToSwapOut(SequenceId sequence) const;
    // Preempts a running sequence; the host pool must have room.
    void swapOut(SequenceId sequence, std::vector<BlockTransfer>& transfers);
    // Preempts a running or swapped-out sequence for recompute: it keeps no block.
    void drop(SequenceId sequence);
    // Free blocks that resume() takes; slab: its run, which must be there side by side.
    int64_t blocksToResume(SequenceId sequence) const;
    // A preempted sequence runs again: its blocks come back from the host, or a dropped one starts
    // with an empty table (slab: with a run).
    void resume(SequenceId sequence, std::vector<BlockTransfer>& transfers);
    // Moves orphans to the host until `count` blocks are free; false when orphans or host blocks
    // ran out.
    bool moveOrphans(int64_t count, std::vector<BlockTransfer>& transfers);

    bool isSlab() const { return config_.layout == CacheLayout::kSlab; }
    const CacheConfig& config() const { return config_; }
    bool canTakeRun(int64_t run_blocks) const { return slabs_.longestRun() >= run_blocks; }
    // Whether it could once these sequences had given way.
    bool canTakeRunAfter(int64_t run_blocks, const std::vector<SequenceId>& gone) const;

    bool contains(SequenceId sequence) const { return tables_.count(sequence) != 0; }
    const BlockTable& table(SequenceId sequence) const;
    const BlockPool& pool() const { return pool_; }
    const HostPool& hostPool() const { return host_; }
    int64_t numOrphans() const { return static_cast<int64_t>(orphans_.size()); }
    int64_t numCopyOnWrite() const { return num_copy_on_write_; }
    int64_t numSwappedOut() const { return num_swapped_out_; }  // blocks so far
    int64_t numSwappedIn() const { return num_swapped_in_; }
    int64_t numBlocksUnshared() const { return num_blocks_unshared_; }  // entries of all tables

  private:
    BlockTable& tableOf(SequenceId sequence);
    // One table fewer names the block at block_idx; `runs`: that table's sequence did.
    void dropReference(int block_idx, BlockId block, bool runs);
    // Releases entries from the tail until `num_blocks` are left.
    void shrink(SequenceId sequence, BlockTable& table, size_t num_blocks);
    bool tailIsShared(const BlockTable& table) const;
    void releaseLeft(SequenceId sequence, BlockTable& table);
    void moveToHost(int block_idx, BlockId block, std::vector<BlockTransfer>& transfers);
    void append(SequenceId sequence, BlockTable& table, BlockId block);
    BlockId takeRun(int64_t run_blocks);
    // The run's blocks that the table does not hold yet.
    void fillRun(SequenceId sequence, BlockTable& table, BlockId run);
    void forgetSwapped(SequenceId sequence);

    CacheConfig config_;
    BlockPool pool_;
    HostPool host_;
    SlabAllocator slabs_;
    TraceRecorder& recorder_;
    std::unordered_map<SequenceId, BlockTable> tables_;
    std::vector<int> running_refs_;    // by block: references of running sequences
    std::map<BlockId, int> orphans_;   // block → its logical index
    std::vector<SequenceId> swapped_;  // swapped-out sequences
    int64_t num_copy_on_write_ = 0;
    int64_t num_swapped_out_ = 0, num_swapped_in_ = 0;
    int64_t num_blocks_unshared_ = 0;
};

}  // namespace kvlab
