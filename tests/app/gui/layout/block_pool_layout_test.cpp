// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/layout/block_pool_layout.h"

#include <QTest>

namespace kvlab {

class BlockPoolLayoutTest : public QObject {
    Q_OBJECT

  private slots:
    void cellAndPointAgree();
    void bestOfEightKeepsItsLetters();
    void fewBlocksGetLargeCells();
    void hugePoolsAreShownInPart();
    void neighboursStayInTheGrid();
    void emptyPool();
};

void BlockPoolLayoutTest::cellAndPointAgree() {
    const QRectF area(452, 8, 486, 300);
    const BlockPoolLayout layout(area, 286);
    QCOMPARE(layout.numShown(), 286);
    QVERIFY(!layout.isFolded());
    QVERIFY(area.adjusted(-0.1, -0.1, 0.1, 0.1).contains(layout.gridRect()));
    QRectF previous;
    for (int i = 0; i < 286; ++i) {
        const QRectF cell = layout.cellRect(BlockId(i));
        QCOMPARE(layout.blockAt(cell.center()), BlockId(i));
        QVERIFY(!cell.intersects(previous));
        previous = cell;
    }
    QVERIFY(layout.cellRect(BlockId(286)).isEmpty());
    QVERIFY(!layout.blockAt({0, 0}).valid());
    QVERIFY(!layout.blockAt(layout.gridRect().bottomRight() + QPointF(30, 30)).valid());
}

void BlockPoolLayoutTest::bestOfEightKeepsItsLetters() {
    // The pool's part of a 1600 × 1000 window, and of the smallest window.
    const BlockPoolLayout layout(QRectF(0, 0, 480, 300), 286);
    QVERIFY(layout.showsLetters());
    QVERIFY(layout.cell() >= BlockPoolLayout::kBadgeCell - 1);
    QVERIFY(BlockPoolLayout(QRectF(0, 0, 300, 210), 181).showsLetters());
}

void BlockPoolLayoutTest::fewBlocksGetLargeCells() {
    const BlockPoolLayout layout(QRectF(0, 0, 480, 300), 14);
    QCOMPARE(layout.numShown(), 14);
    QVERIFY(layout.cell() >= 44);
}

void BlockPoolLayoutTest::hugePoolsAreShownInPart() {
    const BlockPoolLayout layout(QRectF(0, 0, 480, 300), 1'000'000);
    QVERIFY(layout.isFolded());
    QVERIFY(layout.numShown() > 10'000);
    QCOMPARE(layout.numBlocks(), 1'000'000);
    QVERIFY(layout.gridRect().bottom() <= 300.1);
    QVERIFY(layout.cell() > 0);
}

void BlockPoolLayoutTest::neighboursStayInTheGrid() {
    const BlockPoolLayout layout(QRectF(0, 0, 480, 300), 286);
    QCOMPARE(layout.neighbour(BlockId(), 1, 0), BlockId(0));
    QCOMPARE(layout.neighbour(BlockId(0), -1, 0), BlockId(0));
    QCOMPARE(layout.neighbour(BlockId(0), 1, 0), BlockId(1));
    QCOMPARE(layout.neighbour(BlockId(0), 0, 1), BlockId(layout.columns()));
    QCOMPARE(layout.neighbour(BlockId(285), 0, 1), BlockId(285));
}

void BlockPoolLayoutTest::emptyPool() {
    const BlockPoolLayout layout(QRectF(0, 0, 480, 300), 0);
    QCOMPARE(layout.numShown(), 0);
    QVERIFY(layout.gridRect().isEmpty());
    QVERIFY(!layout.blockAt({10, 10}).valid());
    QVERIFY(BlockPoolLayout(QRectF(0, 0, 0, 0), 10).cellRect(BlockId(0)).isEmpty());
}

}  // namespace kvlab

QTEST_APPLESS_MAIN(kvlab::BlockPoolLayoutTest)
#include "block_pool_layout_test.moc"
