// SPDX-License-Identifier: MIT
#include "engine/trace/state.h"

#include <algorithm>

#include "engine/error.h"

namespace kvlab {

namespace {

// A log comes from a file as often as from the engine, so a contradiction is bad input, not a bug.
void require(bool condition, const char* what) {
    if (!condition) {
        throw EngineError(ErrorKind::kBadFile, std::string("the log contradicts itself: ") + what);
    }
}

SequenceState& sequenceOf(CacheState& state, SequenceId id) {
    require(id.valid() && static_cast<size_t>(id.value) < state.sequences.size(),
            "an event names a sequence that never started");
    SequenceState& sequence = state.sequences[static_cast<size_t>(id.value)];
    require(!sequence.removed, "an event names a sequence that has left");
    return sequence;
}

BlockState& blockOf(CacheState& state, BlockId id) {
    require(id.valid() && static_cast<size_t>(id.value) < state.blocks.size(),
            "an event names a block outside the pool");
    return state.blocks[static_cast<size_t>(id.value)];
}

// What a block adds to the counts.
void addBlock(PoolCounts& counts, const BlockState& block, int sign) {
    if (block.ref_count > 0) {
        counts.active_blocks += sign;
        counts.tokens_held += sign * block.num_filled;
        if (block.ref_count > 1) counts.shared_blocks += sign;
    } else if (block.index_count > 0) {
        counts.cached_blocks += sign;
    } else {
        counts.free_blocks += sign;
    }
}

// Written slots of logical block idx.
int filledOf(const SequenceState& sequence, size_t idx, int block_size) {
    const int64_t here = sequence.kv_len - static_cast<int64_t>(idx) * block_size;
    return static_cast<int>(std::clamp<int64_t>(here, 0, block_size));
}

// A block that is being changed: the counts follow when it goes out of scope.
class BlockChange {
  public:
    BlockChange(CacheState& state, BlockId id) : counts_(state.counts), block_(blockOf(state, id)) {
        addBlock(counts_, block_, -1);
    }
    ~BlockChange() { addBlock(counts_, block_, +1); }
    BlockChange(const BlockChange&) = delete;
    BlockChange& operator=(const BlockChange&) = delete;
    BlockState* operator->() { return &block_; }
    BlockState& operator*() { return block_; }

  private:
    PoolCounts& counts_;
    BlockState& block_;
};

// An entry of a table came to name a block on the device (+1), or no longer does (-1).
void countEntry(CacheState& state, const SequenceState& sequence, size_t idx, int sign) {
    state.counts.blocks_unshared += sign;
    state.counts.tokens_unshared += sign * filledOf(sequence, idx, state.block_size);
}

void takeFromFreeQueue(CacheState& state, BlockId id) {
    const BlockState& block = blockOf(state, id);
    require(block.ref_count == 0 && block.index_count == 0,
            "a block was allocated that is not free");
    require(state.free_queue.contains(id), "a free block is missing from the free queue");
    state.free_queue.remove(id);
}

// A running sequence: nothing is written, taken or shared while it waits.
SequenceState& runningOf(CacheState& state, SequenceId id) {
    SequenceState& sequence = sequenceOf(state, id);
    require(sequence.preempted == PreemptionKind::kNone, "a preempted sequence went on");
    return sequence;
}

BlockState& hostBlockOf(CacheState& state, HostBlockId id) {
    require(id.valid() && static_cast<size_t>(id.value) < state.host_blocks.size(),
            "an event names a block outside the host pool");
    return state.host_blocks[static_cast<size_t>(id.value)];
}

// Sequences whose table names the block at block_idx, all of them swapped out; as many as
// ref_count, so that no table is left behind.
template <class Names>
std::vector<SequenceState*> swappedHolders(CacheState& state,
                                           int block_idx,
                                           int ref_count,
                                           Names names) {
    require(block_idx >= 0 && ref_count > 0, "a block was swapped that nobody holds");
    std::vector<SequenceState*> holders;
    for (SequenceState& sequence : state.sequences) {
        if (sequence.removed || sequence.table.size() <= static_cast<size_t>(block_idx)) continue;
        if (!names(sequence)) continue;
        require(sequence.preempted == PreemptionKind::kSwap,
                "a block of a running sequence was swapped");
        holders.push_back(&sequence);
    }
    require(static_cast<int>(holders.size()) == ref_count,
            "a swapped block has another number of holders");
    return holders;
}

void dropReference(CacheState& state, BlockId id) {
    BlockChange block(state, id);
    require(block->ref_count > 0, "a block was released that nobody holds");
    if (--block->ref_count == 0 && block->index_count == 0) {
        block->num_filled = 0;
        state.free_queue.pushBack(id);
    }
}

SequenceState& addSequence(CacheState& state, SequenceId id) {
    require(id.valid() && static_cast<size_t>(id.value) == state.sequences.size(),
            "sequence ids do not count up");
    SequenceState sequence;
    sequence.id = id;
    state.sequences.push_back(std::move(sequence));
    return state.sequences.back();
}

struct Applier {
    CacheState& state;
    size_t i;

    void operator()(const SequenceStarted& e) const {
        SequenceState& sequence = addSequence(state, e.sequence);
        sequence.request = e.request;
        sequence.sample_idx = e.sample_idx;
        sequence.tokens = e.prompt;
        sequence.prompt_len = static_cast<int>(e.prompt.size());
        if (e.sample_idx == 0) state.waiting.erase(e.request);
    }

    void operator()(const SequencesForked& e) const {
        SequenceState child = runningOf(state, e.parent[i]);
        child.id = e.child[i];
        child.sample_idx = e.sample_idx[i];
        for (size_t idx = static_cast<size_t>(child.num_left); idx < child.table.size(); ++idx) {
            ++BlockChange(state, child.table[idx])->ref_count;
            countEntry(state, child, idx, +1);
        }
        addSequence(state, e.child[i]) = std::move(child);
    }

    void operator()(const BlocksAllocated& e) const {
        SequenceState& sequence = runningOf(state, e.sequence[i]);
        require(e.block_idx[i] >= 0 && static_cast<size_t>(e.block_idx[i]) == sequence.table.size(),
                "a block was not appended at the end of its table");
        takeFromFreeQueue(state, e.block[i]);
        BlockChange(state, e.block[i])->ref_count = 1;
        sequence.table.push_back(e.block[i]);
        countEntry(state, sequence, sequence.table.size() - 1, +1);
    }

    void operator()(const BlocksCopied& e) const {
        SequenceState& sequence = runningOf(state, e.sequence[i]);
        const size_t block_idx = static_cast<size_t>(e.block_idx[i]);
        require(e.block_idx[i] >= 0 && block_idx < sequence.table.size() &&
                    sequence.table[block_idx] == e.source[i],
                "a copy does not start from the sequence's own block");
        const BlockState source = blockOf(state, e.source[i]);
        require(source.ref_count > 1, "a block was copied that only one sequence holds");
        require(e.num_slots[i] >= 0 && e.num_slots[i] <= source.num_filled,
                "a copy covers slots that were never written");
        takeFromFreeQueue(state, e.target[i]);
        *BlockChange(state, e.target[i]) = {1, 0, e.num_slots[i]};
        sequence.table[block_idx] = e.target[i];
        dropReference(state, e.source[i]);
        ++state.num_copy_on_write;
    }

    void operator()(const TokensWritten& e) const {
        SequenceState& sequence = runningOf(state, e.sequence[i]);
        const int64_t first = e.first_position[i];
        const int64_t end = first + e.num_tokens[i];
        require(e.num_tokens[i] > 0 && first == sequence.kv_len,
                "tokens were written out of order");
        require(end <= static_cast<int64_t>(sequence.tokens.size()),
                "K/V was written for a token that does not exist");
        require(end <= static_cast<int64_t>(sequence.table.size()) * state.block_size,
                "a token was written past the block table");
        for (int64_t block_idx = first / state.block_size; block_idx * state.block_size < end;
             ++block_idx) {
            BlockChange block(state, sequence.table[static_cast<size_t>(block_idx)]);
            require(block->ref_count == 1, "a shared block was written");
            block->num_filled = static_cast<int>(
                std::min<int64_t>(state.block_size, end - block_idx * state.block_size));
        }
        sequence.kv_len = static_cast<int>(end);
        state.counts.tokens_unshared += end - first;
    }

    void operator()(const TokensSampled& e) const {
        SequenceState& sequence = runningOf(state, e.sequence[i]);
        require(sequence.finish == FinishReason::kNone, "a finished sequence sampled a token");
        sequence.tokens.push_back(e.token[i]);
        sequence.log_probability += double{e.log_probability[i]};
    }

    void operator()(const SequencesFinished& e) const {
        sequenceOf(state, e.sequence[i]).finish = e.reason[i];
    }

    void operator()(const BlocksReleased& e) const {
        SequenceState& sequence = sequenceOf(state, e.sequence[i]);
        require(!sequence.table.empty() && sequence.table.back() == e.block[i] &&
                    int64_t{e.block_idx[i]} + 1 == static_cast<int64_t>(sequence.table.size()),
                "a block was released that is not the last of its table");
        countEntry(state, sequence, sequence.table.size() - 1, -1);
        popEntry(sequence);
        dropReference(state, e.block[i]);
    }

    // The last entry of a table went, with its tokens.
    void popEntry(SequenceState& sequence) const {
        sequence.table.pop_back();
        if (!sequence.host_table.empty()) sequence.host_table.pop_back();
        if (sequence.num_on_host == 0) sequence.host_table.clear();
        if (sequence.numHeld() == 0) {  // what left the window goes with the last block
            sequence.table.clear();
            sequence.num_left = 0;
        }
        const int64_t room = static_cast<int64_t>(sequence.table.size()) * state.block_size;
        sequence.kv_len = static_cast<int>(std::min<int64_t>(sequence.kv_len, room));
    }

    void operator()(const HostBlocksReleased& e) const {
        SequenceState& sequence = sequenceOf(state, e.sequence[i]);
        require(sequence.num_on_host > 0 && sequence.host_table.back() == e.host_block[i] &&
                    int64_t{e.block_idx[i]} + 1 == static_cast<int64_t>(sequence.table.size()),
                "a host block was released that is not the last of its table");
        --sequence.num_on_host;
        popEntry(sequence);
        BlockState& block = hostBlockOf(state, e.host_block[i]);
        require(block.ref_count > 0, "a host block was released that nobody holds");
        if (--block.ref_count == 0) {
            block.num_filled = 0;
            --state.counts.host_used_blocks;
            state.host_free_queue.pushBack(e.host_block[i]);
        }
    }

    void operator()(const BlocksLeftWindow& e) const {
        SequenceState& sequence = runningOf(state, e.sequence[i]);
        const int64_t next = int64_t{e.block_idx[i]} + 1;
        require(e.block_idx[i] == sequence.num_left &&
                    next < static_cast<int64_t>(sequence.table.size()) &&
                    next * state.block_size <= sequence.kv_len &&
                    sequence.table[static_cast<size_t>(e.block_idx[i])] == e.block[i],
                "a block left the window that is not the first of its table, full, or that is the "
                "last");
        countEntry(state, sequence, static_cast<size_t>(sequence.num_left), -1);
        sequence.table[static_cast<size_t>(sequence.num_left++)] = BlockId();
        dropReference(state, e.block[i]);
    }

    void operator()(const TokensCopied& e) const {
        const SequenceState& source = runningOf(state, e.source[i]);
        SequenceState& target = runningOf(state, e.target[i]);
        const int64_t count = e.num_tokens[i];
        require(count > 0 && count <= source.kv_len && target.kv_len == 0 &&
                    count <= static_cast<int64_t>(target.tokens.size()) &&
                    count <= static_cast<int64_t>(target.table.size()) * state.block_size,
                "tokens were copied that are not there, or where there is no room");
        for (int64_t block_idx = 0; block_idx * state.block_size < count; ++block_idx) {
            BlockChange block(state, target.table[static_cast<size_t>(block_idx)]);
            require(block->ref_count == 1, "a shared block was written");
            block->num_filled = static_cast<int>(
                std::min<int64_t>(state.block_size, count - block_idx * state.block_size));
        }
        target.kv_len = static_cast<int>(count);
        state.counts.tokens_unshared += count;
    }

    void operator()(const SequencesPreempted& e) const {
        SequenceState& sequence = sequenceOf(state, e.sequence[i]);
        require(e.kind[i] != PreemptionKind::kNone && sequence.finish == FinishReason::kNone &&
                    (sequence.preempted == PreemptionKind::kNone ||
                     (sequence.preempted == PreemptionKind::kSwap &&
                      e.kind[i] == PreemptionKind::kRecompute)),
                "a sequence was preempted that does not run");
        require(e.kind[i] == PreemptionKind::kSwap || sequence.table.empty(),
                "a sequence to be computed again still has blocks");
        if (sequence.preempted == PreemptionKind::kNone) ++state.num_preemptions;
        sequence.preempted = e.kind[i];
    }

    void operator()(const BlocksSwappedOut& e) const {
        const BlockState block = blockOf(state, e.block[i]);
        BlockState& host = hostBlockOf(state, e.host_block[i]);
        const size_t block_idx = static_cast<size_t>(e.block_idx[i]);
        const auto holders = swappedHolders(
            state, e.block_idx[i], block.ref_count,
            [&](const SequenceState& s) { return s.table[block_idx] == e.block[i]; });
        require(state.host_free_queue.contains(e.host_block[i]), "a host block is not free");
        state.host_free_queue.remove(e.host_block[i]);
        host = {block.ref_count, 0, block.num_filled};
        ++state.counts.host_used_blocks;
        for (SequenceState* sequence : holders) {
            countEntry(state, *sequence, block_idx, -1);
            if (sequence->host_table.empty()) sequence->host_table.resize(sequence->table.size());
            sequence->host_table[block_idx] = e.host_block[i];
            sequence->table[block_idx] = BlockId();
            ++sequence->num_on_host;
        }
        BlockChange(state, e.block[i])->ref_count = 1;
        dropReference(state, e.block[i]);
        ++state.num_swapped_out;
    }

    void operator()(const BlocksSwappedIn& e) const {
        BlockState& host = hostBlockOf(state, e.host_block[i]);
        const size_t block_idx = static_cast<size_t>(e.block_idx[i]);
        const auto holders =
            swappedHolders(state, e.block_idx[i], host.ref_count, [&](const SequenceState& s) {
                return s.num_on_host > 0 && s.host_table[block_idx] == e.host_block[i];
            });
        takeFromFreeQueue(state, e.block[i]);
        *BlockChange(state, e.block[i]) = {host.ref_count, 0, host.num_filled};
        --state.counts.host_used_blocks;
        for (SequenceState* sequence : holders) {
            countEntry(state, *sequence, block_idx, +1);
            sequence->table[block_idx] = e.block[i];
            sequence->host_table[block_idx] = HostBlockId();
            if (--sequence->num_on_host == 0) sequence->host_table.clear();
        }
        host = {};
        state.host_free_queue.pushBack(e.host_block[i]);
        ++state.num_swapped_in;
    }

    void operator()(const SequencesResumed& e) const {
        SequenceState& sequence = sequenceOf(state, e.sequence[i]);
        require(sequence.preempted != PreemptionKind::kNone &&
                    sequence.finish == FinishReason::kNone && sequence.num_on_host == 0,
                "a sequence was resumed that did not wait, or is still on the host");
        sequence.preempted = PreemptionKind::kNone;
    }

    void operator()(const RequestsArrived& e) const {
        const bool is_new =
            state.waiting
                .emplace(e.request[i], WaitingRequest{e.priority[i], e.prompt_len[i],
                                                      e.num_samples[i], e.max_tokens[i]})
                .second;
        require(e.request[i].valid() && is_new, "a request arrived twice");
    }

    void operator()(const RequestsWithdrawn& e) const {
        require(state.waiting.erase(e.request[i]) == 1, "a request left that did not wait");
    }

    void operator()(const DecisionsMade&) const {}

    void operator()(const SequencesRemoved& e) const {
        SequenceState& sequence = sequenceOf(state, e.sequence[i]);
        require(sequence.table.empty(), "a sequence left with blocks in its table");
        sequence.removed = true;
    }
};

}  // namespace

CacheState initialState(const CacheConfig& config) {
    CacheState state;
    state.block_size = config.block_size;
    state.blocks.resize(static_cast<size_t>(config.num_blocks));
    state.free_queue = FreeQueue<BlockId>(config.num_blocks);
    state.host_blocks.resize(static_cast<size_t>(config.num_host_blocks));
    state.host_free_queue = FreeQueue<HostBlockId>(config.num_host_blocks);
    state.counts.free_blocks = config.num_blocks;
    return state;
}

void applyEntry(CacheState& state, const Event& event, int entry) {
    std::visit(Applier{state, static_cast<size_t>(entry)}, event);
}

void apply(CacheState& state, const Event& event) {
    const int count = numEntries(event);
    for (int entry = 0; entry < count; ++entry) applyEntry(state, event, entry);
}

namespace {

// What the tables say of one pool: who holds each block and how far it is written.
struct Holders {
    explicit Holders(size_t num_blocks) : count(num_blocks, 0), filled(num_blocks, 0) {}
    std::vector<int> count, filled;

    bool add(int32_t block, int num_filled) {
        if (block < 0 || static_cast<size_t>(block) >= count.size()) return false;
        ++count[static_cast<size_t>(block)];
        int& most = filled[static_cast<size_t>(block)];
        most = std::max(most, num_filled);
        return true;
    }
    // "" or what is wrong; `name`: "block" or "host block".
    std::string compare(const std::vector<BlockState>& blocks, const std::string& name) const {
        for (size_t block = 0; block < blocks.size(); ++block) {
            if (count[block] != blocks[block].ref_count) {
                return name + " " + std::to_string(block) + " counts " +
                       std::to_string(blocks[block].ref_count) + " references, but " +
                       std::to_string(count[block]) + " tables name it";
            }
            if (count[block] > 0 && filled[block] != blocks[block].num_filled) {
                return name + " " + std::to_string(block) + " counts " +
                       std::to_string(blocks[block].num_filled) +
                       " written slots, but its holders " + std::to_string(filled[block]);
            }
        }
        return "";
    }
};

}  // namespace

PoolCounts recount(const CacheState& state) {
    PoolCounts counts;
    for (const BlockState& block : state.blocks) addBlock(counts, block, +1);
    for (const BlockState& block : state.host_blocks)
        counts.host_used_blocks += block.ref_count > 0;
    for (const SequenceState& sequence : state.sequences) {
        for (size_t idx = 0; idx < sequence.table.size(); ++idx) {
            if (!sequence.table[idx].valid()) continue;
            ++counts.blocks_unshared;
            counts.tokens_unshared += filledOf(sequence, idx, state.block_size);
        }
    }
    return counts;
}

PoolAccount accountOf(const CacheState& state) {
    const PoolCounts& counts = state.counts;
    PoolAccount account;
    account.total_blocks = static_cast<int64_t>(state.blocks.size());
    account.free_blocks = counts.free_blocks;
    account.cached_blocks = counts.cached_blocks;
    account.active_blocks = counts.active_blocks;
    account.shared_blocks = counts.shared_blocks;
    account.tokens_held = counts.tokens_held;
    account.slots_allocated = counts.active_blocks * state.block_size;
    account.slots_unused = account.slots_allocated - counts.tokens_held;
    account.tokens_unshared = counts.tokens_unshared;
    account.blocks_unshared = counts.blocks_unshared;
    account.copy_on_write = state.num_copy_on_write;
    account.host_total_blocks = static_cast<int64_t>(state.host_blocks.size());
    account.host_used_blocks = counts.host_used_blocks;
    account.host_free_blocks = static_cast<int64_t>(state.host_free_queue.size());
    account.preemptions = state.num_preemptions;
    account.swapped_out = state.num_swapped_out;
    account.swapped_in = state.num_swapped_in;
    return account;
}

std::string checkInvariants(const CacheState& state) {
    if (!(state.counts == recount(state))) return "the running counts differ from a recount";
    const PoolAccount account = accountOf(state);
    if (account.free_blocks + account.cached_blocks + account.active_blocks !=
        account.total_blocks) {
        return "free + cached + active blocks do not add up to the pool";
    }
    if (static_cast<int64_t>(state.free_queue.size()) != account.free_blocks) {
        return "the free queue has " + std::to_string(state.free_queue.size()) + " blocks, but " +
               std::to_string(account.free_blocks) + " are free";
    }
    for (const BlockId id : state.free_queue) {
        const BlockState& block = state.blocks[static_cast<size_t>(id.value)];
        if (block.ref_count != 0 || block.num_filled != 0) {
            return "block " + std::to_string(id.value) + " is in the free queue but not free";
        }
    }
    if (account.host_used_blocks + account.host_free_blocks != account.host_total_blocks) {
        return "used + free host blocks do not add up to the host pool";
    }
    Holders device(state.blocks.size());
    Holders host(state.host_blocks.size());
    for (const SequenceState& sequence : state.sequences) {
        const std::string name = "sequence " + ownerLetter(sequence.id);
        if (sequence.removed && !sequence.table.empty()) {
            return name + " has left but still holds blocks";
        }
        if (sequence.kv_len > static_cast<int64_t>(sequence.table.size()) * state.block_size) {
            return name + " has more tokens than slots";
        }
        if (sequence.preempted == PreemptionKind::kRecompute && !sequence.table.empty()) {
            return name + " will be computed again but still holds blocks";
        }
        if (sequence.num_on_host > 0 && sequence.preempted != PreemptionKind::kSwap) {
            return name + " has blocks on the host but was not swapped out";
        }
        if (sequence.host_table.size() != (sequence.num_on_host > 0 ? sequence.table.size() : 0)) {
            return name + " has a host table of another length";
        }
        if (sequence.num_left != 0 && sequence.numHeld() < 1) {
            return name + " holds no block of those that its window still covers";
        }
        for (int idx = 0; idx < sequence.num_left; ++idx) {
            if (sequence.table[static_cast<size_t>(idx)].valid()) {
                return name + " still names a block that left its window";
            }
        }
        int on_host = 0;
        for (size_t idx = static_cast<size_t>(sequence.num_left); idx < sequence.table.size();
             ++idx) {
            const int filled = filledOf(sequence, idx, state.block_size);
            const bool is_on_host = sequence.num_on_host > 0 && sequence.host_table[idx].valid();
            on_host += is_on_host;
            if (is_on_host == sequence.table[idx].valid() ||
                !(is_on_host ? host.add(sequence.host_table[idx].value, filled)
                             : device.add(sequence.table[idx].value, filled))) {
                return "a table names a block outside the pool";
            }
        }
        if (on_host != sequence.num_on_host) return name + " miscounts its blocks on the host";
    }
    const std::string broken = device.compare(state.blocks, "block");
    return broken.empty() ? host.compare(state.host_blocks, "host block") : broken;
}

}  // namespace kvlab
