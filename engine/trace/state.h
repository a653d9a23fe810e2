// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/cache/free_queue.h"
#include "engine/trace/event.h"

namespace kvlab {

// The folded state: what pool, tables and texts are after some prefix of the log.
//
//   sequence A   table [ 0 ][ 1 ]…[124][125]          block id of each logical index
//                            |
//   pool                   block 1: ref_count 8, num_filled 16
//
// free:   ref_count 0 and index_count 0   (its place in the free queue is its turn)
// cached: ref_count 0, index_count > 0    (a prefix index still names it)
// active: ref_count > 0                   (a sequence's table names it)
//
// A table entry of a swapped-out sequence may lie on the host:
//
//   sequence B   table      [ 0 ][ - ]      shared block 0 stayed, because A runs and holds it
//                host_table [ - ][ 3 ]      the other one is block 3 of the host pool
//
// and the first num_left entries name nothing: their blocks left the sliding window.
struct BlockState {
    int ref_count = 0;    // tables that name the block
    int index_count = 0;  // prefix entries that name it
    int num_filled = 0;   // slots whose K/V are written; 0 when free
    bool operator==(const BlockState&) const = default;
};

struct SequenceState {
    SequenceId id;
    RequestId request;
    int sample_idx = 0;
    std::vector<TokenId> tokens;  // prompt, then sampled
    int prompt_len = 0;           // tokens
    int kv_len = 0;               // tokens whose K/V are in the pool
    std::vector<BlockId> table;   // logical index → block; not valid(): on the host, or it left
    // Logical index → host block, where the table has none. Empty while nothing is on the host.
    std::vector<HostBlockId> host_table;
    int num_on_host = 0;                               // valid entries of host_table
    int num_left = 0;                                  // leading entries that left the window
    PreemptionKind preempted = PreemptionKind::kNone;  // not kNone: it waits to run again
    double log_probability = 0;                        // sum over the sampled tokens
    FinishReason finish = FinishReason::kNone;
    bool removed = false;  // left the engine; table is empty

    // Entries of the table that name a block, here or on the host.
    int64_t numHeld() const { return static_cast<int64_t>(table.size()) - num_left; }
    bool operator==(const SequenceState&) const = default;
};

// A request that has not started.
struct WaitingRequest {
    int priority = 0;
    int prompt_len = 0;  // tokens
    int num_samples = 1;
    int max_tokens = 0;
    bool operator==(const WaitingRequest&) const = default;
};

// What the fold counts as it goes, so that an account costs nothing however large the pool is;
// recount() says the same by looking at every block and table.
struct PoolCounts {
    int64_t free_blocks = 0;
    int64_t cached_blocks = 0;
    int64_t active_blocks = 0;
    int64_t shared_blocks = 0;
    int64_t tokens_held = 0;
    int64_t tokens_unshared = 0;
    int64_t blocks_unshared = 0;
    int64_t host_used_blocks = 0;
    bool operator==(const PoolCounts&) const = default;
};

struct CacheState {
    int block_size = 0;
    std::vector<BlockState> blocks;        // by block id
    FreeQueue<BlockId> free_queue;         // front is allocated next
    std::vector<SequenceState> sequences;  // by sequence id
    std::vector<BlockState> host_blocks;   // by host block id; never cached
    FreeQueue<HostBlockId> host_free_queue;
    std::map<RequestId, WaitingRequest> waiting;
    int64_t num_copy_on_write = 0;  // blocks copied so far
    int64_t num_preemptions = 0;    // of running sequences
    int64_t num_swapped_out = 0;    // blocks moved to the host so far
    int64_t num_swapped_in = 0;     // blocks moved back so far
    PoolCounts counts;
    bool operator==(const CacheState&) const = default;
};

CacheState initialState(const CacheConfig& config);

// The fold: applies entry `entry` of the event. There is no undo; going back folds again from a
// keyframe. Throws EngineError(kBadFile) when the event contradicts the state (a damaged log),
// state unspecified.
void applyEntry(CacheState& state, const Event& event, int entry);
void apply(CacheState& state, const Event& event);  // all entries

// Counts of the pools; free + cached + active = total, host used + host free = host total. One
// function for window, command line, lessons, exports.
struct PoolAccount {
    int64_t total_blocks = 0;
    int64_t free_blocks = 0;
    int64_t cached_blocks = 0;
    int64_t active_blocks = 0;    // "blocks_held"
    int64_t shared_blocks = 0;    // active with ref_count > 1
    int64_t tokens_held = 0;      // K/V written in active blocks, a shared token once
    int64_t slots_allocated = 0;  // active_blocks * block_size
    int64_t slots_unused = 0;     // slots_allocated - tokens_held
    // What the sequences would hold without sharing. On the device only.
    int64_t tokens_unshared = 0;  // of kv_len, what is in a block
    int64_t blocks_unshared = 0;  // entries of all tables
    int64_t copy_on_write = 0;
    int64_t host_total_blocks = 0;
    int64_t host_used_blocks = 0;
    int64_t host_free_blocks = 0;
    int64_t preemptions = 0;
    int64_t swapped_out = 0, swapped_in = 0;  // blocks moved so far
    bool operator==(const PoolAccount&) const = default;
};
PoolAccount accountOf(const CacheState& state);
PoolCounts recount(const CacheState& state);

// Every invariant of DESIGN.md section 3, and the counts against a recount; "" when all hold, else
// one sentence that names the first broken one.
std::string checkInvariants(const CacheState& state);

}  // namespace kvlab
