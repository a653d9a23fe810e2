// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/panels/icons.h"

#include <QPainter>
#include <QPixmap>
#include <QPolygonF>

namespace kvlab {

namespace {

void drawTriangle(QPainter& painter, double left, double right) {
    painter.drawPolygon(QPolygonF({{left, 3}, {left, 13}, {right, 8}}));
}

}  // namespace

QIcon makeIcon(IconKind kind, const QColor& color, int size_px) {
    QPixmap pixmap(size_px * 2, size_px * 2);
    pixmap.fill(Qt::transparent);
    QPainter painter(&pixmap);
    painter.setRenderHint(QPainter::Antialiasing);
    painter.scale(size_px * 2 / 16.0, size_px * 2 / 16.0);
    painter.setPen(Qt::NoPen);
    painter.setBrush(color);
    const QRectF left_bar(3, 3, 2, 10);
    const QRectF right_bar(11, 3, 2, 10);
    switch (kind) {
        case IconKind::kToStart:
            painter.drawRect(left_bar);
            drawTriangle(painter, 13, 6);
            break;
        case IconKind::kStepBack:
            drawTriangle(painter, 8, 2);
            drawTriangle(painter, 14, 8);
            break;
        case IconKind::kPlay:
            drawTriangle(painter, 4, 13);
            break;
        case IconKind::kPause:
            painter.drawRect(QRectF(4, 3, 3, 10));
            painter.drawRect(QRectF(9, 3, 3, 10));
            break;
        case IconKind::kStepForward:
            drawTriangle(painter, 2, 8);
            drawTriangle(painter, 8, 14);
            break;
        case IconKind::kToEnd:
            drawTriangle(painter, 3, 10);
            painter.drawRect(right_bar);
            break;
    }
    painter.end();
    pixmap.setDevicePixelRatio(2);
    return QIcon(pixmap);
}

}  // namespace kvlab
