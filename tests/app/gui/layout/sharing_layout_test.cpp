// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/layout/sharing_layout.h"

#include <QTest>

namespace kvlab {

class SharingLayoutTest : public QObject {
    Q_OBJECT

  private slots:
    void bothGridsShareOneScale_data();
    void bothGridsShareOneScale();
    void costsAreThereAtEverySize_data();
    void costsAreThereAtEverySize();
    void hugeCountsBecomeAreas();
};

void SharingLayoutTest::bothGridsShareOneScale_data() {
    QTest::addColumn<QSizeF>("size");
    QTest::newRow("card") << QSizeF(450, 320);
    QTest::newRow("flat") << QSizeF(680, 210);
    QTest::newRow("small") << QSizeF(290, 250);
    QTest::newRow("4K") << QSizeF(1300, 900);
}

void SharingLayoutTest::bothGridsShareOneScale() {
    QFETCH(QSizeF, size);
    const QRectF area(QPointF(10, 20), size);
    SharingLayoutInput input;
    input.blocks_unshared = 1056;
    input.blocks_held = 181;
    const SharingLayout layout(area, input);
    QVERIFY(layout.hasCells());
    QCOMPARE(layout.ghostCell(0).size(), layout.heldCell(0).size());
    for (int64_t i = 1; i < 1056; ++i) {
        QVERIFY(!layout.ghostCell(i).intersects(layout.ghostCell(i - 1)));
        QVERIFY(layout.ghostArea().adjusted(-0.1, -0.1, 0.1, 0.1).contains(layout.ghostCell(i)));
    }
    QVERIFY(layout.ghostLabel().bottom() <= layout.ghostArea().top());
    QVERIFY(layout.ghostArea().bottom() <= layout.heldLabel().top());
    QVERIFY(layout.heldLabel().bottom() <= layout.heldArea().top());
    QVERIFY(layout.heldCell(180).bottom() <= layout.ratio().top());
    if (!layout.costs().isEmpty()) {
        QVERIFY(layout.costs().top() >= layout.ratio().bottom() ||
                layout.costs().left() >= layout.ratio().right());
        QVERIFY(layout.costs().bottom() <= layout.key().top() + 0.1);
    }
    QVERIFY(layout.ratio().bottom() <= layout.key().top() + 0.1);
    QVERIFY(layout.ghostArea().right() <= area.right() + 0.1);
    QVERIFY(layout.key().bottom() <= area.bottom() + 0.1);
}

void SharingLayoutTest::costsAreThereAtEverySize_data() {
    QTest::addColumn<QSizeF>("size");
    QTest::newRow("window of 1280x800") << QSizeF(326, 205);
    QTest::newRow("with a banner") << QSizeF(326, 180);
    QTest::newRow("window of 1180x700") << QSizeF(276, 158);
    QTest::newRow("smallest card") << QSizeF(274, 135);
}

void SharingLayoutTest::costsAreThereAtEverySize() {
    QFETCH(QSizeF, size);
    const QRectF area(QPointF(10, 20), size);
    SharingLayoutInput input;
    input.blocks_unshared = 1056;
    input.blocks_held = 181;
    const SharingLayout layout(area, input);
    QVERIFY(layout.costs().height() >= 3 * input.text_height);
    QVERIFY(layout.costs().width() >= 150);
    QVERIFY(layout.costs().left() >= layout.ratio().right());
    QVERIFY(layout.heldArea().bottom() <= layout.costs().top());
    QVERIFY(layout.heldArea().bottom() <= layout.ratio().top());
    const double bottom = layout.key().isEmpty() ? area.bottom() : layout.key().top();
    QVERIFY(layout.costs().bottom() <= bottom + 0.1);
    QVERIFY(layout.ratio().bottom() <= bottom + 0.1);
    QVERIFY(layout.ghostArea().height() > 5);
}

void SharingLayoutTest::hugeCountsBecomeAreas() {
    SharingLayoutInput input;
    input.blocks_unshared = 2'000'000;
    input.blocks_held = 500'000;
    const SharingLayout layout(QRectF(0, 0, 450, 320), input);
    QVERIFY(!layout.hasCells());
    const double ratio = layout.ghostArea().height() / layout.heldArea().height();
    QVERIFY(std::abs(ratio - 4) < 0.2);
}

}  // namespace kvlab

QTEST_APPLESS_MAIN(kvlab::SharingLayoutTest)
#include "sharing_layout_test.moc"
