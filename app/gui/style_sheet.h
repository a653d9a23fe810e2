// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QPalette>
#include <QString>

#include "app/gui/theme.h"

namespace kvlab {

// Look of the plain widgets, made from the theme's tokens only. Widgets choose a look by object
// name or by the dynamic property "role": see style_sheet.cpp.
QString styleSheetOf(const Theme& theme, double scale);
QPalette paletteOf(const Theme& theme);

// Sizes of the window's text, points at scale 1.
constexpr double kBodyPoints = 10.5;
constexpr double kSmallPoints = 9.5;
constexpr double kTitlePoints = 15;

}  // namespace kvlab
