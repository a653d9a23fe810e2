// SPDX-License-Identifier: GPL-3.0-or-later
#include <QAbstractItemModelTester>
#include <QSignalSpy>
#include <QtTest>

#include "app/gui/models/block_pool_model.h"
#include "app/gui/models/block_table_model.h"
#include "app/gui/models/kernel_walk_model.h"
#include "app/gui/models/sequence_list_model.h"
#include "app/gui/models/step_list_model.h"
#include "app/gui/provenance.h"
#include "tests/support/log_builder.h"
#include "tests/support/walk_builder.h"

namespace kvlab {

// Every model under the model tester while the hub moves, grows, selects and changes its log.
class ModelsTest : public QObject {
    Q_OBJECT

    static QString text(const QAbstractItemModel& model, int row, int column) {
        return model.index(row, column).data().toString();
    }

    // Request 0 starts in the first step; 1 waits and is withdrawn in the second, 2 is refused
    // there, 3 arrives and waits.
    static std::shared_ptr<RunLog> queueLog() {
        const auto decide = [](DecisionKind kind, DecisionReason reason, int request,
                               int64_t needed, int64_t free) {
            return DecisionsMade{
                {kind}, {reason}, {RequestId(request)}, {SequenceId()}, {needed}, {free}, {0}, {0},
                {0},    {0},      {RequestId()}};
        };
        const LogScript script{.prompt_len = 40, .num_samples = 1, .num_blocks = 20};
        auto log = std::make_shared<RunLog>(scriptedInfo(script));
        StepTrace first;
        first.events = {
            RequestsArrived{{RequestId(0), RequestId(1)}, {0, 0}, {2, 33}, {1, 1}, {4, 4}},
            SequenceStarted{SequenceId(0), RequestId(0), 0, {TokenId(1), TokenId(2)}},
            decide(DecisionKind::kWaiting, DecisionReason::kNoFreeBlocks, 1, 3, 2)};
        log->append(std::make_shared<const StepTrace>(first));
        StepTrace second;
        second.step = 1;
        second.events = {
            RequestsArrived{{RequestId(2), RequestId(3)}, {0, 0}, {999, 5}, {1, 1}, {4, 4}},
            decide(DecisionKind::kRefused, DecisionReason::kLargerThanPool, 2, 63, 20),
            RequestsWithdrawn{{RequestId(1), RequestId(2)}}};
        log->append(std::make_shared<const StepTrace>(second));
        return log;
    }

    static void exercise(RunHub& hub) {
        const LogScript script{.prompt_len = 2001, .release = true};
        const auto steps = scriptedSteps(script);
        hub.setLog(std::make_shared<RunLog>(scriptedInfo(script)), true);
        hub.setFollowing(true);
        for (size_t i = 0; i < steps.size(); i += 7) {
            hub.appendSteps({steps.data() + i, std::min<size_t>(7, steps.size() - i)});
        }
        hub.setLive(false);
        for (int64_t s = 0; s < 7; ++s) {
            hub.setCursor({s, 0, 0});
        }
        for (int i = 0; i < 150; ++i) {
            hub.setCursor(hub.log().nextEntry(hub.cursor()));
        }
        Selection selection;
        for (int s = 0; s < 8; ++s) {
            selection.sequence = SequenceId(s);
            hub.lock(selection);
        }
        hub.setCursor(hub.log().begin());
        hub.setCursor(hub.log().end());
        for (int i = 0; i < 150; ++i) {
            hub.setCursor(hub.log().previousEntry(hub.cursor()));
        }
        hub.setLog(
            scriptedLog(
                {.prompt_len = 40, .num_samples = 2, .num_decode_steps = 3, .num_blocks = 20}),
            false);
        hub.setCursor(hub.log().end());
        auto walks = std::make_shared<KernelWalks>();
        walks->add(*hub.currentStep(), {walkOf(hub.state(), 0)});
        hub.setWalks(walks);
        hub.setCursor(hub.log().begin());
        hub.setCursor(hub.log().end());
        hub.setLog(queueLog(), false);
        for (int64_t s = 0; s <= hub.log().numSteps(); ++s) hub.setCursor({s, 0, 0});
        hub.setWalks(nullptr);
        hub.setLog(windowedLog(), false);
        for (int64_t s = 0; s <= hub.log().numSteps(); ++s) hub.setCursor({s, 0, 0});
        hub.setLog(nullptr, false);
    }

  private slots:
    void passTheModelTester_data() {
        QTest::addColumn<int>("which");
        QTest::newRow("block pool") << 0;
        QTest::newRow("block table") << 1;
        QTest::newRow("sequences") << 2;
        QTest::newRow("steps") << 3;
        QTest::newRow("kernel walk") << 4;
    }
    void passTheModelTester() {
        QFETCH(int, which);
        RunHub hub;
        std::unique_ptr<QAbstractItemModel> model;
        switch (which) {
            case 0:
                model = std::make_unique<BlockPoolModel>(&hub);
                break;
            case 1:
                model = std::make_unique<BlockTableModel>(&hub);
                break;
            case 2:
                model = std::make_unique<SequenceListModel>(&hub);
                break;
            case 4:
                model = std::make_unique<KernelWalkModel>(&hub);
                break;
            default:
                model = std::make_unique<StepListModel>(&hub);
        }
        QAbstractItemModelTester tester(model.get(),
                                        QAbstractItemModelTester::FailureReportingMode::QtTest);
        exercise(hub);
    }

    void poolTellsSharedBlocks() {
        RunHub hub;
        hub.setLog(scriptedLog(), false);
        BlockPoolModel model(&hub);
        QCOMPARE(text(model, 37, BlockPoolModel::kState), QString("free"));
        hub.setCursor(hub.log().end());
        QCOMPARE(model.rowCount(), 286);
        QCOMPARE(text(model, 37, BlockPoolModel::kState), QString("shared"));
        QCOMPARE(text(model, 37, BlockPoolModel::kRefCount), QString("8"));
        QCOMPARE(text(model, 37, BlockPoolModel::kOwners), QString("A B C D E F G H"));
        QCOMPARE(text(model, 37, BlockPoolModel::kFilled), QString("16 of 16"));
    }

    void tableFollowsTheSelectedSequence() {
        RunHub hub;
        hub.setLog(scriptedLog(), false);
        hub.setCursor(hub.log().end());
        BlockTableModel model(&hub);
        QSignalSpy changed(&model, &BlockTableModel::sequenceChanged);
        QCOMPARE(model.rowCount(), 132);
        Selection selection;
        selection.sequence = SequenceId(7);
        hub.lock(selection);
        QCOMPARE(changed.count(), 1);
        QCOMPARE(text(model, 37, BlockTableModel::kBlock), QString("37"));
        QCOMPARE(text(model, 131, BlockTableModel::kFilled), QString("4 of 16"));
        QCOMPARE(text(model, 131, BlockTableModel::kPositions), QString("2,096 to 2,111"));
        hub.lock({});
        QCOMPARE(model.sequence().value, 7);
    }

    void entriesThatLeftTheWindowSaySo() {
        RunHub hub;
        hub.setLog(windowedLog(), false);
        hub.setCursor(hub.log().end());
        BlockTableModel model(&hub);
        QCOMPARE(model.rowCount(), 9);
        for (const int row : {0, 5}) {
            QCOMPARE(text(model, row, BlockTableModel::kBlock), QString("left the window"));
            QCOMPARE(text(model, row, BlockTableModel::kRefCount), noData());
            QCOMPARE(text(model, row, BlockTableModel::kFilled), noData());
            QVERIFY(!model.blockAt(row).valid());
        }
        QVERIFY(model.blockAt(6).valid());
        QCOMPARE(text(model, 6, BlockTableModel::kFilled), QString("16 of 16"));
        SequenceListModel sequences(&hub);
        QCOMPARE(text(sequences, 0, SequenceListModel::kBlocks), QString("3"));
    }

    void requestsThatNeverStartedSayWhy() {
        RunHub hub;
        hub.setLog(queueLog(), false);
        SequenceListModel model(&hub);
        QCOMPARE(model.rowCount(), 0);
        hub.setCursor({1, 0, 0});
        QCOMPARE(model.rowCount(), 2);
        QCOMPARE(text(model, 0, SequenceListModel::kSequence), QString("A"));
        QCOMPARE(model.sequenceAt(0), SequenceId(0));
        QCOMPARE(text(model, 1, SequenceListModel::kSequence), QString("request 1"));
        QCOMPARE(text(model, 1, SequenceListModel::kState),
                 QString("waiting: it needs 3 blocks, 2 are free"));
        QCOMPARE(text(model, 1, SequenceListModel::kTokens), QString("33"));
        QCOMPARE(text(model, 1, SequenceListModel::kBlocks), noData());
        QVERIFY(!model.sequenceAt(1).valid());
        hub.setCursor(hub.log().end());
        QCOMPARE(model.rowCount(), 4);
        QCOMPARE(text(model, 1, SequenceListModel::kState),
                 QString("cancelled before it started; it waited: it needs 3 blocks, 2 are free"));
        QCOMPARE(text(model, 2, SequenceListModel::kState),
                 QString("refused: it needs 63 blocks, the pool has 20"));
        QCOMPARE(text(model, 3, SequenceListModel::kState), QString("waiting, not yet started"));
        // And back: what is told lies before the cursor.
        hub.setCursor({0, 1, 0});
        QCOMPARE(model.rowCount(), 2);
        QCOMPARE(text(model, 0, SequenceListModel::kState), QString("waiting, not yet started"));
        hub.setLog(scriptedLog(), false);
        QCOMPARE(model.rowCount(), 0);
    }

    void theWalksTableSaysWhatEachThreadBlockRead() {
        RunHub hub;
        hub.setLog(
            scriptedLog(
                {.prompt_len = 97, .num_samples = 4, .num_decode_steps = 6, .num_blocks = 60}),
            false);
        hub.setCursor(hub.log().end());
        KernelWalkModel model(&hub);
        QCOMPARE(model.rowCount(), 0);
        auto walks = std::make_shared<KernelWalks>();
        auto walk = std::make_shared<KernelWalk>(*walkOf(hub.state(), 0));
        walk->attention.launches[0].thread_blocks[15].runs[0].reads.clear();
        walks->add(*hub.currentStep(), {walkOf(hub.state(), 0), walk});
        hub.setWalks(walks);
        // Two KV heads read every entry of every table.
        int entries = 0;
        for (const SequenceState& s : hub.state().sequences) {
            entries += 2 * static_cast<int>(s.table.size());
        }
        QCOMPARE(model.rowCount(), entries);
        const auto& table = hub.state().sequences[0].table;
        QCOMPARE(text(model, 1, KernelWalkModel::kKernel), QString("pagedAttentionKernel"));
        QCOMPARE(text(model, 1, KernelWalkModel::kThreadBlock), QString("(0, 0, 0)"));
        QCOMPARE(text(model, 1, KernelWalkModel::kSequence), QString("A"));
        QCOMPARE(text(model, 1, KernelWalkModel::kEntry), QString("1"));
        QCOMPARE(text(model, 1, KernelWalkModel::kKvBlock), QString::number(table[1].value));
        QCOMPARE(text(model, 1, KernelWalkModel::kPositions), QString("16 to 31"));
        QCOMPARE(model.selectionAt(1).block, std::optional(table[1]));
        QCOMPARE(model.selectionAt(1).sequence, std::optional(SequenceId(0)));
        model.setLayer(1);
        const int last = model.rowCount() - 1;
        QVERIFY(model.rowCount() < entries);
        QCOMPARE(text(model, last, KernelWalkModel::kThreadBlock), QString("(3, 1, 1)"));
        QCOMPARE(text(model, last, KernelWalkModel::kEntry), QString("none read"));
        QVERIFY(!model.selectionAt(last).block);
        hub.setCursor(hub.log().begin());
        QCOMPARE(model.rowCount(), 0);
    }

    void inactiveModelsFollowNothingAndCatchUp() {
        RunHub hub;
        hub.setLog(scriptedLog(), false);
        SequenceListModel model(&hub);
        model.setActive(false);
        hub.setCursor(hub.log().end());
        QCOMPARE(model.rowCount(), 0);
        model.setActive(true);
        QCOMPARE(model.rowCount(), 8);
        QCOMPARE(text(model, 0, SequenceListModel::kCached), QString("2,100"));
        QCOMPARE(text(model, 0, SequenceListModel::kTokens), QString("2,101"));
    }

    void everyRowFindsItsEntry() {
        RunHub hub;
        hub.setLog(scriptedLog(), false);
        StepListModel model(&hub);
        Cursor at = hub.log().begin();
        for (int row = 0; row < model.rowCount(); ++row) {
            QVERIFY(model.cursorOf(row) == at);
            QVERIFY(!text(model, row, StepListModel::kText).isEmpty());
            at = hub.log().nextEntry(at);
            hub.setCursor(at);
            QCOMPARE(model.currentRow(), row);
        }
        QVERIFY(at == hub.log().end());
    }
};

}  // namespace kvlab

QTEST_MAIN(kvlab::ModelsTest)
#include "models_test.moc"
