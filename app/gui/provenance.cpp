// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/provenance.h"

#include <algorithm>
#include <cmath>

#include <QFontMetricsF>
#include <QPainter>

namespace kvlab {

QString noData() { return QStringLiteral("–"); }

QString formatCount(int64_t value) {
    QString digits = QString::number(value < 0 ? -value : value);
    for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) {
        digits.insert(at, QLatin1Char(','));
    }
    return value < 0 ? QStringLiteral("−") + digits : digits;
}

QString formatBytes(int64_t bytes) {
    static const char* const kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(bytes);
    int unit = 0;
    while (std::abs(value) >= 1024 && unit < 4) {
        value /= 1024;
        ++unit;
    }
    const bool whole = std::abs(value - std::round(value)) < 0.005;
    const int decimals = unit == 0 || whole ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;
    return QString::number(value, 'f', decimals) + QLatin1Char(' ') + QLatin1String(kUnits[unit]);
}

QString formatRatio(double value) {
    const bool whole = std::abs(value - std::round(value)) < 0.005;
    const int decimals = whole ? 0 : value < 2 ? 2 : 1;
    return QString::number(value, 'f', decimals) + QStringLiteral("×");
}

QString formatPercent(double share) {
    return QString::number(share * 100, 'f', 1) + QStringLiteral(" %");
}

QString formatMs(double ms) {
    return QString::number(ms, 'f', ms < 10 ? 2 : ms < 100 ? 1 : 0) + QStringLiteral(" ms");
}

QString countOf(int64_t count, const char* noun) {
    return formatCount(count) + QLatin1Char(' ') + QLatin1String(noun) +
           (count == 1 ? QString() : QStringLiteral("s"));
}

void drawUnderline(QPainter& painter,
                   QPointF baseline,
                   double width,
                   double font_height,
                   const QColor& color,
                   Provenance provenance) {
    const double thickness = std::clamp(font_height * 0.09, 1.2, 2.4);
    const double y = baseline.y() + font_height * 0.2;
    QPen pen(color, thickness);
    pen.setCapStyle(Qt::FlatCap);
    if (provenance == Provenance::kDerived) pen.setDashPattern({3.2, 2.2});
    if (provenance == Provenance::kQuoted) pen.setDashPattern({1.0, 1.6});
    painter.save();
    painter.setPen(pen);
    painter.drawLine(QPointF(baseline.x(), y), QPointF(baseline.x() + width, y));
    if (provenance == Provenance::kBuiltIn) {
        const double side = thickness * 3;
        painter.fillRect(QRectF(baseline.x() + width - side, y - side / 2, side, side), color);
    }
    painter.restore();
}

double drawNumber(QPainter& painter,
                  QPointF baseline,
                  const QString& text,
                  const QFont& font,
                  const QColor& color,
                  Provenance provenance) {
    const QFontMetricsF metrics(font, painter.device());
    painter.setFont(font);
    painter.setPen(color);
    painter.drawText(baseline, text);
    const double width = metrics.horizontalAdvance(text);
    if (text != noData()) {
        drawUnderline(painter, baseline, width, metrics.height(), color, provenance);
    }
    return width;
}

double drawProvenanceKey(QPainter& painter,
                         QPointF baseline,
                         const Theme& theme,
                         double max_width) {
    struct Item {
        const char* word;
        Provenance provenance;
    };
    static const Item kItems[] = {{"measured", Provenance::kMeasured},
                                  {"derived by formula", Provenance::kDerived},
                                  {"quoted", Provenance::kQuoted}};
    const QFont font = textFont(kTextPoints);
    const QFontMetricsF metrics(font, painter.device());
    double x = baseline.x();
    for (const Item& item : kItems) {
        const QString word = QLatin1String(item.word);
        const double width = metrics.horizontalAdvance(word);
        if (x + width > baseline.x() + max_width) break;
        drawNumber(painter, {x, baseline.y()}, word, font, theme.quiet_ink, item.provenance);
        x += width + 14;
    }
    return x - baseline.x();
}

}  // namespace kvlab
