// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/layout/timeline_layout.h"

#include <algorithm>
#include <cmath>

namespace kvlab {

const char* laneName(Lane lane) {
    switch (lane) {
        case Lane::kAllocate:
            return "allocate";
        case Lane::kShare:
            return "share";
        case Lane::kCopyOnWrite:
            return "copy-on-write";
        case Lane::kRelease:
            return "release";
        case Lane::kWrite:
            return "write";
    }
    return "";
}

LaneCounts laneCounts(const StepTrace& step) {
    LaneCounts counts{};
    const auto at = [&counts](Lane lane) -> int& { return counts[static_cast<size_t>(lane)]; };
    for (const Event& event : step.events) {
        if (const auto* e = std::get_if<BlocksAllocated>(&event)) {
            at(Lane::kAllocate) += static_cast<int>(e->block.size());
        } else if (const auto* f = std::get_if<SequencesForked>(&event)) {
            at(Lane::kShare) += static_cast<int>(f->child.size());
        } else if (const auto* c = std::get_if<BlocksCopied>(&event)) {
            at(Lane::kCopyOnWrite) += static_cast<int>(c->target.size());
        } else if (const auto* r = std::get_if<BlocksReleased>(&event)) {
            at(Lane::kRelease) += static_cast<int>(r->block.size());
        } else if (const auto* left = std::get_if<BlocksLeftWindow>(&event)) {
            at(Lane::kRelease) += static_cast<int>(left->block.size());
        } else if (const auto* in = std::get_if<BlocksSwappedIn>(&event)) {
            at(Lane::kAllocate) += static_cast<int>(in->block.size());
        } else if (const auto* out = std::get_if<BlocksSwappedOut>(&event)) {
            at(Lane::kRelease) += static_cast<int>(out->block.size());
        } else if (const auto* w = std::get_if<TokensWritten>(&event)) {
            for (const int n : w->num_tokens) at(Lane::kWrite) += n;
        }
    }
    return counts;
}

TimelineLayout::TimelineLayout(const QRectF& area,
                               int64_t num_steps,
                               double first,
                               double last,
                               const TimelineMetrics& metrics)
    : metrics_(metrics), num_steps_(std::max<int64_t>(num_steps, 0)) {
    const double full = static_cast<double>(std::max<int64_t>(num_steps_, 1));
    first_ = first < last ? std::clamp(first, 0.0, full) : 0;
    last_ = first < last ? std::clamp(last, 0.0, full) : full;
    if (last_ - first_ < 1e-9) {
        first_ = 0;
        last_ = full;
    }
    const double left = area.left() + metrics.label_width;
    const double width = std::max(10.0, area.width() - metrics.label_width - metrics.right_margin);
    const double lanes = kNumLanes * metrics.lane_height;
    const double below = metrics.axis_height + metrics.minimap_height + 2;
    const double curve_height = std::max(metrics.min_curve, area.height() - lanes - below - 4);
    curve_ = QRectF(left, area.top(), width, curve_height);
    plot_ = QRectF(left, area.top(), width, curve_height + 4 + lanes);
    axis_ = QRectF(left, plot_.bottom(), width, metrics.axis_height);
    minimap_ = QRectF(left, axis_.bottom() + 2, width, metrics.minimap_height);
}

QRectF TimelineLayout::laneRect(Lane lane) const {
    return {curve_.left(), curve_.bottom() + 4 + static_cast<int>(lane) * metrics_.lane_height,
            curve_.width(), metrics_.lane_height};
}

QRectF TimelineLayout::laneLabel(Lane lane) const {
    const QRectF lane_rect = laneRect(lane);
    return {lane_rect.left() - metrics_.label_width, lane_rect.top(), metrics_.label_width - 8,
            lane_rect.height()};
}

QRectF TimelineLayout::minimapWindow() const {
    const double left = minimapX(first_), right = minimapX(last_);
    return {left, minimap_.top(), right - left, minimap_.height()};
}

double TimelineLayout::xOf(double moment) const {
    return curve_.left() + (moment - first_) / (last_ - first_) * curve_.width();
}

double TimelineLayout::minimapX(double moment) const {
    const double full = static_cast<double>(std::max<int64_t>(num_steps_, 1));
    return minimap_.left() + moment / full * minimap_.width();
}

double TimelineLayout::momentAt(double x) const {
    const double moment = first_ + (x - curve_.left()) / curve_.width() * (last_ - first_);
    return std::clamp(moment, 0.0, static_cast<double>(num_steps_));
}

int64_t TimelineLayout::stepAt(double x) const {
    return static_cast<int64_t>(std::llround(momentAt(x)));
}

int64_t TimelineLayout::minimapStepAt(double x) const {
    if (minimap_.width() <= 0) return 0;
    const double share = std::clamp((x - minimap_.left()) / minimap_.width(), 0.0, 1.0);
    return static_cast<int64_t>(std::llround(share * static_cast<double>(num_steps_)));
}

std::vector<TimelineLayout::Bin> TimelineLayout::bins() const {
    std::vector<Bin> bins;
    if (num_steps_ == 0) return bins;
    const double step_width = curve_.width() / (last_ - first_);
    const int64_t per_bin =
        std::max<int64_t>(1, static_cast<int64_t>(std::ceil(kMinBin / step_width)));
    const int64_t begin = static_cast<int64_t>(std::floor(first_)) / per_bin * per_bin;
    const int64_t end = std::min<int64_t>(num_steps_, static_cast<int64_t>(std::ceil(last_)));
    for (int64_t step = begin; step < end; step += per_bin) {
        const int64_t last_step = std::min(step + per_bin, num_steps_) - 1;
        const double left = std::max(xOf(static_cast<double>(step)), curve_.left());
        const double right = std::min(xOf(static_cast<double>(last_step + 1)), curve_.right());
        if (right <= left) continue;
        bins.push_back({left, right - left, step, last_step});
    }
    return bins;
}

std::vector<int64_t> TimelineLayout::axisMoments(double min_distance) const {
    std::vector<int64_t> moments;
    const double moments_per_px = (last_ - first_) / curve_.width();
    int64_t stride = 1;
    static const int kSteps[] = {2, 5, 10};
    int64_t decade = 1;
    for (int i = 0; static_cast<double>(stride) < min_distance * moments_per_px; ++i) {
        stride = decade * kSteps[i % 3];
        if (i % 3 == 2) decade *= 10;
    }
    const int64_t begin = (static_cast<int64_t>(std::ceil(first_)) + stride - 1) / stride * stride;
    for (int64_t m = begin; static_cast<double>(m) <= last_ + 1e-9; m += stride) {
        moments.push_back(m);
    }
    return moments;
}

void TimelineLayout::zoomed(double factor, double x, double* first, double* last) const {
    const double full = static_cast<double>(std::max<int64_t>(num_steps_, 1));
    const double span = std::clamp((last_ - first_) * factor, std::min(4.0, full), full);
    const double share = std::clamp((x - curve_.left()) / curve_.width(), 0.0, 1.0);
    const double anchor = first_ + share * (last_ - first_);
    *first = std::clamp(anchor - share * span, 0.0, full - span);
    *last = *first + span;
}

void TimelineLayout::panned(double moments, double* first, double* last) const {
    const double full = static_cast<double>(std::max<int64_t>(num_steps_, 1));
    const double span = last_ - first_;
    *first = std::clamp(first_ + moments, 0.0, std::max(0.0, full - span));
    *last = *first + span;
}

std::vector<QPointF> steppedCurve(const TimelineLayout& layout,
                                  const QRectF& rect,
                                  const std::vector<double>& values,
                                  double max_value) {
    std::vector<QPointF> points;
    if (values.empty() || max_value <= 0) return points;
    const auto yOf = [&](double value) {
        return rect.bottom() - std::clamp(value / max_value, 0.0, 1.0) * rect.height();
    };
    const int64_t begin = std::max<int64_t>(0, static_cast<int64_t>(std::floor(layout.first())));
    const int64_t end = std::min<int64_t>(static_cast<int64_t>(values.size()) - 1,
                                          static_cast<int64_t>(std::ceil(layout.last())));
    if (begin > end) return points;
    const auto valueAt = [&](int64_t moment) { return values[static_cast<size_t>(moment)]; };
    const auto xAt = [&](int64_t moment) {
        return std::clamp(layout.xOf(static_cast<double>(moment)), rect.left(), rect.right());
    };
    points.emplace_back(xAt(begin), yOf(valueAt(begin)));
    int64_t moment = begin + 1;
    while (moment <= end) {
        const double x = xAt(moment);
        double low = valueAt(moment), high = low, final_value = low;
        int64_t next = moment + 1;
        while (next <= end && xAt(next) < x + 1) {
            final_value = valueAt(next);
            low = std::min(low, final_value);
            high = std::max(high, final_value);
            ++next;
        }
        const double before = points.back().y();
        points.emplace_back(x, before);
        if (next > moment + 1) {
            points.emplace_back(x, yOf(high));
            points.emplace_back(x, yOf(low));
        }
        points.emplace_back(x, yOf(final_value));
        moment = next;
    }
    return points;
}

}  // namespace kvlab
