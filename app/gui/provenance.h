// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstdint>

#include <QFont>
#include <QPointF>
#include <QString>

#include "app/gui/theme.h"
#include "lessons/lesson.h"

class QPainter;

namespace kvlab {

// Numbers as the lab writes them. "No data" is a dash, never 0.
QString noData();                                  // "–"
QString formatCount(int64_t value);                // "16,800"
QString formatBytes(int64_t bytes);                // "32 KiB", "1.5 MiB"; never KB or GB
QString formatRatio(double value);                 // "5.8×", "1.33×", "8×"
QString formatPercent(double share);               // 0.967 → "96.7 %"
QString formatMs(double ms);                       // "12.3 ms"
QString countOf(int64_t count, const char* noun);  // "1 block", "181 blocks"

// A number with the underline that says where it comes from: solid measured, dashed derived, dotted
// quoted, solid with a square "built in" by training. `baseline` is the left end; returns the
// width.
double drawNumber(QPainter& painter,
                  QPointF baseline,
                  const QString& text,
                  const QFont& font,
                  const QColor& color,
                  Provenance provenance);
// The underline alone, below a text of `width`.
void drawUnderline(QPainter& painter,
                   QPointF baseline,
                   double width,
                   double font_height,
                   const QColor& color,
                   Provenance provenance);
// One quiet line that explains the underlines; returns its width.
double drawProvenanceKey(QPainter& painter, QPointF baseline, const Theme& theme, double max_width);

}  // namespace kvlab
