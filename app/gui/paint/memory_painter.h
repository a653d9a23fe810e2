// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <optional>
#include <vector>

#include <QPainter>
#include <QRectF>

#include "app/gui/layout/block_visual.h"
#include "app/gui/layout/memory_layout.h"
#include "app/gui/paint/block_cell_painter.h"
#include "app/gui/theme.h"

namespace kvlab {

// Everything the picture of tables and pool depends on: the window and an exported figure paint the
// same scene.
struct MemoryScene {
    MemoryLayout layout;
    std::vector<BlockVisual> visuals;  // by block id
    int block_size = 0;
    Moment moment;
    std::optional<BlockId> looked_at;
    std::optional<SequenceId> looked_at_sequence;
    double copy_progress = 1;  // of the copy in `moment`, 0 … 1
    bool dim_others = false;   // hover: everything else drops to 35% ink
};

void paintBlockTables(QPainter& painter,
                      const MemoryScene& scene,
                      const CacheState& state,
                      const Theme& theme);
// `clip`: cells outside it are left out; `sprites` may be null (vector output).
void paintBlockPool(QPainter& painter,
                    const MemoryScene& scene,
                    const CacheState& state,
                    const Theme& theme,
                    BlockCellSprites* sprites,
                    const QRectF& clip = {});
// Threads of the looked-at block and of a copy-on-write, over tables and pool.
void paintThreads(QPainter& painter,
                  const MemoryScene& scene,
                  const CacheState& state,
                  const Theme& theme);
// Flows the states that occur; returns the height it took.
struct LegendOptions {
    bool with_cached = false;
    bool with_writing = true;  // a figure has no "now"
};
double paintLegend(QPainter& painter,
                   const QRectF& area,
                   const Theme& theme,
                   const LegendOptions& options);
double legendHeight(double width, const QPaintDevice* device, const LegendOptions& options);

}  // namespace kvlab
