// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QColor>
#include <QIcon>

namespace kvlab {

enum class IconKind { kToStart, kStepBack, kPlay, kPause, kStepForward, kToEnd };

// Drawn, not loaded: sharp at every scale and in the theme's ink.
QIcon makeIcon(IconKind kind, const QColor& color, int size_px);

}  // namespace kvlab
