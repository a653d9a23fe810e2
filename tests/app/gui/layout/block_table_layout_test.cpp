// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/layout/block_table_layout.h"

#include <QTest>

namespace kvlab {
namespace {

std::vector<int> indicesOf(const BlockTableRow& row) {
    std::vector<int> indices;
    for (const BlockTableCell& cell : row.cells) indices.push_back(cell.block_idx);
    return indices;
}

}  // namespace

class BlockTableLayoutTest : public QObject {
    Q_OBJECT

  private slots:
    void shortTablesShowEveryCell();
    void longTablesShowHeadLookedAtAndTail();
    void nothingMovesWhenACellIsLookedAt();
    void hitsFindTheirCell();
    void rowsThatDoNotFitAreCounted();
    void gutterLiesBetweenRows();
};

void BlockTableLayoutTest::shortTablesShowEveryCell() {
    const BlockTableLayout layout(QRectF(0, 0, 460, 340), {{3, {}}, {0, {}}}, {});
    QCOMPARE(layout.rows().size(), size_t{2});
    QCOMPARE(indicesOf(layout.rows()[0]), (std::vector<int>{0, 1, 2}));
    QVERIFY(layout.rows()[0].ellipses.empty());
    QVERIFY(layout.rows()[1].cells.empty());
}

void BlockTableLayoutTest::longTablesShowHeadLookedAtAndTail() {
    const std::vector<BlockTableRowInput> inputs(8, BlockTableRowInput{132, 37});
    const BlockTableLayout layout(QRectF(0, 0, 460, 340), inputs, {});
    QCOMPARE(layout.rows().size(), size_t{8});
    for (const BlockTableRow& row : layout.rows()) {
        const std::vector<int> indices = indicesOf(row);
        QCOMPARE(indices.front(), 0);
        QCOMPARE(indices.back(), 131);
        QVERIFY(std::find(indices.begin(), indices.end(), 37) != indices.end());
        QCOMPARE(row.ellipses.size(), size_t{2});
        for (size_t i = 1; i < row.cells.size(); ++i) {
            QVERIFY(row.cells[i].rect.left() >= row.cells[i - 1].rect.right());
        }
        QVERIFY(row.cells.back().rect.right() <= 460);
        QVERIFY(row.count.isEmpty() || row.count.left() >= row.cells.back().rect.right());
        QVERIFY(row.badge.right() <= row.cells.front().rect.left());
    }
}

void BlockTableLayoutTest::nothingMovesWhenACellIsLookedAt() {
    const QRectF area(0, 0, 460, 340);
    const BlockTableLayout without(area, {{132, {}}}, {});
    const BlockTableLayout with(area, {{132, 50}}, {});
    const BlockTableLayout tail(area, {{132, 131}}, {});
    QCOMPARE(without.rows()[0].cells.front().rect, with.rows()[0].cells.front().rect);
    QCOMPARE(without.rows()[0].cells.back().rect, with.rows()[0].cells.back().rect);
    // A looked-at cell that is in sight anyway adds none.
    QCOMPARE(indicesOf(without.rows()[0]), indicesOf(tail.rows()[0]));
}

void BlockTableLayoutTest::hitsFindTheirCell() {
    const BlockTableLayout layout(QRectF(10, 20, 460, 340), {{132, 37}, {5, {}}}, {});
    for (const BlockTableRow& row : layout.rows()) {
        for (const BlockTableCell& cell : row.cells) {
            const BlockTableLayout::Hit hit = layout.hitTest(cell.rect.center());
            QCOMPARE(hit.row, row.row);
            QCOMPARE(hit.block_idx, cell.block_idx);
        }
        QCOMPARE(layout.hitTest(row.badge.center()).row, row.row);
        QCOMPARE(layout.hitTest(row.badge.center()).block_idx, -1);
    }
    QCOMPARE(layout.hitTest({5, 5}).row, -1);
}

void BlockTableLayoutTest::rowsThatDoNotFitAreCounted() {
    const std::vector<BlockTableRowInput> inputs(40, BlockTableRowInput{10, {}});
    const BlockTableLayout layout(QRectF(0, 0, 460, 300), inputs, {});
    QVERIFY(layout.numHidden() > 0);
    QCOMPARE(layout.rows().size() + static_cast<size_t>(layout.numHidden()), size_t{40});
    QVERIFY(layout.rows().back().rect.bottom() <= layout.hiddenRect().top() + 0.1);
    QVERIFY(layout.hiddenRect().bottom() <= 300.1);
    const BlockTableLayout scrolled(QRectF(0, 0, 460, 300), inputs, {}, 1000);
    QCOMPARE(scrolled.rows().back().row, 39);
}

void BlockTableLayoutTest::gutterLiesBetweenRows() {
    for (const int height : {210, 250, 340, 600}) {
        const std::vector<BlockTableRowInput> inputs(8, BlockTableRowInput{132, 37});
        const BlockTableLayout layout(QRectF(0, 0, 460, height), inputs, {});
        for (size_t i = 0; i < layout.rows().size(); ++i) {
            const BlockTableRow& row = layout.rows()[i];
            QVERIFY(row.gutter_y > row.cells.front().rect.bottom());
            if (i + 1 < layout.rows().size()) {
                QVERIFY(row.gutter_y < layout.rows()[i + 1].cells.front().rect.top());
            }
        }
    }
}

}  // namespace kvlab

QTEST_APPLESS_MAIN(kvlab::BlockTableLayoutTest)
#include "block_table_layout_test.moc"
