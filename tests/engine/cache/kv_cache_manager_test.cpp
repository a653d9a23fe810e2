// SPDX-License-Identifier: MIT
#include "engine/cache/kv_cache_manager.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include <QTest>

#include "engine/error.h"
#include "engine/trace/state.h"
#include "engine/trace/trace_recorder.h"

using namespace kvlab;

namespace {

// The naive model: no pool, no counts. Each sequence owns a list of (block label, tokens); a label
// is a number that two sequences share exactly when they share a block. Everything that the manager
// counts is recomputed from it.
constexpr int kLeft = -1;  // instead of the label of a block that left the window

struct NaiveCache {
    int block_size;
    std::map<int, std::vector<int>> labels;  // sequence → label of each logical block
    std::map<int, int> lengths;              // sequence → tokens
    int next_label = 0;
    int64_t copies = 0;
    std::set<int> swapped;  // sequences that wait with their blocks kept
    std::set<int> dropped;  // sequences that wait for their blocks to be computed again
    std::set<int> on_host;  // labels
    int window = 0;         // tokens that a token sees, itself included; 0: all

    int holders(int label) const {
        int count = 0;
        for (const auto& [sequence, blocks] : labels) {
            for (const int block : blocks) count += block == label;
        }
        return count;
    }
    // On the device.
    int distinctBlocks() const {
        std::set<int> distinct;
        for (const auto& [sequence, blocks] : labels) {
            for (const int block : blocks) {
                if (block != kLeft && on_host.count(block) == 0) distinct.insert(block);
            }
        }
        return static_cast<int>(distinct.size());
    }
    bool runs(int sequence) const {
        return swapped.count(sequence) == 0 && dropped.count(sequence) == 0;
    }
    // Labels on the device that no running sequence but `except` holds.
    std::set<int> idleLabels(int except) const {
        std::set<int> idle;
        for (const auto& [sequence, blocks] : labels) idle.insert(blocks.begin(), blocks.end());
        for (const auto& [sequence, blocks] : labels) {
            if (!runs(sequence) || sequence == except) continue;
            for (const int block : blocks) idle.erase(block);
        }
        for (const int block : on_host) idle.erase(block);
        idle.erase(kLeft);
        return idle;
    }
    // A sequence let go of its blocks: labels that nobody names any more leave the host too.
    void forget(int sequence) {
        labels[sequence].clear();
        lengths[sequence] = 0;
        std::erase_if(on_host, [&](int label) { return holders(label) == 0; });
    }
    int hostBlocksOf(int sequence) const {
        int count = 0;
        for (const int block : labels.at(sequence)) count += on_host.count(block) != 0;
        return count;
    }
    // Blocks that an append would take.
    int blocksForAppend(int sequence, int num_tokens) const {
        const int length = lengths.at(sequence);
        const std::vector<int>& blocks = labels.at(sequence);
        const bool copy = length % block_size != 0 && holders(blocks.back()) > 1;
        return (length + num_tokens + block_size - 1) / block_size -
               static_cast<int>(blocks.size()) + copy;
    }
    void append(int sequence, int num_tokens) {
        std::vector<int>& blocks = labels[sequence];
        if (lengths[sequence] % block_size != 0 && holders(blocks.back()) > 1) {
            blocks.back() = next_label++;
            ++copies;
        }
        lengths[sequence] += num_tokens;
        while (static_cast<int>(blocks.size()) * block_size < lengths[sequence])
            blocks.push_back(next_label++);
        // The next token stands at position `length` and sees none of the block's; the last block
        // stays.
        for (size_t idx = 0; window > 0 && idx + 1 < blocks.size(); ++idx) {
            const int last = (static_cast<int>(idx) + 1) * block_size - 1;
            if (last <= lengths[sequence] - window) blocks[idx] = kLeft;
        }
    }
    int64_t tokensHeld() const {
        std::map<int, int> filled;
        for (const auto& [sequence, blocks] : labels) {
            for (size_t i = 0; i < blocks.size(); ++i) {
                if (blocks[i] == kLeft || on_host.count(blocks[i]) != 0) continue;
                const int here =
                    std::min(block_size, lengths.at(sequence) - static_cast<int>(i) * block_size);
                filled[blocks[i]] = std::max(filled[blocks[i]], here);
            }
        }
        int64_t sum = 0;
        for (const auto& [label, tokens] : filled) sum += tokens;
        return sum;
    }
};

CacheState engineState(const KvCacheManager& cache, int block_size) {
    CacheState state;
    state.block_size = block_size;
    for (int i = 0; i < cache.pool().numBlocks(); ++i) {
        const BlockId id(i);
        state.blocks.push_back(
            {cache.pool().refCount(id), cache.pool().indexCount(id), cache.pool().numFilled(id)});
    }
    state.free_queue = cache.pool().freeQueue();
    for (int i = 0; i < cache.hostPool().numBlocks(); ++i) {
        const HostBlockId id(i);
        state.host_blocks.push_back(
            {cache.hostPool().refCount(id), 0, cache.hostPool().numFilled(id)});
    }
    state.host_free_queue = cache.hostPool().freeQueue();
    state.num_copy_on_write = cache.numCopyOnWrite();
    return state;
}

// Compares manager, fold and naive model; "" when they agree.
std::string difference(const KvCacheManager& cache,
                       const CacheState& folded,
                       const NaiveCache& naive) {
    const CacheState own = engineState(cache, naive.block_size);
    if (own.blocks != folded.blocks) return "block counts differ from the fold";
    if (!(own.free_queue == folded.free_queue)) return "the free queue differs from the fold";
    if (own.host_blocks != folded.host_blocks) return "host block counts differ from the fold";
    if (!(own.host_free_queue == folded.host_free_queue)) return "the host's free queue differs";
    if (own.num_copy_on_write != folded.num_copy_on_write ||
        own.num_copy_on_write != naive.copies) {
        return "copies differ";
    }
    const std::string broken = checkInvariants(folded);
    if (!broken.empty()) return broken;
    const PoolAccount account = accountOf(folded);
    if (account.active_blocks != naive.distinctBlocks())
        return "active blocks differ from the model";
    if (account.host_used_blocks != static_cast<int64_t>(naive.on_host.size()))
        return "host blocks differ from the model";
    if (account.active_blocks + account.free_blocks != account.total_blocks ||
        account.host_used_blocks + account.host_free_blocks != account.host_total_blocks)
        return "the account does not balance";
    if (cache.pool().numSlotsFilled() != account.tokens_held) return "filled slots are miscounted";
    if (cache.pool().numShared() != account.shared_blocks) return "shared blocks are miscounted";
    if (account.tokens_held != naive.tokensHeld()) return "tokens held differ from the model";
    std::map<int, BlockId> block_of_label;
    std::map<BlockId, int> label_of_block;
    std::map<int, HostBlockId> host_of_label;
    for (const auto& [sequence, labels] : naive.labels) {
        const BlockTable& table = cache.table(SequenceId(sequence));
        const SequenceState& state = folded.sequences[static_cast<size_t>(sequence)];
        if (table.blocks != state.table || table.kv_len != state.kv_len ||
            table.host_blocks != state.host_table || table.num_on_host != state.num_on_host ||
            table.num_left != state.num_left)
            return "a table differs from the fold";
        if (table.kv_len != naive.lengths.at(sequence)) return "a length differs from the model";
        if (table.blocks.size() != labels.size()) return "a table's length differs from the model";
        for (size_t i = 0; i < labels.size(); ++i) {
            if ((labels[i] == kLeft) != (static_cast<int>(i) < table.num_left))
                return "another block left the window than in the model";
            if (labels[i] == kLeft) {
                if (table.blocks[i].valid() ||
                    (table.num_on_host > 0 && table.host_blocks[i].valid()))
                    return "a block that left the window is still named";
                continue;
            }
            if (table.blocks[i].valid() != (naive.on_host.count(labels[i]) == 0))
                return "a block lies elsewhere than in the model";
            if (!table.blocks[i].valid()) {
                const HostBlockId host = table.host_blocks[i];
                if (host_of_label.emplace(labels[i], host).first->second != host)
                    return "sharing on the host differs from the model";
                continue;
            }
            const auto block = block_of_label.emplace(labels[i], table.blocks[i]).first->second;
            const int label = label_of_block.emplace(table.blocks[i], labels[i]).first->second;
            if (block != table.blocks[i] || label != labels[i])
                return "sharing differs from the model";
        }
    }
    return "";
}

// One episode of random operations on a small pool; returns the number done or fails the test.
std::string playEpisode(uint64_t seed, int num_operations) {
    std::mt19937_64 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
    const int block_sizes[] = {1, 2, 3, 4, 7, 16};
    const int block_size = block_sizes[below(6)];
    const int num_blocks = 1 + below(40);
    TraceRecorder recorder;
    const int window = below(2) == 0 ? 0 : 1 + below(4 * block_size);
    NaiveCache naive{block_size, {}, {}, 0, 0, {}, {}, {}, window};
    CacheConfig config;
    config.block_size = block_size;
    config.num_blocks = num_blocks;
    config.num_host_blocks = below(3) == 0 ? 0 : below(20);
    config.window = window;
    KvCacheManager cache(config, recorder);
    CacheState folded = initialState(config);
    int next_sequence = 0;

    for (int operation = 0; operation < num_operations; ++operation) {
        std::vector<int> live, waiting;
        for (const auto& [sequence, blocks] : naive.labels) {
            (naive.runs(sequence) ? live : waiting).push_back(sequence);
        }
        std::vector<BlockTransfer> transfers;
        const int host_free = cache.hostPool().numFree();
        const int kind = live.empty() && waiting.empty() ? 0 : below(14);
        const bool room = live.size() + waiting.size() < 12;
        if (kind >= 10) {
            std::vector<int>& those = kind == 10 || kind == 11 ? live : waiting;
            if (those.empty()) continue;
            const int sequence = those[static_cast<size_t>(below(static_cast<int>(those.size())))];
            const SequenceId id(sequence);
            if (kind == 10) {  // swap out
                std::set<int> moved;
                const std::set<int> idle = naive.idleLabels(sequence);
                for (const int label : naive.labels[sequence]) {
                    if (idle.count(label) != 0) moved.insert(label);
                }
                if (cache.blocksToSwapOut(id) != static_cast<int64_t>(moved.size()))
                    return "blocks to swap out differ from the model";
                if (static_cast<int>(moved.size()) > host_free) continue;
                cache.swapOut(id, transfers);
                if (transfers.size() != moved.size()) return "another number of blocks moved";
                naive.swapped.insert(sequence);
                naive.on_host.insert(moved.begin(), moved.end());
            } else if (kind == 11 || (kind == 12 && below(4) == 0)) {  // drop, swapped out or not
                if (naive.dropped.count(sequence) != 0) continue;
                cache.drop(id);
                naive.swapped.erase(sequence);
                naive.forget(sequence);
                naive.dropped.insert(sequence);
            } else if (kind == 12) {  // resume
                const int needed = naive.hostBlocksOf(sequence);
                if (cache.blocksToResume(id) != needed)
                    return "blocks to resume differ from the model";
                if (needed > cache.pool().numFree()) continue;
                cache.resume(id, transfers);
                for (const int label : naive.labels[sequence]) naive.on_host.erase(label);
                naive.swapped.erase(sequence);
                naive.dropped.erase(sequence);
            } else {  // orphans
                const std::set<int> orphans = naive.idleLabels(-1);
                if (cache.numOrphans() != static_cast<int64_t>(orphans.size()))
                    return "orphans differ from the model";
                if (static_cast<int>(orphans.size()) > host_free) continue;
                cache.moveOrphans(num_blocks + 1, transfers);
                naive.on_host.insert(orphans.begin(), orphans.end());
            }
        } else if (kind == 0 && room) {
            const SequenceId id(next_sequence);
            cache.add(id);
            // The text is the engine's business; here a sequence may write as many tokens as it
            // likes.
            recorder.sequenceStarted(id, RequestId(next_sequence), 0,
                                     std::vector<TokenId>(2000, TokenId(1)));
            naive.labels[next_sequence] = {};
            naive.lengths[next_sequence] = 0;
            ++next_sequence;
        } else if (kind == 1 && !live.empty() && room) {
            const int parent = live[static_cast<size_t>(below(static_cast<int>(live.size())))];
            const int count = 1 + below(3);
            std::vector<SequenceId> children;
            std::vector<int> samples;
            for (int i = 0; i < count; ++i) {
                children.push_back(SequenceId(next_sequence + i));
                samples.push_back(i + 1);
                naive.labels[next_sequence + i] = naive.labels[parent];
                naive.lengths[next_sequence + i] = naive.lengths[parent];
            }
            next_sequence += count;
            cache.fork(SequenceId(parent), children, samples);
        } else if (kind == 2) {
            live.insert(live.end(), waiting.begin(), waiting.end());
            const int sequence = live[static_cast<size_t>(below(static_cast<int>(live.size())))];
            cache.release(SequenceId(sequence));
            recorder.sequenceRemoved(SequenceId(sequence));
            naive.forget(sequence);
            naive.labels.erase(sequence);
            naive.lengths.erase(sequence);
            naive.swapped.erase(sequence);
            naive.dropped.erase(sequence);
        } else if (!live.empty()) {
            const int sequence = live[static_cast<size_t>(below(static_cast<int>(live.size())))];
            const int num_tokens = 1 + below(below(4) == 0 ? 3 * block_size : 2);
            if (naive.lengths[sequence] + num_tokens > 2000) continue;
            std::vector<BlockTransfer> copies;
            if (naive.blocksForAppend(sequence, num_tokens) > cache.pool().numFree()) {
                // Only an append that fits is tried: the engine reserves before it appends.
                continue;
            }
            cache.prepareAppend(SequenceId(sequence), num_tokens, copies);
            cache.commitAppend(SequenceId(sequence), num_tokens);
            naive.append(sequence, num_tokens);
        }
        const std::shared_ptr<const StepTrace> step = recorder.seal(StepStats{});
        for (const Event& event : step->events) apply(folded, event);
        const std::string wrong = difference(cache, folded, naive);
        if (!wrong.empty()) {
            return wrong + " (seed " + std::to_string(seed) + ", operation " +
                   std::to_string(operation) + ")";
        }
    }
    return "";
}

// Slabs of random lengths against an array that says who holds each block. "" or what differs.
std::string playSlabEpisode(uint64_t seed, int num_operations) {
    std::mt19937_64 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
    CacheConfig config;
    config.layout = CacheLayout::kSlab;
    config.slab_per_request = true;
    config.block_size = 1 + below(4);
    config.num_blocks = 1 + below(40);
    config.num_host_blocks = below(20);
    TraceRecorder recorder;
    KvCacheManager cache(config, recorder);
    CacheState folded = initialState(config);
    constexpr int kFree = -1;
    std::vector<int> holder(static_cast<size_t>(config.num_blocks), kFree);
    struct Slab {
        int run_blocks, first, num_tokens;
        bool runs;
    };
    std::map<int, Slab> slabs;
    // First block of the lowest run of free ones that is long enough; kFree: none.
    const auto lowestRun = [&](const std::vector<int>& held, int count) {
        for (int first = 0; first + count <= config.num_blocks; ++first) {
            const auto begin = held.begin() + first;
            if (std::all_of(begin, begin + count, [](int who) { return who == kFree; })) {
                return first;
            }
        }
        return kFree;
    };
    const auto mark = [&](int first, int count, int who) {
        std::fill_n(holder.begin() + first, count, who);
    };
    int next_sequence = 0;
    for (int operation = 0; operation < num_operations; ++operation) {
        std::vector<BlockTransfer> transfers;
        const int kind = slabs.empty() ? 0 : below(6);
        if (kind == 0) {
            const int count = 1 + below(config.num_blocks);
            const int first = lowestRun(holder, count);
            if (cache.canTakeRun(count) != (first != kFree)) return "another run fits";
            std::vector<SequenceId> gone;
            std::vector<int> then = holder;
            for (const auto& [id, slab] : slabs) {
                if (!slab.runs || below(2) == 0) continue;
                gone.push_back(SequenceId(id));
                std::replace(then.begin(), then.end(), id, kFree);
            }
            if (cache.canTakeRunAfter(count, gone) != (lowestRun(then, count) != kFree)) {
                return "another run would fit";
            }
            if (first == kFree) continue;
            const SequenceId id(next_sequence);
            recorder.sequenceStarted(id, RequestId(next_sequence), 0,
                                     std::vector<TokenId>(2000, TokenId(1)));
            cache.add(id, count);
            mark(first, count, next_sequence);
            slabs[next_sequence++] = {count, first, 0, true};
        } else {
            auto at = slabs.begin();
            std::advance(at, below(static_cast<int>(slabs.size())));
            const SequenceId id(at->first);
            Slab& slab = at->second;
            const int num_written = (slab.num_tokens + config.block_size - 1) / config.block_size;
            if (kind == 1) {
                if (slab.runs) mark(slab.first, slab.run_blocks, kFree);
                cache.release(id);
                recorder.sequenceRemoved(id);
                slabs.erase(at);
            } else if (!slab.runs) {
                const int first = lowestRun(holder, slab.run_blocks);
                if (cache.blocksToResume(id) != slab.run_blocks) return "it wants another run";
                if (first == kFree) continue;
                cache.resume(id, transfers);
                mark(first, slab.run_blocks, id.value);
                slab.first = first;
                slab.runs = true;
                if (static_cast<int>(transfers.size()) != num_written) return "blocks stay away";
            } else if (kind == 2 && cache.blocksToSwapOut(id) <= cache.hostPool().numFree()) {
                cache.swapOut(id, transfers);
                if (static_cast<int>(transfers.size()) != num_written) return "blocks stay here";
                mark(slab.first, slab.run_blocks, kFree);
                slab.runs = false;
            } else if (kind == 3) {
                cache.drop(id);
                mark(slab.first, slab.run_blocks, kFree);
                slab.runs = false;
                slab.num_tokens = 0;
            } else {
                const int room = slab.run_blocks * config.block_size - slab.num_tokens;
                if (room == 0) continue;
                const int count = 1 + below(std::min(room, 9));
                cache.prepareAppend(id, count, transfers);
                cache.commitAppend(id, count);
                slab.num_tokens += count;
                if (!transfers.empty()) return "a slab was copied";
            }
        }
        const std::shared_ptr<const StepTrace> step = recorder.seal(StepStats{});
        for (const Event& event : step->events) apply(folded, event);
        const std::string broken = checkInvariants(folded);
        if (!broken.empty()) return broken;
        for (int i = 0; i < config.num_blocks; ++i) {
            const bool is_free = holder[static_cast<size_t>(i)] == kFree;
            if ((cache.pool().refCount(BlockId(i)) == 0) != is_free) return "another block is free";
        }
        for (const auto& [id, slab] : slabs) {
            const BlockTable& table = cache.table(SequenceId(id));
            if (table.kv_len != slab.num_tokens) return "another number of tokens";
            for (int i = 0; slab.runs && i < slab.run_blocks; ++i) {
                if (table.blocks[static_cast<size_t>(i)] != BlockId(slab.first + i)) {
                    return "a slab lies elsewhere, or in pieces";
                }
            }
        }
    }
    return "";
}

}  // namespace

class KvCacheManagerTest : public QObject {
    Q_OBJECT

  private slots:
    // The worked example of the PagedAttention paper: block size 4, a prompt of 7 tokens.
    void aSmallPromptFillsItsBlocks() {
        TraceRecorder recorder;
        KvCacheManager cache(8, 4, recorder);
        std::vector<BlockTransfer> copies;
        cache.add(SequenceId(0));
        cache.prepareAppend(SequenceId(0), 7, copies);
        cache.commitAppend(SequenceId(0), 7);
        QCOMPARE(cache.table(SequenceId(0)).blocks.size(), size_t{2});
        QCOMPARE(cache.pool().numFilled(BlockId(0)), 4);
        QCOMPARE(cache.pool().numFilled(BlockId(1)), 3);
        cache.prepareAppend(SequenceId(0), 1, copies);
        cache.commitAppend(SequenceId(0), 1);
        QCOMPARE(cache.pool().numActive(), 2);
        cache.prepareAppend(SequenceId(0), 1, copies);
        cache.commitAppend(SequenceId(0), 1);
        QCOMPARE(cache.pool().numActive(), 3);
        QVERIFY(copies.empty());
    }

    // Two samples share the last block: the first writer copies (2 → 1), the second writes in
    // place.
    void theFirstWriterCopiesTheLastWritesInPlace() {
        TraceRecorder recorder;
        KvCacheManager cache(8, 4, recorder);
        std::vector<BlockTransfer> copies;
        cache.add(SequenceId(0));
        cache.prepareAppend(SequenceId(0), 7, copies);
        cache.commitAppend(SequenceId(0), 7);
        cache.fork(SequenceId(0), {SequenceId(1)}, {1});
        QCOMPARE(cache.pool().refCount(BlockId(0)), 2);
        QCOMPARE(cache.pool().refCount(BlockId(1)), 2);
        for (const int sequence : {0, 1}) {
            cache.prepareAppend(SequenceId(sequence), 1, copies);
            cache.commitAppend(SequenceId(sequence), 1);
        }
        QCOMPARE(copies.size(), size_t{1});
        QCOMPARE(copies[0].source, BlockId(1));
        QCOMPARE(copies[0].target, BlockId(2));
        QCOMPARE(copies[0].num_slots, 3);
        QCOMPARE(cache.table(SequenceId(0)).blocks[1], BlockId(2));
        QCOMPARE(cache.table(SequenceId(1)).blocks[1], BlockId(1));
        QCOMPARE(cache.pool().refCount(BlockId(1)), 1);
        QCOMPARE(cache.pool().numActive(), 3);
    }

    // Window 5, blocks of 4: after 8 tokens the next one, at position 8, sees 4 … 8. A fork shares
    // what is left; a block that its sibling still sees stays.
    void blocksGoBackWhenTheyLeaveTheWindow() {
        TraceRecorder recorder;
        CacheConfig config;
        config.num_blocks = 8;
        config.block_size = 4;
        config.window = 5;
        KvCacheManager cache(config, recorder);
        std::vector<BlockTransfer> copies;
        const auto append = [&](int sequence, int num_tokens) {
            cache.prepareAppend(SequenceId(sequence), num_tokens, copies);
            cache.commitAppend(SequenceId(sequence), num_tokens);
        };
        cache.add(SequenceId(0));
        append(0, 7);
        QCOMPARE(cache.pool().numActive(), 2);
        append(0, 1);
        const BlockTable& table = cache.table(SequenceId(0));
        QCOMPARE(table.num_left, 1);
        QCOMPARE(table.blocks, (std::vector<BlockId>{BlockId(), BlockId(1)}));
        QCOMPARE(cache.pool().refCount(BlockId(0)), 0);
        cache.fork(SequenceId(0), {SequenceId(1)}, {1});
        QCOMPARE(cache.pool().refCount(BlockId(1)), 2);
        append(0, 4);
        QCOMPARE(table.num_left, 2);
        QCOMPARE(cache.pool().refCount(BlockId(1)), 1);
        QCOMPARE(cache.pool().numActive(), 2);
        // A chunk of 20 is held whole until it is written.
        QCOMPARE(cache.blocksToReach(SequenceId(1), 20), int64_t{1});
        cache.prepareAppend(SequenceId(1), 20, copies);
        QCOMPARE(cache.pool().numActive(), 1 + 6);
        cache.commitAppend(SequenceId(1), 20);
        QCOMPARE(cache.pool().numActive(), 1 + 1);
        cache.release(SequenceId(1));
        cache.release(SequenceId(0));
        QCOMPARE(cache.pool().numFree(), 8);
        // A window of one token: the last block stays, so that no table is without one.
        config.window = config.block_size = 1;
        KvCacheManager narrow(config, recorder);
        narrow.add(SequenceId(0));
        narrow.prepareAppend(SequenceId(0), 3, copies);
        narrow.commitAppend(SequenceId(0), 3);
        QCOMPARE(narrow.table(SequenceId(0)).num_left, 2);
    }

    void slotsFollowTheTable() {
        BlockTable table;
        table.blocks = {BlockId(9), BlockId(2)};
        QCOMPARE(table.slotOf(0, 16), SlotIndex(144));
        QCOMPARE(table.slotOf(17, 16), SlotIndex(33));
    }

    void unknownSequencesAreABug() {
        TraceRecorder recorder;
        KvCacheManager cache(2, 4, recorder);
        std::vector<BlockTransfer> copies;
        QVERIFY_THROWS_EXCEPTION(EngineError, cache.prepareAppend(SequenceId(3), 1, copies));
        cache.add(SequenceId(0));
        QVERIFY_THROWS_EXCEPTION(EngineError, cache.add(SequenceId(0)));
        QVERIFY_THROWS_EXCEPTION(EngineError, cache.commitAppend(SequenceId(0), 1));
    }

    void slabsMatchAnArrayOfHolders() {
        for (uint64_t episode = 0; episode < 400; ++episode) {
            const std::string wrong = playSlabEpisode(episode, 100);
            QVERIFY2(
                wrong.empty(),
                qPrintable(
                    QString("episode %1: %2").arg(episode).arg(QString::fromStdString(wrong))));
        }
    }

    // A million operations against the naive model; fold, counts and account after each. KVLAB_SOAK
    // multiplies it.
    void randomOperationsMatchTheNaiveModel() {
        const int factor = std::max(1, qEnvironmentVariableIntValue("KVLAB_SOAK"));
        constexpr int kEpisodeLength = 2'000;
        constexpr int kNumEpisodes = 500;
        for (int episode = 0; episode < kNumEpisodes * factor; ++episode) {
            const std::string wrong =
                playEpisode(static_cast<uint64_t>(episode) + 1, kEpisodeLength);
            QVERIFY2(wrong.empty(), wrong.c_str());
        }
    }
};

QTEST_GUILESS_MAIN(KvCacheManagerTest)
#include "kv_cache_manager_test.moc"
