// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/paint/block_cell_painter.h"

#include <algorithm>
#include <cmath>

#include <QFontMetricsF>

#include "app/gui/layout/block_pool_layout.h"
#include "app/gui/provenance.h"

namespace kvlab {
namespace {

constexpr double kLargeCell = 54;  // room for "A·3" and slot ticks

double radiusOf(double side) { return std::clamp(side * 0.15, 1.0, 8.0); }

double outlineOf(double side) { return side >= kLargeCell ? 1.6 : 1.0; }

QColor inkOf(const BlockVisual& visual, const Theme& theme) {
    switch (visual.look) {
        case BlockLook::kShared:
            return theme.shared_ink;
        case BlockLook::kCached:
            return theme.cached_ink;
        case BlockLook::kPrivate:
            return theme.owner_ink[ownerFillIndex(visual.owners[0])];
        case BlockLook::kFree:
            break;
    }
    return theme.quiet_ink;
}

// Convex outline of a rounded rectangle; four points a corner are enough at the size of a cell.
QPolygonF roundedOutline(const QRectF& rect, double radius) {
    const double r = std::min({radius, rect.width() / 2, rect.height() / 2});
    const QPointF centres[4] = {{rect.right() - r, rect.top() + r},
                                {rect.right() - r, rect.bottom() - r},
                                {rect.left() + r, rect.bottom() - r},
                                {rect.left() + r, rect.top() + r}};
    QPolygonF outline;
    for (int corner = 0; corner < 4; ++corner) {
        for (int i = 0; i < 4; ++i) {
            const double angle = (corner - 1 + i / 3.0) * 1.5707963267948966;
            outline << centres[corner] + QPointF(std::cos(angle), std::sin(angle)) * r;
        }
    }
    return outline;
}

// The part of a convex polygon where `side` is not negative. Our own clipping: SVG output has none.
template <class Side>
QPolygonF cutAway(const QPolygonF& polygon, Side side) {
    QPolygonF kept;
    for (int i = 0; i < polygon.size(); ++i) {
        const QPointF a = polygon[i], b = polygon[(i + 1) % polygon.size()];
        const double sa = side(a), sb = side(b);
        if (sa >= 0) kept << a;
        if ((sa < 0) != (sb < 0)) kept << a + (b - a) * (sa / (sa - sb));
    }
    return kept;
}

QString letterOf(int owner) { return QString::fromStdString(ownerLetter(SequenceId(owner))); }

// Largest bold size from `wanted` down to the floor at which `text` is no wider than `width`; 0:
// none.
double fittingPoints(
    QPainter& painter, const QString& text, double wanted, double width, bool mono) {
    for (double points = wanted;; points -= 0.5) {
        points = std::max(points, kCellLetterPoints);
        const QFont font = mono ? monoFont(points, true) : textFont(points, true);
        if (QFontMetricsF(font, painter.device()).horizontalAdvance(text) <= width) return points;
        if (points <= kCellLetterPoints) return 0;
    }
}

void drawFitting(QPainter& painter,
                 const QRectF& rect,
                 const QString& text,
                 double wanted,
                 bool mono,
                 const QColor& color) {
    const double points = fittingPoints(painter, text, wanted, rect.width(), mono);
    if (points == 0) return;
    painter.setPen(color);
    drawCentred(painter, rect, text, mono ? monoFont(points, true) : textFont(points, true));
}

// Slots one by one, in reading order; written ones solid, empty ones hatched.
void paintSlots(QPainter& painter,
                const QRectF& area,
                const BlockVisual& visual,
                int block_size,
                const QColor& ink) {
    const int columns = std::min(block_size, 8);
    const int rows = (block_size + columns - 1) / columns;
    const double pitch_x = area.width() / columns;
    const double pitch_y = std::min(area.height() / rows, pitch_x * 1.7);
    const double width = pitch_x * 0.76, height = pitch_y * 0.78;
    for (int i = 0; i < block_size; ++i) {
        const QRectF slot(area.left() + (i % columns) * pitch_x + (pitch_x - width) / 2,
                          area.top() + (i / columns) * pitch_y, width, height);
        painter.setPen(QPen(ink, 0.8));
        painter.setBrush(i < visual.num_filled ? QBrush(ink) : QBrush(Qt::NoBrush));
        painter.drawRoundedRect(slot, 1, 1);
        if (i >= visual.num_filled) painter.drawLine(slot.bottomLeft(), slot.topRight());
    }
    if (visual.being_written && visual.written_end > 0) {
        // The pen's nib stands on the last slot that was written.
        const int i = visual.written_end - 1;
        const double x = area.left() + (i % columns + 0.5) * pitch_x;
        const double y = area.top() + (i / columns) * pitch_y - 1;
        const double w = std::max(2.5, width * 0.6);
        painter.setPen(Qt::NoPen);
        painter.setBrush(ink);
        painter.drawPolygon(
            QPolygonF({{x, y}, {x - w, y - 2.2 * w}, {x, y - 1.6 * w}, {x + w, y - 2.2 * w}}));
    }
}

// How full the block is, as one bar: written part solid, empty part hatched on paper.
void paintFillBar(QPainter& painter,
                  const QRectF& bar,
                  const BlockVisual& visual,
                  int block_size,
                  const QColor& ink,
                  const Theme& theme) {
    const double share = block_size > 0 ? static_cast<double>(visual.num_filled) / block_size : 0;
    const double x = bar.left() + bar.width() * share;
    painter.setPen(Qt::NoPen);
    painter.fillRect(QRectF(bar.topLeft(), QPointF(x, bar.bottom())), ink);
    const QRectF empty(QPointF(x, bar.top()), bar.bottomRight());
    if (empty.width() < 0.5) return;
    painter.fillRect(empty, theme.panel);
    drawHatch(painter, empty, theme.ink, 2.6, 0.8);
}

void paintWritingRing(QPainter& painter, const QRectF& cell, const Theme& theme, bool now) {
    const double side = cell.width();
    const double ring = now ? std::clamp(side * 0.05 + 1.2, 1.6, 4.0) : 1.0;
    const double radius = radiusOf(side);
    if (now && side >= 12) {
        const double inner = std::clamp(side * 0.03 + 0.6, 1.0, 2.0);
        painter.setPen(QPen(theme.panel, inner));
        painter.drawRoundedRect(cell.adjusted(inner / 2, inner / 2, -inner / 2, -inner / 2), radius,
                                radius);
    }
    painter.setPen(QPen(theme.ink, ring));
    const double outset = ring / 2;
    painter.drawRoundedRect(cell.adjusted(-outset, -outset, outset, outset), radius + outset,
                            radius + outset);
}

void paintLargeShared(QPainter& painter,
                      const QRectF& cell,
                      const BlockVisual& visual,
                      const Theme& theme) {
    // Plates peek out behind, one per further holder, three at most.
    const int num_plates = std::min(visual.ref_count - 1, 3);
    const double radius = radiusOf(cell.width());
    for (int i = num_plates; i > 0; --i) {
        painter.setPen(QPen(theme.cell_outline, 1));
        painter.setBrush(theme.panel);
        painter.drawRoundedRect(cell.translated(i * 2.6, -i * 2.6), radius, radius);
    }
}

void paintCountBadge(QPainter& painter,
                     const QRectF& cell,
                     const QString& text,
                     const Theme& theme) {
    const QFont font = monoFont(std::max(kCellLetterPoints, cell.width() * 0.12), true);
    const QFontMetricsF metrics(font, painter.device());
    const double width = metrics.horizontalAdvance(text) + 10;
    const double height = metrics.height() + 2;
    const QRectF badge(cell.right() - width * 0.62, cell.top() - height * 0.5, width, height);
    painter.setPen(Qt::NoPen);
    painter.setBrush(theme.ink);
    painter.drawRoundedRect(badge, height / 2, height / 2);
    painter.setPen(theme.panel);
    drawCentred(painter, badge, text, font);
}

}  // namespace

void drawCentred(QPainter& painter, const QRectF& rect, const QString& text, const QFont& font) {
    const QFontMetricsF metrics(font, painter.device());
    painter.setFont(font);
    painter.drawText(QPointF(rect.center().x() - metrics.horizontalAdvance(text) / 2,
                             rect.center().y() + metrics.capHeight() / 2),
                     text);
}

void drawHatch(
    QPainter& painter, const QRectF& rect, const QColor& color, double spacing, double line_width) {
    painter.save();
    QPen pen(color, line_width);
    pen.setCapStyle(Qt::FlatCap);
    painter.setPen(pen);
    // Lines x + y = c, the phase taken from the plane, so that neighbouring hatches join.
    const double step = spacing * 1.4142135623730951;
    const double begin = rect.left() + rect.top(), end = rect.right() + rect.bottom();
    for (double c = std::ceil(begin / step) * step; c < end; c += step) {
        const double x1 = std::max(rect.left(), c - rect.bottom());
        const double x2 = std::min(rect.right(), c - rect.top());
        if (x2 - x1 < 0.1) continue;
        painter.drawLine(QPointF(x1, c - x1), QPointF(x2, c - x2));
    }
    painter.restore();
}

void fillWithOwner(
    QPainter& painter, const QRectF& rect, double radius, int owner, const Theme& theme) {
    const int fill = ownerFillIndex(owner);
    painter.setPen(Qt::NoPen);
    painter.setBrush(theme.owner_fill[fill]);
    painter.drawRoundedRect(rect, radius, radius);
    if (!ownerIsStriped(owner)) return;
    const QPolygonF outline = roundedOutline(rect, radius);
    const double side = std::min(rect.width(), rect.height());
    const double band = std::clamp(side * 0.13, 1.4, 5.0);
    const double step = band * 3.0 * 1.4142135623730951;
    const double across = band * 1.4142135623730951;
    painter.setBrush(theme.owner_stripe[fill]);
    for (double c = rect.left() + rect.top() + step * 0.3; c < rect.right() + rect.bottom();
         c += step) {
        // The band between x + y = c and x + y = c + across.
        QPolygonF stripe = cutAway(outline, [c](QPointF p) { return p.x() + p.y() - c; });
        stripe = cutAway(stripe, [c, across](QPointF p) { return c + across - p.x() - p.y(); });
        if (stripe.size() >= 3) painter.drawPolygon(stripe);
    }
}

void paintOwnerBadge(QPainter& painter, const QRectF& rect, int owner, const Theme& theme) {
    const double radius = radiusOf(rect.width()) + 0.5;
    fillWithOwner(painter, rect, radius, owner, theme);
    if (ownerIsStriped(owner)) {
        const double inset = rect.width() * 0.19;
        painter.setBrush(theme.owner_fill[ownerFillIndex(owner)]);
        painter.drawRoundedRect(rect.adjusted(inset, inset, -inset, -inset), 3, 3);
    }
    painter.setPen(QPen(theme.cell_outline, 1));
    painter.setBrush(Qt::NoBrush);
    painter.drawRoundedRect(rect, radius, radius);
    drawFitting(painter, rect.adjusted(2, 0, -2, 0), letterOf(owner),
                std::max(kCellLetterPoints, rect.width() * 0.42), false,
                theme.owner_ink[ownerFillIndex(owner)]);
}

void drawThread(
    QPainter& painter, const QPolygonF& route, const QColor& color, double width, bool arrow) {
    if (route.size() < 2) return;
    painter.save();
    QPen pen(color, width);
    pen.setJoinStyle(Qt::MiterJoin);
    pen.setCapStyle(Qt::FlatCap);
    painter.setPen(pen);
    painter.setBrush(Qt::NoBrush);
    painter.drawPolyline(route);
    if (arrow) {
        const QPointF tip = route.last();
        const QPointF from = route[route.size() - 2];
        const double s = width * 1.6 + 2;
        const QPointF along = QPointF(tip.x() == from.x()  ? 0
                                      : tip.x() > from.x() ? s
                                                           : -s,
                                      tip.y() == from.y()  ? 0
                                      : tip.y() > from.y() ? s
                                                           : -s);
        const QPointF side(along.y() * 0.6, along.x() * 0.6);
        painter.setPen(Qt::NoPen);
        painter.setBrush(color);
        painter.drawPolygon(QPolygonF({tip, tip - along + side, tip - along - side}));
    }
    painter.restore();
}

void paintBlockCell(QPainter& painter,
                    const QRectF& cell,
                    const BlockVisual& visual,
                    int block_size,
                    const Theme& theme) {
    const double side = cell.width();
    const double radius = radiusOf(side);
    const double outline = outlineOf(side);
    const bool large = side >= kLargeCell;
    const bool lettered = side >= BlockPoolLayout::kLetterCell;
    const QColor ink = inkOf(visual, theme);
    // Outlines lie on the half pixel, so that a 1 px line stays 1 px.
    const QRectF edge = cell.adjusted(0.5, 0.5, -0.5, -0.5);

    if (visual.look == BlockLook::kFree) {
        painter.setPen(QPen(theme.free_outline, side >= 6 ? 1.0 : 0.6));
        painter.setBrush(theme.free_fill);
        painter.drawRoundedRect(edge, radius, radius);
        return;
    }

    if (visual.look == BlockLook::kPrivate) {
        fillWithOwner(painter, edge, radius, visual.owners[0], theme);
    } else {
        if (visual.look == BlockLook::kShared && large) {
            paintLargeShared(painter, edge, visual, theme);
        }
        painter.setPen(Qt::NoPen);
        painter.setBrush(visual.look == BlockLook::kShared ? theme.shared_fill : theme.cached_fill);
        painter.drawRoundedRect(edge, radius, radius);
    }
    QPen pen(theme.cell_outline, outline);
    if (visual.look == BlockLook::kCached) {
        pen.setDashPattern({1.2, 1.8});
        pen.setCapStyle(Qt::FlatCap);
    }
    painter.setBrush(Qt::NoBrush);
    painter.setPen(pen);
    painter.drawRoundedRect(edge, radius, radius);

    if (visual.look == BlockLook::kShared && side >= 8 && (side >= 16 || !lettered)) {
        const double inset = std::clamp(side * 0.1, 1.6, 4.5);
        painter.setPen(QPen(theme.shared_ink, large ? 1.2 : 0.8));
        painter.drawRoundedRect(edge.adjusted(inset, inset, -inset, -inset),
                                std::max(1.0, radius - inset * 0.5),
                                std::max(1.0, radius - inset * 0.5));
    }

    const bool partial = visual.num_filled < block_size;
    if (large) {
        QString text;
        if (visual.look == BlockLook::kPrivate) {
            text = letterOf(visual.owners[0]);
            if (visual.block_idx >= 0) text += QStringLiteral("·%1").arg(visual.block_idx);
        } else if (visual.look == BlockLook::kShared) {
            QStringList letters;
            for (int i = 0; i < visual.num_owners; ++i) {
                letters << letterOf(visual.owners[static_cast<size_t>(i)]);
            }
            text = letters.join(QLatin1Char(' '));
            if (visual.ref_count > visual.num_owners) text += QStringLiteral("…");
        } else {
            text = QStringLiteral("0");
        }
        const QRectF head(cell.left() + 5, cell.top() + side * 0.1, side - 10, side * 0.36);
        if (visual.look == BlockLook::kPrivate && ownerIsStriped(visual.owners[0])) {
            painter.setPen(Qt::NoPen);
            painter.setBrush(theme.owner_fill[ownerFillIndex(visual.owners[0])]);
            painter.drawRoundedRect(cell.adjusted(5, 5, -5, -5), radius * 0.7, radius * 0.7);
        }
        drawFitting(painter, head, text, side * 0.17, false, ink);
        const QRectF area(cell.left() + side * 0.12, cell.top() + side * 0.54, side * 0.76,
                          side * 0.34);
        if (block_size <= 32) {
            paintSlots(painter, area, visual, block_size, ink);
        } else {
            paintFillBar(painter, area.adjusted(0, 0, 0, -area.height() * 0.4), visual, block_size,
                         ink, theme);
        }
        if (visual.look == BlockLook::kShared) {
            paintCountBadge(painter, cell, QStringLiteral("×%1").arg(visual.ref_count), theme);
        }
    } else if (side >= 6) {
        const double bar_height = std::max(2.0, std::round(side * 0.17));
        QRectF face = cell.adjusted(1.5, 0, -1.5, 0);
        if (partial && side >= 9) {
            const double inset = side >= 12 ? 2.5 : 1.5;
            const QRectF bar(cell.left() + inset, cell.bottom() - inset - bar_height,
                             side - 2 * inset, bar_height);
            if (visual.look == BlockLook::kPrivate) {
                paintFillBar(painter, bar, visual, block_size, ink, theme);
            } else {
                paintFillBar(painter, bar.adjusted(1, -1, -1, -1), visual, block_size, ink, theme);
            }
            face.setBottom(bar.top() + 1);
            face.setTop(face.top() + 0.5);
        }
        if (lettered) {
            if (visual.look == BlockLook::kPrivate) {
                if (ownerIsStriped(visual.owners[0])) {
                    const double plain = std::min(side * 0.62, face.height() - 2);
                    QRectF field(0, 0, plain, plain);
                    field.moveCenter(face.center());
                    painter.setPen(Qt::NoPen);
                    painter.setBrush(theme.owner_fill[ownerFillIndex(visual.owners[0])]);
                    painter.drawRoundedRect(field, 2, 2);
                }
                drawFitting(painter, face, letterOf(visual.owners[0]), side * 0.4, false, ink);
            } else if (visual.look == BlockLook::kShared) {
                const QString count = QString::number(visual.ref_count);
                const QString badge = QStringLiteral("×") + count;
                const QRectF inner = face.adjusted(0.5, 0, -0.5, 0);
                const bool fits = side >= BlockPoolLayout::kBadgeCell &&
                                  fittingPoints(painter, badge, side * 0.38, inner.width(), true);
                drawFitting(painter, inner, fits ? badge : count, side * 0.38, true, ink);
            } else {
                drawFitting(painter, face, QStringLiteral("0"), side * 0.38, true, ink);
            }
        }
    }
    painter.setBrush(Qt::NoBrush);
    if (visual.being_written) {
        paintWritingRing(painter, cell, theme, true);
    } else if (visual.written_end > visual.written_begin && side >= 17) {
        paintWritingRing(painter, cell, theme, false);
    }
}

void paintSelectionRing(QPainter& painter, const QRectF& cell, const Theme& theme) {
    const double side = std::min(cell.width(), cell.height());
    const double width = side >= 12 ? 3.0 : 2.0;
    const double radius = radiusOf(side) + 1;
    painter.setBrush(Qt::NoBrush);
    painter.setPen(QPen(theme.accent, width));
    painter.drawRoundedRect(cell.adjusted(-0.5, -0.5, 0.5, 0.5), radius, radius);
}

void paintHostCell(QPainter& painter, const QRectF& rect, const Theme& theme) {
    painter.setPen(QPen(theme.quiet_ink, 1, Qt::DashLine));
    painter.setBrush(Qt::NoBrush);
    painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), 5, 5);
    painter.setPen(theme.quiet_ink);
    const QFont font = textFont(kCellLetterPoints);
    const QString words = QStringLiteral("on host");
    const bool fits =
        QFontMetricsF(font, painter.device()).horizontalAdvance(words) <= rect.width() - 6;
    drawCentred(painter, rect, fits ? words : QStringLiteral("host"), font);
}

void paintLeftCell(QPainter& painter, const QRectF& rect, const Theme& theme) {
    painter.setPen(QPen(theme.quiet_line, 1, Qt::DotLine));
    painter.setBrush(Qt::NoBrush);
    painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), 5, 5);
}

void paintTableCell(QPainter& painter,
                    const QRectF& rect,
                    BlockId block,
                    const BlockVisual& visual,
                    int block_size,
                    const Theme& theme) {
    const bool shared = visual.look == BlockLook::kShared;
    const QColor ink = shared ? theme.shared_ink : theme.ink;
    const QRectF edge = rect.adjusted(0.5, 0.5, -0.5, -0.5);
    painter.setPen(QPen(theme.cell_outline, 1));
    painter.setBrush(shared ? theme.shared_fill : theme.panel);
    painter.drawRoundedRect(edge, 5, 5);
    painter.setBrush(Qt::NoBrush);
    if (shared) {
        const double inset = rect.height() >= 20 ? 2.2 : 1.2;
        painter.setPen(QPen(theme.shared_ink, 0.8));
        painter.drawRoundedRect(edge.adjusted(inset, inset, -inset, -inset), 3.5, 3.5);
    }
    const bool ticked = rect.height() >= 26;
    const QRectF ticks(rect.left() + 6.5, rect.bottom() - 10.5, rect.width() - 13, 5.5);
    const QRectF face =
        ticked ? QRectF(rect.left() + 4, rect.top() + 4.5, rect.width() - 8, rect.height() - 15.5)
               : rect.adjusted(4, 0, -4, 0);
    const QString text = QString::number(block.value);
    double points = std::min(9.5, rect.height() * 0.42);
    QFont font = monoFont(std::max(points, kTextPoints));
    while (QFontMetricsF(font, painter.device()).horizontalAdvance(text) > face.width() &&
           points > kCellLetterPoints) {
        points = std::max(points - 0.5, kCellLetterPoints);
        font = monoFont(points);
    }
    painter.setPen(ink);
    drawCentred(painter, face, text, font);
    if (!ticked || block_size <= 0) return;
    if (block_size <= 16) {
        const double pitch = ticks.width() / block_size;
        const QColor empty = shared ? mixed(theme.shared_fill, theme.shared_ink, 0.35)
                                    : mixed(theme.panel, theme.ink, 0.22);
        for (int i = 0; i < block_size; ++i) {
            painter.fillRect(QRectF(ticks.left() + i * pitch + pitch * 0.15, ticks.top(),
                                    pitch * 0.7, ticks.height()),
                             i < visual.num_filled ? ink : empty);
        }
    } else {
        paintFillBar(painter, ticks, visual, block_size, ink, theme);
    }
}

QColor plainFill(const BlockVisual& visual, const Theme& theme) {
    switch (visual.look) {
        case BlockLook::kShared:
            return theme.shared_fill;
        case BlockLook::kCached:
            return theme.cached_fill;
        case BlockLook::kPrivate: {
            const int fill = ownerFillIndex(visual.owners[0]);
            return ownerIsStriped(visual.owners[0])
                       ? mixed(theme.owner_fill[fill], theme.owner_stripe[fill], 0.4)
                       : theme.owner_fill[fill];
        }
        case BlockLook::kFree:
            break;
    }
    return theme.free_fill;
}

void BlockCellSprites::draw(QPainter& painter,
                            const QRectF& cell,
                            const BlockVisual& visual,
                            int block_size,
                            const Theme& theme) {
    const double side = cell.width();
    // Large cells carry their logical index: too many looks to keep, and few of them.
    if (side >= kLargeCell) {
        paintBlockCell(painter, cell, visual, block_size, theme);
        return;
    }
    const double ratio = painter.device()->devicePixelRatioF() * painter.transform().m11();
    if (side != side_ || ratio != ratio_ || block_size != block_size_ ||
        theme.panel != background_ || pixmaps_.size() > 4000) {
        pixmaps_.clear();
        side_ = side;
        ratio_ = ratio;
        block_size_ = block_size;
        background_ = theme.panel;
    }
    quint64 key = static_cast<quint64>(visual.look);
    const auto add = [&key](int bits, int value) {
        key = (key << bits) | (static_cast<quint64>(value) & ((quint64{1} << bits) - 1));
    };
    const bool private_block = visual.look == BlockLook::kPrivate;
    add(16, visual.look == BlockLook::kShared ? std::min(visual.ref_count, 65535) : 0);
    add(20, private_block ? visual.owners[0] : 0);
    add(9, visual.num_filled);
    add(1, visual.being_written ? 1 : 0);
    add(1, visual.written_end > visual.written_begin ? 1 : 0);
    constexpr double kMargin = 5;
    auto at = pixmaps_.constFind(key);
    if (at == pixmaps_.constEnd()) {
        const int pixels = static_cast<int>(std::ceil((side + 2 * kMargin) * ratio));
        QPixmap pixmap(pixels, pixels);
        pixmap.setDevicePixelRatio(ratio);
        pixmap.fill(Qt::transparent);
        QPainter sprite(&pixmap);
        sprite.setRenderHint(QPainter::Antialiasing);
        paintBlockCell(sprite, QRectF(kMargin, kMargin, side, side), visual, block_size, theme);
        sprite.end();
        at = pixmaps_.insert(key, pixmap);
    }
    painter.drawPixmap(cell.topLeft() - QPointF(kMargin, kMargin), *at);
}

}  // namespace kvlab
