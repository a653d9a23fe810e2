// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <optional>
#include <vector>

#include <QPointF>
#include <QRectF>

namespace kvlab {

// Block tables as rows: badge, first cells, "…", the cell that is looked at, "…", last cells, token
// count. The middle place is kept free while nothing is looked at, so that no cell moves under the
// pointer.
//
//   [A]  [0][1] ⋯ [37] ⋯ [125][173]   2,100 tokens
struct BlockTableMetrics {
    double badge = 24;  // px, at most; shrinks with the row
    double badge_gap = 14;
    double cell_width = 44;
    double cell_gap = 4;
    double ellipsis_width = 22;
    double count_width = 80;  // token count at the end of the row; 0 leaves it out
    double min_row = 23;
    double max_row = 50;
    int max_tail = 7;  // cells
};

struct BlockTableRowInput {
    int table_len = 0;             // blocks
    std::optional<int> looked_at;  // logical index of the hovered or selected cell
};

struct BlockTableCell {
    int block_idx = 0;
    QRectF rect;
};

struct BlockTableRow {
    int row = 0;  // index into the inputs
    QRectF rect, badge;
    std::vector<BlockTableCell> cells;
    std::vector<QRectF> ellipses;
    QRectF count;         // empty: left out
    double gutter_y = 0;  // where a thread may run below the cells
};

class BlockTableLayout {
  public:
    BlockTableLayout() = default;
    BlockTableLayout(const QRectF& area,
                     const std::vector<BlockTableRowInput>& inputs,
                     const BlockTableMetrics& metrics,
                     int first_row = 0);

    const std::vector<BlockTableRow>& rows() const { return rows_; }
    int numHidden() const { return num_hidden_; }  // sequences without a row, above and below
    int maxFirstRow() const { return max_first_row_; }
    QRectF hiddenRect() const { return hidden_rect_; }  // for "12 more sequences"
    double right() const { return right_; }             // end of the last cell of any row

    struct Hit {
        int row = -1;        // index into the inputs
        int block_idx = -1;  // -1: the row, but no cell
    };
    Hit hitTest(QPointF point) const;

  private:
    std::vector<BlockTableRow> rows_;
    QRectF hidden_rect_;
    int num_hidden_ = 0, max_first_row_ = 0;
    double right_ = 0;
};

}  // namespace kvlab
