// SPDX-License-Identifier: MIT
#include "app/cli/bench/bench_math.h"

#include <QTest>

#include "engine/error.h"

namespace kvlab {

class BenchMathTest : public QObject {
    Q_OBJECT

  private slots:
    void medianStandsInTheMiddle() {
        QCOMPARE(median({3}), 3.0);
        QCOMPARE(median({9, 1, 5}), 5.0);
        QCOMPARE(median({4, 100, 1, 2}), 3.0);
        QVERIFY_THROWS_EXCEPTION(EngineError, median({}));
    }

    // Counted by hand, then against the weights themselves: without attention every element of
    // every matrix is one multiply-add, and in f16 two bytes.
    void floorsCountEveryMatrixOnce() {
        ModelConfig c;
        c.num_layers = 3;
        c.num_heads = 4;
        c.num_kv_heads = 2;
        c.head_dim = 16;
        c.rope_dim = 16;
        c.embedding_dim = 32;
        c.feed_forward_dim = 48;
        c.vocab_size = 300;
        c.context_len = 64;
        // A layer: Q and O 32 · 64 each, K and V 32 · 32 each, three times 32 · 48.
        const int64_t matrices = 3 * (2 * 2048 + 2 * 1024 + 3 * 1536) + 300 * 32;
        QCOMPARE(multiplyAddsPerToken(c, 0), matrices);
        // Each token of the context: 64 with K and 64 with V, in 3 layers.
        QCOMPARE(multiplyAddsPerToken(c, 10) - matrices, int64_t{3} * 10 * 128);
        for (const bool tied : {false, true}) {
            const auto weights = ModelWeights::random(c, 1, tied, TensorType::kF16);
            QCOMPARE(matrixBytesPerStep(*weights), 2 * matrices);
        }
    }

    void ratesBecomeTokens() {
        // 8 sequences of 1,000 multiply-adds each, 1e6 a second: 125 steps of 8 tokens.
        QCOMPARE(tokensPerSecondAtRate(8, 8000., 1e6), 1000.);
    }
};

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::BenchMathTest)
#include "bench_math_test.moc"
