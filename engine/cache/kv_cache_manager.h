// SPDX-License-Identifier: MIT
#pragma once

#include <unordered_map>
#include <vector>

#include "engine/cache/block_pool.h"
#include "engine/cache/block_table.h"
#include "engine/ids.h"

namespace kvlab {

class TraceRecorder;

// A copy that must be done before the step's K/V are written.
struct BlockCopy {
    BlockId source;
    BlockId target;
    int num_slots = 0;  // written slots of the source
};

// Tables of all sequences over one pool: append, fork, copy-on-write, release. Every change is
// recorded as it happens. A shared block is never written: the writer copies it first, and the last
// holder writes in place.
class KvCacheManager {
  public:
    KvCacheManager(int num_blocks, int block_size, TraceRecorder& recorder);

    void add(SequenceId sequence);
    // Children take the parent's table: one reference more on each of its blocks.
    void fork(SequenceId parent,
              const std::vector<SequenceId>& children,
              const std::vector<int>& sample_idx);
    // Makes room for num_tokens more tokens: copies a shared tail block, allocates new ones. Copies
    // are appended to `copies`. Throws kOutOfMemory when the pool is empty; blocks taken before
    // that stay with the sequence.
    void prepareAppend(SequenceId sequence, int num_tokens, std::vector<BlockCopy>& copies);
    // K/V of num_tokens tokens are in the prepared slots.
    void commitAppend(SequenceId sequence, int num_tokens);
    // Gives back the whole table, last block first, and forgets the sequence.
    void release(SequenceId sequence);

    bool contains(SequenceId sequence) const { return tables_.count(sequence) != 0; }
    const BlockTable& table(SequenceId sequence) const;
    const BlockPool& pool() const { return pool_; }
    int64_t numCopyOnWrite() const { return num_copy_on_write_; }

  private:
    BlockTable& tableOf(SequenceId sequence);

    BlockPool pool_;
    TraceRecorder& recorder_;
    std::unordered_map<SequenceId, BlockTable> tables_;
    int64_t num_copy_on_write_ = 0;
};

}  // namespace kvlab
