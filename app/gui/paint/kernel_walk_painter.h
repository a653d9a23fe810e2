// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QPainter>
#include <QRectF>
#include <QString>

#include "app/gui/layout/kernel_walk_layout.h"
#include "app/gui/theme.h"
#include "engine/kernel_walk.h"

namespace kvlab {

// A step of a thread block's walk: a table entry that it reads, or the merge behind the last one.
struct WalkStep {
    const AttentionRun* run = nullptr;
    const AttentionRead* read = nullptr;  // null: the merge
};

// All sums of one layer's launches.
struct WalkTotals {
    int64_t num_thread_blocks = 0;
    int64_t num_threads = 0;
    int64_t num_reads = 0;     // of table entries
    int64_t num_rows = 0;      // of K and V, a thread block's different ones
    int64_t num_repeated = 0;  // loads of the same row by the same thread block
};
WalkTotals totalsOf(const AttentionWalk& walk);
std::vector<WalkStep> walkSteps(const AttentionThreadBlock& thread_block);
// "pagedAttentionMmaKernel" of what the launch wrote.
QString kernelName(const std::string& written);

// Grid on the left, the chosen thread block's walk on the right, what was counted below. The words
// that explain stand in the halves where they have room, else below both.
struct KernelWalkScene {
    const KernelWalk* walk = nullptr;
    int launch = 0;
    int thread_block = 0;
    int step = 0;  // of `steps`
    std::vector<WalkStep> steps;
    KernelGridLayout grid;
    WalkStripLayout strip;
    QRectF grid_area, detail, strip_area, hop, totals;
    bool stacked = false;  // the words stand in `words`, below the halves
    QRectF words;

    const AttentionLaunch& chosenLaunch() const {
        return walk->attention.launches[static_cast<size_t>(launch)];
    }
    const AttentionThreadBlock& chosen() const {
        return chosenLaunch().thread_blocks[static_cast<size_t>(thread_block)];
    }
    int ownerOf(const AttentionRun& run) const {
        return static_cast<int>(walk->sequences[static_cast<size_t>(run.seq_idx)].value);
    }
};

// Places the parts; `area` is the whole picture, and words that find no room in it are left out.
void layOutKernelWalk(KernelWalkScene& scene, const QRectF& area);
// The same with every word: where `room` is too small for them the picture grows downwards and
// stays `narrow_width` wide, so that it may scroll. Returns its height.
double layOutKernelWalkWhole(KernelWalkScene& scene, const QRectF& room, double narrow_width);
// `live`: with words on what a click and the keys do.
void paintKernelWalk(QPainter& painter,
                     const KernelWalkScene& scene,
                     const Theme& theme,
                     bool live = true);
// The walk's step in words: "table A[3] = KV block 41 · positions 48–63 → slots 656–671".
QString walkStepWords(const KernelWalkScene& scene);
// What the signs of the grid mean.
QString walkGridWords(const KernelWalkScene& scene, bool live);
// What the thread block does in it, for somebody who sees a kernel for the first time.
QString walkLessonWords(const KernelWalkScene& scene);

}  // namespace kvlab
