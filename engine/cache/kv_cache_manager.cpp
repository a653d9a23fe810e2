// SPDX-License-Identifier: MIT
#include "engine/cache/kv_cache_manager.h"

#include <algorithm>

#include "engine/error.h"
#include "engine/trace/trace_recorder.h"

namespace kvlab {

KvCacheManager::KvCacheManager(int num_blocks, int block_size, TraceRecorder& recorder)
    : pool_(num_blocks, block_size), recorder_(recorder) {}

BlockTable& KvCacheManager::tableOf(SequenceId sequence) {
    const auto found = tables_.find(sequence);
    KVLAB_CHECK(found != tables_.end(), "a sequence without a block table");
    return found->second;
}

const BlockTable& KvCacheManager::table(SequenceId sequence) const {
    return const_cast<KvCacheManager*>(this)->tableOf(sequence);
}

void KvCacheManager::add(SequenceId sequence) {
    const bool added = tables_.try_emplace(sequence).second;
    KVLAB_CHECK(added, "a sequence was added twice");
}

void KvCacheManager::fork(SequenceId parent,
                          const std::vector<SequenceId>& children,
                          const std::vector<int>& sample_idx) {
    const BlockTable table = tableOf(parent);
    for (size_t i = 0; i < children.size(); ++i) {
        const bool added = tables_.emplace(children[i], table).second;
        KVLAB_CHECK(added, "a sequence was added twice");
        for (const BlockId block : table.blocks) pool_.retain(block);
        recorder_.sequenceForked(parent, children[i], sample_idx[i]);
    }
}

void KvCacheManager::prepareAppend(SequenceId sequence,
                                   int num_tokens,
                                   std::vector<BlockCopy>& copies) {
    BlockTable& table = tableOf(sequence);
    const int block_size = pool_.blockSize();
    const int tail_slots = table.kv_len % block_size;
    if (num_tokens > 0 && tail_slots != 0) {
        const int block_idx = table.kv_len / block_size;
        BlockId& tail = table.blocks[static_cast<size_t>(block_idx)];
        if (pool_.refCount(tail) > 1) {
            const BlockId source = tail;
            const BlockId target = pool_.allocate();
            pool_.setFilled(target, tail_slots);
            tail = target;
            pool_.release(source);
            copies.push_back({source, target, tail_slots});
            ++num_copy_on_write_;
            recorder_.blockCopied(sequence, block_idx, source, target, tail_slots);
        }
    }
    const int64_t needed = (int64_t{table.kv_len} + num_tokens + block_size - 1) / block_size;
    while (static_cast<int64_t>(table.blocks.size()) < needed) {
        const BlockId block = pool_.allocate();
        recorder_.blockAllocated(sequence, static_cast<int>(table.blocks.size()), block);
        table.blocks.push_back(block);
    }
}

void KvCacheManager::commitAppend(SequenceId sequence, int num_tokens) {
    BlockTable& table = tableOf(sequence);
    const int block_size = pool_.blockSize();
    const int end = table.kv_len + num_tokens;
    KVLAB_CHECK(static_cast<int64_t>(end) <= static_cast<int64_t>(table.blocks.size()) * block_size,
                "tokens were written without room for them");
    for (int block_idx = table.kv_len / block_size; block_idx * block_size < end; ++block_idx) {
        const BlockId block = table.blocks[static_cast<size_t>(block_idx)];
        KVLAB_CHECK(pool_.refCount(block) == 1, "a shared block was written");
        pool_.setFilled(block, std::min(block_size, end - block_idx * block_size));
    }
    recorder_.tokensWritten(sequence, table.kv_len, num_tokens);
    table.kv_len = end;
}

void KvCacheManager::release(SequenceId sequence) {
    BlockTable& table = tableOf(sequence);
    while (!table.blocks.empty()) {
        const BlockId block = table.blocks.back();
        table.blocks.pop_back();
        pool_.release(block);
        recorder_.blockReleased(sequence, static_cast<int>(table.blocks.size()), block);
    }
    tables_.erase(sequence);
}

}  // namespace kvlab
