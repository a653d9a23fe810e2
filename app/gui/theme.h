// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QColor>
#include <QFont>
#include <QString>

namespace kvlab {

enum class ThemeKind { kLight, kDark };

// Every colour of the lab is one of these tokens (VISUAL-LANGUAGE section 5); no literal colours in
// widgets. A test checks their contrast in both themes.
struct Theme {
    ThemeKind kind = ThemeKind::kLight;
    QColor window, panel, panel_border;      // page, cards, their hairline
    QColor ink, quiet_ink, hairline;         // text, secondary text, thin rules that only decorate
    QColor quiet_line;                       // ghosts and axes: quiet, but needed for meaning (3:1)
    QColor accent, accent_ink, accent_tint;  // selection, controls; "in use" in charts
    QColor alarm;                            // "no free block": always with an octagon and words
    QColor good, bad;                        // verdict words, never alone: with a tick or a cross
    QColor tag_fill, tag_ink;                // yellow, only behind ink text ("12 steps behind")
    QColor shared_fill, shared_ink;          // shared blocks, the heroes of the picture
    QColor free_fill, free_outline;
    QColor cached_fill, cached_ink;
    QColor owner_fill[4], owner_ink[4];  // A B C D; E-H repeat the fills with a stripe
    QColor owner_stripe[4];
    QColor cell_outline;  // around every owner fill

    static const Theme& light();
    static const Theme& dark();
    static const Theme& of(ThemeKind kind) { return kind == ThemeKind::kLight ? light() : dark(); }
};

QFont textFont(double point_size, bool bold = false);  // Inter, else DejaVu Sans
QFont monoFont(double point_size, bool bold = false);  // JetBrains Mono, else DejaVu Sans Mono

// Smallest text in the window and smallest letter inside a cell, points.
constexpr double kTextPoints = 9.0;
constexpr double kCellLetterPoints = 8.0;

// Owner drawing: fill = owner mod 4; owners 4 … 7 of each eight carry a 45° stripe.
int ownerFillIndex(int owner);
bool ownerIsStriped(int owner);

// WCAG contrast of two opaque colours, 1 … 21.
double contrastRatio(const QColor& a, const QColor& b);
// `share` of b in a, opaque.
QColor mixed(const QColor& a, const QColor& b, double share);

}  // namespace kvlab
