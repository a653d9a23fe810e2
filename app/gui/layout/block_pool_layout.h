// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QPointF>
#include <QRectF>

#include "engine/ids.h"

namespace kvlab {

// The physical pool as a grid: position is the address, so block i stays in cell i for as long as
// the view keeps its size. The largest cells that hold all blocks win; below kMinPitch the grid
// holds the first `num_shown`.
//
//   0  1  2  3      block i: column i mod columns, row i / columns
//   4  5  6  7
class BlockPoolLayout {
  public:
    static constexpr int kMaxPitch = 92;  // px
    static constexpr int kMinPitch = 3;
    static constexpr double kLetterCell = 12;  // smallest cell that holds an 8 pt letter
    static constexpr double kBadgeCell = 18;   // smallest cell that holds "×8"

    BlockPoolLayout() = default;
    BlockPoolLayout(const QRectF& area, int num_blocks, int max_pitch = kMaxPitch);

    int columns() const { return columns_; }
    int rows() const { return rows_; }
    double pitch() const { return pitch_; }
    double cell() const { return cell_; }  // side of a square
    double gap() const { return pitch_ - cell_; }
    int numBlocks() const { return num_blocks_; }
    int numShown() const { return num_shown_; }
    bool isFolded() const { return num_shown_ < num_blocks_; }
    bool showsLetters() const { return cell_ >= kLetterCell; }
    QRectF gridRect() const;

    QRectF cellRect(BlockId block) const;  // empty when it is not shown
    BlockId blockAt(QPointF point) const;  // cell and its gap; none outside
    // Cell dx to the right and dy down; stays where there is none.
    BlockId neighbour(BlockId block, int dx, int dy) const;

  private:
    QRectF area_;
    int num_blocks_ = 0, num_shown_ = 0;
    int columns_ = 0, rows_ = 0;
    double pitch_ = 0, cell_ = 0;
};

}  // namespace kvlab
