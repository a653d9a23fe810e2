// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/config.h"
#include "engine/ids.h"

namespace kvlab {

// The log is the truth (DESIGN.md section 3): the engine emits these past-tense events, in order,
// and the fold in state.h rebuilds pool, tables and texts from them. Runs of equal kind within a
// step are one event whose arrays run in parallel; one index into them is an *entry*, the smallest
// step of the cursor.

// Requests joined the queue.
struct RequestsArrived {
    std::vector<RequestId> request;
    std::vector<int> priority;    // higher goes first
    std::vector<int> prompt_len;  // tokens
    std::vector<int> num_samples;
    std::vector<int> max_tokens;  // sampled per sequence
    bool operator==(const RequestsArrived&) const = default;
};

// Requests left the queue before they started: they were cancelled.
struct RequestsWithdrawn {
    std::vector<RequestId> request;
    bool operator==(const RequestsWithdrawn&) const = default;
};

enum class DecisionKind : uint8_t {
    kAdmitted,
    kWaiting,  // in the queue, or in the running set with a prompt that gets no row in this step
    kRefused,
    kPreempted,  // left the running set
    kResumed,
    kDropped,  // its K/V are given up instead of kept on the host, and computed again
};
enum class DecisionReason : uint8_t {
    kFits,
    kNoFreeBlocks,    // fewer free than needed and reserved
    kNoFreeRun,       // slab: enough blocks, but no run is long enough
    kLargerThanPool,  // can never fit
    kLongerThanRun,   // slab: more tokens than max_len
    kNeededByOther,   // an earlier sequence needs its blocks, or what it would start with
    kHigherPriority,  // a request that goes first needs its blocks
    kHostPoolFull,    // it should have been swapped out
    kDeviceFailed,    // its K/V are lost: the run goes on on the CPU
    kTokenBudget,     // prompts before it take what decode rows leave of the step's budget
    kBehindOther,     // nobody overtakes the head of the queue
    kUnknownToken,    // not in the vocabulary: tokens_needed is its id, tokens_free how many there
                      // are
};

// The "why" log: what the scheduler decided, with the numbers it decided by. A wait is told once
// per reason: whoever is in the queue after a step has been told why since it joined, by the step
// after that at the latest. It explains; the state is changed by the other events.
struct DecisionsMade {
    std::vector<DecisionKind> kind;
    std::vector<DecisionReason> reason;
    std::vector<RequestId> request;
    std::vector<SequenceId> sequence;    // -1: the request has none yet
    std::vector<int64_t> blocks_needed;  // of the one decided on; by whom a victim gives way
    std::vector<int64_t> blocks_free;    // free and not promised to running prompts; for
                                         // kLargerThanPool the whole pool
    std::vector<int64_t> watermark;  // of those free, not to be had: nothing for slabs, or where
                                     // nobody else runs
    std::vector<int> priority;
    std::vector<int64_t> tokens_needed;  // kTokenBudget: prompt tokens before it
    std::vector<int64_t> tokens_free;    // kTokenBudget: of the budget, beside decode rows
    std::vector<RequestId> head;         // kBehindOther: who stands first in the queue; else -1
    bool operator==(const DecisionsMade&) const = default;
};

// A sequence began; its prompt has no K/V yet. The first of its request, or a sample that found no
// slab to copy to when the prompt was complete. One entry.
struct SequenceStarted {
    SequenceId sequence;
    RequestId request;
    int sample_idx = 0;
    std::vector<TokenId> prompt;
    bool operator==(const SequenceStarted&) const = default;
};

// Samples split off: each child took the parent's tokens and table; every block of it gained one
// reference.
struct SequencesForked {
    std::vector<SequenceId> parent;
    std::vector<SequenceId> child;
    std::vector<int> sample_idx;
    bool operator==(const SequencesForked&) const = default;
};

// A free block was taken and appended to a table. Reference count 0 → 1.
struct BlocksAllocated {
    std::vector<SequenceId> sequence;
    std::vector<int> block_idx;  // logical index in the table, its length before
    std::vector<BlockId> block;
    bool operator==(const BlocksAllocated&) const = default;
};

// Copy-on-write: the sequence wanted to write into a block with several references, so a free block
// took its place in the table (0 → 1), the first num_slots slots were copied, and the source lost a
// reference.
struct BlocksCopied {
    std::vector<SequenceId> sequence;
    std::vector<int> block_idx;
    std::vector<BlockId> source;
    std::vector<BlockId> target;
    std::vector<int> num_slots;
    bool operator==(const BlocksCopied&) const = default;
};

// K and V of num_tokens tokens from first_position on were written to the sequence's blocks.
struct TokensWritten {
    std::vector<SequenceId> sequence;
    std::vector<int> first_position;
    std::vector<int> num_tokens;
    bool operator==(const TokensWritten&) const = default;
};

// A next token was chosen; it has no K/V until it is fed back.
struct TokensSampled {
    std::vector<SequenceId> sequence;
    std::vector<TokenId> token;
    std::vector<float> log_probability;  // natural logarithm, under the model (temperature 1)
    bool operator==(const TokensSampled&) const = default;
};

// kPruned: other beams of its request were more probable.
enum class FinishReason : uint8_t { kNone, kLength, kEndOfText, kCancelled, kPruned };

// The sequence will not run again; its blocks are still held.
struct SequencesFinished {
    std::vector<SequenceId> sequence;
    std::vector<FinishReason> reason;
    bool operator==(const SequencesFinished&) const = default;
};

// A table gave up its last block (tables are released from the tail). At reference count 0 the
// block joins the end of the free queue.
struct BlocksReleased {
    std::vector<SequenceId> sequence;
    std::vector<int> block_idx;
    std::vector<BlockId> block;
    bool operator==(const BlocksReleased&) const = default;
};

// The sequence's table was empty and the sequence left the engine; its text stays readable in the
// log.
struct SequencesRemoved {
    std::vector<SequenceId> sequence;
    bool operator==(const SequencesRemoved&) const = default;
};

// Slab: a sample got a run of its own, and K and V of the first num_tokens tokens were copied
// there from another sequence's run.
struct TokensCopied {
    std::vector<SequenceId> source;
    std::vector<SequenceId> target;
    std::vector<int> num_tokens;
    bool operator==(const TokensCopied&) const = default;
};

// Sequences stopped running before they were finished. kSwap: their K/V are kept, and what no
// running sequence holds may move to the host. kRecompute: their blocks were released before. A
// swapped-out sequence may still become kRecompute when its blocks are needed.
struct SequencesPreempted {
    std::vector<SequenceId> sequence;
    std::vector<PreemptionKind> kind;
    bool operator==(const SequencesPreempted&) const = default;
};

// A block that only swapped-out sequences name moved to the host: every table that named it at
// block_idx names the host block now, and the block joined the end of the free queue.
struct BlocksSwappedOut {
    std::vector<int> block_idx;
    std::vector<BlockId> block;
    std::vector<HostBlockId> host_block;
    bool operator==(const BlocksSwappedOut&) const = default;
};

// The way back: a free block took the host block's content and its place in every table.
struct BlocksSwappedIn {
    std::vector<int> block_idx;
    std::vector<HostBlockId> host_block;
    std::vector<BlockId> block;
    bool operator==(const BlocksSwappedIn&) const = default;
};

// A preempted sequence runs again: all its blocks are on the device, or it has none and prefills.
struct SequencesResumed {
    std::vector<SequenceId> sequence;
    bool operator==(const SequencesResumed&) const = default;
};

// As blocks_released, where the last entry of the table lies on the host.
struct HostBlocksReleased {
    std::vector<SequenceId> sequence;
    std::vector<int> block_idx;
    std::vector<HostBlockId> host_block;
    bool operator==(const HostBlocksReleased&) const = default;
};

// No token to come sees the block through its sliding window, in any layer: the first entry of the
// table that named a block names none any more. At reference count 0 the block joins the end of the
// free queue. The entries go with the last block of the table.
struct BlocksLeftWindow {
    std::vector<SequenceId> sequence;
    std::vector<int> block_idx;
    std::vector<BlockId> block;
    bool operator==(const BlocksLeftWindow&) const = default;
};

using Event = std::variant<SequenceStarted,
                           SequencesForked,
                           BlocksAllocated,
                           BlocksCopied,
                           TokensWritten,
                           TokensSampled,
                           SequencesFinished,
                           BlocksReleased,
                           SequencesRemoved,
                           RequestsArrived,
                           RequestsWithdrawn,
                           DecisionsMade,
                           TokensCopied,
                           SequencesPreempted,
                           BlocksSwappedOut,
                           BlocksSwappedIn,
                           SequencesResumed,
                           HostBlocksReleased,
                           BlocksLeftWindow>;

// A visitor of events from a lambda for each kind.
template <class... Visitors>
struct Overloaded : Visitors... {
    using Visitors::operator()...;
};
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

// Entries of an event (>= 1).
int numEntries(const Event& event);
// Snake-case name, as in trace files: "blocks_allocated".
const char* eventName(const Event& event);
// One entry in words: "B wrote 1 token at position 2,003".
std::string describeEntry(const Event& event, int entry);
const char* finishReasonName(FinishReason reason);
const char* preemptionKindName(PreemptionKind kind);    // "swap", "recompute"
const char* cacheLayoutName(CacheLayout layout);        // "paged", "slab"
const char* decisionKindName(DecisionKind kind);        // "waiting"
const char* decisionReasonName(DecisionReason reason);  // "no_free_blocks"

// "A", "B", … "Z", "AA", … : the letter that every view shows for a sequence (its id counts from
// 0).
std::string ownerLetter(SequenceId sequence);

// What a step cost, measured by the engine.
struct StepStats {
    int num_prefill_tokens = 0;
    int num_decode_tokens = 0;
    double forward_ms = 0;  // the forward pass, copies included
    double sample_ms = 0;   // choosing tokens
    double total_ms = 0;    // the whole step
    // Parts of forward_ms; the rest of it is rotations and the writing of K and V.
    double attention_ms = 0;
    double matmul_ms = 0;
    double copy_ms = 0;  // copy-on-write, slab copies, swaps

    int num_recomputed_tokens = 0;  // of the prefill tokens: K/V that a preemption had dropped
    int num_running = 0;            // sequences with a row in this step
    int num_waiting = 0;            // requests and preempted sequences in the queue afterwards
    // K/V that attention reads, in bytes over all layers: each decode row its context, each prefill
    // chunk once the context of its last row (a kernel may read it again for each tile of rows).
    int64_t attention_bytes = 0;
    int64_t attention_bytes_repeated = 0;  // of these: a block that another row of the step read
    bool operator==(const StepStats&) const = default;
};

// One engine iteration, sealed. Immutable once it is shared between threads.
struct StepTrace {
    int64_t step = 0;  // counts from 0
    std::vector<Event> events;
    // Text of tokens that this step named for the first time in the run, so that a log reads
    // without its model.
    std::vector<std::pair<TokenId, std::string>> new_pieces;
    StepStats stats;
    bool operator==(const StepTrace&) const = default;
};

// What a run was: the first record of a trace.
struct RunInfo {
    ModelConfig model;
    std::string model_sha256;  // of the file; "": generated weights, or a run without a trace
    CacheConfig cache;
    SamplingParams sampling;
    int num_samples = 1;
    int max_tokens = 0;   // sampled tokens per sequence
    std::string backend;  // "cpu"
    std::string device;   // processor name
    std::string build;    // version of the lab
    std::string title;    // "best-of-8", or what the user typed
};

}  // namespace kvlab
