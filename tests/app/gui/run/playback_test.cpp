// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/run/playback.h"

#include <QSignalSpy>
#include <QtTest>

#include "app/gui/run/related_entries.h"
#include "tests/support/log_builder.h"

namespace kvlab {

class PlaybackTest : public QObject {
    Q_OBJECT

    static int speedIndexOf(double speed) {
        for (int i = 0; i < Playback::kNumSpeeds; ++i) {
            if (Playback::kSpeeds[i] == speed) {
                return i;
            }
        }
        return -1;
    }

  private slots:
    void movesSeveralStepsAsOneMove() {
        RunHub hub;
        hub.setLog(scriptedLog(), false);
        Playback playback(&hub);
        playback.setSpeedIndex(speedIndexOf(64));
        QSignalSpy moved(&hub, &RunHub::cursorMoved);
        playback.play();
        playback.advance(0.25);
        QCOMPARE(hub.cursor().step, 16);
        QCOMPARE(moved.count(), 1);
        playback.advance(0.25);
        QCOMPARE(hub.cursor().step, 32);
        QCOMPARE(moved.count(), 2);
    }

    void tellsEntriesAtSlowSpeed() {
        RunHub hub;
        hub.setLog(scriptedLog(), false);
        Playback playback(&hub);
        playback.setSpeedIndex(speedIndexOf(1));
        hub.setCursor({50, 0, 0});
        playback.play();
        const int64_t first = hub.log().entryIndex({50, 0, 0});
        const int64_t count = hub.log().entryIndex({51, 0, 0}) - first;
        int64_t before = first;
        for (int frame = 0; frame < 60; ++frame) {
            playback.advance(1.0 / 60);
            const int64_t now = hub.log().entryIndex(hub.cursor());
            QVERIFY(now >= before);
            QVERIFY(now - before <= count / 10 + 1);
            if (now > before) {
                QVERIFY(hub.lastApplied().has_value());
            }
            before = now;
        }
        QVERIFY(hub.cursor().step >= 50);
        playback.advance(1.0 / 60);
        QCOMPARE(hub.cursor().step, 51);
    }

    void stopsAtTheEndOfAFinishedRunAndStartsOver() {
        RunHub hub;
        hub.setLog(scriptedLog(), false);
        Playback playback(&hub);
        hub.setCursor({hub.log().numSteps() - 1, 0, 0});
        playback.play();
        playback.advance(0.25);
        QVERIFY(hub.atEnd());
        QVERIFY(!playback.isPlaying());
        playback.play();
        QVERIFY(hub.cursor() == hub.log().begin());
        QVERIFY(playback.isPlaying());
    }

    void waitsAtTheEndOfALiveRun() {
        const auto steps = scriptedSteps({});
        RunHub hub;
        hub.setLog(std::make_shared<RunLog>(scriptedInfo({})), true);
        Playback playback(&hub);
        playback.setSpeedIndex(speedIndexOf(8));
        playback.play();
        playback.advance(0.25);
        QVERIFY(playback.isPlaying());
        QVERIFY(playback.isWaiting());
        hub.appendSteps({steps.data(), 20});
        QCOMPARE(hub.cursor().step, 0);  // it plays at its own pace, not the run's
        playback.advance(0.25);
        QCOMPARE(hub.cursor().step, 2);
        QVERIFY(!playback.isWaiting());
    }

    void followsAtLiveSpeed() {
        const auto steps = scriptedSteps({});
        RunHub hub;
        hub.setLog(std::make_shared<RunLog>(scriptedInfo({})), true);
        Playback playback(&hub);
        playback.setSpeedIndex(speedIndexOf(Playback::kLiveSpeed));
        playback.play();
        hub.appendSteps({steps.data(), 20});
        QVERIFY(hub.atEnd());
        playback.pause();
        hub.appendSteps({steps.data() + 20, 5});
        QCOMPARE(hub.cursor().step, 20);
    }

    void stepsByHandAndPauses() {
        RunHub hub;
        hub.setLog(scriptedLog(), false);
        Playback playback(&hub);
        playback.play();
        playback.nextStep();
        QVERIFY(!playback.isPlaying());
        QCOMPARE(hub.cursor().step, 1);
        playback.stepForward();
        QVERIFY(hub.cursor() > Cursor({1, 0, 0}));
        playback.stepBack();
        QVERIFY(hub.cursor() == Cursor({1, 0, 0}));
        playback.previousStep();
        QVERIFY(hub.cursor() == hub.log().begin());
        playback.toEnd();
        QVERIFY(hub.atEnd());
        playback.toStart();
        QVERIFY(hub.cursor() == hub.log().begin());
    }

    // The life of a shared tail block: taken, filled, forked, copied seven times, written in place.
    void visitsWhatConcernsABlockBothWays() {
        RunHub hub;
        hub.setLog(scriptedLog({.prompt_len = 2001}), false);
        Playback playback(&hub);
        Selection selection;
        selection.block = BlockId(125);
        hub.lock(selection);
        std::vector<Cursor> places;
        int copies = 0;
        for (int i = 0; i < 200; ++i) {
            const Cursor before = hub.cursor();
            playback.nextRelated();
            if (hub.cursor() == before) {
                break;
            }
            places.push_back(hub.cursor());
            const Cursor applied = hub.lastApplied().value();
            const Event& event =
                hub.log().step(applied.step).events[static_cast<size_t>(applied.event)];
            copies += std::holds_alternative<BlocksCopied>(event) ? 1 : 0;
        }
        QCOMPARE(copies, 7);
        QVERIFY(places.size() > 16);
        for (size_t i = places.size() - 1; i > 0; --i) {
            playback.previousRelated();
            QVERIFY(hub.cursor() == places[i - 1]);
        }
        playback.previousRelated();
        QVERIFY(hub.cursor() == hub.log().begin());
    }

    void visitsWhatConcernsASequence() {
        RunHub hub;
        hub.setLog(scriptedLog(), false);
        Playback playback(&hub);
        Selection selection;
        selection.sequence = SequenceId(3);
        hub.lock(selection);
        playback.nextRelated();
        const Cursor applied = hub.lastApplied().value();
        const Event& event =
            hub.log().step(applied.step).events[static_cast<size_t>(applied.event)];
        QVERIFY(std::holds_alternative<SequencesForked>(event));
        QVERIFY(std::get<SequencesForked>(event).child[static_cast<size_t>(applied.entry)] ==
                SequenceId(3));
    }
};

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::PlaybackTest)
#include "playback_test.moc"
