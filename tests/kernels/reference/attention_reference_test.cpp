// SPDX-License-Identifier: MIT
#include "kernels/reference/attention_reference.h"

#include <cmath>
#include <cstring>
#include <vector>

#include <QtTest>

#include "kernels/half.h"

using namespace kvlab;

class AttentionReferenceTest : public QObject {
    Q_OBJECT

  private slots:
    // Scores 0 and ln 3 give weights 1/4 and 3/4.
    void twoPositionsByHand() {
        const double query[] = {1, 0};
        const double key[] = {0, 5, std::log(3.), -7};
        const double value[] = {8, -4, 16, 4};
        double output[2];
        denseAttention(query, key, value, 2, 1, 1, 2, 1., output);
        QVERIFY(std::abs(output[0] - 14.) < 1e-12);
        QVERIFY(std::abs(output[1] - 2.) < 1e-12);
        denseAttention(query, key, value, 1, 1, 1, 2, 1., output);
        QCOMPARE(output[0], 8.);
    }

    // Four query heads over two KV heads: heads 0 and 1 read the first, 2 and 3 the second.
    void groupsShareAKvHead() {
        const double query[] = {1, 1, 1, 1};
        const double key[] = {3, 3};
        const double value[] = {10, 20};
        double output[4];
        denseAttention(query, key, value, 1, 4, 2, 1, 1., output);
        QCOMPARE(std::vector<double>(output, output + 4), (std::vector<double>{10, 10, 20, 20}));
    }

    // Two sequences of 3 and 1 tokens in blocks of 2; only layer 1 and V of the right slots count.
    void readsThroughTheBlockTable() {
        std::vector<uint16_t> pool(2 * 2 * 4 * 2, floatToHalf(1000.f));
        PagedAttentionParams params;
        params.kv = {reinterpret_cast<std::byte*>(pool.data()), DataType::kF16, 2, 4, 2, 1, 1};
        const auto put = [&](int64_t slot, float key, float value) {
            pool[static_cast<size_t>(params.kv.offset(1, PagedKvView::kKey, slot, 0))] =
                floatToHalf(key);
            pool[static_cast<size_t>(params.kv.offset(1, PagedKvView::kValue, slot, 0))] =
                floatToHalf(value);
        };
        put(3 * 2 + 0, 0.f, 3.f);
        put(3 * 2 + 1, 0.f, 6.f);
        put(0 * 2 + 0, 0.f, 12.f);
        put(2 * 2 + 0, 9.f, -5.f);
        const std::vector<int32_t> block_tables = {3, 0, 2, -1};
        const std::vector<int32_t> row_to_seq = {0, 1, 0};
        const std::vector<int32_t> context_lens = {3, 1, 2};
        const std::vector<float> query = {1.f, 1.f, 1.f};
        params.query = query.data();
        params.layer = 1;
        params.block_tables = block_tables.data();
        params.max_blocks_per_seq = 2;
        params.row_to_seq = row_to_seq.data();
        params.context_lens = context_lens.data();
        params.num_rows = 3;
        params.num_seqs = 2;
        params.num_heads = 1;
        params.scale = 1.f;
        QCOMPARE(attentionReference(params), (std::vector<double>{7., -5., 4.5}));
        params.window = 2;
        QCOMPARE(attentionReference(params), (std::vector<double>{9., -5., 4.5}));
        params.window = 1;
        QCOMPARE(attentionReference(params), (std::vector<double>{12., -5., 6.}));
    }

    // Two positions, one head of one value: scores 0 · 7 and 0 · 9, so V counts half and half.
    void int8IsReadTimesItsScale() {
        alignas(float) std::byte pool[4 + 4 * sizeof(float)] = {};
        PagedAttentionParams params;
        params.kv = {pool, DataType::kInt8, 1, 1, 2, 1, 1};
        const int8_t values[] = {7, 9, 100, -50};  // K, K, V, V
        const float scales[] = {3.f, 2.f, 0.5f, 0.25f};
        std::memcpy(pool, values, sizeof(values));
        std::memcpy(pool + 4, scales, sizeof(scales));
        const int32_t block_table = 0, row_to_seq = 0, context_len = 2;
        const float query = 0.f;
        params.query = &query;
        params.block_tables = &block_table;
        params.max_blocks_per_seq = 1;
        params.row_to_seq = &row_to_seq;
        params.context_lens = &context_len;
        params.num_rows = 1;
        params.num_seqs = 1;
        params.num_heads = 1;
        params.scale = 1.f;
        QCOMPARE(attentionReference(params), (std::vector<double>{(50. - 12.5) / 2}));
    }
};

QTEST_GUILESS_MAIN(AttentionReferenceTest)
#include "attention_reference_test.moc"
