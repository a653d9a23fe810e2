// SPDX-License-Identifier: MIT
#include "engine/trace/event.h"

#include "engine/text_format.h"

namespace kvlab {

namespace {

template <class... Visitors>
struct Overloaded : Visitors... {
    using Visitors::operator()...;
};
template <class... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

std::string owner(const std::vector<SequenceId>& sequences, size_t i) {
    return ownerLetter(sequences[i]);
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
                   },
                   event));
}

const char* eventName(const Event& event) {
    static constexpr const char* kNames[] = {
        "sequence_started",   "sequences_forked", "blocks_allocated",
        "blocks_copied",      "tokens_written",   "tokens_sampled",
        "sequences_finished", "blocks_released",  "sequences_removed"};
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
    }
    return "?";
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
    const auto count = [](int64_t n, const char* one, const char* many) {
        return formatCount(n) + " " + (n == 1 ? one : many);
    };
    return std::visit(
        Overloaded{
            [&](const SequenceStarted& e) {
                return ownerLetter(e.sequence) + " started with a prompt of " +
                       count(static_cast<int64_t>(e.prompt.size()), "token", "tokens");
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
                return owner(e.sequence, i) + " copied " + count(e.num_slots[i], "slot", "slots") +
                       " of shared block " + formatCount(e.source[i].value) + " to block " +
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
                    default:
                        return owner(e.sequence, i) + " reached its length limit";
                }
            },
            [&](const BlocksReleased& e) {
                return owner(e.sequence, i) + " released block " + formatCount(e.block[i].value);
            },
            [&](const SequencesRemoved& e) { return owner(e.sequence, i) + " left the engine"; },
        },
        event);
}

}  // namespace kvlab
