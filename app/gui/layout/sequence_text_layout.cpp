// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/layout/sequence_text_layout.h"

#include <algorithm>

namespace kvlab {
namespace {

constexpr double kElisionWidth = 16;  // px

}  // namespace

SequenceTextLayout::SequenceTextLayout(const QRectF& area,
                                       int num_tokens,
                                       int block_size,
                                       const SequenceTextMetrics& metrics,
                                       const std::function<TokenExtent(int)>& extent,
                                       int skip_last) {
    const int end = std::max(0, num_tokens - std::max(skip_last, 0));
    const int num_lines = std::max(1, static_cast<int>(area.height() / metrics.line_height));
    if (end == 0 || area.width() < 2 * metrics.min_chip) return;

    // Flows tokens [begin, end); false when they need more lines than there are.
    const auto flow = [&](int begin, std::vector<TextChip>* chips) {
        double x = area.left() + (begin > 0 ? kElisionWidth : 0);
        int line = 0;
        bool line_begins = true;
        for (int position = begin; position < end; ++position) {
            const TokenExtent token = extent(position);
            const double width =
                std::min(std::max(metrics.min_chip, token.text_width + 2 * metrics.chip_padding),
                         area.width() - kElisionWidth);
            const bool block_begins = block_size > 0 && position > 0 && position % block_size == 0;
            double gap = token.starts_word ? metrics.word_gap : metrics.part_gap;
            if (block_begins) gap = metrics.boundary_gap;
            if (line_begins) gap = block_begins ? metrics.boundary_gap / 2 : 0;
            if (!line_begins && x + gap + width > area.right()) {
                if (++line >= num_lines) return false;
                x = area.left();
                gap = block_begins ? metrics.boundary_gap / 2 : 0;
            }
            if (chips) {
                const double top = area.top() + line * metrics.line_height +
                                   (metrics.line_height - metrics.chip_height) / 2;
                chips->push_back(
                    {position, QRectF(x + gap, top, width, metrics.chip_height), block_begins});
            }
            x += gap + width;
            line_begins = false;
        }
        return true;
    };

    const int stride = std::max(1, metrics.stride);
    int begin = (end - 1) / stride * stride;
    while (begin > 0 && flow(begin - stride, nullptr)) begin -= stride;
    // Very wide tokens may not even leave room for one stride.
    while (begin < end - 1 && !flow(begin, nullptr)) ++begin;
    flow(begin, &chips_);
    if (begin > 0) {
        elision_ = QRectF(area.left(), area.top(), kElisionWidth - 2, metrics.line_height);
    }
}

int SequenceTextLayout::positionAt(QPointF point) const {
    for (const TextChip& chip : chips_) {
        if (chip.rect.contains(point)) return chip.position;
    }
    return -1;
}

}  // namespace kvlab
