// SPDX-License-Identifier: MIT
#include "kernels/paged_attention/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include <QtTest>

#include "kernels/cpu/thread_pool.h"
#include "kernels/half.h"
#include "kernels/reference/attention_reference.h"
#include "kernels/simt/simt.h"

using namespace kvlab;

namespace {

// max |a - b| / max |b|: an output is a mean of V rows, so its error is measured against the
// largest.
constexpr double kTolerance = 1e-4;

struct Shape {
    int head_dim;
    int num_heads;
    int num_kv_heads;
    int block_size;
    DataType dtype;
    int window = 0;
};

// Sequences of ragged lengths in a pool whose blocks are handed out in random order. Whatever no
// token owns is NaN, and so is what no row sees through its window: a kernel that reads one slot
// too many cannot hide it. Blocks that no row sees are -1 in the table.
struct Problem {
    PagedAttentionParams params;
    std::vector<std::byte> pool;
    std::vector<float> query;
    std::vector<float> output;
    std::vector<int32_t> block_tables;
    std::vector<int32_t> row_to_seq;
    std::vector<int32_t> context_lens;

    // A decode row for each sequence, then a prefill chunk: the last `num_prefill_rows` tokens of
    // the last sequence. Values depend on (seed, sequence, position) only and not on the paging.
    Problem(const Shape& shape,
            const std::vector<int>& seq_lens,
            int num_prefill_rows,
            unsigned seed) {
        const int num_seqs = static_cast<int>(seq_lens.size());
        PagedKvView& kv = params.kv;
        kv.dtype = shape.dtype;
        kv.num_layers = 2;
        kv.block_size = shape.block_size;
        kv.num_kv_heads = shape.num_kv_heads;
        kv.head_dim = shape.head_dim;
        params.max_blocks_per_seq = 1;
        kv.num_blocks = 2;
        for (const int len : seq_lens) {
            const int num_blocks = (len + shape.block_size - 1) / shape.block_size;
            params.max_blocks_per_seq = std::max(params.max_blocks_per_seq, num_blocks);
            kv.num_blocks += num_blocks;
        }
        pool.resize(static_cast<size_t>(kv.numBytes()), std::byte{0xff});
        kv.data = pool.data();

        std::vector<int32_t> ids(static_cast<size_t>(kv.num_blocks));
        for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
        std::mt19937 block_random(seed);
        std::shuffle(ids.begin(), ids.end(), block_random);

        std::mt19937 random(seed + 1);
        std::normal_distribution<float> normal;
        params.layer = 1;
        block_tables.assign(static_cast<size_t>(num_seqs * params.max_blocks_per_seq), -1);
        for (int s = 0; s < num_seqs; ++s) {
            for (int i = 0; i < seq_lens[static_cast<size_t>(s)]; ++i) {
                int32_t& block_id = block_tables[static_cast<size_t>(s * params.max_blocks_per_seq +
                                                                     i / kv.block_size)];
                if (i % kv.block_size == 0) {
                    block_id = ids.back();
                    ids.pop_back();
                }
                const int64_t slot = int64_t{block_id} * kv.block_size + i % kv.block_size;
                for (int part = 0; part < 2; ++part) {
                    for (int h = 0; h < kv.num_kv_heads; ++h) {
                        std::vector<float> values(static_cast<size_t>(kv.head_dim));
                        for (float& value : values) value = normal(random);
                        storeRow(kv.rowIndex(1, part, slot, h), values);
                    }
                }
            }
        }
        for (int s = 0; s < num_seqs; ++s) addRow(s, seq_lens[static_cast<size_t>(s)]);
        for (int i = num_prefill_rows; i > 0; --i) addRow(num_seqs - 1, seq_lens.back() - i + 1);

        params.window = shape.window;
        for (int s = 0; s < num_seqs; ++s) hideUnseen(s, seq_lens[static_cast<size_t>(s)]);

        params.num_rows = static_cast<int>(row_to_seq.size());
        params.num_seqs = num_seqs;
        params.num_heads = shape.num_heads;
        params.scale = 1.f / std::sqrt(static_cast<float>(shape.head_dim));
        query.resize(static_cast<size_t>(params.num_rows * shape.num_heads * shape.head_dim));
        for (float& value : query) value = 2.f * normal(random);
        output.assign(query.size(), std::numeric_limits<float>::quiet_NaN());
        params.query = query.data();
        params.block_tables = block_tables.data();
        params.row_to_seq = row_to_seq.data();
        params.context_lens = context_lens.data();
        params.output = output.data();
    }
    Problem(const Problem&) = delete;

    void storeRow(int64_t row_idx, const std::vector<float>& values) {
        const DataType dtype = params.kv.dtype;
        const int64_t first = row_idx * params.kv.head_dim;
        float scale = 0;
        for (const float value : values) scale = std::max(scale, std::abs(value) / 127);
        for (size_t d = 0; d < values.size(); ++d) {
            std::byte* target =
                pool.data() + (first + static_cast<int64_t>(d)) * dataTypeBytes(dtype);
            if (dtype == DataType::kF32) {
                std::memcpy(target, &values[d], 4);
            } else if (dtype == DataType::kInt8) {
                *target = static_cast<std::byte>(std::lrint(values[d] / scale));
            } else {
                const uint16_t bits =
                    dtype == DataType::kF16 ? floatToHalf(values[d]) : floatToBfloat16(values[d]);
                std::memcpy(target, &bits, 2);
            }
        }
        if (dtype == DataType::kInt8) params.kv.scales()[row_idx] = scale;
    }

    void hideUnseen(int seq_idx, int seq_len) {
        const PagedKvView& kv = params.kv;
        const size_t row_values = static_cast<size_t>(kv.num_kv_heads) * kv.head_dim;
        const auto seen = [&](int position) {
            for (size_t r = 0; r < row_to_seq.size(); ++r) {
                const int own = context_lens[r] - 1;
                if (row_to_seq[r] == seq_idx && position <= own &&
                    (params.window == 0 || position > own - params.window)) {
                    return true;
                }
            }
            return false;
        };
        for (int begin = 0; begin < seq_len; begin += kv.block_size) {
            int32_t& block_id = block_tables[static_cast<size_t>(
                seq_idx * params.max_blocks_per_seq + begin / kv.block_size)];
            bool any_seen = false;
            for (int i = begin; i < std::min(seq_len, begin + kv.block_size); ++i) {
                any_seen |= seen(i);
                if (seen(i)) continue;
                const int64_t slot = int64_t{block_id} * kv.block_size + i % kv.block_size;
                for (const int part : {PagedKvView::kKey, PagedKvView::kValue}) {
                    std::memset(pool.data() + kv.offset(1, part, slot, 0) * dataTypeBytes(kv.dtype),
                                0xff, row_values * static_cast<size_t>(dataTypeBytes(kv.dtype)));
                    if (kv.dtype != DataType::kInt8) continue;
                    std::fill_n(kv.scales() + kv.rowIndex(1, part, slot, 0), kv.num_kv_heads, NAN);
                }
            }
            if (!any_seen) block_id = -1;
        }
    }

    void addRow(int seq_idx, int context_len) {
        row_to_seq.push_back(seq_idx);
        context_lens.push_back(context_len);
    }
};

double relativeError(const std::vector<float>& output, const std::vector<double>& reference) {
    double max_difference = 0;
    double max_reference = 0;
    for (size_t i = 0; i < output.size(); ++i) {
        const double difference = std::abs(static_cast<double>(output[i]) - reference[i]);
        if (std::isnan(difference)) return difference;
        max_difference = std::max(max_difference, difference);
        max_reference = std::max(max_reference, std::abs(reference[i]));
    }
    return max_difference / max_reference;
}

const std::vector<int> kSeqLens = {1, 37, 2, 300, 64, 16, 33};
constexpr int kNumPrefillRows = 5;

}  // namespace

class PagedAttentionTest : public QObject {
    Q_OBJECT

  private:
    ThreadPool threads_{2};
    ExecutionContext context_{&threads_, nullptr};

    void compare(Problem& problem,
                 const std::vector<double>& reference,
                 const std::function<void()>& run,
                 const char* name) {
        std::fill(problem.output.begin(), problem.output.end(), NAN);
        run();
        const double error = relativeError(problem.output, reference);
        QVERIFY2(error <= kTolerance, qPrintable(QString("%1: %2").arg(name).arg(error)));
        worst_ = std::max(worst_, error);
    }
    double worst_ = 0;

  private slots:
    void agreesWithDenseReference_data() {
        QTest::addColumn<int>("head_dim");
        QTest::addColumn<int>("num_heads");
        QTest::addColumn<int>("num_kv_heads");
        QTest::addColumn<int>("block_size");
        QTest::addColumn<int>("dtype");
        QTest::addColumn<int>("window");
        const auto add = [](const Shape& s) {
            QTest::addRow("head_dim %d, heads %d/%d, block %d, %s, window %d", s.head_dim,
                          s.num_heads, s.num_kv_heads, s.block_size, dataTypeName(s.dtype),
                          s.window)
                << s.head_dim << s.num_heads << s.num_kv_heads << s.block_size
                << static_cast<int>(s.dtype) << s.window;
        };
        for (const DataType dtype : kKvDataTypes) {
            for (const int block_size : {1, 3, 16, 256}) {
                add({64, 4, 2, block_size, dtype});
            }
            for (const int head_dim : {8, 16, 32, 48, 80, 96, 128, 192, 256}) {
                add({head_dim, 3, 3, 16, dtype});
                add({head_dim, 4, 1, 16, dtype});
            }
            for (const int group : {3, 5, 7, 8}) add({32, 2 * group, 2, 16, dtype});
            add({20, 4, 2, 16, dtype});  // no multiple of 8: no row is aligned
            add({1, 2, 1, 3, dtype});
            for (const int window : {1, 5, 32, 33, 100, 299, 300, 1000}) {
                add({32, 4, 2, 16, dtype, window});
            }
            for (const int block_size : {1, 3, 256}) add({32, 2, 2, block_size, dtype, 40});
        }
    }

    void agreesWithDenseReference() {
        QFETCH(int, head_dim);
        QFETCH(int, num_heads);
        QFETCH(int, num_kv_heads);
        QFETCH(int, block_size);
        QFETCH(int, dtype);
        QFETCH(int, window);
        const DataType type = static_cast<DataType>(dtype);
        Problem problem({head_dim, num_heads, num_kv_heads, block_size, type, window}, kSeqLens,
                        kNumPrefillRows, 7);
        const std::vector<double> reference = attentionReference(problem.params);
        compare(
            problem, reference, [&] { pagedAttentionSimt(problem.params, context_); }, "simt");
        compare(
            problem, reference, [&] { pagedAttentionCpu(problem.params, context_); }, "cpu");
    }

    void simtDoesNotDependOnLaneOrder() {
        for (const Shape& shape :
             {Shape{64, 4, 2, 16, DataType::kF16}, Shape{80, 5, 1, 3, DataType::kF32},
              Shape{32, 4, 2, 16, DataType::kInt8, 50}}) {
            Problem problem(shape, kSeqLens, kNumPrefillRows, 11);
            pagedAttentionSimt(problem.params, context_);
            const std::vector<float> forward = problem.output;
            for (const simt::Settings& settings : {simt::Settings{simt::LaneOrder::kReverse, 0},
                                                   simt::Settings{simt::LaneOrder::kRandom, 1},
                                                   simt::Settings{simt::LaneOrder::kRandom, 2}}) {
                const simt::ScopedSettings scoped(settings);
                std::fill(problem.output.begin(), problem.output.end(), NAN);
                pagedAttentionSimt(problem.params, context_);
                QCOMPARE(problem.output, forward);
            }
        }
    }

    void farApartScoresDoNotOverflow() {
        Problem problem({64, 2, 1, 16, DataType::kF32}, {300}, 3, 13);
        problem.params.scale = 100.f;
        const std::vector<double> reference = attentionReference(problem.params);
        compare(
            problem, reference, [&] { pagedAttentionSimt(problem.params, context_); }, "simt");
        compare(
            problem, reference, [&] { pagedAttentionCpu(problem.params, context_); }, "cpu");
    }

    void unalignedPoolIsRead() {
        Problem problem({64, 4, 2, 16, DataType::kF16}, {37, 5}, 2, 17);
        const std::vector<double> reference = attentionReference(problem.params);
        std::vector<std::byte> moved(problem.pool.size() + 2);
        std::memcpy(moved.data() + 2, problem.pool.data(), problem.pool.size());
        problem.params.kv.data = moved.data() + 2;
        compare(
            problem, reference, [&] { pagedAttentionSimt(problem.params, context_); }, "simt");
    }

    // DESIGN.md section 3: bit for bit the same alone and in a batch, for any block size and
    // threads.
    void cpuIsBatchInvariant() {
        for (int round = 0; round < 8; ++round) {
            const DataType dtype = kKvDataTypes[static_cast<size_t>(round / 2)];
            const int window = round % 2 * 45;
            Problem problem({48, 6, 2, 16, dtype, window}, kSeqLens, kNumPrefillRows, 19);
            pagedAttentionCpu(problem.params, context_);
            const std::vector<float> together = problem.output;

            const size_t row_values = 6 * 48;
            for (int r = 0; r < problem.params.num_rows; ++r) {
                std::vector<float> alone(row_values);
                PagedAttentionParams one = problem.params;
                one.query += static_cast<size_t>(r) * row_values;
                one.row_to_seq += r;
                one.context_lens += r;
                one.num_rows = 1;
                one.output = alone.data();
                pagedAttentionCpu(one, context_);
                QVERIFY(std::memcmp(alone.data(),
                                    together.data() + static_cast<size_t>(r) * row_values,
                                    row_values * sizeof(float)) == 0);
            }
            for (const int num_threads : {1, 3, 7}) {
                ThreadPool threads(num_threads);
                ExecutionContext context{&threads, nullptr};
                for (const int block_size : {1, 3, 16, 256}) {
                    Problem other({48, 6, 2, block_size, dtype, window}, kSeqLens, kNumPrefillRows,
                                  19);
                    QVERIFY(other.query == problem.query);
                    pagedAttentionCpu(other.params, context);
                    QVERIFY(std::memcmp(other.output.data(), together.data(),
                                        together.size() * sizeof(float)) == 0);
                }
            }
        }
    }

    // A row that sees itself alone puts all its weight on its own V.
    void aWindowOfOneGivesTheOwnValue() {
        for (const DataType dtype : kKvDataTypes) {
            Problem problem({48, 6, 2, 16, dtype, 1}, kSeqLens, 0, 29);
            const PagedKvView& kv = problem.params.kv;
            const auto check = [&](const char* name) {
                for (int r = 0; r < problem.params.num_rows; ++r) {
                    const int position = problem.context_lens[static_cast<size_t>(r)] - 1;
                    const int64_t block_id = problem.block_tables[static_cast<size_t>(
                        r * problem.params.max_blocks_per_seq + position / kv.block_size)];
                    const int64_t slot = block_id * kv.block_size + position % kv.block_size;
                    for (int head = 0; head < 6; ++head) {
                        const int64_t row_idx = kv.rowIndex(1, PagedKvView::kValue, slot, head / 3);
                        for (int d = 0; d < 48; ++d) {
                            const std::byte* stored =
                                kv.data + (row_idx * 48 + d) * dataTypeBytes(dtype);
                            uint16_t bits;
                            std::memcpy(&bits, stored, sizeof(bits));
                            float value = 0;
                            if (dtype == DataType::kF32) {
                                std::memcpy(&value, stored, sizeof(value));
                            } else if (dtype == DataType::kInt8) {
                                value = kv.scales()[row_idx] *
                                        static_cast<float>(static_cast<int8_t>(*stored));
                            } else {
                                value = dtype == DataType::kF16 ? halfToFloat(bits)
                                                                : bfloat16ToFloat(bits);
                            }
                            QVERIFY2(problem.output[static_cast<size_t>((r * 6 + head) * 48 + d)] ==
                                         value,
                                     name);
                        }
                    }
                }
            };
            pagedAttentionCpu(problem.params, context_);
            check("cpu");
            std::fill(problem.output.begin(), problem.output.end(), NAN);
            pagedAttentionSimt(problem.params, context_);
            check("simt");
        }
    }

    void aWindowAsLongAsTheContextChangesNoBit() {
        for (const DataType dtype : kKvDataTypes) {
            Problem problem({48, 6, 2, 16, dtype}, kSeqLens, kNumPrefillRows, 31);
            pagedAttentionCpu(problem.params, context_);
            const std::vector<float> whole = problem.output;
            problem.params.window = 300;
            pagedAttentionCpu(problem.params, context_);
            QVERIFY(problem.output == whole);
        }
    }

    // A NaN that was written (int8: as the scale of its row) shows in the rows that see it, and in
    // no other row of the same call.
    void brokenValuesStayWithTheRowsThatSeeThem() {
        for (const DataType dtype : kKvDataTypes) {
            Problem problem({20, 2, 1, 4, dtype, 3}, {70}, 6, 37);
            const PagedKvView& kv = problem.params.kv;
            const int position = 67;  // seen by the rows at 67, 68 and 69
            const int64_t slot = int64_t{problem.block_tables[position / 4]} * 4 + position % 4;
            for (const int part : {PagedKvView::kKey, PagedKvView::kValue}) {
                std::memset(
                    problem.pool.data() + kv.offset(1, part, slot, 0) * dataTypeBytes(dtype), 0xff,
                    static_cast<size_t>(20 * dataTypeBytes(dtype)));
                if (dtype == DataType::kInt8) kv.scales()[kv.rowIndex(1, part, slot, 0)] = NAN;
            }
            for (const auto& attention : {pagedAttentionCpu, pagedAttentionSimt}) {
                attention(problem.params, context_);
                for (int r = 0; r < problem.params.num_rows; ++r) {
                    const int own = problem.context_lens[static_cast<size_t>(r)] - 1;
                    for (int i = 0; i < 40; ++i) {
                        QCOMPARE(std::isnan(problem.output[static_cast<size_t>(r * 40 + i)]),
                                 own >= position && own < position + 3);
                    }
                }
            }
        }
    }

    void wrongShapesAreRefused() {
        const auto refused = [&](const std::function<void(PagedAttentionParams&)>& spoil) {
            Problem problem({32, 4, 2, 16, DataType::kF16}, {20, 5}, 0, 23);
            spoil(problem.params);
            try {
                pagedAttentionSimt(problem.params, context_);
            } catch (const std::invalid_argument&) {
                return true;
            }
            return false;
        };
        QVERIFY(!refused([](PagedAttentionParams&) {}));
        QVERIFY(!refused([](PagedAttentionParams& p) { p.num_rows = 0; }));
        QVERIFY(refused([](PagedAttentionParams& p) { p.num_rows = -1; }));
        QVERIFY(refused([](PagedAttentionParams& p) { p.query = nullptr; }));
        QVERIFY(refused([](PagedAttentionParams& p) { p.num_heads = 3; }));
        QVERIFY(refused([](PagedAttentionParams& p) { p.kv.head_dim = 257; }));
        QVERIFY(refused([](PagedAttentionParams& p) { p.layer = 2; }));
        QVERIFY(refused([](PagedAttentionParams& p) { p.num_seqs = 1; }));
        QVERIFY(refused([](PagedAttentionParams& p) { p.kv.num_blocks = 1; }));
        QVERIFY(refused([](PagedAttentionParams& p) { p.max_blocks_per_seq = 1; }));
        QVERIFY(refused([](PagedAttentionParams& p) { p.window = -1; }));
        QVERIFY(refused([](PagedAttentionParams& p) {
            p.kv.dtype = DataType::kInt8;
            p.kv.data += 1;
        }));
    }

    void cleanupTestCase() { qInfo("largest error of all: %.2g", worst_); }
};

QTEST_GUILESS_MAIN(PagedAttentionTest)
#include "paged_attention_test.moc"
