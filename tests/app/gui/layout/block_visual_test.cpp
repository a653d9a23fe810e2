// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/layout/block_visual.h"

#include <QTest>

#include "tests/support/log_builder.h"

namespace kvlab {

class BlockVisualTest : public QObject {
    Q_OBJECT

  private slots:
    void looksOfBestOfEight();
    void lettersAreAbbreviated();
    void descriptionNamesEverything();
    void lastEntryIsMarked();
    void copyOnWriteIsToldInTwoMoments();
};

void BlockVisualTest::looksOfBestOfEight() {
    const auto log = scriptedLog();
    const std::vector<BlockVisual> visuals = blockVisuals(log->lastState());
    QCOMPARE(visuals.size(), size_t{286});
    const auto count = [&](BlockLook look) {
        return std::count_if(visuals.begin(), visuals.end(),
                             [look](const BlockVisual& v) { return v.look == look; });
    };
    QCOMPARE(count(BlockLook::kShared), 125);
    QCOMPARE(count(BlockLook::kPrivate), 56);
    QCOMPARE(count(BlockLook::kFree), 105);
    QCOMPARE(visuals[37].ref_count, 8);
    QCOMPARE(visuals[37].block_idx, 37);
    QCOMPARE(visuals[37].num_owners, 3);
    // The last eight are the partial tails of A … H.
    QCOMPARE(visuals[173].look, BlockLook::kPrivate);
    QCOMPARE(visuals[173].owners[0], 0);
    QCOMPARE(visuals[180].owners[0], 7);
    QCOMPARE(visuals[180].num_filled, 4);
    QCOMPARE(visuals[181].look, BlockLook::kFree);
}

void BlockVisualTest::lettersAreAbbreviated() {
    const auto ids = [](std::initializer_list<int> values) {
        std::vector<SequenceId> sequences;
        for (const int value : values) sequences.emplace_back(value);
        return sequences;
    };
    QCOMPARE(ownerLetters(ids({})), QStringLiteral("–"));
    QCOMPARE(ownerLetters(ids({0, 1, 2})), QStringLiteral("A B C"));
    QCOMPARE(ownerLetters(ids({0, 1, 2, 3, 4, 5, 6, 7})), QStringLiteral("A…H"));
    QCOMPARE(ownerLetters(ids({0, 2, 4, 6, 8})), QStringLiteral("A C E +2"));
}

void BlockVisualTest::descriptionNamesEverything() {
    const auto log = scriptedLog();
    const CacheState& state = log->lastState();
    QCOMPARE(describeBlock(state, BlockId(37)),
             QStringLiteral("block 37 · refs 8: A…H · 16/16 · logical 37"));
    QCOMPARE(describeBlock(state, BlockId(180)),
             QStringLiteral("block 180 · refs 1: H · 4/16 · 12 empty · logical 131"));
    QCOMPARE(describeBlock(state, BlockId(181)),
             QStringLiteral("block 181 · free · place 0 in the free queue"));
    QCOMPARE(describeBlock(state, BlockId(5000)), QString());
}

void BlockVisualTest::lastEntryIsMarked() {
    const auto log = scriptedLog();
    // The first decode step: 8 allocations, then 8 writes; the second of those.
    const Cursor entry{4, 1, 1};
    const CacheState state = log->stateAt(log->nextEntry(entry));
    std::vector<BlockVisual> visuals = blockVisuals(state);
    markWritten(visuals, state, *log, entry, 4);
    const auto marked = std::count_if(visuals.begin(), visuals.end(),
                                      [](const BlockVisual& v) { return v.being_written; });
    QCOMPARE(marked, 1);
    QVERIFY(visuals[126].being_written);
    QCOMPARE(visuals[126].written_begin, 0);
    QCOMPARE(visuals[126].written_end, 1);

    // After a jump: everything the step wrote, but no ring.
    const CacheState after = log->stateAt({5, 0, 0});
    visuals = blockVisuals(after);
    markWritten(visuals, after, *log, std::nullopt, 4);
    QCOMPARE(std::count_if(visuals.begin(), visuals.end(),
                           [](const BlockVisual& v) { return v.written_end > 0; }),
             8);
    QVERIFY(std::none_of(visuals.begin(), visuals.end(),
                         [](const BlockVisual& v) { return v.being_written; }));
}

void BlockVisualTest::copyOnWriteIsToldInTwoMoments() {
    LogScript script;
    script.prompt_len = 2001;
    const auto log = scriptedLog(script);
    const Cursor first_copy{4, 0, 0};
    const Cursor second_copy{4, 0, 1};

    const CacheState before = log->stateAt(second_copy);
    Moment moment = momentOf(*log, before, second_copy, std::nullopt);
    QCOMPARE(moment.kind, Moment::Kind::kCopyRefused);
    QCOMPARE(moment.words, QStringLiteral("B wants to write block 125: refs 7, may not write"));

    moment = momentOf(*log, before, second_copy, first_copy);
    QCOMPARE(moment.kind, Moment::Kind::kCopied);
    QCOMPARE(moment.source, BlockId(125));
    QCOMPARE(moment.target, BlockId(126));
    QCOMPARE(moment.num_slots, 1);
    QCOMPARE(moment.words,
             QStringLiteral("A copied 1 slot of block 125 to block 126 · 2 KiB · refs ×8 → ×7"));

    // At rest between steps nothing is announced.
    QCOMPARE(momentOf(*log, log->stateAt(first_copy), first_copy, std::nullopt).kind,
             Moment::Kind::kNone);
}

}  // namespace kvlab

QTEST_APPLESS_MAIN(kvlab::BlockVisualTest)
#include "block_visual_test.moc"
