// SPDX-License-Identifier: MIT
#include "engine/cache/kv_cache_manager.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "engine/error.h"
#include "engine/trace/trace_recorder.h"

namespace kvlab {

namespace {

CacheConfig pagedConfig(int num_blocks, int block_size) {
    CacheConfig config;
    config.num_blocks = num_blocks;
    config.block_size = block_size;
    return config;
}

}  // namespace

KvCacheManager::KvCacheManager(const CacheConfig& config, TraceRecorder& recorder)
    : config_(config),
      pool_(config.num_blocks, config.block_size),
      host_(config.num_host_blocks),
      slabs_(config.layout == CacheLayout::kSlab ? config.num_blocks : 0),
      recorder_(recorder),
      running_refs_(static_cast<size_t>(config.num_blocks), 0) {}

KvCacheManager::KvCacheManager(int num_blocks, int block_size, TraceRecorder& recorder)
    : KvCacheManager(pagedConfig(num_blocks, block_size), recorder) {}

BlockTable& KvCacheManager::tableOf(SequenceId sequence) {
    const auto found = tables_.find(sequence);
    KVLAB_CHECK(found != tables_.end(), "a sequence without a block table");
    return found->second;
}

const BlockTable& KvCacheManager::table(SequenceId sequence) const {
    return const_cast<KvCacheManager*>(this)->tableOf(sequence);
}

void KvCacheManager::append(SequenceId sequence, BlockTable& table, BlockId block) {
    running_refs_[static_cast<size_t>(block.value)] = 1;
    recorder_.blockAllocated(sequence, static_cast<int>(table.blocks.size()), block);
    table.blocks.push_back(block);
    ++num_blocks_unshared_;
}

BlockId KvCacheManager::takeRun(int64_t run_blocks) {
    const auto count = static_cast<int>(std::min<int64_t>(run_blocks, INT32_MAX));
    const BlockId first = slabs_.firstFit(count);
    if (!first.valid()) {
        throw EngineError(ErrorKind::kOutOfMemory,
                          "no " + std::to_string(run_blocks) +
                              " free blocks lie side by side; give the pool more blocks");
    }
    slabs_.take(first, count);
    return first;
}

bool KvCacheManager::canTakeRunAfter(int64_t run_blocks,
                                     const std::vector<SequenceId>& gone) const {
    SlabAllocator slabs = slabs_;
    for (const SequenceId sequence : gone) {
        for (const BlockId block : table(sequence).blocks) slabs.free(block);
    }
    return slabs.longestRun() >= run_blocks;
}

void KvCacheManager::add(SequenceId sequence, int64_t run_blocks) {
    const auto [entry, added] = tables_.try_emplace(sequence);
    KVLAB_CHECK(added, "a sequence was added twice");
    if (!isSlab()) return;
    const BlockId run = takeRun(run_blocks);
    entry->second.run_blocks = static_cast<int>(run_blocks);
    fillRun(sequence, entry->second, run);
}

void KvCacheManager::fillRun(SequenceId sequence, BlockTable& table, BlockId run) {
    for (int idx = static_cast<int>(table.blocks.size()); idx < table.run_blocks; ++idx) {
        const BlockId block(run.value + idx);
        pool_.allocate(block);
        append(sequence, table, block);
    }
}

void KvCacheManager::fork(SequenceId parent,
                          const std::vector<SequenceId>& children,
                          const std::vector<int>& sample_idx) {
    KVLAB_CHECK(!isSlab(), "a slab was shared");
    const BlockTable table = tableOf(parent);
    KVLAB_CHECK(!table.swapped_out, "a swapped-out sequence was forked");
    for (size_t i = 0; i < children.size(); ++i) {
        const bool added = tables_.emplace(children[i], table).second;
        KVLAB_CHECK(added, "a sequence was added twice");
        for (const BlockId block : table.blocks) {
            if (!block.valid()) continue;  // left the window
            pool_.retain(block);
            ++running_refs_[static_cast<size_t>(block.value)];
        }
        num_blocks_unshared_ += table.numHeld();
        recorder_.sequenceForked(parent, children[i], sample_idx[i]);
    }
}

void KvCacheManager::copyInto(SequenceId parent,
                              SequenceId child,
                              std::vector<BlockTransfer>& transfers) {
    const BlockTable& from = table(parent);
    BlockTable& to = tableOf(child);
    KVLAB_CHECK(isSlab() && to.kv_len == 0 && to.blocks.size() == from.blocks.size(),
                "a copy between runs that do not match");
    const int block_size = pool_.blockSize();
    for (int idx = 0; idx * block_size < from.kv_len; ++idx) {
        const BlockId source = from.blocks[static_cast<size_t>(idx)];
        const BlockId target = to.blocks[static_cast<size_t>(idx)];
        const int num_slots = pool_.numFilled(source);
        pool_.setFilled(target, num_slots);
        transfers.push_back({BlockTransfer::Kind::kCopy, source, target, {}, num_slots});
    }
    to.kv_len = from.kv_len;
    recorder_.tokensCopied(parent, child, from.kv_len);
}

int64_t KvCacheManager::blocksToAppend(SequenceId sequence, int num_tokens) const {
    const BlockTable& entries = table(sequence);
    if (num_tokens == 0) return 0;
    const int64_t needed = blocksFor(int64_t{entries.kv_len} + num_tokens, pool_.blockSize());
    const int64_t more = std::max<int64_t>(0, needed - static_cast<int64_t>(entries.blocks.size()));
    return more + (tailIsShared(entries) ? 1 : 0);
}

bool KvCacheManager::tailIsShared(const BlockTable& table) const {
    const int block_size = pool_.blockSize();
    if (table.kv_len % block_size == 0) return false;
    return pool_.refCount(table.blocks[static_cast<size_t>(table.kv_len / block_size)]) > 1;
}

int64_t KvCacheManager::blocksToReach(SequenceId sequence, int num_tokens) const {
    const BlockTable& entries = table(sequence);
    if (!config_.freesLeftBlocks() || num_tokens == 0) return blocksToAppend(sequence, num_tokens);
    const int64_t most = config_.mostBlocks(int64_t{entries.kv_len} + num_tokens);
    return std::max<int64_t>(0, most - entries.numHeld()) + (tailIsShared(entries) ? 1 : 0);
}

int64_t KvCacheManager::roomFor(SequenceId sequence, int64_t free_blocks) const {
    const int64_t kv_len = table(sequence).kv_len, block_size = pool_.blockSize();
    const int64_t in_tail = blocksFor(kv_len, pool_.blockSize()) * block_size - kv_len;
    return in_tail + free_blocks * block_size;
}

void KvCacheManager::prepareAppend(SequenceId sequence,
                                   int num_tokens,
                                   std::vector<BlockTransfer>& transfers) {
    BlockTable& table = tableOf(sequence);
    KVLAB_CHECK(!table.swapped_out, "a swapped-out sequence went on");
    const int block_size = pool_.blockSize();
    const int tail_slots = table.kv_len % block_size;
    if (num_tokens > 0 && tail_slots != 0) {
        const int block_idx = table.kv_len / block_size;
        BlockId& tail = table.blocks[static_cast<size_t>(block_idx)];
        if (pool_.refCount(tail) > 1) {
            const BlockId source = tail;
            const BlockId target = pool_.allocate();
            pool_.setFilled(target, tail_slots);
            running_refs_[static_cast<size_t>(target.value)] = 1;
            tail = target;
            dropReference(block_idx, source, true);
            transfers.push_back({BlockTransfer::Kind::kCopy, source, target, {}, tail_slots});
            ++num_copy_on_write_;
            recorder_.blockCopied(sequence, block_idx, source, target, tail_slots);
        }
    }
    const int64_t needed = blocksFor(int64_t{table.kv_len} + num_tokens, block_size);
    KVLAB_CHECK(!isSlab() || needed <= static_cast<int64_t>(table.blocks.size()),
                "a sequence outgrew its slab");
    while (static_cast<int64_t>(table.blocks.size()) < needed) {
        append(sequence, table, pool_.allocate());
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
    releaseLeft(sequence, table);
}

void KvCacheManager::releaseLeft(SequenceId sequence, BlockTable& table) {
    for (const int left = config_.blocksLeft(table.kv_len); table.num_left < left;) {
        const int block_idx = table.num_left++;
        const BlockId block =
            std::exchange(table.blocks[static_cast<size_t>(block_idx)], BlockId());
        --num_blocks_unshared_;
        dropReference(block_idx, block, true);
        recorder_.blockLeftWindow(sequence, block_idx, block);
    }
}

void KvCacheManager::dropReference(int block_idx, BlockId block, bool runs) {
    int& running = running_refs_[static_cast<size_t>(block.value)];
    if (runs) --running;
    if (pool_.release(block)) {
        orphans_.erase(block);
        if (isSlab()) slabs_.free(block);
    } else if (running == 0) {
        orphans_[block] = block_idx;
    }
}

void KvCacheManager::shrink(SequenceId sequence, BlockTable& table, size_t num_blocks) {
    while (table.blocks.size() > num_blocks) {
        const BlockId block = table.blocks.back();
        table.blocks.pop_back();
        --num_blocks_unshared_;
        const int block_idx = static_cast<int>(table.blocks.size());
        if (block.valid()) {
            if (table.num_on_host > 0) table.host_blocks.pop_back();
            dropReference(block_idx, block, !table.swapped_out);
            recorder_.blockReleased(sequence, block_idx, block);
        } else {
            const HostBlockId host_block = table.host_blocks.back();
            table.host_blocks.pop_back();
            if (--table.num_on_host == 0) table.host_blocks.clear();
            host_.release(host_block);
            recorder_.hostBlockReleased(sequence, block_idx, host_block);
        }
        if (block_idx == table.num_left) {
            // Only entries that left the window remain, and they go with the last block.
            table.blocks.clear();
            table.num_left = 0;
        }
    }
    table.kv_len = std::min<int>(table.kv_len, static_cast<int>(num_blocks) * pool_.blockSize());
}

void KvCacheManager::forgetSwapped(SequenceId sequence) { std::erase(swapped_, sequence); }

void KvCacheManager::release(SequenceId sequence) {
    BlockTable& table = tableOf(sequence);
    shrink(sequence, table, 0);
    if (table.swapped_out) forgetSwapped(sequence);
    tables_.erase(sequence);
}

int64_t KvCacheManager::blocksToSwapOut(SequenceId sequence) const {
    const BlockTable& entries = table(sequence);
    const int64_t block_size = pool_.blockSize();
    int64_t count = 0;
    for (int64_t idx = entries.num_left; idx * block_size < entries.kv_len; ++idx) {
        const BlockId block = entries.blocks[static_cast<size_t>(idx)];
        count += running_refs_[static_cast<size_t>(block.value)] == 1;
    }
    return count;
}

void KvCacheManager::moveToHost(int block_idx,
                                BlockId block,
                                std::vector<BlockTransfer>& transfers) {
    const int num_filled = pool_.numFilled(block);
    const HostBlockId host_block = host_.allocate(pool_.refCount(block), num_filled);
    const size_t idx = static_cast<size_t>(block_idx);
    for (const SequenceId id : swapped_) {
        BlockTable& table = tableOf(id);
        if (table.blocks.size() <= idx || table.blocks[idx] != block) continue;
        if (table.host_blocks.empty()) table.host_blocks.resize(table.blocks.size());
        table.host_blocks[idx] = host_block;
        table.blocks[idx] = BlockId();
        ++table.num_on_host;
    }
    orphans_.erase(block);
    pool_.vacate(block);
    if (isSlab()) slabs_.free(block);
    ++num_swapped_out_;
    recorder_.blockSwappedOut(block_idx, block, host_block);
    transfers.push_back({BlockTransfer::Kind::kSwapOut, block, {}, host_block, num_filled});
}

void KvCacheManager::swapOut(SequenceId sequence, std::vector<BlockTransfer>& transfers) {
    BlockTable& table = tableOf(sequence);
    KVLAB_CHECK(!table.swapped_out, "a sequence was swapped out twice");
    // Blocks without a token need no place on the host.
    shrink(sequence, table, static_cast<size_t>(blocksFor(table.kv_len, pool_.blockSize())));
    table.swapped_out = true;
    swapped_.push_back(sequence);
    recorder_.sequencePreempted(sequence, PreemptionKind::kSwap);
    const std::vector<BlockId> blocks = table.blocks;
    for (size_t idx = static_cast<size_t>(table.num_left); idx < blocks.size(); ++idx) {
        if (--running_refs_[static_cast<size_t>(blocks[idx].value)] == 0) {
            moveToHost(static_cast<int>(idx), blocks[idx], transfers);
        }
    }
}

void KvCacheManager::drop(SequenceId sequence) {
    BlockTable& table = tableOf(sequence);
    shrink(sequence, table, 0);
    if (table.swapped_out) forgetSwapped(sequence);
    table.swapped_out = false;
    recorder_.sequencePreempted(sequence, PreemptionKind::kRecompute);
}

int64_t KvCacheManager::blocksToResume(SequenceId sequence) const {
    return isSlab() ? table(sequence).run_blocks : table(sequence).num_on_host;
}

void KvCacheManager::resume(SequenceId sequence, std::vector<BlockTransfer>& transfers) {
    BlockTable& table = tableOf(sequence);
    const BlockId run = isSlab() ? takeRun(table.run_blocks) : BlockId();
    for (size_t idx = static_cast<size_t>(table.num_left); idx < table.blocks.size(); ++idx) {
        if (table.blocks[idx].valid()) {
            // A running sequence kept it on the device, or it was an orphan.
            ++running_refs_[static_cast<size_t>(table.blocks[idx].value)];
            orphans_.erase(table.blocks[idx]);
            continue;
        }
        const HostBlockId host_block = table.host_blocks[idx];
        const int num_filled = host_.numFilled(host_block);
        const int ref_count = host_.refCount(host_block);
        BlockId block(run.value + static_cast<int64_t>(idx));
        if (isSlab()) {
            pool_.allocateFilled(block, ref_count, num_filled);
        } else {
            block = pool_.allocateFilled(ref_count, num_filled);
        }
        running_refs_[static_cast<size_t>(block.value)] = 1;
        for (const SequenceId id : swapped_) {
            BlockTable& other = tableOf(id);
            if (other.num_on_host == 0 || other.host_blocks.size() <= idx ||
                other.host_blocks[idx] != host_block) {
                continue;
            }
            other.blocks[idx] = block;
            other.host_blocks[idx] = HostBlockId();
            if (--other.num_on_host == 0) other.host_blocks.clear();
        }
        host_.free(host_block);
        ++num_swapped_in_;
        recorder_.blockSwappedIn(static_cast<int>(idx), host_block, block);
        transfers.push_back({BlockTransfer::Kind::kSwapIn, {}, block, host_block, num_filled});
    }
    if (table.swapped_out) forgetSwapped(sequence);
    table.swapped_out = false;
    recorder_.sequenceResumed(sequence);
    if (isSlab()) fillRun(sequence, table, run);
}

bool KvCacheManager::moveOrphans(int64_t count, std::vector<BlockTransfer>& transfers) {
    while (pool_.numFree() < count) {
        if (orphans_.empty() || host_.numFree() == 0) return false;
        const auto [block, block_idx] = *orphans_.begin();
        moveToHost(block_idx, block, transfers);
    }
    return true;
}

}  // namespace kvlab
