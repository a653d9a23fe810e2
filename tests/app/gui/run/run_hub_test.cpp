// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/run/run_hub.h"

#include <QSignalSpy>
#include <QtTest>

#include "tests/support/log_builder.h"

namespace kvlab {

class RunHubTest : public QObject {
    Q_OBJECT

  private slots:
    void startsEmpty() {
        RunHub hub;
        QVERIFY(!hub.hasLog());
        QVERIFY(!hub.currentStep());
        hub.setCursor({3, 0, 0});
        QCOMPARE(hub.cursor().step, 0);
    }

    // Forwards and back to the start, entry by entry: the first state again, and each state on the
    // way the same.
    void walksBackToTheFirstState() {
        RunHub hub;
        hub.setLog(scriptedLog({.prompt_len = 97, .num_samples = 3, .num_decode_steps = 20}),
                   false);
        const CacheState first = hub.state();
        std::vector<CacheState> states{first};
        while (!hub.atEnd()) {
            hub.setCursor(hub.log().nextEntry(hub.cursor()));
            states.push_back(hub.state());
            QCOMPARE(QString::fromStdString(checkInvariants(hub.state())), QString());
        }
        QVERIFY(hub.state() == hub.log().lastState());
        for (size_t i = states.size() - 1; i > 0; --i) {
            hub.setCursor(hub.log().previousEntry(hub.cursor()));
            QVERIFY(hub.state() == states[i - 1]);
        }
        QVERIFY(hub.state() == first);
        QVERIFY(hub.cursor() == hub.log().begin());
    }

    void marksOneEntryAndOneEventButNoJump() {
        RunHub hub;
        hub.setLog(scriptedLog(), false);
        hub.setCursor(hub.log().nextEntry({0, 0, 0}));
        QVERIFY(hub.lastApplied() == Cursor({0, 0, 0}));
        const Cursor event_start = hub.cursor();
        QCOMPARE(event_start.entry, 0);
        hub.setCursor({0, event_start.event + 1, 0});
        QVERIFY(hub.lastApplied().has_value());
        QCOMPARE(hub.lastApplied()->event, event_start.event);
        const auto& event = hub.log().step(0).events[static_cast<size_t>(event_start.event)];
        QCOMPARE(hub.lastApplied()->entry, numEntries(event) - 1);
        hub.setCursor({60, 0, 0});
        QVERIFY(!hub.lastApplied());
        hub.setCursor(hub.log().previousEntry(hub.cursor()));
        QVERIFY(!hub.lastApplied());
        hub.setCursorAfter({50, 0, 0});
        QVERIFY(hub.lastApplied() == Cursor({50, 0, 0}));
    }

    void growsWithoutMovingAReaderInThePast() {
        const auto steps = scriptedSteps({});
        RunHub hub;
        hub.setLog(std::make_shared<RunLog>(scriptedInfo({})), true);
        QSignalSpy grew(&hub, &RunHub::logGrew);
        QSignalSpy moved(&hub, &RunHub::cursorMoved);
        hub.setFollowing(true);
        QVERIFY(hub.appendSteps({steps.data(), 10}));
        QCOMPARE(grew.count(), 1);
        QCOMPARE(moved.count(), 1);
        QVERIFY(hub.atEnd());
        hub.setCursor({5, 0, 0});
        QVERIFY(hub.appendSteps({steps.data() + 10, steps.size() - 10}));
        QCOMPARE(hub.cursor().step, 5);
        QCOMPARE(grew.count(), 2);
        hub.setFollowing(false);
        hub.setCursor(hub.log().end());
        QCOMPARE(hub.log().numSteps(), static_cast<int64_t>(steps.size()));
    }

    void toldStepsThatContradictEndTheRunAndNothingElse() {
        const auto steps = scriptedSteps({});
        RunHub hub;
        hub.setLog(std::make_shared<RunLog>(scriptedInfo({})), true);
        QSignalSpy damaged(&hub, &RunHub::logDamaged);
        QVERIFY(hub.appendStep(steps[0]));
        const CacheState before = hub.log().lastState();
        QVERIFY(!hub.appendStep(steps[7]));  // step 7 does not follow step 0
        QCOMPARE(damaged.count(), 1);
        QVERIFY(!hub.isLive());
        QVERIFY(hub.log().lastState() == before);
    }

    void lockedSelectionHidesTheHoveredOne() {
        RunHub hub;
        hub.setLog(scriptedLog(), false);
        QSignalSpy changed(&hub, &RunHub::selectionChanged);
        Selection hovered;
        hovered.block = BlockId(3);
        Selection locked;
        locked.sequence = SequenceId(1);
        hub.hover(hovered);
        QVERIFY(hub.shown() == hovered);
        hub.lock(locked);
        QVERIFY(hub.shown() == locked);
        QCOMPARE(changed.count(), 2);
        hub.hover({});
        QCOMPARE(changed.count(), 2);
        hub.lock({});
        QVERIFY(hub.shown().empty());
        QCOMPARE(changed.count(), 3);
    }

    void namesTheCurrentStep() {
        RunHub hub;
        hub.setLog(scriptedLog(), false);
        QVERIFY(!hub.currentStep());
        hub.setCursor(hub.log().nextEntry({0, 0, 0}));
        QCOMPARE(hub.currentStep().value(), 0);
        hub.setCursor({4, 0, 0});
        QCOMPARE(hub.currentStep().value(), 3);
        hub.setCursor(hub.log().end());
        QCOMPARE(hub.currentStep().value(), hub.log().numSteps() - 1);
    }
};

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::RunHubTest)
#include "run_hub_test.moc"
