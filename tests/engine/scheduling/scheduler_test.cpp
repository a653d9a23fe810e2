// SPDX-License-Identifier: MIT
#include "engine/scheduling/scheduler.h"

#include <QTest>

#include "engine/engine.h"
#include "engine/error.h"

using namespace kvlab;

namespace {

EngineConfig configOf(int num_blocks, int block_size) {
    EngineConfig config;
    config.cache.block_size = block_size;
    config.cache.num_blocks = num_blocks;
    config.cache.kv_dtype = DataType::kF32;
    return config;
}

EngineRequest requestOf(int prompt_len, int max_tokens, int priority = 0) {
    EngineRequest request;
    request.prompt.assign(static_cast<size_t>(prompt_len), TokenId(1));
    request.max_tokens = max_tokens;
    request.priority = priority;
    return request;
}

ModelConfig modelOf() {
    ModelConfig model;
    model.num_layers = model.num_heads = model.num_kv_heads = model.head_dim = 1;
    return model;
}

struct Told {
    DecisionKind kind;
    DecisionReason reason;
    int request;
    int64_t needed, free;
    bool operator==(const Told&) const = default;
};

std::vector<Told> toldIn(const StepTrace& step) {
    std::vector<Told> all;
    for (const Event& event : step.events) {
        const auto* made = std::get_if<DecisionsMade>(&event);
        for (size_t i = 0; made && i < made->kind.size(); ++i) {
            all.push_back({made->kind[i], made->reason[i], made->request[i].value,
                           made->blocks_needed[i], made->blocks_free[i]});
        }
    }
    return all;
}

}  // namespace

class SchedulerTest : public QObject {
    Q_OBJECT

  private slots:
    // Blocks of 4, pool of 10, 20 % kept free.
    void everyDecisionIsToldOnceWithItsNumbers() {
        EngineConfig config = configOf(10, 4);
        config.watermark = 0.2;
        Engine engine(modelOf(), config, AccountingOptions{});
        QVERIFY_THROWS_EXCEPTION(EngineError, engine.submit(requestOf(40, 2)));
        engine.submit(requestOf(20, 5));  // request 1: 5 blocks, 6 at the end
        engine.submit(requestOf(13, 9));  // 4 blocks, of which 5 - 2 are to be had
        engine.submit(requestOf(1, 1));   // nobody overtakes the head
        const auto first = toldIn(*engine.step());
        const std::vector<Told> expected{
            {DecisionKind::kRefused, DecisionReason::kLargerThanPool, 0, 11, 10},
            {DecisionKind::kAdmitted, DecisionReason::kFits, 1, 5, 10},
            {DecisionKind::kWaiting, DecisionReason::kNoFreeBlocks, 2, 4, 5}};
        QVERIFY(first == expected);
        QVERIFY(engine.timings()[0].refused);
        for (int i = 0; i < 4; ++i) QVERIFY(toldIn(*engine.step()).empty());
        const auto then = toldIn(*engine.step());
        QVERIFY(then.size() == 2 && then[0].kind == DecisionKind::kAdmitted &&
                then[0].request == 2 && then[1].request == 3);
    }

    void theTokenBudgetCutsPromptsAfterDecodeRows() {
        EngineConfig config = configOf(100, 4);
        config.token_budget = 8;
        Engine engine(modelOf(), config, AccountingOptions{});
        engine.submit(requestOf(3, 10));
        engine.submit(requestOf(20, 2));
        const auto first = engine.step();
        QCOMPARE(first->stats.num_prefill_tokens, 8);  // 3 + 5
        const auto second = engine.step();
        QCOMPARE(second->stats.num_decode_tokens, 1);
        QCOMPARE(second->stats.num_prefill_tokens, 7);
        QCOMPARE(engine.account().active_blocks, int64_t{1 + 3});  // block by block
    }

    void higherPriorityGoesFirstAndTakesBlocks() {
        Engine engine(modelOf(), configOf(6, 4), AccountingOptions{});
        engine.submit(requestOf(9, 8));  // 3 blocks
        engine.submit(requestOf(9, 8));  // 3 blocks: the pool is full
        engine.step();
        engine.submit(requestOf(8, 2, 0));
        engine.submit(requestOf(8, 2, 5));
        const auto told = toldIn(*engine.step());
        // The later of the two gives way, not the earlier; the other new one still waits.
        QVERIFY(told.size() >= 2);
        QVERIFY(told[0].kind == DecisionKind::kPreempted &&
                told[0].reason == DecisionReason::kHigherPriority && told[0].request == 1);
        QVERIFY(told[1].kind == DecisionKind::kAdmitted && told[1].request == 3);
        while (engine.step()) {
        }
        const auto& times = engine.timings();
        QVERIFY(times[1].num_preemptions >= 1);
        QCOMPARE(times[0].num_preemptions, 0);
        for (const RequestTimings& each : times) QVERIFY(each.finished_ms.has_value());
    }

    void cancelsReachEveryPlace() {
        EngineConfig config = configOf(6, 4);
        config.cache.num_host_blocks = 10;
        config.preempt = PreemptionKind::kSwap;
        Engine engine(modelOf(), config, AccountingOptions{});
        engine.submit(requestOf(9, 12));
        engine.submit(requestOf(9, 12));
        engine.submit(requestOf(9, 12));
        while (engine.numPreemptions() == 0) engine.step();
        QVERIFY(engine.account().host_used_blocks > 0);
        engine.cancel(RequestId(1));  // swapped out
        engine.cancel(RequestId(2));  // never started
        engine.cancel(RequestId(7));  // never was
        engine.step();
        QVERIFY(engine.state().sequences[1].finish == FinishReason::kCancelled);
        QVERIFY(engine.state().waiting.empty());
        engine.step();
        QCOMPARE(engine.account().host_used_blocks, int64_t{0});
        while (engine.step()) {
        }
        QVERIFY(engine.timings()[0].finish == FinishReason::kLength);
        QVERIFY(engine.timings()[2].finish == FinishReason::kCancelled);
        QCOMPARE(engine.state().sequences.size(), size_t{2});
    }

    void aSlabRefusesWhatIsLongerThanIt() {
        EngineConfig config = configOf(10, 4);
        config.cache.layout = CacheLayout::kSlab;
        config.cache.max_len = 16;
        Engine engine(modelOf(), config, AccountingOptions{});
        try {
            engine.submit(requestOf(12, 5));
            QFAIL("it should have been refused");
        } catch (const EngineError& error) {
            QVERIFY(QString(error.what()).contains("12 and 5 tokens to generate make 17"));
        }
        config.cache.max_len = 41;
        QVERIFY_THROWS_EXCEPTION(EngineError, Engine(modelOf(), config, AccountingOptions{}));
        config.cache.max_len = 0;
        QVERIFY_THROWS_EXCEPTION(EngineError, Engine(modelOf(), config, AccountingOptions{}));
    }
};

QTEST_GUILESS_MAIN(SchedulerTest)
#include "scheduler_test.moc"
