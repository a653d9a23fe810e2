// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/provenance.h"

#include <QImage>
#include <QPainter>
#include <QTest>

namespace kvlab {

class ProvenanceTest : public QObject {
    Q_OBJECT

  private slots:
    void numbers();
    void underlinesDiffer();
    void noDataHasNoUnderline();
};

void ProvenanceTest::numbers() {
    QCOMPARE(formatCount(0), QStringLiteral("0"));
    QCOMPARE(formatCount(999), QStringLiteral("999"));
    QCOMPARE(formatCount(16800), QStringLiteral("16,800"));
    QCOMPARE(formatCount(-1234567), QStringLiteral("−1,234,567"));
    QCOMPARE(formatBytes(512), QStringLiteral("512 B"));
    QCOMPARE(formatBytes(32 * 1024), QStringLiteral("32 KiB"));
    QCOMPARE(formatBytes(1536 * 1024), QStringLiteral("1.50 MiB"));
    QCOMPARE(formatBytes(2684354560), QStringLiteral("2.50 GiB"));
    QCOMPARE(formatRatio(1056.0 / 181), QStringLiteral("5.8×"));
    QCOMPARE(formatRatio(2800.0 / 2100), QStringLiteral("1.33×"));
    QCOMPARE(formatRatio(8), QStringLiteral("8×"));
    QCOMPARE(formatPercent(2800.0 / 2896), QStringLiteral("96.7 %"));
    QCOMPARE(countOf(1, "block"), QStringLiteral("1 block"));
    QCOMPARE(countOf(1056, "block"), QStringLiteral("1,056 blocks"));
    QCOMPARE(noData(), QStringLiteral("–"));
}

namespace {

QImage drawn(const QString& text, Provenance provenance, double* width = nullptr) {
    QImage image(160, 40, QImage::Format_ARGB32_Premultiplied);
    image.fill(Qt::white);
    QPainter painter(&image);
    const double w = drawNumber(painter, {10, 24}, text, textFont(12), Qt::black, provenance);
    if (width) *width = w;
    return image;
}

}  // namespace

void ProvenanceTest::underlinesDiffer() {
    const Provenance kinds[] = {Provenance::kMeasured, Provenance::kDerived, Provenance::kQuoted,
                                Provenance::kBuiltIn};
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < i; ++j) {
            QVERIFY(drawn("16,800", kinds[i]) != drawn("16,800", kinds[j]));
        }
    }
    double width = 0;
    drawn("16,800", Provenance::kMeasured, &width);
    QVERIFY(width > 20);
}

void ProvenanceTest::noDataHasNoUnderline() {
    QCOMPARE(drawn(noData(), Provenance::kMeasured), drawn(noData(), Provenance::kQuoted));
}

}  // namespace kvlab

QTEST_MAIN(kvlab::ProvenanceTest)
#include "provenance_test.moc"
