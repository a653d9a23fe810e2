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

void takeFromFreeQueue(CacheState& state, BlockId id) {
    const BlockState& block = blockOf(state, id);
    require(block.ref_count == 0 && block.index_count == 0,
            "a block was allocated that is not free");
    if (!state.free_queue.empty() && state.free_queue.front() == id) {
        state.free_queue.pop_front();
        return;
    }
    const auto place = std::find(state.free_queue.begin(), state.free_queue.end(), id);
    require(place != state.free_queue.end(), "a free block is missing from the free queue");
    state.free_queue.erase(place);
}

void dropReference(CacheState& state, BlockId id) {
    BlockState& block = blockOf(state, id);
    require(block.ref_count > 0, "a block was released that nobody holds");
    if (--block.ref_count == 0 && block.index_count == 0) {
        block.num_filled = 0;
        state.free_queue.push_back(id);
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
    }

    void operator()(const SequencesForked& e) const {
        SequenceState child = sequenceOf(state, e.parent[i]);
        child.id = e.child[i];
        child.sample_idx = e.sample_idx[i];
        for (const BlockId block : child.table) ++blockOf(state, block).ref_count;
        addSequence(state, e.child[i]) = std::move(child);
    }

    void operator()(const BlocksAllocated& e) const {
        SequenceState& sequence = sequenceOf(state, e.sequence[i]);
        require(e.block_idx[i] >= 0 && static_cast<size_t>(e.block_idx[i]) == sequence.table.size(),
                "a block was not appended at the end of its table");
        takeFromFreeQueue(state, e.block[i]);
        blockOf(state, e.block[i]).ref_count = 1;
        sequence.table.push_back(e.block[i]);
    }

    void operator()(const BlocksCopied& e) const {
        SequenceState& sequence = sequenceOf(state, e.sequence[i]);
        const size_t block_idx = static_cast<size_t>(e.block_idx[i]);
        require(e.block_idx[i] >= 0 && block_idx < sequence.table.size() &&
                    sequence.table[block_idx] == e.source[i],
                "a copy does not start from the sequence's own block");
        const BlockState source = blockOf(state, e.source[i]);
        require(source.ref_count > 1, "a block was copied that only one sequence holds");
        require(e.num_slots[i] >= 0 && e.num_slots[i] <= source.num_filled,
                "a copy covers slots that were never written");
        takeFromFreeQueue(state, e.target[i]);
        BlockState& target = blockOf(state, e.target[i]);
        target.ref_count = 1;
        target.num_filled = e.num_slots[i];
        sequence.table[block_idx] = e.target[i];
        dropReference(state, e.source[i]);
        ++state.num_copy_on_write;
    }

    void operator()(const TokensWritten& e) const {
        SequenceState& sequence = sequenceOf(state, e.sequence[i]);
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
            BlockState& block = blockOf(state, sequence.table[static_cast<size_t>(block_idx)]);
            require(block.ref_count == 1, "a shared block was written");
            block.num_filled = static_cast<int>(
                std::min<int64_t>(state.block_size, end - block_idx * state.block_size));
        }
        sequence.kv_len = static_cast<int>(end);
    }

    void operator()(const TokensSampled& e) const {
        SequenceState& sequence = sequenceOf(state, e.sequence[i]);
        require(sequence.finish == FinishReason::kNone, "a finished sequence sampled a token");
        sequence.tokens.push_back(e.token[i]);
    }

    void operator()(const SequencesFinished& e) const {
        sequenceOf(state, e.sequence[i]).finish = e.reason[i];
    }

    void operator()(const BlocksReleased& e) const {
        SequenceState& sequence = sequenceOf(state, e.sequence[i]);
        require(!sequence.table.empty() && sequence.table.back() == e.block[i] &&
                    e.block_idx[i] + 1 == static_cast<int>(sequence.table.size()),
                "a block was released that is not the last of its table");
        sequence.table.pop_back();
        const int64_t room = static_cast<int64_t>(sequence.table.size()) * state.block_size;
        sequence.kv_len = static_cast<int>(std::min<int64_t>(sequence.kv_len, room));
        dropReference(state, e.block[i]);
    }

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
    for (int i = 0; i < config.num_blocks; ++i) state.free_queue.push_back(BlockId(i));
    return state;
}

void applyEntry(CacheState& state, const Event& event, int entry) {
    std::visit(Applier{state, static_cast<size_t>(entry)}, event);
}

void apply(CacheState& state, const Event& event) {
    const int count = numEntries(event);
    for (int entry = 0; entry < count; ++entry) applyEntry(state, event, entry);
}

PoolAccount accountOf(const CacheState& state) {
    PoolAccount account;
    account.total_blocks = static_cast<int64_t>(state.blocks.size());
    for (const BlockState& block : state.blocks) {
        if (block.ref_count > 0) {
            ++account.active_blocks;
            account.tokens_held += block.num_filled;
            if (block.ref_count > 1) ++account.shared_blocks;
        } else if (block.index_count > 0) {
            ++account.cached_blocks;
        } else {
            ++account.free_blocks;
        }
    }
    account.slots_allocated = account.active_blocks * state.block_size;
    account.slots_unused = account.slots_allocated - account.tokens_held;
    for (const SequenceState& sequence : state.sequences) {
        account.tokens_unshared += sequence.kv_len;
        account.blocks_unshared += static_cast<int64_t>(sequence.table.size());
    }
    account.copy_on_write = state.num_copy_on_write;
    return account;
}

std::string checkInvariants(const CacheState& state) {
    const PoolAccount account = accountOf(state);
    if (account.free_blocks + account.cached_blocks + account.active_blocks !=
        account.total_blocks) {
        return "free + cached + active blocks do not add up to the pool";
    }
    if (static_cast<int64_t>(state.free_queue.size()) != account.free_blocks) {
        return "the free queue has " + std::to_string(state.free_queue.size()) + " blocks, but " +
               std::to_string(account.free_blocks) + " are free";
    }
    std::vector<bool> queued(state.blocks.size(), false);
    for (const BlockId id : state.free_queue) {
        const size_t block = static_cast<size_t>(id.value);
        if (block >= state.blocks.size() || queued[block]) {
            return "the free queue names block " + std::to_string(id.value) + " wrongly or twice";
        }
        queued[block] = true;
        if (state.blocks[block].ref_count != 0 || state.blocks[block].num_filled != 0) {
            return "block " + std::to_string(id.value) + " is in the free queue but not free";
        }
    }
    std::vector<int> holders(state.blocks.size(), 0);
    std::vector<int> filled(state.blocks.size(), 0);
    for (const SequenceState& sequence : state.sequences) {
        if (sequence.removed && !sequence.table.empty()) {
            return "sequence " + ownerLetter(sequence.id) + " has left but still holds blocks";
        }
        if (sequence.kv_len > static_cast<int64_t>(sequence.table.size()) * state.block_size) {
            return "sequence " + ownerLetter(sequence.id) + " has more tokens than slots";
        }
        for (size_t i = 0; i < sequence.table.size(); ++i) {
            const size_t block = static_cast<size_t>(sequence.table[i].value);
            if (block >= state.blocks.size()) return "a table names a block outside the pool";
            ++holders[block];
            const int64_t here = sequence.kv_len - static_cast<int64_t>(i) * state.block_size;
            filled[block] = std::max(
                filled[block], static_cast<int>(std::clamp<int64_t>(here, 0, state.block_size)));
        }
    }
    for (size_t block = 0; block < state.blocks.size(); ++block) {
        if (holders[block] != state.blocks[block].ref_count) {
            return "block " + std::to_string(block) + " counts " +
                   std::to_string(state.blocks[block].ref_count) + " references, but " +
                   std::to_string(holders[block]) + " tables name it";
        }
        if (holders[block] > 0 && filled[block] != state.blocks[block].num_filled) {
            return "block " + std::to_string(block) + " counts " +
                   std::to_string(state.blocks[block].num_filled) +
                   " written slots, but its holders " + std::to_string(filled[block]);
        }
    }
    return "";
}

}  // namespace kvlab
