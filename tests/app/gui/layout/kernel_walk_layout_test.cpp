// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/layout/kernel_walk_layout.h"

#include <vector>

#include <QtTest>

namespace kvlab {

class KernelWalkLayoutTest : public QObject {
    Q_OBJECT

  private slots:
    void everyThreadBlockHasACellOfItsOwn_data() {
        QTest::addColumn<QList<int>>("dims");  // x, y, z of one or two launches
        QTest::addColumn<QSizeF>("size");
        QTest::newRow("decode of 8") << QList<int>{8, 2, 1} << QSizeF(500, 200);
        QTest::newRow("split") << QList<int>{8, 2, 4} << QSizeF(420, 180);
        QTest::newRow("in bands") << QList<int>{200, 2, 1} << QSizeF(420, 180);
        QTest::newRow("decode and prefill") << QList<int>{8, 2, 2, 16, 2, 2} << QSizeF(420, 180);
    }
    void everyThreadBlockHasACellOfItsOwn() {
        QFETCH(QList<int>, dims);
        QFETCH(QSizeF, size);
        const QRectF area({10, 20}, size);
        std::vector<GridDims> launches;
        for (int i = 0; i < dims.size(); i += 3) {
            launches.push_back({dims[i], dims[i + 1], dims[i + 2]});
        }
        const KernelGridLayout layout(area, launches);
        QVERIFY(!layout.isFolded());
        std::vector<QRectF> seen;
        for (int l = 0; l < static_cast<int>(launches.size()); ++l) {
            const GridDims& grid = launches[static_cast<size_t>(l)];
            QVERIFY(area.contains(layout.caption(l)));
            for (int i = 0; i < grid.x * grid.y * grid.z; ++i) {
                const QRectF cell = layout.cellRect(l, i);
                QVERIFY(area.adjusted(0, 0, 0.1, 0.1).contains(cell));
                QVERIFY(!cell.intersects(layout.caption(l)));
                for (const QRectF& other : seen) QVERIFY(!cell.intersects(other));
                seen.push_back(cell);
                const KernelGridLayout::Hit hit = layout.hitTest(cell.center());
                QCOMPARE(hit.launch, l);
                QCOMPARE(hit.index, i);
            }
        }
        QCOMPARE(layout.hitTest({0, 0}).launch, -1);
        QCOMPARE(layout.hitTest(area.bottomRight() + QPointF(5, 5)).launch, -1);
    }

    void headsAreLinesAndPartsAreNeighbours() {
        const KernelGridLayout layout({0, 0, 600, 200}, {{3, 2, 2}});
        const auto at = [&](int x, int y, int z) {
            return layout.cellRect(0, (z * 2 + y) * 3 + x);
        };
        QCOMPARE(at(0, 0, 0).top(), at(2, 0, 1).top());
        QVERIFY(at(0, 1, 0).top() > at(0, 0, 0).bottom());
        QVERIFY(at(0, 0, 1).left() - at(0, 0, 0).right() <
                at(1, 0, 0).left() - at(0, 0, 1).right());
        QCOMPARE(layout.label(0, 1).top(), at(0, 1, 0).top());
    }

    void whatFindsNoRoomIsTold() {
        const KernelGridLayout layout({0, 0, 200, 60}, {{4000, 4, 1}});
        QVERIFY(layout.isFolded());
        QVERIFY(!layout.cellRect(0, 0).isEmpty());
        QVERIFY(layout.cellRect(0, 15999).isEmpty());
    }

    void theStripTurnsPages() {
        const QRectF area(5, 5, 230, 74);  // 5 columns, 2 lines
        const WalkStripLayout first(area, 23, 0);
        QCOMPARE(first.first(), 0);
        QCOMPARE(first.numShown(), 10);
        const WalkStripLayout last(area, 23, 22);
        QCOMPARE(last.first(), 20);
        QCOMPARE(last.numShown(), 3);
        for (int step = 20; step < 23; ++step) {
            QVERIFY(area.contains(last.cellRect(step)));
            QCOMPARE(last.stepAt(last.cellRect(step).center()), step);
        }
        QVERIFY(last.cellRect(3).isEmpty());
        QCOMPARE(last.stepAt({0, 0}), -1);
    }
};

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::KernelWalkLayoutTest)
#include "kernel_walk_layout_test.moc"
