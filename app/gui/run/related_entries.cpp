// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/run/related_entries.h"

#include <algorithm>
#include <type_traits>
#include <variant>

namespace kvlab {

namespace {

const SequenceState* sequenceOf(const CacheState& state, SequenceId id) {
    const auto idx = static_cast<size_t>(id.value);
    return id.valid() && idx < state.sequences.size() ? &state.sequences[idx] : nullptr;
}

bool tableNames(const SequenceState* sequence, BlockId block, size_t first, size_t last) {
    if (!sequence || sequence->table.empty()) {
        return false;
    }
    last = std::min(last, sequence->table.size() - 1);
    for (size_t i = first; i <= last; ++i) {
        if (sequence->table[i] == block) {
            return true;
        }
    }
    return false;
}

bool concernsBlock(const CacheState& before, const Event& event, size_t i, BlockId block) {
    return std::visit(
        [&](const auto& e) {
            using T = std::decay_t<decltype(e)>;
            if constexpr (std::is_same_v<T, BlocksAllocated> || std::is_same_v<T, BlocksReleased> ||
                          std::is_same_v<T, BlocksLeftWindow>) {
                return e.block[i] == block;
            } else if constexpr (std::is_same_v<T, BlocksCopied>) {
                return e.source[i] == block || e.target[i] == block;
            } else if constexpr (std::is_same_v<T, BlocksSwappedOut> ||
                                 std::is_same_v<T, BlocksSwappedIn>) {
                return e.block[i] == block;
            } else if constexpr (std::is_same_v<T, SequencesForked>) {
                return tableNames(sequenceOf(before, e.parent[i]), block, 0, SIZE_MAX);
            } else if constexpr (std::is_same_v<T, TokensWritten>) {
                const int last = e.first_position[i] + e.num_tokens[i] - 1;
                return before.block_size > 0 && last >= e.first_position[i] &&
                       tableNames(sequenceOf(before, e.sequence[i]), block,
                                  static_cast<size_t>(e.first_position[i] / before.block_size),
                                  static_cast<size_t>(last / before.block_size));
            } else {
                return false;
            }
        },
        event);
}

bool concernsSequence(const Event& event, size_t i, SequenceId sequence) {
    return std::visit(
        [&](const auto& e) {
            using T = std::decay_t<decltype(e)>;
            if constexpr (std::is_same_v<T, SequenceStarted>) {
                return e.sequence == sequence;
            } else if constexpr (std::is_same_v<T, SequencesForked>) {
                return e.parent[i] == sequence || e.child[i] == sequence;
            } else if constexpr (std::is_same_v<T, TokensCopied>) {
                return e.source[i] == sequence || e.target[i] == sequence;
            } else if constexpr (std::is_same_v<T, RequestsArrived> ||
                                 std::is_same_v<T, RequestsWithdrawn> ||
                                 std::is_same_v<T, BlocksSwappedOut> ||
                                 std::is_same_v<T, BlocksSwappedIn>) {
                return false;
            } else {
                return e.sequence[i] == sequence;
            }
        },
        event);
}

// Calls visit(cursor of the entry, event, state before it) for each entry in [from, to) and folds
// along; stops when visit returns false.
template <class Visit>
void walk(const RunLog& log, CacheState state, Cursor from, Cursor to, Visit visit) {
    for (Cursor at = from; at < to && at.step < log.numSteps();) {
        const StepTrace& step = log.step(at.step);
        if (at.event >= static_cast<int>(step.events.size())) {
            at = {at.step + 1, 0, 0};
            continue;
        }
        const Event& event = step.events[static_cast<size_t>(at.event)];
        if (!visit(at, event, state)) {
            return;
        }
        applyEntry(state, event, at.entry);
        if (++at.entry >= numEntries(event)) {
            at = {at.step, at.event + 1, 0};
        }
    }
}

}  // namespace

bool entryConcerns(const CacheState& before,
                   const Event& event,
                   int entry,
                   const Selection& selection) {
    const auto i = static_cast<size_t>(entry);
    if (selection.block) {
        return concernsBlock(before, event, i, *selection.block);
    }
    return selection.sequence && concernsSequence(event, i, *selection.sequence);
}

std::optional<Cursor> nextRelatedEntry(const RunLog& log,
                                       const Selection& selection,
                                       Cursor from,
                                       const CacheState& state) {
    std::optional<Cursor> found;
    walk(log, state, from, log.end(), [&](Cursor at, const Event& event, const CacheState& before) {
        if (entryConcerns(before, event, at.entry, selection)) {
            found = at;
        }
        return !found;
    });
    return found;
}

std::optional<Cursor> previousRelatedEntry(const RunLog& log,
                                           const Selection& selection,
                                           Cursor from) {
    // Keyframe by keyframe backwards, each stretch folded once.
    Cursor to = from;
    while (to > log.begin()) {
        const int64_t last_step = to.event > 0 || to.entry > 0 ? to.step : to.step - 1;
        const Cursor start{last_step - last_step % RunLog::kKeyframeInterval, 0, 0};
        std::optional<Cursor> found;
        walk(log, log.stateAt(start), start, to,
             [&](Cursor at, const Event& event, const CacheState& before) {
                 if (entryConcerns(before, event, at.entry, selection)) {
                     found = at;
                 }
                 return true;
             });
        if (found) {
            return found;
        }
        to = start;
    }
    return std::nullopt;
}

}  // namespace kvlab
