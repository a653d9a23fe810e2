// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <QPointF>
#include <QRectF>

#include "engine/trace/event.h"

namespace kvlab {

enum class Lane { kAllocate, kShare, kCopyOnWrite, kRelease, kWrite };
constexpr int kNumLanes = 5;
const char* laneName(Lane lane);

// What a step did, by lane: blocks allocated, sequences forked, blocks copied, blocks released,
// tokens written.
using LaneCounts = std::array<int, kNumLanes>;
LaneCounts laneCounts(const StepTrace& step);

// Steps on a line. *Moment* m is the time before step m, so step s covers the moments s … s + 1 and
// the log with n steps the moments 0 … n. The minimap below shows the whole run, whatever the rest
// is zoomed to.
//
//   labels │ curve    blocks in use
//          │ lanes    allocate | share | …
//          │ axis     0   20   40 …
//          │ minimap
struct TimelineMetrics {
    double label_width = 104;  // px
    double lane_height = 16;
    double axis_height = 16;
    double minimap_height = 10;
    double right_margin = 14;  // half of a playhead's tag
    double min_curve = 24;
};

class TimelineLayout {
  public:
    TimelineLayout() = default;
    // The visible range in moments; first >= last means the whole run.
    TimelineLayout(const QRectF& area,
                   int64_t num_steps,
                   double first,
                   double last,
                   const TimelineMetrics& metrics = {});

    QRectF plot() const { return plot_; }  // curve and lanes
    QRectF curve() const { return curve_; }
    QRectF laneRect(Lane lane) const;
    QRectF laneLabel(Lane lane) const;
    QRectF axis() const { return axis_; }
    QRectF minimap() const { return minimap_; }
    QRectF minimapWindow() const;  // the visible range on the minimap

    double first() const { return first_; }
    double last() const { return last_; }
    int64_t numSteps() const { return num_steps_; }
    double xOf(double moment) const;
    double minimapX(double moment) const;
    double momentAt(double x) const;  // clamped to 0 … num_steps
    int64_t stepAt(double x) const;   // nearest moment: a cursor's step
    int64_t minimapStepAt(double x) const;

    // Visible steps, several to a bin when a step is narrower than kMinBin px.
    struct Bin {
        double x = 0, width = 0;
        int64_t first_step = 0, last_step = 0;  // inclusive
    };
    static constexpr double kMinBin = 3;
    std::vector<Bin> bins() const;

    // Moments to label: at least `min_distance` px apart, at 1, 2 or 5 times a power of ten.
    std::vector<int64_t> axisMoments(double min_distance) const;

    // Zooms by `factor` (< 1: closer) around x, or moves by `moments`; clamped to the run.
    void zoomed(double factor, double x, double* first, double* last) const;
    void panned(double moments, double* first, double* last) const;

  private:
    QRectF plot_, curve_, axis_, minimap_;
    TimelineMetrics metrics_;
    int64_t num_steps_ = 0;
    double first_ = 0, last_ = 1;
};

// The curve "value at moment" as points in `rect`, stepwise, at most two values per pixel column
// (lowest and highest), so thousands of steps keep their peaks. values[m] belongs to moment m.
std::vector<QPointF> steppedCurve(const TimelineLayout& layout,
                                  const QRectF& rect,
                                  const std::vector<double>& values,
                                  double max_value);

}  // namespace kvlab
