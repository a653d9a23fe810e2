// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QColor>
#include <QFont>
#include <QString>

namespace kvlab {

enum class ThemeKind { kLight, kDark };

// Every colour of the lab is one of these tokens (VISUAL-LANGUAGE section 5); no literal colours in widgets. A
// test checks their contrast in both themes.
struct Theme {
    ThemeKind kind = ThemeKind::kLight;
    QColor window, panel, panel_border;      // page, cards, their hairline
    QColor ink, quiet_ink, hairline;         // text, secondary text, thin rules
    QColor accent, accent_ink, accent_tint;  // selection, controls
    QColor alarm;                            // "no free block": always with an octagon and words
    QColor shared_fill, shared_ink;          // shared blocks, the heroes of the picture
    QColor free_fill, free_outline;
    QColor cached_fill, cached_ink;
    QColor owner_fill[4], owner_ink[4];      // A B C D; E-H repeat the fills with a stripe
    QColor cell_outline;                     // around every owner fill

    static const Theme& light();
    static const Theme& dark();
    static const Theme& of(ThemeKind kind) { return kind == ThemeKind::kLight ? light() : dark(); }
};

QFont textFont(double point_size, bool bold = false);  // Inter, else DejaVu Sans
QFont monoFont(double point_size, bool bold = false);  // JetBrains Mono, else DejaVu Sans Mono

// Owner drawing: fill = owner mod 4; owners 4 … 7 of each eight carry a 45° stripe.
int ownerFillIndex(int owner);
bool ownerIsStriped(int owner);

}  // namespace kvlab
