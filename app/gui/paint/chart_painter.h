// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstdint>
#include <vector>

#include <QPainter>
#include <QRectF>
#include <QString>

#include "app/gui/layout/block_visual.h"
#include "app/gui/layout/sharing_layout.h"
#include "app/gui/layout/timeline_layout.h"
#include "app/gui/theme.h"
#include "engine/trace/state.h"

namespace kvlab {

// "What sharing saves, to scale", in the place that SharingLayout gave each part.
struct SharingScene {
    SharingLayout layout;
    PoolAccount account;
    int num_sequences = 0;          // that hold blocks
    std::vector<BlockVisual> held;  // active blocks in order of their ids
};
SharingScene sharingScene(const CacheState& state, const QRectF& area, bool with_key);
void paintSharing(QPainter& painter, const SharingScene& scene, const Theme& theme);

// Lanes, axis, minimap; the curve is the caller's.
struct TimelineScene {
    TimelineLayout layout;
    const std::vector<LaneCounts>* counts = nullptr;     // [num_steps]
    LaneCounts max_counts{};                             // over the run
    const std::vector<double>* blocks_in_use = nullptr;  // [num_steps + 1], by moment
    double max_blocks = 1;
};
void paintTimelineLanes(QPainter& painter, const TimelineScene& scene, const Theme& theme);
void paintTimelineCurve(QPainter& painter, const TimelineScene& scene, const Theme& theme);
void paintMinimap(QPainter& painter, const TimelineScene& scene, const Theme& theme);
// The playhead at a moment: a line with a round head.
void paintPlayhead(QPainter& painter,
                   const TimelineLayout& layout,
                   double moment,
                   const Theme& theme);

// The pool's account: blocks and slots as two bars whose parts add up, words below. Returns the
// height.
double paintAccount(QPainter& painter,
                    const QRectF& area,
                    const PoolAccount& account,
                    int block_size,
                    int64_t bytes_per_token,
                    const Theme& theme);
// One line of the account for captions: "181 active + 0 cached + 105 free = 286 blocks · …".
QString accountSentence(const PoolAccount& account);

}  // namespace kvlab
