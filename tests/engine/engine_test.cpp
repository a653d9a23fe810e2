// SPDX-License-Identifier: MIT
#include "engine/engine.h"

#include <cstring>
#include <map>
#include <random>

#include <QTest>

#include "engine/error.h"
#include "engine/trace/run_log.h"
#include "tests/support/tiny_model.h"

using namespace kvlab;

namespace {

EngineConfig configOf(int block_size, int num_blocks, DataType kv_dtype = DataType::kF32) {
    EngineConfig config;
    config.cache.block_size = block_size;
    config.cache.num_blocks = num_blocks;
    config.cache.kv_dtype = kv_dtype;
    config.num_threads = 1;
    return config;
}

EngineRequest requestOf(int prompt_len, int num_samples, int max_tokens, uint64_t seed) {
    std::mt19937_64 random(seed);
    EngineRequest request;
    for (int i = 0; i < prompt_len; ++i)
        request.prompt.push_back(TokenId(static_cast<int>(random() % 61)));
    request.num_samples = num_samples;
    request.max_tokens = max_tokens;
    request.sampling.temperature = 1.f;
    request.sampling.seed = seed;
    return request;
}

// Logits by (sequence, position), and the tokens of each sequence.
struct Recorded {
    std::map<std::pair<int, int>, std::vector<float>> logits;
    CacheState last;
};

// Plays all requests, folding the log beside the engine and checking both after each step.
Recorded play(const std::shared_ptr<const ModelWeights>& model,
              const EngineConfig& config,
              const std::vector<EngineRequest>& requests) {
    Engine engine(model, nullptr, config);
    Recorded recorded;
    engine.setLogitsObserver(
        [&](SequenceId sequence, int position, const float* row, int vocab_size) {
            recorded.logits[{sequence.value, position}].assign(row, row + vocab_size);
        });
    for (const EngineRequest& request : requests) engine.submit(request);
    CacheState folded = initialState(engine.config().cache);
    while (const std::shared_ptr<const StepTrace> step = engine.step()) {
        for (const Event& event : step->events) apply(folded, event);
        recorded.last = engine.state();
        if (!(folded == recorded.last)) qFatal("the folded log differs from the engine's state");
        const std::string broken = checkInvariants(folded);
        if (!broken.empty()) qFatal("%s", broken.c_str());
    }
    return recorded;
}

// Sequences of a request in `state`, by sample index.
std::vector<const SequenceState*> samplesOf(const CacheState& state, int request) {
    std::vector<const SequenceState*> samples;
    for (const SequenceState& sequence : state.sequences) {
        if (sequence.request == RequestId(request)) samples.push_back(&sequence);
    }
    return samples;
}

bool sameBits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

class EngineTest : public QObject {
    Q_OBJECT

  private slots:
    // A request's logits alone equal, bit for bit, its logits in any company, with any block size,
    // thread count, chunking and KV type of its own.
    void logitsDoNotDependOnTheBatch() {
        const auto model = tinyModel();
        std::mt19937_64 random(5);
        const auto below = [&](int n) {
            return static_cast<int>(random() % static_cast<uint64_t>(n));
        };
        for (const DataType kv_dtype : kKvDataTypes) {
            const std::vector<EngineRequest> mix{requestOf(37, 3, 9, 11), requestOf(1, 1, 14, 12),
                                                 requestOf(64, 2, 5, 13), requestOf(90, 1, 12, 14)};
            std::vector<Recorded> alone;
            for (const EngineRequest& request : mix) {
                alone.push_back(play(model, configOf(16, 200, kv_dtype), {request}));
            }
            for (int round = 0; round < 12; ++round) {
                const int block_sizes[] = {1, 2, 5, 16, 33, 256};
                EngineConfig config = configOf(block_sizes[round % 6], 0, kv_dtype);
                config.cache.num_blocks = 1200 / config.cache.block_size + 30;
                config.num_threads = 1 + below(3);
                config.token_budget = round % 3 == 0 ? 1 + below(8) : 8 + below(200);
                std::vector<size_t> order{0, 1, 2, 3};
                std::shuffle(order.begin(), order.end(), random);
                std::vector<EngineRequest> shuffled;
                for (const size_t i : order) shuffled.push_back(mix[i]);
                const Recorded together = play(model, config, shuffled);
                for (size_t place = 0; place < order.size(); ++place) {
                    const Recorded& single = alone[order[place]];
                    const auto here = samplesOf(together.last, static_cast<int>(place));
                    const auto there = samplesOf(single.last, 0);
                    QCOMPARE(here.size(), there.size());
                    for (size_t sample = 0; sample < here.size(); ++sample) {
                        QCOMPARE(here[sample]->tokens, there[sample]->tokens);
                        for (const auto& [key, logits] : single.logits) {
                            if (key.first != there[sample]->id.value) continue;
                            const auto found =
                                together.logits.find({here[sample]->id.value, key.second});
                            QVERIFY(found != together.logits.end());
                            QVERIFY(sameBits(found->second, logits));
                        }
                    }
                }
            }
        }
    }

    // 2,000 + 8 · 100 tokens in 125 + 8 · 7 blocks: the text's best-of-8, on a model of 4,000
    // parameters.
    void bestOf8HoldsTheTextsTokens() {
        const auto model = ModelWeights::random(tinyConfig(1, 2, 1, 4), 3, true, DataType::kF32);
        for (const int prompt_len : {2000, 2001}) {
            const Recorded run =
                play(model, configOf(16, 181, DataType::kF16), {requestOf(prompt_len, 8, 101, 1)});
            const PoolAccount account = accountOf(run.last);
            QCOMPARE(account.blocks_unshared, int64_t{1056});
            QCOMPARE(account.active_blocks, int64_t{181});
            QCOMPARE(account.tokens_unshared, int64_t{8} * (prompt_len + 100));
            QCOMPARE(account.copy_on_write, int64_t{prompt_len == 2001 ? 7 : 0});
            QCOMPARE(account.slots_allocated, int64_t{2896});
            if (prompt_len == 2000) {
                QCOMPARE(account.tokens_held, int64_t{2800});
                QCOMPARE(account.slots_unused, int64_t{96});
                QCOMPARE(account.shared_blocks, int64_t{125});
            }
        }
    }

    void aSampledTokenHasNoKvUntilItIsFedBack() {
        Engine engine(tinyModel(), nullptr, configOf(4, 10));
        engine.submit(requestOf(5, 1, 2, 1));
        engine.step();
        QCOMPARE(engine.account().tokens_held, int64_t{5});
        QCOMPARE(engine.state().sequences[0].tokens.size(), size_t{6});
        engine.step();
        QCOMPARE(engine.account().tokens_held, int64_t{6});
        QVERIFY(engine.step() == nullptr);
        QVERIFY(engine.releaseFinished() != nullptr);
        QCOMPARE(engine.account().free_blocks, int64_t{10});
        QVERIFY(engine.releaseFinished() == nullptr);
        QCOMPARE(engine.blocksPeak(), int64_t{2});
    }

    // Prompts of 2 blocks of 4 in a pool of 5: two enter, the third waits; when the two have grown
    // to 3 blocks each, the later one gives way.
    void requestsEnterByTheirPromptAndGiveWay() {
        Engine engine(tinyModel(), nullptr, configOf(4, 5));
        for (int i = 0; i < 4; ++i) engine.submit(requestOf(6, 1, 7, static_cast<uint64_t>(i)));
        engine.step();
        QCOMPARE(engine.state().sequences.size(), size_t{2});
        QCOMPARE(engine.state().waiting.size(), size_t{2});
        while (engine.step() != nullptr) {
        }
        QVERIFY(engine.numPreemptions() > 0);
        QCOMPARE(engine.state().sequences.size(), size_t{4});
        for (const SequenceState& sequence : engine.state().sequences) {
            QCOMPARE(sequence.tokens.size(), size_t{13});
        }
    }

    void anImpossibleRequestIsRefusedWithItsArithmetic() {
        Engine engine(tinyModel(), nullptr, configOf(16, 4));
        try {
            engine.submit(requestOf(60, 1, 20, 1));
            QFAIL("it should have been refused");
        } catch (const EngineError& error) {
            QVERIFY(error.kind() == ErrorKind::kBadArgument);
            QVERIFY(QString(error.what()).contains("needs 5 blocks of 16 tokens, the pool has 4"));
        }
        QVERIFY_THROWS_EXCEPTION(EngineError, engine.submit(EngineRequest{}));
        EngineRequest bad = requestOf(3, 1, 1, 1);
        bad.prompt[1] = TokenId(61);
        QVERIFY_THROWS_EXCEPTION(EngineError, engine.submit(bad));
        bad = requestOf(3, 0, 1, 1);
        QVERIFY_THROWS_EXCEPTION(EngineError, engine.submit(bad));
        QVERIFY_THROWS_EXCEPTION(EngineError, Engine(tinyModel(), nullptr, configOf(0, 4)));
        QVERIFY_THROWS_EXCEPTION(EngineError, Engine(tinyModel(), nullptr, configOf(16, 0)));
    }

    void cancelEndsARequestAndTheOthersGoOn() {
        Engine engine(tinyModel(), nullptr, configOf(4, 100));
        const RequestId first = engine.submit(requestOf(6, 3, 50, 1));
        engine.submit(requestOf(6, 1, 10, 2));
        for (int i = 0; i < 4; ++i) engine.step();
        engine.cancel(first);
        engine.step();
        QVERIFY(engine.state().sequences[0].finish == FinishReason::kCancelled);
        while (engine.step() != nullptr) {
        }
        for (const SequenceState& sequence : engine.state().sequences) {
            if (sequence.request == first) {
                QVERIFY(sequence.finish == FinishReason::kCancelled);
                QVERIFY(sequence.removed);
            } else {
                QCOMPARE(sequence.tokens.size(), size_t{16});
            }
        }
    }

    void aWaitingRequestCanBeCancelled() {
        Engine engine(tinyModel(), nullptr, configOf(4, 4));
        engine.submit(requestOf(10, 1, 4, 1));
        const RequestId second = engine.submit(requestOf(10, 1, 4, 2));
        engine.step();
        engine.cancel(second);
        while (engine.step() != nullptr) {
        }
        QCOMPARE(engine.state().sequences.size(), size_t{1});
    }

    void forcedTokensAreTakenAsGiven() {
        Engine engine(tinyModel(), nullptr, configOf(4, 10));
        EngineRequest request = requestOf(1, 1, 1, 1);
        request.forced = {TokenId(5), TokenId(6), TokenId(7)};
        int rows = 0;
        engine.setLogitsObserver(
            [&](SequenceId, int position, const float*, int) { QCOMPARE(position, rows++); });
        engine.submit(request);
        while (engine.step() != nullptr) {
        }
        QCOMPARE(rows, 3);
        const std::vector<TokenId> tokens = engine.state().sequences[0].tokens;
        QCOMPARE(std::vector<TokenId>(tokens.begin() + 1, tokens.end()), request.forced);
    }
};

QTEST_GUILESS_MAIN(EngineTest)
#include "engine_test.moc"
