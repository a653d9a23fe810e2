// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/views/sequence_text_view.h"

#include <QTest>

#include "tests/support/log_builder.h"

namespace kvlab {

class SequenceTextViewTest : public QObject {
    Q_OBJECT

  private slots:
    void pointsNameTokenAndBlock();
    void lockedBlockLightsUp();
};

void SequenceTextViewTest::pointsNameTokenAndBlock() {
    RunHub hub;
    SequenceTextView view(&hub);
    view.resize(600, 360);
    hub.setLog(scriptedLog(), false);
    QVERIFY(view.selectionAt({100, 100}).empty());
    hub.setCursor(hub.log().end());
    int found = 0;
    for (int y = 0; y < view.height(); y += 4) {
        for (int x = 0; x < view.width(); x += 4) {
            const Selection at = view.selectionAt(QPointF(x, y));
            if (!at.position) continue;
            ++found;
            const SequenceState& sequence =
                hub.state().sequences[static_cast<size_t>(at.sequence->value)];
            QVERIFY(*at.position < static_cast<int>(sequence.tokens.size()));
            const size_t idx = static_cast<size_t>(*at.position / 16);
            if (idx < sequence.table.size()) {
                QCOMPARE(at.block, std::optional<BlockId>(sequence.table[idx]));
            }
        }
    }
    QVERIFY(found > 300);
}

void SequenceTextViewTest::lockedBlockLightsUp() {
    RunHub hub;
    SequenceTextView view(&hub);
    view.resize(600, 360);
    hub.setLog(scriptedLog(), false);
    hub.setCursor(hub.log().end());
    for (const ThemeKind kind : {ThemeKind::kLight, ThemeKind::kDark}) {
        view.setTheme(Theme::of(kind));
        const QImage before = view.grab().toImage();
        Selection selection;
        selection.block = hub.state().sequences[0].table.back();
        hub.lock(selection);
        QVERIFY(view.grab().toImage() != before);
        hub.lock({});
    }
}

}  // namespace kvlab

QTEST_MAIN(kvlab::SequenceTextViewTest)
#include "sequence_text_view_test.moc"
