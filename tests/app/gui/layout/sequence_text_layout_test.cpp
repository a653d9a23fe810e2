// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/layout/sequence_text_layout.h"

#include <QTest>

namespace kvlab {

class SequenceTextLayoutTest : public QObject {
    Q_OBJECT

  private slots:
    void allTokensWhenTheyFit();
    void lastTokensWhenTheyDoNot();
    void startMovesInStrides();
    void wrapsOverLines();
    void wideTokensStayInside();
    void pointsFindPositions();
};

namespace {

SequenceTextLayout layOut(QRectF area, int num_tokens, double width = 30, int skip_last = 0) {
    return SequenceTextLayout(
        area, num_tokens, 16, {},
        [width](int position) {
            return TokenExtent{width + (position % 3) * 4, position % 4 != 1};
        },
        skip_last);
}

}  // namespace

void SequenceTextLayoutTest::allTokensWhenTheyFit() {
    const SequenceTextLayout layout = layOut({0, 0, 440, 26}, 5);
    QCOMPARE(layout.chips().size(), size_t{5});
    QVERIFY(!layout.isElided());
    QVERIFY(layout.elisionRect().isEmpty());
}

void SequenceTextLayoutTest::lastTokensWhenTheyDoNot() {
    const SequenceTextLayout layout = layOut({0, 0, 440, 26}, 2101);
    QVERIFY(layout.isElided());
    QCOMPARE(layout.chips().back().position, 2100);
    for (size_t i = 0; i < layout.chips().size(); ++i) {
        const TextChip& chip = layout.chips()[i];
        QVERIFY(chip.rect.right() <= 440.1);
        QVERIFY(chip.rect.top() >= 0 && chip.rect.bottom() <= 26);
        QCOMPARE(chip.block_begins, chip.position % 16 == 0);
        if (i > 0) {
            QCOMPARE(chip.position, layout.chips()[i - 1].position + 1);
            QVERIFY(chip.rect.left() > layout.chips()[i - 1].rect.right());
        }
    }
    QCOMPARE(layOut({0, 0, 440, 26}, 2101, 30, 100).chips().back().position, 2000);
}

void SequenceTextLayoutTest::startMovesInStrides() {
    int changes = 0, last = -1;
    for (int n = 1000; n < 1032; ++n) {
        const SequenceTextLayout layout = layOut({0, 0, 440, 26}, n);
        const int first = layout.chips().front().position;
        QCOMPARE(first % 4, 0);
        if (last >= 0 && first != last) ++changes;
        last = first;
    }
    QVERIFY(changes <= 9);
}

void SequenceTextLayoutTest::wrapsOverLines() {
    const SequenceTextLayout layout = layOut({0, 0, 440, 80}, 2101);
    QVERIFY(layout.chips().size() > layOut({0, 0, 440, 26}, 2101).chips().size() * 2);
    for (size_t i = 1; i < layout.chips().size(); ++i) {
        const QRectF& a = layout.chips()[i - 1].rect;
        const QRectF& b = layout.chips()[i].rect;
        QVERIFY(b.top() > a.top() ? b.left() < a.left() : b.left() > a.right());
        QVERIFY(b.right() <= 440.1);
        QVERIFY(b.bottom() <= 80);
    }
}

void SequenceTextLayoutTest::wideTokensStayInside() {
    const SequenceTextLayout layout = layOut({0, 0, 120, 26}, 50, 400);
    QVERIFY(!layout.chips().empty());
    QCOMPARE(layout.chips().back().position, 49);
    for (const TextChip& chip : layout.chips()) QVERIFY(chip.rect.right() <= 120.1);
}

void SequenceTextLayoutTest::pointsFindPositions() {
    const SequenceTextLayout layout = layOut({10, 5, 440, 80}, 300);
    for (const TextChip& chip : layout.chips()) {
        QCOMPARE(layout.positionAt(chip.rect.center()), chip.position);
    }
    QCOMPARE(layout.positionAt({0, 0}), -1);
    QVERIFY(layOut({0, 0, 440, 26}, 0).chips().empty());
}

}  // namespace kvlab

QTEST_APPLESS_MAIN(kvlab::SequenceTextLayoutTest)
#include "sequence_text_layout_test.moc"
