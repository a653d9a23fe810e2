// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include <QString>

#include "engine/trace/run_log.h"

namespace kvlab {

// What the drawing of one block depends on; equal visuals look the same, so views repaint only what
// differs.
enum class BlockLook : uint8_t { kFree, kPrivate, kShared, kCached };

struct BlockVisual {
    BlockLook look = BlockLook::kFree;
    int ref_count = 0;
    int num_filled = 0;           // slots
    std::array<int, 3> owners{};  // first tables that name it, by sequence id
    int num_owners = 0;           // of `owners`
    int block_idx = -1;           // logical index in the first owner's table
    int written_begin = 0;        // slots [begin, end) written by the current step
    int written_end = 0;
    bool being_written = false;  // by the very entry the cursor just passed
    bool operator==(const BlockVisual&) const = default;
};

// [num_blocks]; an empty `moment` marks what step `current_step` wrote, if any.
std::vector<BlockVisual> blockVisuals(const CacheState& state);
void markWritten(std::vector<BlockVisual>& visuals,
                 const CacheState& state,
                 const RunLog& log,
                 std::optional<Cursor> last_applied,
                 std::optional<int64_t> current_step);

// What just happened, or is about to, around the block that the eye should follow.
struct Moment {
    enum class Kind { kNone, kOther, kWritten, kCopyRefused, kCopied };
    Kind kind = Kind::kNone;
    SequenceId sequence;
    BlockId source, target;  // kWritten: target only
    int num_slots = 0;
    QString words;  // one line
};

// From the entry that was applied last; when the cursor is stepping and the next entry is a copy,
// the refused write before it (beat 2 of copy-on-write).
Moment momentOf(const RunLog& log,
                const CacheState& state,
                Cursor cursor,
                std::optional<Cursor> last_applied);

// "A B C", "A…H", "A B C +5".
QString ownerLetters(const std::vector<SequenceId>& sequences);
// Sequences whose table names the block, in order, and the logical index in the first.
struct BlockHolders {
    std::vector<SequenceId> sequences;
    int block_idx = -1;
    bool same_block_idx = true;
};
BlockHolders holdersOf(const CacheState& state, BlockId block);
// "block 37 · refs 8: A…H · 16/16 · logical 37", or its place in the free queue.
QString describeBlock(const CacheState& state, BlockId block);

}  // namespace kvlab
