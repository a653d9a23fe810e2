// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/theme.h"

#include <cmath>

#include <QFontInfo>
#include <QTest>

namespace kvlab {
namespace {

struct Lab {
    double l, a, b;
};

double linear(double v) { return v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4); }

Lab labOf(const QColor& color) {
    const double r = linear(color.redF()), g = linear(color.greenF()), b = linear(color.blueF());
    const auto f = [](double t) {
        return t > 216.0 / 24389 ? std::cbrt(t) : (24389.0 / 27 * t + 16) / 116;
    };
    const double x = f((0.4124564 * r + 0.3575761 * g + 0.1804375 * b) / 0.95047);
    const double y = f(0.2126729 * r + 0.7151522 * g + 0.0721750 * b);
    const double z = f((0.0193339 * r + 0.1191920 * g + 0.9503041 * b) / 1.08883);
    return {116 * y - 16, 500 * (x - y), 200 * (y - z)};
}

// CIEDE2000 with unit weights.
double difference(const QColor& one, const QColor& two) {
    constexpr double kPi = 3.14159265358979323846;
    const Lab p = labOf(one), q = labOf(two);
    const double c_mean = (std::hypot(p.a, p.b) + std::hypot(q.a, q.b)) / 2;
    const double c7 = std::pow(c_mean, 7);
    const double g = 0.5 * (1 - std::sqrt(c7 / (c7 + std::pow(25.0, 7))));
    const double a1 = p.a * (1 + g), a2 = q.a * (1 + g);
    const double c1 = std::hypot(a1, p.b), c2 = std::hypot(a2, q.b);
    const auto hue = [&](double b, double a) {
        const double h = std::atan2(b, a);
        return h < 0 ? h + 2 * kPi : h;
    };
    const double h1 = c1 < 1e-9 ? 0 : hue(p.b, a1), h2 = c2 < 1e-9 ? 0 : hue(q.b, a2);
    double dh = h2 - h1;
    if (c1 * c2 < 1e-9) {
        dh = 0;
    } else if (dh > kPi) {
        dh -= 2 * kPi;
    } else if (dh < -kPi) {
        dh += 2 * kPi;
    }
    const double dl = q.l - p.l, dc = c2 - c1, dhh = 2 * std::sqrt(c1 * c2) * std::sin(dh / 2);
    const double l_mean = (p.l + q.l) / 2, c_avg = (c1 + c2) / 2;
    double h_mean = h1 + h2;
    if (c1 * c2 >= 1e-9) {
        h_mean = std::abs(h1 - h2) > kPi ? (h1 + h2 + (h1 + h2 < 2 * kPi ? 2 : -2) * kPi) / 2
                                         : (h1 + h2) / 2;
    }
    const double t = 1 - 0.17 * std::cos(h_mean - kPi / 6) + 0.24 * std::cos(2 * h_mean) +
                     0.32 * std::cos(3 * h_mean + kPi / 30) -
                     0.20 * std::cos(4 * h_mean - 63 * kPi / 180);
    const double deg = h_mean * 180 / kPi;
    const double theta = 30 * std::exp(-std::pow((deg - 275) / 25, 2)) * kPi / 180;
    const double c_avg7 = std::pow(c_avg, 7);
    const double rc = 2 * std::sqrt(c_avg7 / (c_avg7 + std::pow(25.0, 7)));
    const double sl =
        1 + 0.015 * std::pow(l_mean - 50, 2) / std::sqrt(20 + std::pow(l_mean - 50, 2));
    const double sc = 1 + 0.045 * c_avg, sh = 1 + 0.015 * c_avg * t;
    return std::sqrt(std::pow(dl / sl, 2) + std::pow(dc / sc, 2) + std::pow(dhh / sh, 2) -
                     std::sin(2 * theta) * rc * (dc / sc) * (dhh / sh));
}

QColor grey(const QColor& color) {
    const double y = 0.2126 * linear(color.redF()) + 0.7152 * linear(color.greenF()) +
                     0.0722 * linear(color.blueF());
    const double v = y <= 0.0031308 ? 12.92 * y : 1.055 * std::pow(y, 1 / 2.4) - 0.055;
    return QColor::fromRgbF(static_cast<float>(v), static_cast<float>(v), static_cast<float>(v));
}

}  // namespace

class ThemeTest : public QObject {
    Q_OBJECT

  private slots:
    void textContrast_data() { themes(); }
    void textContrast();
    void graphicsContrast_data() { themes(); }
    void graphicsContrast();
    void ownersDiffer();
    void aCellStandsOutFromItsBackground_data() { themes(); }
    void aCellStandsOutFromItsBackground();
    void ownersRepeatWithAStripe();
    void fontsResolve();

  private:
    static void themes() {
        QTest::addColumn<int>("kind");
        QTest::newRow("light") << static_cast<int>(ThemeKind::kLight);
        QTest::newRow("dark") << static_cast<int>(ThemeKind::kDark);
    }
};

void ThemeTest::textContrast() {
    QFETCH(int, kind);
    const Theme& t = Theme::of(static_cast<ThemeKind>(kind));
    struct Pair {
        const char* name;
        QColor text, ground;
    };
    std::vector<Pair> pairs{{"ink on panel", t.ink, t.panel},
                            {"ink on window", t.ink, t.window},
                            {"ink on tint", t.ink, t.accent_tint},
                            {"quiet ink on panel", t.quiet_ink, t.panel},
                            {"quiet ink on window", t.quiet_ink, t.window},
                            {"quiet ink on tint", t.quiet_ink, t.accent_tint},
                            {"accent on panel", t.accent, t.panel},
                            {"accent ink on accent", t.accent_ink, t.accent},
                            {"good on panel", t.good, t.panel},
                            {"bad on panel", t.bad, t.panel},
                            {"tag", t.tag_ink, t.tag_fill},
                            {"shared", t.shared_ink, t.shared_fill},
                            {"cached", t.cached_ink, t.cached_fill}};
    for (int i = 0; i < 4; ++i) pairs.push_back({"owner", t.owner_ink[i], t.owner_fill[i]});
    for (const Pair& pair : pairs) {
        const double ratio = contrastRatio(pair.text, pair.ground);
        QVERIFY2(ratio >= 4.5,
                 qPrintable(QStringLiteral("%1: %2").arg(QLatin1String(pair.name)).arg(ratio)));
    }
}

void ThemeTest::graphicsContrast() {
    QFETCH(int, kind);
    const Theme& t = Theme::of(static_cast<ThemeKind>(kind));
    struct Pair {
        const char* name;
        QColor line, ground;
    };
    const Pair pairs[] = {{"quiet line", t.quiet_line, t.panel},
                          {"accent", t.accent, t.panel},
                          {"alarm", t.alarm, t.panel},
                          {"free outline", t.free_outline, t.panel},
                          {"cell outline", t.cell_outline, t.panel},
                          {"shared fill", t.shared_fill, t.panel},
                          {"shared inner outline", t.shared_ink, t.shared_fill}};
    for (const Pair& pair : pairs) {
        const double ratio = contrastRatio(pair.line, pair.ground);
        QVERIFY2(ratio >= 3.0,
                 qPrintable(QStringLiteral("%1: %2").arg(QLatin1String(pair.name)).arg(ratio)));
    }
}

void ThemeTest::ownersDiffer() {
    const Theme& t = Theme::light();
    for (int i = 0; i < 4; ++i) {
        QCOMPARE(Theme::dark().owner_fill[i], t.owner_fill[i]);
        for (int j = 0; j < i; ++j) {
            QVERIFY(difference(t.owner_fill[i], t.owner_fill[j]) >= 34);
            QVERIFY(difference(grey(t.owner_fill[i]), grey(t.owner_fill[j])) >= 11);
        }
    }
}

// Outline or fill always separates a cell from its background (VISUAL-LANGUAGE 5.2).
void ThemeTest::aCellStandsOutFromItsBackground() {
    QFETCH(int, kind);
    const Theme& t = Theme::of(static_cast<ThemeKind>(kind));
    for (int i = 0; i < 4; ++i) {
        for (const QColor& ground : {t.panel, t.window}) {
            QVERIFY(std::max(contrastRatio(t.cell_outline, ground),
                             contrastRatio(t.owner_fill[i], ground)) >= 3);
        }
    }
}

void ThemeTest::ownersRepeatWithAStripe() {
    QCOMPARE(ownerFillIndex(0), 0);
    QCOMPARE(ownerFillIndex(7), 3);
    QVERIFY(!ownerIsStriped(3));
    QVERIFY(ownerIsStriped(4));
    QVERIFY(!ownerIsStriped(8));
    QCOMPARE(ownerFillIndex(-1), 0);
    for (int i = 0; i < 4; ++i) {
        QVERIFY(Theme::light().owner_stripe[i] != Theme::light().owner_fill[i]);
    }
}

void ThemeTest::fontsResolve() {
    QCOMPARE(textFont(9).families().front(), QStringLiteral("Inter"));
    QCOMPARE(textFont(9).families().back(), QStringLiteral("DejaVu Sans"));
    QVERIFY(QFontInfo(monoFont(9)).fixedPitch());
    QVERIFY(textFont(9, true).weight() > textFont(9).weight());
    QCOMPARE(textFont(9).pointSizeF(), 9.0);
}

}  // namespace kvlab

QTEST_MAIN(kvlab::ThemeTest)
#include "theme_test.moc"
