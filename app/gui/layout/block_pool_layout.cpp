// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/layout/block_pool_layout.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace kvlab {
namespace {

double gapOf(int pitch) {
    if (pitch >= 58) return 12;  // room for the plates and the badge of large shared cells
    if (pitch >= 30) return 5;
    if (pitch >= 22) return 4;
    if (pitch >= 16) return 3;
    if (pitch >= 10) return 2;
    return 1;
}

}  // namespace

BlockPoolLayout::BlockPoolLayout(const QRectF& area, int num_blocks, int max_pitch)
    : area_(area), num_blocks_(std::max(num_blocks, 0)) {
    if (num_blocks_ == 0 || area.width() < kMinPitch || area.height() < kMinPitch) return;
    int pitch = std::max(max_pitch, kMinPitch);
    // The last cell of a row needs no gap behind it.
    const auto fits = [&](int p) {
        const int64_t c = static_cast<int64_t>((area.width() + gapOf(p)) / p);
        const int64_t r = static_cast<int64_t>((area.height() + gapOf(p)) / p);
        return c * r;
    };
    while (pitch > kMinPitch && fits(pitch) < num_blocks_) --pitch;
    pitch_ = pitch;
    cell_ = pitch - gapOf(pitch);
    columns_ = std::max(1, static_cast<int>((area.width() + gapOf(pitch)) / pitch));
    num_shown_ =
        static_cast<int>(std::min<int64_t>(num_blocks_, std::max<int64_t>(fits(pitch), 1)));
    columns_ = std::min(columns_, num_shown_);
    rows_ = (num_shown_ + columns_ - 1) / columns_;
}

QRectF BlockPoolLayout::gridRect() const {
    if (num_shown_ == 0) return {area_.topLeft(), QSizeF(0, 0)};
    return {area_.left(), area_.top(), columns_ * pitch_ - gap(), rows_ * pitch_ - gap()};
}

QRectF BlockPoolLayout::cellRect(BlockId block) const {
    if (!block.valid() || block.value >= num_shown_) return {};
    return {area_.left() + (block.value % columns_) * pitch_,
            area_.top() + (block.value / columns_) * pitch_, cell_, cell_};
}

BlockId BlockPoolLayout::blockAt(QPointF point) const {
    if (num_shown_ == 0) return {};
    const int column = static_cast<int>(std::floor((point.x() - area_.left()) / pitch_));
    const int row = static_cast<int>(std::floor((point.y() - area_.top()) / pitch_));
    if (column < 0 || column >= columns_ || row < 0 || row >= rows_) return {};
    const int block = row * columns_ + column;
    return block < num_shown_ ? BlockId(block) : BlockId();
}

BlockId BlockPoolLayout::neighbour(BlockId block, int dx, int dy) const {
    if (num_shown_ == 0) return {};
    if (!block.valid()) return BlockId(0);
    const int64_t to = int64_t{block.value} + dx + int64_t{dy} * columns_;
    return to >= 0 && to < num_shown_ ? BlockId(to) : block;
}

}  // namespace kvlab
