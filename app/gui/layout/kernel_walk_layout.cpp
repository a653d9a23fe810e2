// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/layout/kernel_walk_layout.h"

#include <algorithm>

namespace kvlab {

KernelGridLayout::KernelGridLayout(const QRectF& area, const std::vector<GridDims>& launches)
    : area_(area), launches_(launches) {
    for (cell_ = kMaxCell; cell_ > kMinCell; --cell_) {
        double height = 0;
        bool fits = true;
        for (const GridDims& dims : launches_) {
            fits = fits && labelWidth() + groupWidth(dims) <= area_.width();
            height += kCaption + bands(dims) * bandHeight(dims);
        }
        if (fits && height <= area_.height()) break;
    }
    for (size_t i = 0; i < launches_.size(); ++i) {
        const GridDims& dims = launches_[i];
        const int last = dims.x * dims.y * dims.z - 1;
        folded_ = folded_ || (last >= 0 && cellRect(static_cast<int>(i), last).isEmpty());
    }
}

int KernelGridLayout::perBand(const GridDims& dims) const {
    return std::max(1, static_cast<int>((area_.width() - labelWidth()) / groupWidth(dims)));
}

int KernelGridLayout::bands(const GridDims& dims) const {
    return (dims.x + perBand(dims) - 1) / perBand(dims);
}

double KernelGridLayout::top(int launch) const {
    double y = area_.top();
    for (int i = 0; i < launch; ++i) {
        const GridDims& dims = launches_[static_cast<size_t>(i)];
        y += kCaption + bands(dims) * bandHeight(dims);
    }
    return y;
}

QRectF KernelGridLayout::caption(int launch) const {
    const QRectF rect(area_.left(), top(launch), area_.width(), kCaption);
    return rect.bottom() <= area_.bottom() ? rect : QRectF();
}

QRectF KernelGridLayout::label(int launch, int y) const {
    if (labelWidth() == 0) return {};
    const QRectF rect(area_.left(), top(launch) + kCaption + y * (cell_ + 2), kLabel - 6, cell_);
    return rect.bottom() <= area_.bottom() ? rect : QRectF();
}

QRectF KernelGridLayout::cellRect(int launch, int index) const {
    const GridDims& dims = launches_[static_cast<size_t>(launch)];
    const int x = index % dims.x;
    const int y = index / dims.x % dims.y;
    const int z = index / dims.x / dims.y;
    const int band = x / perBand(dims);
    const QRectF rect(
        area_.left() + labelWidth() + x % perBand(dims) * groupWidth(dims) + z * (cell_ + 1),
        top(launch) + kCaption + band * bandHeight(dims) + y * (cell_ + 2), cell_, cell_);
    return rect.bottom() <= area_.bottom() + 0.01 && rect.right() <= area_.right() + 0.01
               ? rect
               : QRectF();
}

KernelGridLayout::Hit KernelGridLayout::hitTest(QPointF point) const {
    for (int launch = 0; launch < static_cast<int>(launches_.size()); ++launch) {
        const GridDims& dims = launches_[static_cast<size_t>(launch)];
        const double y_in = point.y() - top(launch) - kCaption;
        const double x_in = point.x() - area_.left() - labelWidth();
        if (y_in < 0 || x_in < 0) continue;
        const int band = static_cast<int>(y_in / bandHeight(dims));
        if (band >= bands(dims)) continue;
        const int y = static_cast<int>((y_in - band * bandHeight(dims)) / (cell_ + 2));
        const int column = static_cast<int>(x_in / groupWidth(dims));
        const int z = static_cast<int>((x_in - column * groupWidth(dims)) / (cell_ + 1));
        const int x = band * perBand(dims) + column;
        if (column >= perBand(dims) || x >= dims.x || y >= dims.y || z >= dims.z) return {};
        const int index = (z * dims.y + y) * dims.x + x;
        if (cellRect(launch, index).isEmpty()) return {};
        return {launch, index};
    }
    return {};
}

WalkStripLayout::WalkStripLayout(const QRectF& area, int num_steps, int current) : area_(area) {
    columns_ = std::max(1, static_cast<int>((area.width() + kGap) / (kCellWidth + kGap)));
    const int lines = std::max(1, static_cast<int>((area.height() + kGap) / (kCellHeight + kGap)));
    const int page = columns_ * lines;
    first_ = std::max(0, current) / page * page;
    num_shown_ = std::clamp(num_steps - first_, 0, page);
}

QRectF WalkStripLayout::cellRect(int step) const {
    const int at = step - first_;
    if (at < 0 || at >= num_shown_) return {};
    return {area_.left() + at % columns_ * (kCellWidth + kGap),
            area_.top() + at / columns_ * (kCellHeight + kGap), kCellWidth, kCellHeight};
}

int WalkStripLayout::stepAt(QPointF point) const {
    for (int step = first_; step < first_ + num_shown_; ++step) {
        if (cellRect(step).contains(point)) return step;
    }
    return -1;
}

}  // namespace kvlab
