// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <vector>

#include <QPointF>
#include <QRectF>

namespace kvlab {

// The grids of a step's launches, one below the other. A column is a tile of rows (x), its cells
// side by side are the parts of the context (z), a line is a KV head's slice (y); columns that find
// no room go on in another band below.
//
//   caption
//   KV head 0   (A)(A) (B)(B) (C)(C)
//   KV head 1   (A)(A) (B)(B) (C)(C)
struct GridDims {
    int x = 0, y = 0, z = 0;
};

class KernelGridLayout {
  public:
    static constexpr double kMaxCell = 30, kMinCell = 4, kCaption = 19, kLabel = 72;
    static constexpr double kLabelledCell = 11;  // the smallest one beside which a label stands

    KernelGridLayout() = default;
    KernelGridLayout(const QRectF& area, const std::vector<GridDims>& launches);

    double cell() const { return cell_; }
    bool isFolded() const { return folded_; }  // thread blocks without a cell
    QRectF caption(int launch) const;
    // Of line y in the first band; empty: the cells are too small for labels, and have their room.
    QRectF label(int launch, int y) const;
    // `index` as the GPU counts: x first, then y, then z. Empty: not shown.
    QRectF cellRect(int launch, int index) const;
    struct Hit {
        int launch = -1;
        int index = -1;
    };
    Hit hitTest(QPointF point) const;

  private:
    double labelWidth() const { return cell_ < kLabelledCell ? 0 : kLabel; }
    int bands(const GridDims& dims) const;
    int perBand(const GridDims& dims) const;
    double groupWidth(const GridDims& dims) const { return dims.z * (cell_ + 1) + 4; }
    double bandHeight(const GridDims& dims) const { return dims.y * (cell_ + 2) + 7; }
    double top(int launch) const;

    QRectF area_;
    std::vector<GridDims> launches_;
    double cell_ = 0;
    bool folded_ = false;
};

// The table entries of one thread block, in the order in which they are read, a page at a time.
class WalkStripLayout {
  public:
    static constexpr double kCellWidth = 40, kCellHeight = 32, kGap = 5;

    WalkStripLayout() = default;
    WalkStripLayout(const QRectF& area, int num_steps, int current);

    int first() const { return first_; }  // step in the first cell
    int numShown() const { return num_shown_; }
    QRectF cellRect(int step) const;  // empty: on another page
    int stepAt(QPointF point) const;  // -1: none

  private:
    QRectF area_;
    int columns_ = 0, first_ = 0, num_shown_ = 0;
};

}  // namespace kvlab
