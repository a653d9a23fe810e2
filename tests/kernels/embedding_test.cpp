// SPDX-License-Identifier: MIT
#include "kernels/embedding/embedding.h"

#include <stdexcept>

#include "kernels/quantise.h"
#include "kernels/reference/dequantise_reference.h"
#include "tests/support/kernel_test.h"

using namespace kvlab;

class EmbeddingTest : public QObject {
    Q_OBJECT

  private slots:
    void picksRowsExactly_data() {
        QTest::addColumn<int>("type");
        QTest::addColumn<int>("dim");
        for (const TensorType type : kAllTensorTypes) {
            for (const int dim : {5, 32, 256, 288, 2304}) {
                if (dim % tensorBlockValues(type) != 0) continue;
                QTest::addRow("%s %d", tensorTypeName(type), dim) << static_cast<int>(type) << dim;
            }
        }
    }

    void picksRowsExactly() {
        QFETCH(int, type);
        QFETCH(int, dim);
        constexpr int kVocab = 6;
        const auto stored_type = static_cast<TensorType>(type);
        const auto values = normalValues(int64_t{kVocab} * dim, 1);
        const auto stored = quantise(stored_type, values.data(), int64_t{kVocab} * dim);
        const auto expected =
            dequantiseReference(stored_type, stored.data(), int64_t{kVocab} * dim);
        const std::vector<int32_t> ids{5, 0, 3, 5};
        Fenced<std::byte> table(stored, stored_type == TensorType::kF32 ? 4 : 2);
        Fenced<int32_t> token_ids(ids);
        EmbeddingParams p;
        p.table = table.data();
        p.type = stored_type;
        p.token_ids = token_ids.data();
        p.num_tokens = static_cast<int>(ids.size());
        p.vocab_size = kVocab;
        p.dim = dim;
        for (const Way way : kAllWays) {
            Fenced<float> output(ids.size() * static_cast<size_t>(dim));
            p.output = output.data();
            runOperation(way, p, embeddingCpu, embeddingSimt);
            for (size_t i = 0; i < output.size(); ++i) {
                const auto width = static_cast<size_t>(dim);
                const double value =
                    expected[static_cast<size_t>(ids[i / width]) * width + i % width];
                QVERIFY2(output[i] == static_cast<float>(value), wayName(way));
            }
            QVERIFY2(output.fenceIsWhole(), wayName(way));
        }
    }

    void refusesWhatCannotBe() {
        ExecutionContext context;
        EmbeddingParams p;
        embeddingSimt(p, context);  // no tokens: nothing to do
        const uint16_t table[8] = {};
        float output[4];
        for (const int32_t id : {-1, 2}) {
            p.table = table;
            p.token_ids = &id;
            p.output = output;
            p.num_tokens = 1;
            p.vocab_size = 2;
            p.dim = 4;
            QVERIFY_THROWS_EXCEPTION(std::invalid_argument, embeddingSimt(p, context));
        }
        const int32_t id = 1;
        p.token_ids = &id;
        p.type = TensorType::kQ8_0;  // of whole blocks of 32
        QVERIFY_THROWS_EXCEPTION(std::invalid_argument, embeddingSimt(p, context));
    }
};

QTEST_GUILESS_MAIN(EmbeddingTest)
#include "embedding_test.moc"
