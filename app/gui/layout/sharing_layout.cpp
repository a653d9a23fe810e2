// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/layout/sharing_layout.h"

#include <algorithm>
#include <cmath>

namespace kvlab {

SharingLayout::SharingLayout(const QRectF& area, const SharingLayoutInput& input) {
    const double line = input.text_height + 6;
    const double cost_height = 3 * (input.text_height + 6);
    // Ratio and costs: stacked, else side by side, else the ratio alone.
    const bool narrow = area.width() < 430;
    const double ratio_height = input.ratio_height + (area.width() < 330 ? 22 : 0);
    const bool stacked = area.height() >= 290;
    const bool beside = !stacked && !narrow;
    const double bottom_height = stacked  ? ratio_height + 10 + cost_height
                                 : beside ? std::max(input.ratio_height + 22, cost_height)
                                          : ratio_height;
    const double fixed = 2 * line + 10 + 8 + bottom_height + input.key_height;
    const double room = std::max(8.0, area.height() - fixed);

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
    y = ghost_.bottom() + 10;
    held_label_ = QRectF(area.left(), y, area.width(), input.text_height);
    y += line;
    held_ = QRectF(area.left(), y, width, heightOf(held));
    y = held_.bottom() + 8;
    if (beside) {
        const double left = std::floor(area.width() * 0.38);
        ratio_ = QRectF(area.left(), y, left, bottom_height);
        costs_ = QRectF(area.left() + left + 12, y, area.width() - left - 12, bottom_height);
    } else {
        ratio_ = QRectF(area.left(), y, area.width(), ratio_height);
        if (stacked) {
            costs_ = QRectF(area.left(), ratio_.bottom() + 10, area.width(), cost_height);
        }
    }
    if (input.key_height > 0) {
        key_ =
            QRectF(area.left(), area.bottom() - input.key_height, area.width(), input.key_height);
    }
}

QRectF SharingLayout::cellIn(const QRectF& grid, int64_t idx) const {
    const double side = cell();
    return {grid.left() + static_cast<double>(idx % columns_) * pitch_,
            grid.top() + static_cast<double>(idx / columns_) * pitch_, side, side};
}

}  // namespace kvlab
