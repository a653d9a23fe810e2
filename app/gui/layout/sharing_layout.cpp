// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/layout/sharing_layout.h"

#include <algorithm>
#include <cmath>

namespace kvlab {

SharingLayout::SharingLayout(const QRectF& area, const SharingLayoutInput& input) {
    constexpr double kLeastGrids = 24;  // px of height for both; the lines come closer first
    const bool stacked = area.height() >= 290;
    const double ratio_height = input.ratio_height + (area.width() < 330 ? 22 : 0);
    double gap = 6;  // between lines of words
    double key_height = input.key_height;
    const auto costHeight = [&] { return 3 * (input.text_height + gap); };
    // Ratio and costs: stacked, else side by side. The costs are there at every size: the grids
    // give way before them, then the key, then the air between the lines.
    const auto bottomHeight = [&] {
        return stacked ? ratio_height + 10 + costHeight()
                       : std::max(input.ratio_height + 22, costHeight());
    };
    const auto roomLeft = [&] {
        return area.height() -
               (2 * (input.text_height + gap) + 2 * gap + 6 + bottomHeight() + key_height);
    };
    if (roomLeft() < kLeastGrids) {
        key_height = 0;
    }
    if (roomLeft() < kLeastGrids) {
        gap = 2;
    }
    const double line = input.text_height + gap;
    const double cost_height = costHeight();
    const double bottom_height = bottomHeight();
    const double room = std::max(8.0, roomLeft());

    const int64_t ghosts = std::max<int64_t>(input.blocks_unshared, 1);
    const int64_t held = std::max<int64_t>(input.blocks_held, 1);
    const auto rowsAt = [&](double pitch) {
        const int64_t columns =
            std::max<int64_t>(1, static_cast<int64_t>(std::floor(area.width() / pitch)));
        return (ghosts + columns - 1) / columns + (held + columns - 1) / columns;
    };
    double pitch = input.max_cell;
    while (pitch > 0.05 && static_cast<double>(rowsAt(pitch)) * pitch > room) {
        pitch -= pitch > 1 ? 0.1 : 0.01;
    }
    pitch_ = pitch;
    columns_ = std::max(1, static_cast<int>(std::floor(area.width() / pitch)));
    const auto heightOf = [&](int64_t count) {
        return std::ceil(static_cast<double>(count) / columns_) * pitch_;
    };
    const double width = columns_ * pitch_;
    double y = area.top();
    ghost_label_ = QRectF(area.left(), y, area.width(), input.text_height);
    y += line;
    ghost_ = QRectF(area.left(), y, width, heightOf(ghosts));
    y = ghost_.bottom() + gap + 4;
    held_label_ = QRectF(area.left(), y, area.width(), input.text_height);
    y += line;
    held_ = QRectF(area.left(), y, width, heightOf(held));
    y = held_.bottom() + gap + 2;
    if (!stacked) {
        const double left = area.width() < 430 ? std::min(input.ratio_width, area.width() * 0.4)
                                               : std::floor(area.width() * 0.38);
        ratio_ = QRectF(area.left(), y, left, bottom_height);
        costs_ = QRectF(area.left() + left + 12, y, area.width() - left - 12, bottom_height);
    } else {
        ratio_ = QRectF(area.left(), y, area.width(), ratio_height);
        costs_ = QRectF(area.left(), ratio_.bottom() + 10, area.width(), cost_height);
    }
    if (key_height > 0) {
        key_ = QRectF(area.left(), area.bottom() - key_height, area.width(), key_height);
    }
}

QRectF SharingLayout::cellIn(const QRectF& grid, int64_t idx) const {
    const double side = cell();
    return {grid.left() + static_cast<double>(idx % columns_) * pitch_,
            grid.top() + static_cast<double>(idx / columns_) * pitch_, side, side};
}

}  // namespace kvlab
