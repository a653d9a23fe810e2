// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <functional>
#include <vector>

#include <QPointF>
#include <QRectF>

namespace kvlab {

// One sequence's tokens as word chips that flow over a few lines; only the last tokens that fit are
// shown. The first shown token moves in strides, so that a decode appends to the right and rarely
// scrolls.
struct TextChip {
    int position = 0;
    QRectF rect;
    bool block_begins = false;  // a block boundary lies before it
};

struct SequenceTextMetrics {
    double line_height = 26;  // px, chip and gap
    double chip_height = 22;
    double chip_padding = 5;  // on either side
    double word_gap = 5;
    double part_gap = 2;      // between the parts of a word
    double boundary_gap = 7;  // where a block begins, room for the tick
    double min_chip = 14;
    int stride = 4;  // tokens
};

// What the flow needs to know of a token.
struct TokenExtent {
    double text_width = 0;
    bool starts_word = false;
};

class SequenceTextLayout {
  public:
    SequenceTextLayout() = default;
    // `extent` is asked for the tokens near the end only. `skip_last` tokens are scrolled away.
    SequenceTextLayout(const QRectF& area,
                       int num_tokens,
                       int block_size,
                       const SequenceTextMetrics& metrics,
                       const std::function<TokenExtent(int)>& extent,
                       int skip_last = 0);

    const std::vector<TextChip>& chips() const { return chips_; }
    bool isElided() const { return !chips_.empty() && chips_.front().position > 0; }
    QRectF elisionRect() const { return elision_; }  // of the "…" before the first chip
    int positionAt(QPointF point) const;             // -1: none

  private:
    std::vector<TextChip> chips_;
    QRectF elision_;
};

}  // namespace kvlab
