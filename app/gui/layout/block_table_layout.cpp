// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/layout/block_table_layout.h"

#include <algorithm>
#include <cmath>

namespace kvlab {

BlockTableLayout::BlockTableLayout(const QRectF& area,
                                   const std::vector<BlockTableRowInput>& inputs,
                                   const BlockTableMetrics& metrics,
                                   int first_row) {
    const int num_inputs = static_cast<int>(inputs.size());
    right_ = area.left();
    if (num_inputs == 0 || area.height() < metrics.min_row) return;

    double pitch = std::floor(std::min(metrics.max_row, area.height() / num_inputs));
    int num_rows = num_inputs;
    if (pitch < metrics.min_row) {
        pitch = metrics.min_row;
        num_rows = std::max(1, static_cast<int>((area.height() - 18) / pitch));
        hidden_rect_ = QRectF(area.left(), area.top() + num_rows * pitch, area.width(), 18);
    }
    num_hidden_ = num_inputs - num_rows;
    max_first_row_ = num_hidden_;
    first_row = std::clamp(first_row, 0, max_first_row_);

    const double cell_height = std::clamp(pitch - 9, 14.0, 38.0);
    const double badge = std::min(metrics.badge, cell_height);
    const double step = metrics.cell_width + metrics.cell_gap;
    const double cells_left = area.left() + metrics.badge + metrics.badge_gap;
    double count_width = metrics.count_width;
    double room = area.right() - cells_left - count_width;
    // The count gives way before the cells do.
    if (room < 4 * step + 2 * metrics.ellipsis_width) {
        count_width = 0;
        room = area.right() - cells_left;
    }
    const int num_fit = std::max(1, static_cast<int>((room + metrics.cell_gap) / step));
    const int num_elided_fit = std::max(
        1, static_cast<int>((room - 2 * metrics.ellipsis_width + metrics.cell_gap) / step));
    const int head = num_elided_fit >= 5 ? 2 : num_elided_fit >= 3 ? 1 : 0;
    const int tail = std::clamp(num_elided_fit - head - 1, 1, metrics.max_tail);

    for (int i = 0; i < num_rows; ++i) {
        BlockTableRow row;
        row.row = first_row + i;
        const double top = area.top() + i * pitch;
        row.rect = QRectF(area.left(), top, area.width(), pitch);
        row.gutter_y = std::floor(top + cell_height + (pitch - cell_height) * 0.5) + 0.5;
        row.badge = QRectF(area.left(), top + (cell_height - badge) / 2, badge, badge);
        const int table_len = inputs[static_cast<size_t>(row.row)].table_len;
        const std::optional<int> looked_at = inputs[static_cast<size_t>(row.row)].looked_at;

        double x = cells_left;
        const auto addCell = [&](int idx) {
            row.cells.push_back({idx, QRectF(x, top, metrics.cell_width, cell_height)});
            x += step;
        };
        const auto addEllipsis = [&](double width) {
            row.ellipses.emplace_back(x, top, width - metrics.cell_gap, cell_height);
            x += width;
        };
        if (table_len <= std::min(num_fit, head + 1 + tail)) {
            for (int idx = 0; idx < table_len; ++idx) addCell(idx);
        } else {
            const int num_head = std::min(head, table_len);
            for (int idx = 0; idx < num_head; ++idx) addCell(idx);
            const bool in_gap =
                looked_at && *looked_at >= num_head && *looked_at < table_len - tail;
            if (in_gap) {
                addEllipsis(metrics.ellipsis_width);
                addCell(*looked_at);
                addEllipsis(metrics.ellipsis_width);
            } else {
                addEllipsis(2 * metrics.ellipsis_width + step);
            }
            for (int idx = table_len - tail; idx < table_len; ++idx) addCell(idx);
        }
        right_ = std::max(right_, x - metrics.cell_gap);
        if (count_width > 0) {
            row.count = QRectF(x + 6, top, count_width - 6, cell_height);
        }
        rows_.push_back(std::move(row));
    }
}

BlockTableLayout::Hit BlockTableLayout::hitTest(QPointF point) const {
    for (const BlockTableRow& row : rows_) {
        if (!row.rect.contains(point)) continue;
        for (const BlockTableCell& cell : row.cells) {
            if (cell.rect.contains(point)) return {row.row, cell.block_idx};
        }
        return {row.row, -1};
    }
    return {};
}

}  // namespace kvlab
