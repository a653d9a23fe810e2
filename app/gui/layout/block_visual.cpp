// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/layout/block_visual.h"

#include <algorithm>

#include "app/gui/provenance.h"

namespace kvlab {
namespace {

QString letterOf(SequenceId sequence) { return QString::fromStdString(ownerLetter(sequence)); }

void markSlots(std::vector<BlockVisual>& visuals,
               const CacheState& state,
               const TokensWritten& event,
               int entry,
               bool being_written) {
    const size_t i = static_cast<size_t>(entry);
    const size_t seq = static_cast<size_t>(event.sequence[i].value);
    if (seq >= state.sequences.size() || state.block_size <= 0) return;
    const std::vector<BlockId>& table = state.sequences[seq].table;
    const int first = event.first_position[i], end = first + event.num_tokens[i];
    for (int idx = first / state.block_size; idx * state.block_size < end; ++idx) {
        if (static_cast<size_t>(idx) >= table.size()) break;
        const BlockId block = table[static_cast<size_t>(idx)];
        if (!block.valid()) continue;  // it has moved to the host since
        BlockVisual& visual = visuals[static_cast<size_t>(block.value)];
        visual.written_begin = std::max(0, first - idx * state.block_size);
        visual.written_end = std::min(state.block_size, end - idx * state.block_size);
        visual.being_written = being_written;
    }
}

const Event* eventAt(const RunLog& log, Cursor at) {
    if (at.step < 0 || at.step >= log.numSteps()) return nullptr;
    const std::vector<Event>& events = log.step(at.step).events;
    return static_cast<size_t>(at.event) < events.size() ? &events[static_cast<size_t>(at.event)]
                                                         : nullptr;
}

}  // namespace

std::vector<BlockVisual> blockVisuals(const CacheState& state) {
    std::vector<BlockVisual> visuals(state.blocks.size());
    for (size_t i = 0; i < state.blocks.size(); ++i) {
        const BlockState& block = state.blocks[i];
        BlockVisual& visual = visuals[i];
        visual.ref_count = block.ref_count;
        visual.num_filled = block.num_filled;
        visual.look = block.ref_count > 1     ? BlockLook::kShared
                      : block.ref_count == 1  ? BlockLook::kPrivate
                      : block.index_count > 0 ? BlockLook::kCached
                                              : BlockLook::kFree;
    }
    for (const SequenceState& sequence : state.sequences) {
        for (size_t idx = 0; idx < sequence.table.size(); ++idx) {
            if (!sequence.table[idx].valid()) continue;  // on the host
            BlockVisual& visual = visuals[static_cast<size_t>(sequence.table[idx].value)];
            if (visual.num_owners == 0) visual.block_idx = static_cast<int>(idx);
            if (visual.num_owners < 3) {
                visual.owners[static_cast<size_t>(visual.num_owners++)] = sequence.id.value;
            }
        }
    }
    return visuals;
}

void markWritten(std::vector<BlockVisual>& visuals,
                 const CacheState& state,
                 const RunLog& log,
                 std::optional<Cursor> last_applied,
                 std::optional<int64_t> current_step) {
    if (last_applied) {
        const Event* event = eventAt(log, *last_applied);
        if (!event) return;
        if (const auto* written = std::get_if<TokensWritten>(event)) {
            markSlots(visuals, state, *written, last_applied->entry, true);
        } else if (const auto* copied = std::get_if<BlocksCopied>(event)) {
            const size_t i = static_cast<size_t>(last_applied->entry);
            BlockVisual& target = visuals[static_cast<size_t>(copied->target[i].value)];
            target.written_begin = 0;
            target.written_end = copied->num_slots[i];
            target.being_written = true;
        }
        return;
    }
    if (!current_step || *current_step >= log.numSteps()) return;
    for (const Event& event : log.step(*current_step).events) {
        if (const auto* written = std::get_if<TokensWritten>(&event)) {
            for (int entry = 0; entry < numEntries(event); ++entry) {
                markSlots(visuals, state, *written, entry, false);
            }
        }
    }
}

Moment momentOf(const RunLog& log,
                const CacheState& state,
                Cursor cursor,
                std::optional<Cursor> last_applied) {
    Moment moment;
    const auto lettered = [](SequenceId id) { return letterOf(id); };
    if (last_applied) {
        if (const Event* event = eventAt(log, *last_applied)) {
            const size_t i = static_cast<size_t>(last_applied->entry);
            moment.kind = Moment::Kind::kOther;
            moment.words = QString::fromStdString(describeEntry(*event, last_applied->entry));
            if (const auto* copied = std::get_if<BlocksCopied>(event)) {
                moment.kind = Moment::Kind::kCopied;
                moment.sequence = copied->sequence[i];
                moment.source = copied->source[i];
                moment.target = copied->target[i];
                moment.num_slots = copied->num_slots[i];
                const int refs =
                    state.blocks[static_cast<size_t>(copied->source[i].value)].ref_count;
                const int64_t bytes = log.info().model.kvBytesPerToken(log.info().cache.kv_dtype) *
                                      copied->num_slots[i];
                moment.words =
                    QStringLiteral("%1 copied %2 of block %3 to block %4 · %5 · refs ×%6 → ×%7")
                        .arg(lettered(moment.sequence), countOf(moment.num_slots, "slot"),
                             formatCount(moment.source.value), formatCount(moment.target.value),
                             bytes > 0 ? formatBytes(bytes) : noData())
                        .arg(refs + 1)
                        .arg(refs);
                return moment;
            }
            if (const auto* written = std::get_if<TokensWritten>(event)) {
                moment.kind = Moment::Kind::kWritten;
                moment.sequence = written->sequence[i];
                moment.num_slots = written->num_tokens[i];
                const int last = written->first_position[i] + written->num_tokens[i] - 1;
                const auto& table =
                    state.sequences[static_cast<size_t>(moment.sequence.value)].table;
                const size_t idx = static_cast<size_t>(last / state.block_size);
                if (idx < table.size()) moment.target = table[idx];
            }
        }
    }
    const bool stepping = last_applied || cursor.event > 0 || cursor.entry > 0;
    if (!stepping) return moment;
    const Event* next = eventAt(log, cursor);
    if (const auto* copied = next ? std::get_if<BlocksCopied>(next) : nullptr) {
        const size_t i = static_cast<size_t>(cursor.entry);
        moment.kind = Moment::Kind::kCopyRefused;
        moment.sequence = copied->sequence[i];
        moment.source = copied->source[i];
        moment.target = copied->target[i];
        moment.num_slots = copied->num_slots[i];
        moment.words = QStringLiteral("%1 wants to write block %2: refs %3, may not write")
                           .arg(lettered(moment.sequence), formatCount(moment.source.value))
                           .arg(state.blocks[static_cast<size_t>(moment.source.value)].ref_count);
    }
    return moment;
}

QString ownerLetters(const std::vector<SequenceId>& sequences) {
    if (sequences.empty()) return noData();
    bool run = sequences.size() > 3;
    for (size_t i = 1; i < sequences.size(); ++i) {
        run = run && sequences[i].value == sequences[i - 1].value + 1;
    }
    if (run) return letterOf(sequences.front()) + QStringLiteral("…") + letterOf(sequences.back());
    QStringList letters;
    const size_t num_named = sequences.size() > 4 ? 3 : sequences.size();
    for (size_t i = 0; i < num_named; ++i) letters << letterOf(sequences[i]);
    QString text = letters.join(QLatin1Char(' '));
    if (num_named < sequences.size()) {
        text += QStringLiteral(" +%1").arg(sequences.size() - num_named);
    }
    return text;
}

BlockHolders holdersOf(const CacheState& state, BlockId block) {
    BlockHolders holders;
    for (const SequenceState& sequence : state.sequences) {
        const auto at = std::find(sequence.table.begin(), sequence.table.end(), block);
        if (at == sequence.table.end()) continue;
        const int idx = static_cast<int>(at - sequence.table.begin());
        if (holders.sequences.empty()) holders.block_idx = idx;
        holders.same_block_idx = holders.same_block_idx && idx == holders.block_idx;
        holders.sequences.push_back(sequence.id);
    }
    return holders;
}

QString describeBlock(const CacheState& state, BlockId id) {
    if (!id.valid() || static_cast<size_t>(id.value) >= state.blocks.size()) return {};
    const BlockState& block = state.blocks[static_cast<size_t>(id.value)];
    QString text = QStringLiteral("block %1").arg(formatCount(id.value));
    if (block.ref_count == 0 && block.index_count == 0) {
        const int64_t place = state.free_queue.placeOf(id);
        text += QStringLiteral(" · free");
        if (place >= 0) {
            text += QStringLiteral(" · place %1 in the free queue").arg(formatCount(place));
        }
        return text;
    }
    if (block.ref_count == 0) {
        return text + QStringLiteral(" · refs 0 · cached, reusable until evicted · %1/%2")
                          .arg(block.num_filled)
                          .arg(state.block_size);
    }
    const BlockHolders holders = holdersOf(state, id);
    text += QStringLiteral(" · refs %1: %2 · %3/%4")
                .arg(block.ref_count)
                .arg(ownerLetters(holders.sequences))
                .arg(block.num_filled)
                .arg(state.block_size);
    if (block.num_filled < state.block_size) {
        text += QStringLiteral(" · %1 empty").arg(state.block_size - block.num_filled);
    }
    if (holders.same_block_idx) text += QStringLiteral(" · logical %1").arg(holders.block_idx);
    return text;
}

}  // namespace kvlab
