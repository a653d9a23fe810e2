// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <optional>
#include <vector>

#include <QRectF>

#include "app/gui/layout/block_pool_layout.h"
#include "app/gui/layout/block_table_layout.h"
#include "engine/trace/state.h"

namespace kvlab {

// Tables on the left, a channel for threads, the pool on the right, the legend below the pool.
struct MemoryLayout {
    std::vector<SequenceId> sequences;  // of the table rows: those that have not left
    BlockTableLayout tables;
    BlockPoolLayout pool;
    QRectF tables_area, pool_area, legend, folded_note;
    double channel_x = 0;
};

struct MemoryLayoutOptions {
    double legend_height = 22;  // px; 0: none
    double legend_reserve = 0;  // kept free at the bottom for more legend lines
    bool with_tables = true;
    bool with_pool = true;
    int first_row = 0;
    std::optional<BlockId> looked_at_block;
    std::optional<SequenceId> looked_at_sequence;
    std::optional<int> looked_at_idx;  // logical index in looked_at_sequence
};

// Width of the pool, and of the legend below it, beside the tables.
double memoryPoolWidth(double area_width);

MemoryLayout layOutMemory(const QRectF& area,
                          const CacheState& state,
                          const MemoryLayoutOptions& options,
                          const BlockTableMetrics& metrics);

}  // namespace kvlab
