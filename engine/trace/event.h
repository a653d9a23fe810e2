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

// A request's first sequence began; its prompt has no K/V yet. One entry.
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

enum class FinishReason : uint8_t { kNone, kLength, kEndOfText, kCancelled };

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

using Event = std::variant<SequenceStarted,
                           SequencesForked,
                           BlocksAllocated,
                           BlocksCopied,
                           TokensWritten,
                           TokensSampled,
                           SequencesFinished,
                           BlocksReleased,
                           SequencesRemoved>;

// Entries of an event (>= 1).
int numEntries(const Event& event);
// Snake-case name, as in trace files: "blocks_allocated".
const char* eventName(const Event& event);
// One entry in words: "B wrote 1 token at position 2,003".
std::string describeEntry(const Event& event, int entry);
const char* finishReasonName(FinishReason reason);

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
    std::string model_sha256;  // of the file; "" for generated weights
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
