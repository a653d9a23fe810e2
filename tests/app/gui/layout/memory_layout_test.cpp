// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/layout/memory_layout.h"

#include <cmath>

#include <QTest>

#include "app/gui/layout/thread_route.h"
#include "tests/support/log_builder.h"

namespace kvlab {

class MemoryLayoutTest : public QObject {
    Q_OBJECT

  private slots:
    void partsDoNotOverlap_data();
    void partsDoNotOverlap();
    void threadsRunInGutters();
    void lookedAtBlockStandsInEveryTableThatNamesIt();
    void removedSequencesHaveNoRow();
};

void MemoryLayoutTest::partsDoNotOverlap_data() {
    QTest::addColumn<QSizeF>("size");
    QTest::newRow("smallest window") << QSizeF(520, 200);
    QTest::newRow("1600 x 1000") << QSizeF(940, 340);
    QTest::newRow("4K") << QSizeF(2600, 1400);
}

void MemoryLayoutTest::partsDoNotOverlap() {
    QFETCH(QSizeF, size);
    const auto log = scriptedLog();
    MemoryLayoutOptions options;
    options.looked_at_block = BlockId(37);
    const QRectF area(QPointF(12, 30), size);
    const MemoryLayout layout = layOutMemory(area, log->lastState(), options, {});
    QCOMPARE(layout.sequences.size(), size_t{8});
    QVERIFY(layout.tables.right() < layout.channel_x);
    QVERIFY(layout.channel_x < layout.pool.gridRect().left());
    QVERIFY(layout.pool.gridRect().right() <= area.right() + 0.1);
    QVERIFY(layout.pool.gridRect().bottom() <= layout.legend.top());
    QVERIFY(layout.legend.top() + 20 <= area.bottom() + 0.1);
    QVERIFY(layout.tables.rows().back().rect.bottom() <= area.bottom() + 0.1);
    QCOMPARE(layout.pool.numShown(), 286);
}

void MemoryLayoutTest::threadsRunInGutters() {
    const auto log = scriptedLog();
    const CacheState& state = log->lastState();
    for (const int block : {0, 21, 37, 124, 131}) {
        MemoryLayoutOptions options;
        options.looked_at_block = BlockId(block);
        const MemoryLayout layout = layOutMemory(QRectF(0, 0, 940, 340), state, options, {});
        const QRectF to = layout.pool.cellRect(BlockId(block));
        for (const BlockTableRow& row : layout.tables.rows()) {
            const auto& table = state.sequences[static_cast<size_t>(row.row)].table;
            for (const BlockTableCell& cell : row.cells) {
                if (table[static_cast<size_t>(cell.block_idx)] != BlockId(block)) continue;
                const QPolygonF route =
                    routeThread(cell.rect, row.gutter_y, layout.channel_x, to, layout.pool.gap());
                QCOMPARE(route.first(), QPointF(cell.rect.center().x(), cell.rect.bottom()));
                QCOMPARE(route.last(), QPointF(to.center().x(), to.top()));
                for (int i = 1; i < route.size(); ++i) {
                    const QPointF a = route[i - 1], b = route[i];
                    QVERIFY(a.x() == b.x() || a.y() == b.y());
                    const QRectF leg = QRectF(a, b).normalized().adjusted(-0.1, -0.1, 0.1, 0.1);
                    for (int other = 0; other < 286; ++other) {
                        if (other == block) continue;
                        QVERIFY(!leg.intersects(layout.pool.cellRect(BlockId(other))));
                    }
                    for (const BlockTableRow& r : layout.tables.rows()) {
                        for (const BlockTableCell& c : r.cells) {
                            if (c.rect == cell.rect) continue;
                            QVERIFY(!leg.intersects(c.rect));
                        }
                    }
                }
            }
        }
    }
}

void MemoryLayoutTest::lookedAtBlockStandsInEveryTableThatNamesIt() {
    const auto log = scriptedLog();
    MemoryLayoutOptions options;
    options.looked_at_block = BlockId(90);
    const MemoryLayout layout = layOutMemory(QRectF(0, 0, 940, 340), log->lastState(), options, {});
    for (const BlockTableRow& row : layout.tables.rows()) {
        QVERIFY(std::any_of(row.cells.begin(), row.cells.end(),
                            [](const BlockTableCell& cell) { return cell.block_idx == 90; }));
    }
}

void MemoryLayoutTest::removedSequencesHaveNoRow() {
    LogScript script;
    script.release = true;
    const auto log = scriptedLog(script);
    const MemoryLayout layout = layOutMemory(QRectF(0, 0, 940, 340), log->lastState(), {}, {});
    QVERIFY(layout.sequences.empty());
    QVERIFY(layout.tables.rows().empty());
    QCOMPARE(layout.pool.numShown(), 286);
}

}  // namespace kvlab

QTEST_APPLESS_MAIN(kvlab::MemoryLayoutTest)
#include "memory_layout_test.moc"
