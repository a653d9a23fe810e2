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
};

// Sequences of ragged lengths in a pool whose blocks are handed out in random order. Whatever no
// token owns is NaN: a kernel that reads one slot too many cannot hide it.
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
                        for (int d = 0; d < kv.head_dim; ++d) {
                            store(kv.offset(1, part, slot, h) + d, normal(random));
                        }
                    }
                }
            }
        }
        for (int s = 0; s < num_seqs; ++s) addRow(s, seq_lens[static_cast<size_t>(s)]);
        for (int i = num_prefill_rows; i > 0; --i) addRow(num_seqs - 1, seq_lens.back() - i + 1);

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

    void store(int64_t index, float value) {
        if (params.kv.dtype == DataType::kF32) {
            std::memcpy(pool.data() + index * 4, &value, 4);
        } else {
            const uint16_t bits =
                params.kv.dtype == DataType::kF16 ? floatToHalf(value) : floatToBfloat16(value);
            std::memcpy(pool.data() + index * 2, &bits, 2);
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
        const auto add = [](const Shape& s) {
            QTest::addRow("head_dim %d, heads %d/%d, block %d, %s", s.head_dim, s.num_heads,
                          s.num_kv_heads, s.block_size, dataTypeName(s.dtype))
                << s.head_dim << s.num_heads << s.num_kv_heads << s.block_size
                << static_cast<int>(s.dtype);
        };
        for (const DataType dtype : {DataType::kF32, DataType::kF16}) {
            for (const int block_size : {1, 3, 16, 256}) {
                add({64, 4, 2, block_size, dtype});
            }
            for (const int head_dim : {8, 16, 32, 48, 80, 96, 128, 192, 256}) {
                add({head_dim, 3, 3, 16, dtype});
                add({head_dim, 4, 1, 16, dtype});
            }
            for (const int group : {3, 5, 7, 8}) add({32, 2 * group, 2, 16, dtype});
        }
        add({64, 8, 2, 16, DataType::kBF16});
        add({20, 4, 2, 16, DataType::kF16});  // no multiple of 8: no row is aligned
        add({1, 2, 1, 3, DataType::kF32});
    }

    void agreesWithDenseReference() {
        QFETCH(int, head_dim);
        QFETCH(int, num_heads);
        QFETCH(int, num_kv_heads);
        QFETCH(int, block_size);
        QFETCH(int, dtype);
        Problem problem(
            {head_dim, num_heads, num_kv_heads, block_size, static_cast<DataType>(dtype)}, kSeqLens,
            kNumPrefillRows, 7);
        const std::vector<double> reference = attentionReference(problem.params);
        compare(
            problem, reference, [&] { pagedAttentionSimt(problem.params, context_); }, "simt");
        compare(
            problem, reference, [&] { pagedAttentionCpu(problem.params, context_); }, "cpu");
    }

    void simtDoesNotDependOnLaneOrder() {
        for (const Shape& shape :
             {Shape{64, 4, 2, 16, DataType::kF16}, Shape{80, 5, 1, 3, DataType::kF32}}) {
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
        for (const DataType dtype : {DataType::kF32, DataType::kF16}) {
            Problem problem({48, 6, 2, 16, dtype}, kSeqLens, kNumPrefillRows, 19);
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
                    Problem other({48, 6, 2, block_size, dtype}, kSeqLens, kNumPrefillRows, 19);
                    QVERIFY(other.query == problem.query);
                    pagedAttentionCpu(other.params, context);
                    QVERIFY(std::memcmp(other.output.data(), together.data(),
                                        together.size() * sizeof(float)) == 0);
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
    }

    void cleanupTestCase() { qInfo("largest error of all: %.2g", worst_); }
};

QTEST_GUILESS_MAIN(PagedAttentionTest)
#include "paged_attention_test.moc"
