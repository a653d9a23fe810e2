// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstdint>

#include <QRectF>

namespace kvlab {

// "What sharing saves, to scale": the blocks that every sequence would hold alone, as ghosts, above
// the blocks that are held, both in cells of one size; then the ratio and what several sequences
// cost against one.
struct SharingLayoutInput {
    int64_t blocks_unshared = 0;
    int64_t blocks_held = 0;
    double text_height = 16;   // px, of a line of words
    double ratio_height = 34;  // of the big number
    double ratio_width = 88;   // of it and its words, beside the costs of a narrow card
    double max_cell = 20;
    double key_height = 22;  // of the provenance key; 0: none
};

class SharingLayout {
  public:
    static constexpr double kMinCell = 3;  // below, areas replace cells

    SharingLayout() = default;
    SharingLayout(const QRectF& area, const SharingLayoutInput& input);

    bool hasCells() const { return pitch_ >= kMinCell; }
    double pitch() const { return pitch_; }
    double cell() const { return pitch_ >= 5 ? pitch_ - 1 : pitch_ * 0.84; }
    int columns() const { return columns_; }
    QRectF ghostCell(int64_t idx) const { return cellIn(ghost_, idx); }
    QRectF heldCell(int64_t idx) const { return cellIn(held_, idx); }
    // The same as areas: whole rows, then the rest of the last row.
    QRectF ghostArea() const { return ghost_; }
    QRectF heldArea() const { return held_; }
    QRectF ghostLabel() const { return ghost_label_; }
    QRectF heldLabel() const { return held_label_; }
    QRectF ratio() const { return ratio_; }
    QRectF costs() const { return costs_; }  // the two bars
    QRectF key() const { return key_; }      // empty: not wanted, or no room

  private:
    QRectF cellIn(const QRectF& grid, int64_t idx) const;
    QRectF ghost_, held_, ghost_label_, held_label_, ratio_, costs_, key_;
    double pitch_ = 0;
    int columns_ = 1;
};

}  // namespace kvlab
