// SPDX-License-Identifier: MIT
#include "engine/trace/event.h"

#include "engine/text_format.h"

namespace kvlab {

namespace {

std::string owner(const std::vector<SequenceId>& sequences, size_t i) {
    return ownerLetter(sequences[i]);
}

// "request 3 waits: it needs 12 blocks, 9 are free and 2 of them stay in reserve".
std::string describeDecision(const DecisionsMade& e, size_t i) {
    std::string text = e.sequence[i].valid() ? ownerLetter(e.sequence[i])
                                             : "request " + formatCount(e.request[i].value);
    switch (e.kind[i]) {
        case DecisionKind::kAdmitted:
            text += " was admitted";
            break;
        case DecisionKind::kWaiting:
            text += " waits";
            break;
        case DecisionKind::kRefused:
            text += " was refused";
            break;
        case DecisionKind::kPreempted:
            text += " gives way";
            break;
        case DecisionKind::kResumed:
            text += " may run again";
            break;
        case DecisionKind::kDropped:
            text += " will be computed again";
            break;
    }
    const std::string needed = counted(e.blocks_needed[i], "block", "blocks");
    const std::string free = counted(e.blocks_free[i], "is free", "are free");
    const std::string all = formatCount(e.blocks_free[i]);
    switch (e.reason[i]) {
        case DecisionReason::kFits:
        case DecisionReason::kNoFreeBlocks:
            if (e.kind[i] == DecisionKind::kWaiting && e.blocks_needed[i] == 0) {
                return text + ": prompts that run still want more blocks than are free";
            }
            text += ": it needs " + needed + ", " + free;
            if (e.watermark[i] == 0) return text;
            return text + " and " +
                   counted(e.watermark[i], "of them stays in reserve", "of them stay in reserve");
        case DecisionReason::kNoFreeRun:
            return text + ": it needs " + needed + " in a run; " + free + ", but apart";
        case DecisionReason::kLargerThanPool:
            return text + ": it needs " + needed + ", the pool has " + all;
        case DecisionReason::kLongerThanRun:
            return text + ": it needs " + needed + ", a slab has " + all;
        case DecisionReason::kNeededByOther:
            return text + ": a sequence before it needs " + needed + ", " + free;
        case DecisionReason::kHigherPriority:
            return text + ": a request that goes first needs " + needed + ", " + free;
        case DecisionReason::kHostPoolFull:
            return text + ": the host pool has no room for its " + needed + ", " + free + " there";
        case DecisionReason::kDeviceFailed:
            return text + ": the device failed, and what its " + needed + " held is computed again";
        case DecisionReason::kTokenBudget:
            if (e.tokens_free[i] == 0) {
                return text + ": decode rows take the whole token budget of the step";
            }
            return text + ": prompts before it have " +
                   counted(e.tokens_needed[i], "token", "tokens") +
                   " to go, the step has room for " + formatCount(e.tokens_free[i]);
        case DecisionReason::kUnknownToken:
            return text + ": token " + formatCount(e.tokens_needed[i]) +
                   " is not in the vocabulary of " + formatCount(e.tokens_free[i]) + " tokens";
        case DecisionReason::kBehindOther:
            if (e.head[i] == e.request[i]) {
                return text + ": another sequence of its request is before it in the queue";
            }
            return text + ": request " + formatCount(e.head[i].value) + " is first in the queue";
    }
    return text;
}

}  // namespace

int numEntries(const Event& event) {
    return static_cast<int>(
        std::visit(Overloaded{
                       [](const SequenceStarted&) { return size_t{1}; },
                       [](const SequencesForked& e) { return e.child.size(); },
                       [](const BlocksAllocated& e) { return e.block.size(); },
                       [](const BlocksCopied& e) { return e.target.size(); },
                       [](const TokensWritten& e) { return e.sequence.size(); },
                       [](const TokensSampled& e) { return e.sequence.size(); },
                       [](const SequencesFinished& e) { return e.sequence.size(); },
                       [](const BlocksReleased& e) { return e.block.size(); },
                       [](const SequencesRemoved& e) { return e.sequence.size(); },
                       [](const RequestsArrived& e) { return e.request.size(); },
                       [](const RequestsWithdrawn& e) { return e.request.size(); },
                       [](const DecisionsMade& e) { return e.kind.size(); },
                       [](const TokensCopied& e) { return e.target.size(); },
                       [](const SequencesPreempted& e) { return e.sequence.size(); },
                       [](const BlocksSwappedOut& e) { return e.block.size(); },
                       [](const BlocksSwappedIn& e) { return e.block.size(); },
                       [](const SequencesResumed& e) { return e.sequence.size(); },
                       [](const HostBlocksReleased& e) { return e.host_block.size(); },
                       [](const BlocksLeftWindow& e) { return e.block.size(); },
                   },
                   event));
}

const char* eventName(const Event& event) {
    static constexpr const char* kNames[] = {
        "sequence_started",  "sequences_forked",     "blocks_allocated",   "blocks_copied",
        "tokens_written",    "tokens_sampled",       "sequences_finished", "blocks_released",
        "sequences_removed", "requests_arrived",     "requests_withdrawn", "decisions_made",
        "tokens_copied",     "sequences_preempted",  "blocks_swapped_out", "blocks_swapped_in",
        "sequences_resumed", "host_blocks_released", "blocks_left_window"};
    static_assert(std::variant_size_v<Event> == std::size(kNames));
    return kNames[event.index()];
}

const char* finishReasonName(FinishReason reason) {
    switch (reason) {
        case FinishReason::kNone:
            return "none";
        case FinishReason::kLength:
            return "length";
        case FinishReason::kEndOfText:
            return "end_of_text";
        case FinishReason::kCancelled:
            return "cancelled";
        case FinishReason::kPruned:
            return "pruned";
    }
    return "?";
}

const char* preemptionKindName(PreemptionKind kind) {
    switch (kind) {
        case PreemptionKind::kNone:
            return "none";
        case PreemptionKind::kRecompute:
            return "recompute";
        case PreemptionKind::kSwap:
            return "swap";
    }
    return "?";
}

const char* cacheLayoutName(CacheLayout layout) {
    return layout == CacheLayout::kSlab ? "slab" : "paged";
}

const char* decisionKindName(DecisionKind kind) {
    static constexpr const char* kNames[] = {"admitted",  "waiting", "refused",
                                             "preempted", "resumed", "dropped"};
    return kNames[static_cast<size_t>(kind)];
}

const char* decisionReasonName(DecisionReason reason) {
    static constexpr const char* kNames[] = {"fits",
                                             "no_free_blocks",
                                             "no_free_run",
                                             "larger_than_pool",
                                             "longer_than_run",
                                             "needed_by_other",
                                             "higher_priority",
                                             "host_pool_full",
                                             "device_failed",
                                             "token_budget",
                                             "behind_other",
                                             "unknown_token"};
    return kNames[static_cast<size_t>(reason)];
}

std::string ownerLetter(SequenceId sequence) {
    if (!sequence.valid()) return "?";
    std::string letters;
    for (int64_t n = sequence.value; n >= 0; n = n / 26 - 1) {
        letters.insert(letters.begin(), static_cast<char>('A' + n % 26));
    }
    return letters;
}

std::string describeEntry(const Event& event, int entry) {
    const size_t i = static_cast<size_t>(entry);
    return std::visit(
        Overloaded{
            [&](const SequenceStarted& e) {
                return ownerLetter(e.sequence) + " started with a prompt of " +
                       counted(static_cast<int64_t>(e.prompt.size()), "token", "tokens");
            },
            [&](const SequencesForked& e) {
                return owner(e.child, i) + " forked from " + owner(e.parent, i) +
                       " and shares its blocks";
            },
            [&](const BlocksAllocated& e) {
                return owner(e.sequence, i) + " took block " + formatCount(e.block[i].value) +
                       " as logical block " + formatCount(e.block_idx[i]);
            },
            [&](const BlocksCopied& e) {
                return owner(e.sequence, i) + " copied " +
                       counted(e.num_slots[i], "slot", "slots") + " of shared block " +
                       formatCount(e.source[i].value) + " to block " +
                       formatCount(e.target[i].value) + " (copy-on-write)";
            },
            [&](const TokensWritten& e) {
                if (e.num_tokens[i] == 1) {
                    return owner(e.sequence, i) + " wrote K and V of position " +
                           formatCount(e.first_position[i]);
                }
                return owner(e.sequence, i) + " wrote K and V of positions " +
                       formatCount(e.first_position[i]) + " to " +
                       formatCount(int64_t{e.first_position[i]} + e.num_tokens[i] - 1);
            },
            [&](const TokensSampled& e) {
                return owner(e.sequence, i) + " sampled token " + formatCount(e.token[i].value);
            },
            [&](const SequencesFinished& e) {
                switch (e.reason[i]) {
                    case FinishReason::kEndOfText:
                        return owner(e.sequence, i) + " reached the end of its text";
                    case FinishReason::kCancelled:
                        return owner(e.sequence, i) + " was cancelled";
                    case FinishReason::kPruned:
                        return owner(e.sequence, i) + " was pruned: other beams are more probable";
                    default:
                        return owner(e.sequence, i) + " reached its length limit";
                }
            },
            [&](const BlocksReleased& e) {
                return owner(e.sequence, i) + " released block " + formatCount(e.block[i].value);
            },
            [&](const SequencesRemoved& e) { return owner(e.sequence, i) + " left the engine"; },
            [&](const RequestsArrived& e) {
                return "request " + formatCount(e.request[i].value) + " arrived with " +
                       counted(e.prompt_len[i], "prompt token", "prompt tokens");
            },
            [&](const RequestsWithdrawn& e) {
                return "request " + formatCount(e.request[i].value) +
                       " was cancelled before it started";
            },
            [&](const DecisionsMade& e) { return describeDecision(e, i); },
            [&](const TokensCopied& e) {
                return owner(e.target, i) + " copied " +
                       counted(e.num_tokens[i], "token", "tokens") + " from " + owner(e.source, i) +
                       " (slabs cannot be shared)";
            },
            [&](const SequencesPreempted& e) {
                return owner(e.sequence, i) +
                       (e.kind[i] == PreemptionKind::kSwap
                            ? " was preempted and waits with its K and V kept"
                            : " was preempted and will be computed again");
            },
            [&](const BlocksSwappedOut& e) {
                return "block " + formatCount(e.block[i].value) + " moved to host block " +
                       formatCount(e.host_block[i].value);
            },
            [&](const BlocksSwappedIn& e) {
                return "host block " + formatCount(e.host_block[i].value) +
                       " moved back, to block " + formatCount(e.block[i].value);
            },
            [&](const SequencesResumed& e) { return owner(e.sequence, i) + " runs again"; },
            [&](const HostBlocksReleased& e) {
                return owner(e.sequence, i) + " released host block " +
                       formatCount(e.host_block[i].value);
            },
            [&](const BlocksLeftWindow& e) {
                return owner(e.sequence, i) + " gave block " + formatCount(e.block[i].value) +
                       " back: its tokens have left the sliding window";
            },
        },
        event);
}

}  // namespace kvlab
