// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/layout/memory_layout.h"

#include <algorithm>
#include <cmath>

namespace kvlab {
namespace {

constexpr double kChannelWidth = 36;  // px
constexpr double kMinTables = 232;
constexpr double kMaxTables = 640;
constexpr double kThreadHeadroom = 4;  // above the first pool row, for a thread

double tablesWidth(double area_width) {
    const double share = std::clamp(area_width * 0.43, kMinTables, kMaxTables);
    return std::min(share, std::max(area_width - 200, 0.0));
}

std::vector<BlockTableRowInput> rowInputs(const CacheState& state,
                                          const std::vector<SequenceId>& sequences,
                                          const MemoryLayoutOptions& options) {
    std::vector<BlockTableRowInput> inputs;
    inputs.reserve(sequences.size());
    for (const SequenceId id : sequences) {
        const std::vector<BlockId>& table = state.sequences[static_cast<size_t>(id.value)].table;
        BlockTableRowInput input;
        input.table_len = static_cast<int>(table.size());
        if (options.looked_at_block) {
            const auto at = std::find(table.begin(), table.end(), *options.looked_at_block);
            if (at != table.end()) input.looked_at = static_cast<int>(at - table.begin());
        } else if (options.looked_at_sequence == id) {
            input.looked_at = options.looked_at_idx;
        }
        inputs.push_back(input);
    }
    return inputs;
}

}  // namespace

double memoryPoolWidth(double area_width) {
    return area_width - tablesWidth(area_width) - kChannelWidth;
}

MemoryLayout layOutMemory(const QRectF& area,
                          const CacheState& state,
                          const MemoryLayoutOptions& options,
                          const BlockTableMetrics& metrics) {
    MemoryLayout layout;
    for (const SequenceState& sequence : state.sequences) {
        if (!sequence.removed) layout.sequences.push_back(sequence.id);
    }
    const double bottom = area.bottom() - options.legend_reserve;
    const QRectF upper(area.left(), area.top(), area.width(), bottom - area.top());

    if (!options.with_pool) {
        layout.tables_area = upper;
    } else if (!options.with_tables) {
        layout.pool_area = upper;
    } else {
        const double tables_width = tablesWidth(area.width());
        layout.tables_area = QRectF(area.left(), area.top(), tables_width, area.height());
        layout.pool_area = QRectF(area.left() + tables_width + kChannelWidth, area.top(),
                                  area.width() - tables_width - kChannelWidth, upper.height());
    }
    if (options.with_tables) {
        layout.tables =
            BlockTableLayout(layout.tables_area, rowInputs(state, layout.sequences, options),
                             metrics, options.first_row);
    }
    if (options.with_pool) {
        QRectF grid = layout.pool_area.adjusted(0, kThreadHeadroom, 0, 0);
        if (options.legend_height > 0) grid.setBottom(grid.bottom() - options.legend_height);
        layout.pool = BlockPoolLayout(grid, static_cast<int>(state.blocks.size()));
        if (layout.pool.isFolded()) {
            grid.setBottom(grid.bottom() - 18);
            layout.pool = BlockPoolLayout(grid, static_cast<int>(state.blocks.size()));
            layout.folded_note =
                QRectF(grid.left(), layout.pool.gridRect().bottom() + 2, grid.width(), 16);
        }
        const double used = std::max(layout.pool.gridRect().bottom(), layout.folded_note.bottom());
        const double legend_top =
            std::min(used + 10, layout.pool_area.bottom() - options.legend_height + 4);
        layout.legend = QRectF(layout.pool_area.left(), legend_top, layout.pool_area.width(),
                               layout.pool_area.bottom() + options.legend_reserve - legend_top);
        layout.channel_x = std::floor(layout.pool_area.left() - 16) + 0.5;
    }
    return layout;
}

}  // namespace kvlab
