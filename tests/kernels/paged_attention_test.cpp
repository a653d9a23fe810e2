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

#include "kernels/contiguous_attention/contiguous_attention.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/half.h"
#include "kernels/paged_attention/paged_attention_plan.h"
#include "kernels/reference/attention_reference.h"
#include "kernels/simt/simt.h"
#include "tests/support/numbers.h"

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
    // the last sequence; then rows of the last sequence with contexts of `more_rows`. Values depend
    // on (seed, sequence, position) only and not on the paging.
    Problem(const Shape& shape,
            const std::vector<int>& seq_lens,
            int num_prefill_rows,
            unsigned seed,
            const std::vector<int>& more_rows = {}) {
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
        for (const int context_len : more_rows) addRow(num_seqs - 1, context_len);

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

// The variants of the CUDA kernel that can compute this.
std::vector<AttentionVariant> variantsFor(const Shape& shape) {
    if (shape.dtype == DataType::kF32 || shape.head_dim % 8 != 0) return {AttentionVariant::kFma};
    return {AttentionVariant::kFma, AttentionVariant::kMma};
}

const char* variantName(AttentionVariant variant) {
    return variant == AttentionVariant::kFma ? "simt fma" : "simt mma";
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
            for (const int group : {1, 2, 3, 5, 7, 8, 16, 20}) add({32, 2 * group, 2, 16, dtype});
            add({128, 16, 1, 16, dtype});
            add({256, 12, 1, 16, dtype, 70});
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
        const std::vector<int> seq_lens =
            head_dim <= 64 ? kSeqLens : std::vector<int>{1, 37, 110, 33};
        Problem problem({head_dim, num_heads, num_kv_heads, block_size, type, window}, seq_lens,
                        kNumPrefillRows, 7);
        const std::vector<double> reference = attentionReference(problem.params);
        for (const AttentionVariant variant :
             variantsFor({head_dim, num_heads, num_kv_heads, block_size, type, window})) {
            problem.params.variant = variant;
            compare(
                problem, reference, [&] { pagedAttentionSimt(problem.params, context_); },
                variantName(variant));
        }
        compare(
            problem, reference, [&] { pagedAttentionCpu(problem.params, context_); }, "cpu");
    }

    void simtDoesNotDependOnLaneOrder() {
        for (const Shape& shape :
             {Shape{64, 4, 2, 16, DataType::kF16}, Shape{80, 5, 1, 3, DataType::kF32},
              Shape{32, 4, 2, 16, DataType::kInt8, 50}, Shape{20, 4, 2, 16, DataType::kBF16}}) {
            for (const AttentionVariant variant : variantsFor(shape)) {
                Problem problem(shape, {1, 37, 150, 33}, kNumPrefillRows, 11);
                problem.params.variant = variant;
                problem.params.num_splits = 3;
                std::vector<float> mass(static_cast<size_t>(4 * shape.num_kv_heads * 150));
                problem.params.mass = mass.data();
                problem.params.mass_stride = 150;
                pagedAttentionSimt(problem.params, context_);
                const std::vector<float> forward = problem.output;
                const std::vector<float> forward_mass = mass;
                for (const simt::Settings& settings :
                     {simt::Settings{simt::LaneOrder::kReverse, 0},
                      simt::Settings{simt::LaneOrder::kRandom, 1},
                      simt::Settings{simt::LaneOrder::kRandom, 2}}) {
                    const simt::ScopedSettings scoped(settings);
                    std::fill(problem.output.begin(), problem.output.end(), NAN);
                    std::fill(mass.begin(), mass.end(), 0.f);
                    pagedAttentionSimt(problem.params, context_);
                    QCOMPARE(problem.output, forward);
                    QCOMPARE(mass, forward_mass);
                }
            }
        }
    }

    // Parts that end inside blocks and tiles, and more of them than a context can fill.
    void splitContextsAgreeWithDenseReference() {
        for (const Shape& shape :
             {Shape{64, 2, 2, 16, DataType::kF16}, Shape{128, 8, 2, 3, DataType::kBF16},
              Shape{32, 16, 1, 16, DataType::kInt8}, Shape{80, 6, 2, 16, DataType::kF32},
              Shape{20, 5, 1, 16, DataType::kF16}, Shape{64, 8, 2, 16, DataType::kF16, 90}}) {
            Problem problem(shape, {1, 300, 64, 33}, 3, 41);
            const std::vector<double> reference = attentionReference(problem.params);
            for (const AttentionVariant variant : variantsFor(shape)) {
                problem.params.variant = variant;
                for (const int num_splits : {1, 2, 3, 11, 200}) {
                    problem.params.num_splits = num_splits;
                    compare(
                        problem, reference, [&] { pagedAttentionSimt(problem.params, context_); },
                        qPrintable(
                            QString("%1 in %2 parts").arg(variantName(variant)).arg(num_splits)));
                }
            }
        }
    }

    // Matrix units cut sums off (simt/mma.h): over a long context that must not add up. Equal
    // weights and values of one sign would show it at its worst, 4e-5 here.
    void longSumsAreRoundedNotCutOff() {
        const Shape shape{64, 8, 1, 16, DataType::kF16};
        constexpr int kContext = 16384;
        Problem problem(shape, {kContext}, 8, 47);
        std::fill(problem.query.begin(), problem.query.end(), 0.f);
        std::mt19937 random(48);
        std::uniform_real_distribution<float> positive(1.f, 3.f);
        const PagedKvView& kv = problem.params.kv;
        for (int64_t slot = 0; slot < int64_t{kv.num_blocks} * kv.block_size; ++slot) {
            std::vector<float> values(static_cast<size_t>(kv.head_dim));
            for (float& value : values) value = positive(random);
            problem.storeRow(kv.rowIndex(1, PagedKvView::kValue, slot, 0), values);
        }
        const std::vector<double> reference = attentionReference(problem.params);
        problem.params.num_splits = 1;
        for (const AttentionVariant variant : variantsFor(shape)) {
            problem.params.variant = variant;
            std::fill(problem.output.begin(), problem.output.end(), NAN);
            pagedAttentionSimt(problem.params, context_);
            const double error = relativeError(problem.output, reference);
            QVERIFY2(error <= 5e-6,
                     qPrintable(QString("%1: %2").arg(variantName(variant)).arg(error)));
        }
    }

    // What does not fit the workspace is not split; nothing is written behind it.
    void aSmallWorkspaceMeansFewerParts() {
        for (const AttentionVariant variant : {AttentionVariant::kFma, AttentionVariant::kMma}) {
            Problem problem({64, 4, 1, 16, DataType::kF16}, kSeqLens, kNumPrefillRows, 43);
            const std::vector<double> reference = attentionReference(problem.params);
            problem.params.variant = variant;
            problem.params.num_splits = 9;
            problem.params.host_row_to_seq = problem.params.row_to_seq;
            const int64_t wanted =
                pagedAttentionWorkspaceBytes(problem.params, context_.num_multiprocessors);
            QVERIFY(wanted > 0);
            for (const int64_t num_bytes : {int64_t{0}, wanted / 9, wanted / 2, wanted}) {
                std::vector<float> workspace(static_cast<size_t>(num_bytes) / sizeof(float) + 64,
                                             NAN);
                ExecutionContext context = context_;
                context.workspace = workspace.data();
                context.workspace_bytes = num_bytes / 4 * 4;
                compare(
                    problem, reference, [&] { pagedAttentionSimt(problem.params, context); },
                    variantName(variant));
                QVERIFY(std::all_of(workspace.end() - 64, workspace.end(),
                                    [](float value) { return std::isnan(value); }));
                const bool used = !std::all_of(workspace.begin(), workspace.end(),
                                               [](float value) { return std::isnan(value); });
                QCOMPARE(used, num_bytes >= wanted / 2);
            }
        }
    }

    // Chunks longer than a tile, behind a prefix, with and without a window, in several types.
    void prefillChunksAgreeWithDenseReference() {
        for (const Shape& shape :
             {Shape{64, 2, 2, 16, DataType::kF16}, Shape{32, 6, 2, 3, DataType::kBF16},
              Shape{128, 8, 1, 16, DataType::kInt8, 20}, Shape{16, 14, 2, 1, DataType::kF16},
              Shape{192, 16, 1, 16, DataType::kBF16}, Shape{32, 20, 1, 256, DataType::kInt8},
              Shape{48, 4, 4, 16, DataType::kF32, 7}, Shape{20, 3, 1, 16, DataType::kF16, 30}}) {
            Problem problem(shape, {3, 90}, 45, 47);
            const std::vector<double> reference = attentionReference(problem.params);
            for (const AttentionVariant variant : variantsFor(shape)) {
                problem.params.variant = variant;
                for (const int num_splits : {1, 3}) {
                    if (num_splits > 1 && shape.head_dim > 64) continue;
                    problem.params.num_splits = num_splits;
                    compare(
                        problem, reference, [&] { pagedAttentionSimt(problem.params, context_); },
                        variantName(variant));
                }
            }
            compare(
                problem, reference, [&] { pagedAttentionCpu(problem.params, context_); }, "cpu");
        }
    }

    // Rows of one sequence that see nothing in common: what lies between is in no block.
    void farApartRowsOfASequenceReadNothingBetween() {
        for (const DataType dtype : kKvDataTypes) {
            const Shape shape{32, 4, 2, 4, dtype, 5};
            Problem problem(shape, {2, 200}, 0, 53, {10, 11, 100, 103, 60, 9, 199});
            const std::vector<double> reference = attentionReference(problem.params);
            for (const AttentionVariant variant : variantsFor(shape)) {
                problem.params.variant = variant;
                compare(
                    problem, reference, [&] { pagedAttentionSimt(problem.params, context_); },
                    variantName(variant));
            }
        }
    }

    // Without a host copy of row_to_seq every row reads for itself.
    void rowsNeedNotShare() {
        for (const Shape& shape :
             {Shape{64, 4, 2, 16, DataType::kF16}, Shape{64, 1, 1, 16, DataType::kInt8, 30}}) {
            Problem problem(shape, {40, 90}, 20, 59);
            const std::vector<double> reference = attentionReference(problem.params);
            const std::vector<int32_t> each_its_own = [&] {
                std::vector<int32_t> values;
                for (int r = 0; r < problem.params.num_rows; ++r) values.push_back(r % 2);
                return values;
            }();
            problem.params.host_row_to_seq = each_its_own.data();
            for (const AttentionVariant variant : variantsFor(shape)) {
                problem.params.variant = variant;
                compare(
                    problem, reference, [&] { pagedAttentionSimt(problem.params, context_); },
                    variantName(variant));
            }
        }
    }

    void massAgreesWithDenseReference() {
        for (const DataType dtype : kKvDataTypes) {
            for (const Shape& shape : {Shape{64, 6, 2, 16, dtype}, Shape{20, 2, 2, 3, dtype, 40}}) {
                Problem problem(shape, kSeqLens, kNumPrefillRows, 61);
                constexpr int kStride = 310;
                const size_t num_planes = kSeqLens.size() * 2;
                std::vector<float> mass(num_planes * kStride);
                problem.params.mass = mass.data();
                problem.params.mass_stride = kStride;
                const std::vector<double> reference = attentionMassReference(problem.params);
                const std::vector<double> output_reference = attentionReference(problem.params);
                const auto check = [&](const char* name) {
                    double total = 0;
                    for (size_t i = 0; i < mass.size(); ++i) {
                        const double own = static_cast<double>(mass[i]) - 1;
                        QVERIFY2(std::abs(own - reference[i]) <= 1e-4, name);
                        if (reference[i] == 0) QCOMPARE(mass[i], 1.f);
                        total += own;
                    }
                    // Each row and query head has one to give.
                    const double expected = problem.params.num_rows * shape.num_heads;
                    QVERIFY2(std::abs(total - expected) <= 1e-4 * expected, name);
                };
                for (const AttentionVariant variant : variantsFor(shape)) {
                    problem.params.variant = variant;
                    for (const int num_splits : {1, 3}) {
                        problem.params.num_splits = num_splits;
                        std::fill(mass.begin(), mass.end(), 1.f);  // added to, not overwritten
                        compare(
                            problem, output_reference,
                            [&] { pagedAttentionSimt(problem.params, context_); },
                            variantName(variant));
                        check(variantName(variant));
                    }
                }
                std::fill(mass.begin(), mass.end(), 1.f);
                compare(
                    problem, output_reference, [&] { pagedAttentionCpu(problem.params, context_); },
                    "cpu");
                check("cpu");
            }
        }
    }

    void massChangesNoBitOfTheOutput() {
        for (const auto& attention : {pagedAttentionCpu, pagedAttentionSimt}) {
            Problem problem({48, 6, 2, 16, DataType::kF16}, kSeqLens, kNumPrefillRows, 67);
            attention(problem.params, context_);
            const std::vector<float> without = problem.output;
            std::vector<float> mass(kSeqLens.size() * 2 * 300);
            problem.params.mass = mass.data();
            problem.params.mass_stride = 300;
            attention(problem.params, context_);
            QCOMPARE(problem.output, without);
        }
    }

    // The same kernel without the table: the same bits.
    void contiguousAttentionGivesTheSameBits() {
        for (const DataType dtype : {DataType::kF16, DataType::kBF16}) {
            for (const Shape& shape : {Shape{64, 2, 2, 16, dtype}, Shape{128, 8, 2, 3, dtype},
                                       Shape{32, 32, 2, 16, dtype}, Shape{256, 4, 2, 16, dtype}}) {
                Problem problem(shape, kSeqLens, 0, 71);
                const PagedKvView& kv = problem.params.kv;
                constexpr int kMaxLen = 304;
                const size_t row_bytes = static_cast<size_t>(kv.num_kv_heads) * kv.head_dim * 2;
                std::vector<std::byte> parts[2];
                for (int part = 0; part < 2; ++part) {
                    parts[part].resize(kSeqLens.size() * kMaxLen * row_bytes, std::byte{0xff});
                    for (size_t s = 0; s < kSeqLens.size(); ++s) {
                        for (int i = 0; i < kSeqLens[s]; ++i) {
                            const int64_t block_id = problem.block_tables[static_cast<size_t>(
                                static_cast<int>(s) * problem.params.max_blocks_per_seq +
                                i / kv.block_size)];
                            const int64_t slot = block_id * kv.block_size + i % kv.block_size;
                            std::memcpy(parts[part].data() +
                                            (s * kMaxLen + static_cast<size_t>(i)) * row_bytes,
                                        kv.data + kv.offset(1, part, slot, 0) * 2, row_bytes);
                        }
                    }
                }
                ContiguousAttentionParams params;
                params.query = problem.params.query;
                params.key = parts[PagedKvView::kKey].data();
                params.value = parts[PagedKvView::kValue].data();
                params.dtype = dtype;
                params.context_lens = problem.params.context_lens;
                params.num_seqs = problem.params.num_seqs;
                params.max_context_len = kMaxLen;
                params.num_heads = shape.num_heads;
                params.num_kv_heads = shape.num_kv_heads;
                params.head_dim = shape.head_dim;
                params.scale = problem.params.scale;
                for (const AttentionVariant variant : variantsFor(shape)) {
                    for (const int num_splits : {1, 4}) {
                        problem.params.variant = params.variant = variant;
                        problem.params.num_splits = params.num_splits = num_splits;
                        pagedAttentionSimt(problem.params, context_);
                        std::vector<float> output(problem.output.size(), NAN);
                        params.output = output.data();
                        contiguousAttentionSimt(params, context_);
                        QCOMPARE(output, problem.output);
                    }
                }
            }
        }
    }

    void regionsGatherRowsThatShare() {
        const auto regionsOf = [](const std::vector<int32_t>& rows) {
            QString text;
            for (const AttentionRegion& r :
                 attentionRegions(rows.data(), static_cast<int>(rows.size()))) {
                text +=
                    QString(r.is_shared ? "[%1+%2]" : "(%1+%2)").arg(r.first_row).arg(r.num_rows);
            }
            return text;
        };
        QCOMPARE(regionsOf({0, 1, 2}), QString("(0+3)"));
        QCOMPARE(regionsOf({4, 4, 4}), QString("[0+3]"));
        QCOMPARE(regionsOf({0, 1, 2, 2, 3, 3, 3, 4}), QString("(0+2)[2+5](7+1)"));
        QCOMPARE(attentionRegions(nullptr, 5).size(), size_t{1});
        QVERIFY(!attentionRegions(nullptr, 5)[0].is_shared);
    }

    void splitsFillTheMultiprocessors() {
        // Enough to do without: 256 sequences of 8 KV heads, five waves.
        QCOMPARE(attentionSplits(256 * 8, 4096, 132), 1);
        // One sequence, 8 KV heads, 128 Ki tokens: all of 132 * 3 places, in one wave.
        const int alone = attentionSplits(8, 131072, 132);
        QVERIFY(alone >= 40 && 8 * alone <= 132 * kAttentionResidentThreadBlocks);
        // Too short to split.
        QCOMPARE(attentionSplits(1, 255, 132), 1);
        QCOMPARE(attentionSplits(1, 1, 132), 1);
        for (const int64_t num_thread_blocks : {1, 7, 32, 100, 397, 1000}) {
            for (const int64_t context_len : {100, 1000, 4096, 40000, 1000000}) {
                const int splits = attentionSplits(num_thread_blocks, context_len, 132);
                QVERIFY(splits >= 1 && splits <= kAttentionMaxSplits);
                QVERIFY(splits == 1 || context_len / splits >= kAttentionMinSplitLen);
                const auto cost = [&](int64_t s) {
                    const int64_t places = 132 * kAttentionResidentThreadBlocks;
                    return (num_thread_blocks * s + places - 1) / places *
                           ((context_len + s - 1) / s + kAttentionMinSplitLen / 2);
                };
                QVERIFY(cost(splits) <= cost(1));
                QVERIFY(splits == 1 || cost(splits) < cost(splits - 1));
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
            // int8 through matrix instructions: weight times scale in 16 bits.
            const auto check = [&](const char* name, float tolerance) {
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
                            const float own =
                                problem.output[static_cast<size_t>((r * 6 + head) * 48 + d)];
                            QVERIFY2(std::abs(own - value) <= tolerance * std::abs(value), name);
                        }
                    }
                }
            };
            pagedAttentionCpu(problem.params, context_);
            check("cpu", 0.f);
            for (const AttentionVariant variant : variantsFor({48, 6, 2, 16, dtype})) {
                problem.params.variant = variant;
                std::fill(problem.output.begin(), problem.output.end(), NAN);
                pagedAttentionSimt(problem.params, context_);
                const bool is_rounded =
                    variant == AttentionVariant::kMma && dtype == DataType::kInt8;
                check(variantName(variant), is_rounded ? 0x1p-15f : 0.f);
            }
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
        QVERIFY(refused([](PagedAttentionParams& p) { p.num_splits = -1; }));
        QVERIFY(refused([](PagedAttentionParams& p) { p.max_context_len = 19; }));
        QVERIFY(refused([](PagedAttentionParams& p) { p.max_context_len = 33; }));
        std::vector<float> mass(40);
        QVERIFY(refused([&](PagedAttentionParams& p) {
            p.mass = mass.data();
            p.mass_stride = 19;
        }));
        QVERIFY(refused([](PagedAttentionParams& p) {
            p.kv.dtype = DataType::kInt8;
            p.kv.data += 1;
        }));
    }

    void cleanupTestCase() { qInfo("largest error of all: %.2g", worst_); }
};

QTEST_GUILESS_MAIN(PagedAttentionTest)
#include "paged_attention_test.moc"
