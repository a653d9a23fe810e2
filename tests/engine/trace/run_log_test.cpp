// SPDX-License-Identifier: MIT
#include "engine/trace/run_log.h"

#include <random>

#include <QTest>

#include "engine/engine.h"
#include "engine/error.h"
#include "tests/support/tiny_model.h"

using namespace kvlab;

namespace {

// A real run of about 600 steps: several keyframes, forks, copies, releases.
RunLog realLog() {
    EngineConfig config;
    config.cache.block_size = 4;
    config.cache.num_blocks = 1700;
    config.cache.kv_dtype = DataType::kF32;
    config.num_threads = 1;
    config.token_budget = 16;
    Engine engine(ModelWeights::random(tinyConfig(1, 2, 1, 4), 3, true, DataType::kF32), nullptr,
                  config);
    for (int i = 0; i < 6; ++i) {
        EngineRequest request;
        request.prompt.assign(static_cast<size_t>(5 + 3 * i), TokenId(i + 1));
        request.num_samples = 1 + i % 3;
        request.max_tokens = 540 + i;
        request.sampling.temperature = 1.f;
        engine.submit(request);
    }
    RunInfo info;
    info.cache = config.cache;
    RunLog log(info);
    while (const auto step = engine.step()) log.append(step);
    log.append(engine.releaseFinished());
    return log;
}

}  // namespace

class RunLogTest : public QObject {
    Q_OBJECT

  private slots:
    void everyCursorIsReachedForwardsAndBackwards() {
        const RunLog log = realLog();
        QVERIFY(log.numSteps() > 2 * RunLog::kKeyframeInterval);
        std::vector<Cursor> forwards;
        for (Cursor at = log.begin(); at < log.end(); at = log.nextEntry(at))
            forwards.push_back(at);
        QCOMPARE(static_cast<int64_t>(forwards.size()), log.entryIndex(log.end()));
        Cursor at = log.end();
        for (size_t i = forwards.size(); i-- > 0;) {
            at = log.previousEntry(at);
            QCOMPARE(at.step, forwards[i].step);
            QCOMPARE(at.event, forwards[i].event);
            QCOMPARE(at.entry, forwards[i].entry);
            QCOMPARE(log.entryIndex(at), static_cast<int64_t>(i));
        }
        QVERIFY(log.previousEntry(at) == log.begin());
        QVERIFY(log.nextEntry(log.end()) == log.end());
    }

    void jumpsEqualWalks() {
        const RunLog log = realLog();
        std::mt19937_64 random(9);
        CacheState walked = initialState(log.info().cache);
        Cursor at = log.begin();
        QVERIFY(log.stateAt(at) == walked);
        for (int jump = 0; jump < 300; ++jump) {
            const Cursor to = log.clamp(
                {static_cast<int64_t>(random() % static_cast<uint64_t>(log.numSteps() + 1)),
                 static_cast<int>(random() % 4), static_cast<int>(random() % 3)});
            log.advance(walked, at, to);
            at = to;
            QVERIFY(walked == log.stateAt(at));
            const std::string broken = checkInvariants(walked);
            QVERIFY2(broken.empty(), broken.c_str());
        }
        log.advance(walked, at, log.begin());
        QVERIFY(walked == initialState(log.info().cache));
        log.advance(walked, log.begin(), log.end());
        QVERIFY(walked == log.lastState());
    }

    // Hundreds of requests of 500 tokens, a few at a time: keyframes hold the few, not the
    // hundreds, and a jump back still finds the texts of those that have left.
    void keyframesDoNotGrowWithTheRun() {
        ModelConfig model = tinyConfig(1, 2, 1, 4);
        EngineConfig config;
        config.cache.block_size = 16;
        config.cache.num_blocks = 140;
        Engine engine(model, config, AccountingOptions{});
        for (int i = 0; i < 600; ++i) {
            EngineRequest request;
            request.prompt.assign(500, TokenId(i));
            request.max_tokens = 6;
            engine.submit(request);
        }
        RunInfo info;
        info.cache = engine.config().cache;
        RunLog log(info);
        std::vector<CacheState> states;  // before every 100th step
        for (;;) {
            if (log.numSteps() % 100 == 0) states.push_back(log.lastState());
            const auto step = engine.step();
            if (!step) break;
            log.append(step);
        }
        QVERIFY(log.numSteps() > 2 * RunLog::kKeyframeInterval);
        const int64_t num_keyframes = 1 + (log.numSteps() - 1) / RunLog::kKeyframeInterval;
        // At most 4 of them run: 2 KiB of text each; 600 have 20 bytes each in the queue of the
        // first.
        QVERIFY(log.keyframeBytes() < num_keyframes * 16 * 1024 + 600 * 100);
        for (size_t i = 0; i < states.size(); ++i) {
            QVERIFY(log.stateAt({static_cast<int64_t>(i) * 100, 0, 0}) == states[i]);
        }
    }

    void stepsHaveAccounts() {
        const RunLog log = realLog();
        for (int64_t step = 0; step < log.numSteps(); step += 37) {
            QVERIFY(log.accountAfter(step) == accountOf(log.stateAt({step + 1, 0, 0})));
        }
    }

    void contradictionsAreRefusedAndLeaveTheLogAsItWas() {
        RunInfo info;
        info.cache.num_blocks = 4;
        info.cache.block_size = 4;
        const auto stepOf = [](int64_t number, std::vector<Event> events) {
            auto step = std::make_shared<StepTrace>();
            step->step = number;
            step->events = std::move(events);
            return step;
        };
        const SequenceId a(0);
        const std::vector<Event> start{
            SequenceStarted{a, RequestId(0), 0, {TokenId(1), TokenId(2)}},
            BlocksAllocated{{a}, {0}, {BlockId(0)}}};
        const std::vector<std::vector<Event>> wrong{
            {BlocksAllocated{{a}, {1}, {BlockId(0)}}},                      // not free
            {BlocksAllocated{{a}, {2}, {BlockId(1)}}},                      // not at the end
            {BlocksAllocated{{a}, {1}, {BlockId(9)}}},                      // outside the pool
            {TokensWritten{{a}, {0}, {3}}},                                 // more than there are
            {TokensWritten{{a}, {1}, {1}}},                                 // out of order
            {BlocksReleased{{a}, {0}, {BlockId(1)}}},                       // not its block
            {BlocksCopied{{a}, {0}, {BlockId(0)}, {BlockId(1)}, {0}}},      // not shared
            {SequencesRemoved{{a}}},                                        // still holds a block
            {SequencesForked{{a}, {SequenceId(2)}, {1}}},                   // ids skip one
            {BlocksLeftWindow{{a}, {0}, {BlockId(0)}}},                     // the last one
            {SequencesFinished{{SequenceId(5)}, {FinishReason::kLength}}},  // never started
        };
        for (const std::vector<Event>& events : wrong) {
            RunLog log(info);
            log.append(stepOf(0, start));
            const CacheState before = log.lastState();
            QVERIFY_THROWS_EXCEPTION(EngineError, log.append(stepOf(1, events)));
            QCOMPARE(log.numSteps(), int64_t{1});
            QVERIFY(log.lastState() == before);
        }
        RunLog log(info);
        QVERIFY_THROWS_EXCEPTION(EngineError, log.append(stepOf(1, start)));
    }

    void entriesReadAsWords() {
        QCOMPARE(QString::fromStdString(ownerLetter(SequenceId(0))), QString("A"));
        QCOMPARE(QString::fromStdString(ownerLetter(SequenceId(25))), QString("Z"));
        QCOMPARE(QString::fromStdString(ownerLetter(SequenceId(26))), QString("AA"));
        QCOMPARE(
            QString::fromStdString(describeEntry(TokensWritten{{SequenceId(1)}, {2003}, {1}}, 0)),
            QString("B wrote K and V of position 2,003"));
        QCOMPARE(QString::fromStdString(describeEntry(
                     BlocksCopied{{SequenceId(1)}, {125}, {BlockId(125)}, {BlockId(126)}, {1}}, 0)),
                 QString("B copied 1 slot of shared block 125 to block 126 (copy-on-write)"));
    }
};

QTEST_GUILESS_MAIN(RunLogTest)
#include "run_log_test.moc"
