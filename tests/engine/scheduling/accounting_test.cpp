// SPDX-License-Identifier: MIT
#include <random>

#include <QTest>

#include "engine/engine.h"
#include "engine/error.h"
#include "engine/model/weights.h"
#include "tests/support/tiny_model.h"

using namespace kvlab;

namespace {

EngineConfig configOf(int num_blocks, int block_size = 4) {
    EngineConfig config;
    config.cache.block_size = block_size;
    config.cache.num_blocks = num_blocks;
    config.cache.kv_dtype = DataType::kF32;
    config.num_threads = 1;
    return config;
}

EngineRequest requestOf(int prompt_len, int num_samples, int max_tokens) {
    EngineRequest request;
    request.prompt.assign(static_cast<size_t>(prompt_len), TokenId(1));
    request.num_samples = num_samples;
    request.max_tokens = max_tokens;
    return request;
}

// Without what only a model knows.
CacheState withoutTexts(CacheState state) {
    for (SequenceState& sequence : state.sequences) {
        sequence.log_probability = 0;
        for (TokenId& token : sequence.tokens) token = TokenId(0);
    }
    return state;
}

ModelConfig llama70b() {
    ModelConfig model;
    model.name = "llama-3-70b";
    model.num_layers = 80;
    model.num_heads = 64;
    model.num_kv_heads = 8;
    model.head_dim = 128;
    return model;
}

}  // namespace

class AccountingTest : public QObject {
    Q_OBJECT

  private slots:
    // A run without a model takes, moves and releases the same blocks in the same steps as one
    // with.
    void accountsAreThoseOfARealRun() {
        const auto model = ModelWeights::random(tinyConfig(1, 2, 1, 4), 3, true, DataType::kF32);
        for (int round = 0; round < 60; ++round) {
            std::mt19937_64 random(static_cast<uint64_t>(round));
            const auto below = [&](int n) {
                return static_cast<int>(random() % static_cast<uint64_t>(n));
            };
            EngineConfig config = configOf(12 + below(20), 1 + below(5));
            config.cache.num_blocks = 40 / config.cache.block_size + 3 + below(20);
            config.cache.num_host_blocks = below(30);
            config.preempt = below(2) == 0 ? PreemptionKind::kSwap : PreemptionKind::kRecompute;
            config.token_budget = 1 + below(30);
            if (below(3) == 0) {
                config.cache.layout = CacheLayout::kSlab;
                config.cache.max_len = 36;
                config.cache.slab_per_request = below(2) == 0;
            }
            Engine real(model, nullptr, config);
            Engine accounts(model->config, config, AccountingOptions{});
            for (int i = 0; i < 6; ++i) {
                EngineRequest request = requestOf(1 + below(20), 1 + below(3), 1 + below(12));
                request.priority = below(3);
                request.ignore_eos = true;
                real.submit(request);
                accounts.submit(request);
            }
            for (;;) {
                const auto real_step = real.step();
                const auto step = accounts.step();
                QCOMPARE(step == nullptr, real_step == nullptr);
                if (!step) break;
                QVERIFY(withoutTexts(accounts.state()) == withoutTexts(real.state()));
                QCOMPARE(step->stats.attention_bytes, real_step->stats.attention_bytes);
                QCOMPARE(step->stats.attention_bytes_repeated,
                         real_step->stats.attention_bytes_repeated);
            }
            QCOMPARE(accounts.bytesMoved(), real.bytesMoved());
        }
    }

    // One request at a time: 5 prompt tokens at 10 ms each, then 1 ms a token.
    void timesFollowTheCostModel() {
        const auto clock = std::make_shared<ManualClock>();
        AccountingOptions options;
        options.clock = clock;
        options.step_ms = [](const StepShape& shape) {
            return shape.num_prefill_tokens * 10.0 + shape.num_decode_tokens * 1.0;
        };
        Engine engine(llama70b(), configOf(3, 4), options);
        engine.submit(requestOf(9, 1, 4));  // 3 blocks: the pool is full
        engine.submit(requestOf(9, 1, 3));
        while (engine.step()) {
        }
        const RequestTimings& first = engine.timings()[0];
        QCOMPARE(*first.queueMs(), 0.0);
        QCOMPARE(*first.timeToFirstTokenMs(), 90.0);
        QCOMPARE(*first.timePerTokenMs(), 1.0);
        QCOMPARE(*first.finished_ms, 93.0);
        const RequestTimings& second = engine.timings()[1];
        QCOMPARE(*second.queueMs(), 93.0);
        QCOMPARE(*second.first_token_ms, 183.0);
        QCOMPARE(*second.finished_ms, 185.0);
        QCOMPARE(second.token_gaps_ms.size(), size_t{2});
        QCOMPARE(second.num_preemptions, 0);
    }

    // A lone request of 6 + 3 tokens (8 with K/V) in slabs for 16: what each step leaves unused.
    void wasteIsNamed() {
        EngineConfig config = configOf(10, 4);
        config.cache.layout = CacheLayout::kSlab;
        config.cache.max_len = 16;
        Engine slab(llama70b(), config, AccountingOptions{});
        slab.submit(requestOf(6, 1, 3));
        while (slab.step()) {
        }
        slab.releaseFinished();
        const WasteAccount& waste = slab.waste();
        QCOMPARE(waste.num_steps, int64_t{3});
        QCOMPARE(waste.used_slots, int64_t{6 + 7 + 8});
        QCOMPARE(waste.reserved_slots, int64_t{2 + 1 + 0});
        QCOMPARE(waste.never_used_slots, int64_t{3 * 8});
        QCOMPARE(waste.tail_slots, int64_t{0});
        QCOMPARE(waste.free_slots, int64_t{3 * 24});
        QCOMPARE(
            waste.used_slots + waste.reserved_slots + waste.never_used_slots + waste.free_slots,
            waste.pool_slots);

        config.cache.layout = CacheLayout::kPaged;
        Engine paged(llama70b(), config, AccountingOptions{});
        paged.submit(requestOf(6, 1, 3));
        while (paged.step()) {
        }
        QCOMPARE(paged.waste().used_slots, int64_t{6 + 7 + 8});
        QCOMPARE(paged.waste().tail_slots, int64_t{2 + 1 + 0});
        QCOMPARE(paged.waste().never_used_slots, int64_t{0});
        QCOMPARE(paged.waste().used_slots + paged.waste().tail_slots + paged.waste().free_slots,
                 paged.waste().pool_slots);
    }

    // Runs of 4 in a pool of 10: after two, 2 blocks are free and useless to a third.
    void externalWasteIsWhatNoRunCanUse() {
        EngineConfig config = configOf(10, 1);
        config.cache.layout = CacheLayout::kSlab;
        config.cache.max_len = 4;
        Engine engine(llama70b(), config, AccountingOptions{});
        for (int i = 0; i < 3; ++i) engine.submit(requestOf(2, 1, 2));
        engine.step();
        QCOMPARE(engine.waste().external_slots, int64_t{2});
        engine.step();  // the two decode
        QCOMPARE(engine.waste().external_slots, int64_t{4});
        engine.step();  // they left, the third runs: free blocks are just free
        QCOMPARE(engine.waste().external_slots, int64_t{4});
        QCOMPARE(engine.waste().free_slots, int64_t{2 + 2 + 6});
    }

    // Slabs cut for their requests: 4, 5 and 4 of 13 blocks. The outer two leave, and 8 free blocks
    // in two pieces are useless to one that needs 6.
    void externalWasteIsAlsoWhatLiesApart() {
        EngineConfig config = configOf(13, 1);
        config.cache.layout = CacheLayout::kSlab;
        config.cache.slab_per_request = true;
        Engine engine(llama70b(), config, AccountingOptions{});
        engine.submit(requestOf(3, 1, 1));
        engine.submit(requestOf(1, 1, 4));
        engine.submit(requestOf(3, 1, 1));
        engine.submit(requestOf(5, 1, 1));
        engine.step();
        QCOMPARE(engine.waste().external_slots, int64_t{0});
        while (engine.step()) {
        }
        engine.releaseFinished();
        const WasteAccount& waste = engine.waste();
        QCOMPARE(waste.num_steps, int64_t{5});
        QCOMPARE(waste.external_slots, int64_t{3 * 8});
        QCOMPARE(waste.free_slots, int64_t{3 * 8 + 7});
        // Each holds one token less than its run at its end: the last one never gets K/V.
        QCOMPARE(waste.never_used_slots, int64_t{1 + 1 + 4 + 1});
        QCOMPARE(
            waste.used_slots + waste.reserved_slots + waste.never_used_slots + waste.free_slots,
            waste.pool_slots);
    }

    // Two samples share a prompt of 8: the second one's reads of it are reads again.
    void sharedReadsAreCounted() {
        const ModelConfig model = llama70b();
        Engine engine(model, configOf(20, 4), AccountingOptions{});
        engine.submit(requestOf(8, 2, 3));
        const int64_t token = model.kvBytesPerToken(DataType::kF32);
        const auto prompt = engine.step();
        QCOMPARE(prompt->stats.attention_bytes, 8 * token);
        QCOMPARE(prompt->stats.attention_bytes_repeated, int64_t{0});
        const auto decode = engine.step();
        QCOMPARE(decode->stats.attention_bytes, 2 * 9 * token);
        QCOMPARE(decode->stats.attention_bytes_repeated, 8 * token);
    }

    // Thousands of requests of a 70B model; every request ends, and the account balances.
    // KVLAB_SOAK multiplies them.
    void manyRequestsEnd() {
        const int factor = std::max(1, qEnvironmentVariableIntValue("KVLAB_SOAK"));
        for (const CacheLayout layout : {CacheLayout::kPaged, CacheLayout::kSlab}) {
            EngineConfig config = configOf(2000, 16);
            config.cache.layout = layout;
            config.cache.max_len = 600;
            config.keep_history = false;
            const auto clock = std::make_shared<ManualClock>();
            AccountingOptions options;
            options.clock = clock;
            options.step_ms = [](const StepShape&) { return 20.0; };
            Engine engine(llama70b(), config, options);
            std::mt19937_64 random(4);
            for (int i = 0; i < 3000 * factor; ++i) {
                engine.submit(requestOf(1 + static_cast<int>(random() % 400), 1,
                                        1 + static_cast<int>(random() % 200)));
            }
            while (engine.step()) {
            }
            engine.releaseFinished();
            QCOMPARE(engine.account().free_blocks, int64_t{2000});
            QVERIFY(engine.state().sequences.empty());
            for (const RequestTimings& times : engine.timings()) {
                QVERIFY(times.finished_ms && times.finish == FinishReason::kLength);
            }
            const WasteAccount& waste = engine.waste();
            QCOMPARE(waste.used_slots + waste.reserved_slots + waste.never_used_slots +
                         waste.tail_slots + waste.free_slots,
                     waste.pool_slots);
            QVERIFY(waste.max_running > 50 || layout == CacheLayout::kSlab);
        }
    }
};

QTEST_GUILESS_MAIN(AccountingTest)
#include "accounting_test.moc"
