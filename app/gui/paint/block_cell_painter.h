// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QHash>
#include <QPainter>
#include <QPixmap>
#include <QPolygonF>
#include <QRectF>
#include <QString>

#include "app/gui/layout/block_visual.h"
#include "app/gui/theme.h"

namespace kvlab {

// Text on the optical centre of a rectangle: capitals, not ascenders, are centred.
void drawCentred(QPainter& painter, const QRectF& rect, const QString& text, const QFont& font);
// Hatch of real lines, cut to the rectangle here: SVG knows no clipping (VISUAL-LANGUAGE section
// 6).
void drawHatch(
    QPainter& painter, const QRectF& rect, const QColor& color, double spacing, double line_width);
// Owner fill with its 45° stripe for owners 4 … 7 of each eight, without an outline.
void fillWithOwner(
    QPainter& painter, const QRectF& rect, double radius, int owner, const Theme& theme);
// A sequence's letter on its fill: the badge in front of rows.
void paintOwnerBadge(QPainter& painter, const QRectF& rect, int owner, const Theme& theme);
// A polyline with round joins and, if asked, an arrow head at its end.
void drawThread(
    QPainter& painter, const QPolygonF& route, const QColor& color, double width, bool arrow);

// One physical block as VISUAL-LANGUAGE 5.4 draws it; what fits depends on the side of the cell.
void paintBlockCell(QPainter& painter,
                    const QRectF& cell,
                    const BlockVisual& visual,
                    int block_size,
                    const Theme& theme);
// Ring of the block that is looked at.
void paintSelectionRing(QPainter& painter, const QRectF& cell, const Theme& theme);

// Entry of a block table whose block lies in the host pool.
void paintHostCell(QPainter& painter, const QRectF& rect, const Theme& theme);
// Entry whose block left the sliding window: an empty place.
void paintLeftCell(QPainter& painter, const QRectF& rect, const Theme& theme);
// A cell of a block table: a number, slot ticks below it.
void paintTableCell(QPainter& painter,
                    const QRectF& rect,
                    BlockId block,
                    const BlockVisual& visual,
                    int block_size,
                    const Theme& theme);

// Fill of a block in pictures that are too small for outlines and letters.
QColor plainFill(const BlockVisual& visual, const Theme& theme);

// Pixmaps of cells that look the same, so that a frame of hundreds of blocks stays below 2 ms.
class BlockCellSprites {
  public:
    void draw(QPainter& painter,
              const QRectF& cell,
              const BlockVisual& visual,
              int block_size,
              const Theme& theme);
    void clear() { pixmaps_.clear(); }

  private:
    QHash<quint64, QPixmap> pixmaps_;
    double side_ = 0, ratio_ = 0;
    int block_size_ = 0;
    QColor background_;
};

}  // namespace kvlab
