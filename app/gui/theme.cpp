// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/theme.h"

#include <algorithm>
#include <cmath>

#include <QFontDatabase>
#include <QStringList>

namespace kvlab {
namespace {

double relativeLuminance(const QColor& color) {
    const auto linear = [](double v) {
        return v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4);
    };
    return 0.2126 * linear(color.redF()) + 0.7152 * linear(color.greenF()) +
           0.0722 * linear(color.blueF());
}

void setOwners(Theme& theme) {
    const QColor white(0xFF, 0xFF, 0xFF), ink(0x1A, 0x1A, 0x1A);
    const QColor fills[4] = {QColor(0x00, 0x72, 0xB2), QColor(0xE6, 0x9F, 0x00),
                             QColor(0xBB, 0xE1, 0xF6), QColor(0x6A, 0x2F, 0x00)};
    const QColor inks[4] = {white, ink, ink, white};
    for (int i = 0; i < 4; ++i) {
        theme.owner_fill[i] = fills[i];
        theme.owner_ink[i] = inks[i];
        theme.owner_stripe[i] = mixed(fills[i], inks[i], 0.55);
    }
}

Theme makeLight() {
    Theme t;
    t.kind = ThemeKind::kLight;
    t.window = QColor(0xF6, 0xF5, 0xF1);
    t.panel = QColor(0xFF, 0xFE, 0xFB);
    t.panel_border = QColor(0xE2, 0xDF, 0xD6);
    t.ink = QColor(0x1A, 0x1A, 0x1A);
    t.quiet_ink = QColor(0x5D, 0x64, 0x70);
    t.hairline = QColor(0xE2, 0xDF, 0xD6);
    t.quiet_line = QColor(0x76, 0x76, 0x76);
    t.accent = QColor(0x0B, 0x6E, 0x8F);
    t.accent_ink = QColor(0xFF, 0xFF, 0xFF);
    t.accent_tint = QColor(0xE2, 0xF0, 0xF4);
    t.alarm = QColor(0xD5, 0x5E, 0x00);
    t.good = QColor(0x1B, 0x7F, 0x4D);
    t.bad = QColor(0xB3, 0x40, 0x2A);
    t.tag_fill = QColor(0xF0, 0xE4, 0x42);
    t.tag_ink = QColor(0x1A, 0x1A, 0x1A);
    t.shared_fill = QColor(0x2B, 0x33, 0x40);
    t.shared_ink = QColor(0xFF, 0xFE, 0xFB);
    t.free_fill = QColor(0xFF, 0xFE, 0xFB);
    t.free_outline = QColor(0x8F, 0x93, 0x99);
    t.cached_fill = QColor(0xD9, 0xD9, 0xD9);
    t.cached_ink = QColor(0x1A, 0x1A, 0x1A);
    t.cell_outline = QColor(0x1A, 0x1A, 0x1A);
    setOwners(t);
    return t;
}

Theme makeDark() {
    Theme t;
    t.kind = ThemeKind::kDark;
    t.window = QColor(0x14, 0x17, 0x1C);
    t.panel = QColor(0x1B, 0x1F, 0x26);
    t.panel_border = QColor(0x2D, 0x33, 0x3D);
    t.ink = QColor(0xEC, 0xEC, 0xEC);
    t.quiet_ink = QColor(0xA6, 0xAD, 0xB8);
    t.hairline = QColor(0x2D, 0x33, 0x3D);
    t.quiet_line = QColor(0x8B, 0x93, 0xA0);
    t.accent = QColor(0x5C, 0xC3, 0xE0);
    t.accent_ink = QColor(0x10, 0x1A, 0x20);
    t.accent_tint = QColor(0x16, 0x32, 0x3C);
    t.alarm = QColor(0xE8, 0x70, 0x14);
    t.good = QColor(0x56, 0xC9, 0x8C);
    t.bad = QColor(0xEF, 0x8A, 0x72);
    t.tag_fill = QColor(0xF0, 0xE4, 0x42);
    t.tag_ink = QColor(0x1A, 0x1A, 0x1A);
    t.shared_fill = QColor(0xCF, 0xD5, 0xDD);
    t.shared_ink = QColor(0x1B, 0x1F, 0x26);
    t.free_fill = QColor(0x1B, 0x1F, 0x26);
    t.free_outline = QColor(0x69, 0x71, 0x7D);
    t.cached_fill = QColor(0x4A, 0x50, 0x5A);
    t.cached_ink = QColor(0xEC, 0xEC, 0xEC);
    t.cell_outline = QColor(0xEC, 0xEC, 0xEC);
    setOwners(t);
    return t;
}

QFont makeFont(const QStringList& families, double point_size, bool bold) {
    QFont font(families);
    font.setPointSizeF(point_size);
    font.setWeight(bold ? QFont::DemiBold : QFont::Normal);
    // Hinting rounds advances to whole pixels and would make layouts depend on the display.
    font.setHintingPreference(QFont::PreferNoHinting);
    return font;
}

}  // namespace

const Theme& Theme::light() {
    static const Theme theme = makeLight();
    return theme;
}

const Theme& Theme::dark() {
    static const Theme theme = makeDark();
    return theme;
}

QFont textFont(double point_size, bool bold) {
    static const QStringList families{"Inter", "DejaVu Sans"};
    return makeFont(families, point_size, bold);
}

QFont monoFont(double point_size, bool bold) {
    static const QStringList families{"JetBrains Mono", "DejaVu Sans Mono"};
    return makeFont(families, point_size, bold);
}

int ownerFillIndex(int owner) { return std::max(owner, 0) % 4; }

bool ownerIsStriped(int owner) { return std::max(owner, 0) % 8 >= 4; }

double contrastRatio(const QColor& a, const QColor& b) {
    const double la = relativeLuminance(a), lb = relativeLuminance(b);
    return (std::max(la, lb) + 0.05) / (std::min(la, lb) + 0.05);
}

QColor mixed(const QColor& a, const QColor& b, double share) {
    const auto channel = [share](int x, int y) {
        return static_cast<int>(std::lround(x * (1 - share) + y * share));
    };
    return QColor(channel(a.red(), b.red()), channel(a.green(), b.green()),
                  channel(a.blue(), b.blue()));
}

}  // namespace kvlab
