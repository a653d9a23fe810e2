// SPDX-License-Identifier: MIT
#include "engine/workload/cost_model.h"

#include <algorithm>

#include <QTest>

#include "engine/sizing/kv_size.h"
#include "tests/support/expect_error.h"
#include "tests/support/tiny_model.h"

using namespace kvlab;

class CostModelTest : public QObject {
    Q_OBJECT

  private slots:
    // By hand: 1 GFLOP/s, 1 MB/s of memory, 100 kB/s to the host.
    void partsAreThoseOfTheFormula() {
        const AssumedMachine machine{1e9, 1e6, 1e5, 3};
        const ModelWork work{1e6, 2e6};
        StepShape shape;
        // One decode row reads all weights: 2 s; its 2 MFLOP take 2 ms.
        shape.num_decode_tokens = 1;
        shape.attention_bytes = 5000;
        StepCost cost = stepCost(machine, work, shape);
        QCOMPARE(cost.matmul_ms, 2000.0);
        QCOMPARE(cost.attention_ms, 5.0);
        QCOMPARE(cost.copy_ms, 0.0);
        QCOMPARE(cost.overhead_ms, 3.0);
        QCOMPARE(cost.total(), 2008.0);
        // 4,000 tokens: 8 GFLOP take 8 s, longer than the weights.
        shape.num_prefill_tokens = 3999;
        shape.copied_bytes = 1000;  // read and written
        shape.swapped_bytes = 2000;
        cost = stepCost(machine, work, shape);
        QCOMPARE(cost.matmul_ms, 8000.0);
        QCOMPARE(cost.copy_ms, 2.0 + 20.0);
        // A step that only moves blocks reads no weights.
        StepShape moves;
        moves.swapped_bytes = 100;
        cost = stepCost(machine, work, moves);
        QCOMPARE(cost.matmul_ms, 0.0);
        QCOMPARE(cost.total(), 4.0);
        StepCost sum;
        sum.add(cost);
        sum.add(cost);
        QCOMPARE(sum.total(), 8.0);
    }

    void weightsAreCounted() {
        const auto model = tinyModel();
        const ModelConfig& c = model->config;
        const int64_t q = int64_t{c.num_heads} * c.head_dim,
                      kv = int64_t{c.num_kv_heads} * c.head_dim;
        const int64_t e = c.embedding_dim, f = c.feed_forward_dim;
        const int64_t layer = 2 * e + e * q + 2 * e * kv + q * e + 3 * e * f;
        const int64_t all = c.num_layers * layer + e + int64_t{c.vocab_size} * e;
        const ModelWork work = modelWork(*model);
        QCOMPARE(work.num_parameters, static_cast<double>(all));
        QCOMPARE(work.weights_bytes, 4.0 * static_cast<double>(all));
    }

    // Every model of the table has, as an accounting model, the bytes a token that `size` tells.
    void tokensHaveTheBytesOfTheTable() {
        for (const ModelSpec& spec : modelTable()) {
            for (const DataType dtype : {DataType::kF32, DataType::kBF16, DataType::kInt8}) {
                const bool is_latent = spec.attention == AttentionKind::kMla;
                if (is_latent && dtype == DataType::kInt8) {
                    expectError(ErrorKind::kUnsupported, "int8",
                                [&] { accountingModel(spec, dtype); });
                    continue;
                }
                QCOMPARE(accountingModel(spec, dtype).kvBytesPerToken(dtype),
                         kvBytesPerToken(KvShape::of(spec), dtype).value);
            }
            const std::vector<int> windows = accountingModel(spec, DataType::kF16).layer_windows;
            QCOMPARE(std::count(windows.begin(), windows.end(), spec.window),
                     spec.num_local_layers);
        }
    }
};

QTEST_GUILESS_MAIN(CostModelTest)
#include "cost_model_test.moc"
