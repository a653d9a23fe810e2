// SPDX-License-Identifier: MIT
#include <cfloat>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <QTest>

#include "kernels/copy_blocks/copy_blocks.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/vector_paths.h"
#include "kernels/embedding/embedding.h"
#include "kernels/half.h"
#include "kernels/int8_row.h"
#include "kernels/kv_cache_write/kv_cache_write.h"
#include "kernels/matmul/matmul.h"
#include "kernels/quantise.h"
#include "kernels/reference/dequantise_reference.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "kernels/silu_mul/silu_mul.h"
#include "tests/support/numbers.h"

using namespace kvlab;

namespace {

struct Runner {
    explicit Runner(int num_threads) : threads(num_threads) { context.threads = &threads; }
    ThreadPool threads;
    ExecutionContext context;
};

std::vector<uint16_t> asHalf(const std::vector<float>& values) {
    std::vector<uint16_t> half;
    for (const float value : values) half.push_back(floatToHalf(value));
    return half;
}

}  // namespace

class CpuOpsTest : public QObject {
    Q_OBJECT

  private slots:
    void halfRoundsToNearestEven() {
        QCOMPARE(floatToHalf(1.f), uint16_t{0x3c00});
        QCOMPARE(floatToHalf(65504.f), uint16_t{0x7bff});
        QCOMPARE(floatToHalf(65520.f), uint16_t{0x7c00});
        QCOMPARE(floatToHalf(0x1p-24f), uint16_t{1});
        QCOMPARE(floatToHalf(0x1p-25f), uint16_t{0});
        QCOMPARE(floatToHalf(0x1.8p-24f), uint16_t{2});
        QCOMPARE(floatToHalf(1.f + 0x1p-11f), uint16_t{0x3c00});
        QCOMPARE(floatToHalf(1.f + 0x1.8p-10f), uint16_t{0x3c02});
        for (uint32_t bits = 0; bits < 0x10000; ++bits) {
            const float value = halfToFloat(static_cast<uint16_t>(bits));
            if (std::isnan(value)) {
                QVERIFY(std::isnan(halfToFloat(floatToHalf(value))));
            } else {
                QCOMPARE(floatToHalf(value), static_cast<uint16_t>(bits));
            }
        }
        QCOMPARE(floatToBfloat16(1.f + 0x1p-8f), uint16_t{0x3f80});
        QCOMPARE(bfloat16ToFloat(floatToBfloat16(-3.f)), -3.f);
    }

    void wideningIsTheSameOnEveryPath() {
        std::vector<uint16_t> half(0x10000);
        for (size_t i = 0; i < half.size(); ++i) half[i] = static_cast<uint16_t>(i);
        std::vector<float> wide(half.size());
        vectorPaths().widen(half.data(), DataType::kF16, static_cast<int64_t>(half.size()),
                            wide.data());
        for (size_t i = 0; i < half.size(); ++i) {
            const float expected = halfToFloat(half[i]);
            QVERIFY(wide[i] == expected || (std::isnan(wide[i]) && std::isnan(expected)));
        }
        vectorPaths().widen(half.data(), DataType::kBF16, static_cast<int64_t>(half.size()),
                            wide.data());
        for (size_t i = 0; i < half.size(); ++i) {
            const auto bits = static_cast<uint32_t>(half[i]) << 16;
            QVERIFY(std::memcmp(&wide[i], &bits, sizeof(bits)) == 0);
        }
        std::vector<int8_t> bytes(256 + 13);
        for (size_t i = 0; i < bytes.size(); ++i) {
            bytes[i] = static_cast<int8_t>(static_cast<int>(i % 256) - 128);
        }
        vectorPaths().widen(bytes.data(), DataType::kInt8, static_cast<int64_t>(bytes.size()),
                            wide.data());
        for (size_t i = 0; i < bytes.size(); ++i) {
            QCOMPARE(wide[i], static_cast<float>(static_cast<int>(i % 256) - 128));
        }
    }

    void int8RowsByHand() {
        const auto stored = [](const std::vector<float>& row) {
            std::vector<int8_t> values(row.size(), 99);
            const float scale =
                storeInt8Row(row.data(), static_cast<int>(row.size()), values.data());
            return std::pair{scale, std::vector<int>(values.begin(), values.end())};
        };
        using Row = std::pair<float, std::vector<int>>;
        // Scale 1: halves go to the even neighbour.
        QCOMPARE(stored({127, -63.5, 0.5, 1.5, -2.5, 0.49f}), (Row{1.f, {127, -64, 0, 2, -2, 0}}));
        QCOMPARE(stored({-0.25, 0.25, 0.13f}), (Row{0.25f / 127.f, {-127, 127, 66}}));
        QCOMPARE(stored({0, -0.f, 0}), (Row{0.f, {0, 0, 0}}));
        QCOMPARE(stored({1e-36f, -1e-40f}), (Row{0.f, {0, 0}}));
        const auto largest = stored({3e38f, -3e38f, 1});
        QCOMPARE(largest.second, (std::vector<int>{127, -127, 0}));
        QVERIFY(std::isfinite(127.f * largest.first));
        for (const float broken : {NAN, -NAN, INFINITY, -INFINITY}) {
            for (const auto& [scale, values] :
                 {stored({broken, 1, 2}), stored({1, broken, 2}), stored({1, 2, broken})}) {
                QVERIFY(std::isnan(scale));
                QCOMPARE(values, (std::vector<int>{0, 0, 0}));
            }
        }
    }

    // Nothing is off by more than half a scale (and the rounding of one product), whatever the
    // magnitude of the row; the largest magnitude is the scale times 127.
    void int8RowsAreHalfAScaleFromTheirValues() {
        for (int exponent = -120; exponent <= 120; exponent += 3) {
            std::vector<float> row = normalValues(64, static_cast<uint64_t>(exponent + 200));
            double largest = 0;
            for (float& value : row) {
                value = std::ldexp(value, exponent);
                largest = std::max(largest, std::abs(static_cast<double>(value)));
            }
            std::vector<int8_t> values(64);
            const double scale = storeInt8Row(row.data(), 64, values.data());
            if (largest < 127. * FLT_MIN) {
                QCOMPARE(scale, 0.);
                continue;
            }
            QVERIFY(std::abs(scale * 127 - largest) <= largest * 0x1p-23);
            for (size_t d = 0; d < 64; ++d) {
                QVERIFY(std::abs(values[d] * scale - row[d]) <= scale * (0.5 + 1e-4));
            }
        }
    }

    void matmulAgreesWithDoublesAndWithItself_data() {
        QTest::addColumn<int>("num_inputs");
        QTest::addColumn<int>("num_outputs");
        QTest::addColumn<int>("type");
        // The last two have tiles of 16 and of 4 weight rows, and a rest.
        const int sizes[][2] = {{1, 1},   {16, 16}, {37, 19},   {128, 320}, {320, 129},
                                {500, 3}, {32, 5},  {256, 130}, {1024, 50}, {8448, 7}};
        for (const auto& size : sizes) {
            for (const TensorType type : kAllTensorTypes) {
                if (size[0] % tensorBlockValues(type) != 0) continue;
                QTest::addRow("%d to %d %s", size[0], size[1], tensorTypeName(type))
                    << size[0] << size[1] << static_cast<int>(type);
            }
        }
    }

    void matmulAgreesWithDoublesAndWithItself() {
        QFETCH(int, num_inputs);
        QFETCH(int, num_outputs);
        QFETCH(int, type);
        constexpr int kRows = 11;
        const auto input = normalValues(size_t{kRows} * num_inputs, 1);
        const auto weight = normalValues(static_cast<size_t>(num_inputs) * num_outputs, 2);
        const auto stored = quantise(static_cast<TensorType>(type), weight.data(),
                                     static_cast<int64_t>(weight.size()));
        const auto rounded = dequantiseReference(static_cast<TensorType>(type), stored.data(),
                                                 static_cast<int64_t>(weight.size()));
        MatmulParams p;
        p.weight = stored.data();
        p.type = static_cast<TensorType>(type);
        p.num_inputs = num_inputs;
        p.num_outputs = num_outputs;

        std::vector<float> all(size_t{kRows} * num_outputs);
        Runner one(1);
        p.input = input.data();
        p.num_rows = kRows;
        p.output = all.data();
        matmulCpu(p, one.context);
        double worst = 0, largest = 0;
        for (int r = 0; r < kRows; ++r) {
            for (int o = 0; o < num_outputs; ++o) {
                double sum = 0;
                for (int k = 0; k < num_inputs; ++k) {
                    sum += static_cast<double>(input[static_cast<size_t>(r * num_inputs + k)]) *
                           rounded[static_cast<size_t>(o * num_inputs + k)];
                }
                worst =
                    std::max(worst, std::abs(sum - all[static_cast<size_t>(r * num_outputs + o)]));
                largest = std::max(largest, std::abs(sum));
            }
        }
        QVERIFY(worst <= 1e-5 * largest);

        // Each row alone, and all rows with threads: the same bits.
        Runner three(3);
        for (int first = 0; first < kRows; ++first) {
            for (const int count : {1, 2, 5}) {
                if (first + count > kRows) continue;
                std::vector<float> some(static_cast<size_t>(count) * num_outputs);
                p.input = input.data() + static_cast<size_t>(first) * num_inputs;
                p.num_rows = count;
                p.output = some.data();
                matmulCpu(p, three.context);
                QCOMPARE(
                    std::memcmp(some.data(), all.data() + static_cast<size_t>(first) * num_outputs,
                                some.size() * sizeof(float)),
                    0);
            }
        }

        std::vector<float> added(all.size(), 1.f);
        p.input = input.data();
        p.num_rows = kRows;
        p.output = added.data();
        p.accumulate = true;
        matmulCpu(p, three.context);
        for (size_t i = 0; i < all.size(); ++i) QCOMPARE(added[i], all[i] + 1.f);

        // A bias is added once, to the residual stream and without it, to many rows and to one.
        const auto bias = normalValues(static_cast<size_t>(num_outputs), 3);
        p.bias = bias.data();
        for (const int count : {1, kRows}) {
            p.num_rows = count;
            for (const bool accumulate : {false, true}) {
                p.accumulate = accumulate;
                std::vector<float> biased(static_cast<size_t>(count) * num_outputs, 2.f);
                p.output = biased.data();
                matmulCpu(p, three.context);
                for (size_t i = 0; i < biased.size(); ++i) {
                    const float start = bias[i % static_cast<size_t>(num_outputs)];
                    QCOMPARE(biased[i], (accumulate ? 2.f + start : start) + all[i]);
                }
            }
        }
    }

    void rmsNormAgreesWithDoubles() {
        const int dim = 37, rows = 5;
        const auto input = normalValues(size_t{dim} * rows, 3);
        const auto weight = normalValues(dim, 4);
        std::vector<float> output(input.size());
        RmsNormParams p;
        p.input = input.data();
        p.weight = weight.data();
        p.output = output.data();
        p.num_rows = rows;
        p.dim = dim;
        p.epsilon = 1e-5f;
        Runner runner(2);
        rmsNormCpu(p, runner.context);
        for (int r = 0; r < rows; ++r) {
            double sum = 0;
            for (int i = 0; i < dim; ++i)
                sum += std::pow(double{input[static_cast<size_t>(r * dim + i)]}, 2);
            for (int i = 0; i < dim; ++i) {
                const size_t at = static_cast<size_t>(r * dim + i);
                const double expected = input[at] * double{weight[static_cast<size_t>(i)]} /
                                        std::sqrt(sum / dim + 1e-5);
                QVERIFY(std::abs(output[at] - expected) <= 1e-6 * (1 + std::abs(expected)));
            }
        }
    }

    void ropeTurnsAdjacentPairs() {
        // One head of 6 values, 4 of them turning: base 100 → the second pair turns a tenth as
        // fast.
        std::vector<float> data{1, 0, 0, 1, 5, 6};
        const std::vector<int32_t> positions{3};
        RopeParams p;
        p.data = data.data();
        p.positions = positions.data();
        p.num_tokens = 1;
        p.num_heads = 1;
        p.head_dim = 6;
        p.rope_dim = 4;
        p.base = 100.f;
        Runner runner(1);
        ropeCpu(p, runner.context);
        QVERIFY(std::abs(data[0] - std::cos(3.0)) < 1e-6);
        QVERIFY(std::abs(data[1] - std::sin(3.0)) < 1e-6);
        QVERIFY(std::abs(data[2] + std::sin(0.3)) < 1e-6);
        QVERIFY(std::abs(data[3] - std::cos(0.3)) < 1e-6);
        QCOMPARE(data[4], 5.f);
        QCOMPARE(data[5], 6.f);
    }

    // The same head in the order of qwen2: the pairs are half of the turning values apart. Scaled
    // by a half and with a divisor of 4, position 6 turns the second pair by 6 / 2 / 10 / 4.
    void ropeTurnsHalvesAndScales() {
        std::vector<float> data{1, 0, 0, 1, 5, 6};
        const std::vector<int32_t> positions{6};
        const std::vector<float> divisors{1, 4};
        RopeParams p;
        p.data = data.data();
        p.positions = positions.data();
        p.num_tokens = 1;
        p.num_heads = 1;
        p.head_dim = 6;
        p.rope_dim = 4;
        p.base = 100.f;
        p.scale = 0.5f;
        p.divisors = divisors.data();
        p.style = RopeStyle::kHalfSplit;
        Runner runner(1);
        ropeCpu(p, runner.context);
        QVERIFY(std::abs(data[0] - std::cos(3.0)) < 1e-6);
        QVERIFY(std::abs(data[2] - std::sin(3.0)) < 1e-6);
        QVERIFY(std::abs(data[1] + std::sin(0.075)) < 1e-6);
        QVERIFY(std::abs(data[3] - std::cos(0.075)) < 1e-6);
        QCOMPARE(data[4], 5.f);
        QCOMPARE(data[5], 6.f);
    }

    void siluMulAgreesWithDoubles() {
        const auto gate = normalValues(1000, 5);
        const auto up = normalValues(1000, 6);
        std::vector<float> output(1000);
        SiluMulParams p;
        p.gate = gate.data();
        p.up = up.data();
        p.output = output.data();
        p.num_values = 1000;
        Runner runner(2);
        siluMulCpu(p, runner.context);
        for (size_t i = 0; i < output.size(); ++i) {
            const double expected = gate[i] / (1 + std::exp(-double{gate[i]})) * up[i];
            QVERIFY(std::abs(output[i] - expected) <= 1e-6 * (1 + std::abs(expected)));
        }
    }

    void embeddingWidensRows() {
        const auto table = asHalf({1, 2, 3, 4, 5, 6});
        const std::vector<int32_t> ids{2, 0};
        std::vector<float> output(4);
        EmbeddingParams p;
        p.table = table.data();
        p.token_ids = ids.data();
        p.output = output.data();
        p.num_tokens = 2;
        p.vocab_size = 3;
        p.dim = 2;
        Runner runner(1);
        embeddingCpu(p, runner.context);
        QCOMPARE(output, (std::vector<float>{5, 6, 1, 2}));

        const auto values = normalValues(size_t{3} * 256, 12);
        for (const TensorType type : kAllTensorTypes) {
            const auto stored = quantise(type, values.data(), 3 * 256);
            const auto expected = dequantiseReference(type, stored.data(), 3 * 256);
            std::vector<float> rows(size_t{2} * 256);
            p.table = stored.data();
            p.type = type;
            p.output = rows.data();
            p.dim = 256;
            embeddingCpu(p, runner.context);
            for (size_t i = 0; i < rows.size(); ++i) {
                const size_t from = i < 256 ? 2 * 256 + i : i - 256;
                QCOMPARE(rows[i], static_cast<float>(expected[from]));
            }
        }
    }

    // Values and scales lie where the layout says, and the pool has the bytes that the formula
    // 2 L H_kv (D + 4) gives for each token.
    void int8PoolsEndWithTheirScales() {
        PagedKvView kv;
        kv.dtype = DataType::kInt8;
        kv.num_layers = 3;
        kv.num_blocks = 5;
        kv.block_size = 4;
        kv.num_kv_heads = 2;
        kv.head_dim = 7;
        QCOMPARE(kv.numBytes(), int64_t{5 * 4} * 2 * 3 * 2 * (7 + 4));
        std::vector<float> pool(static_cast<size_t>(kv.numBytes()) / sizeof(float));
        kv.data = reinterpret_cast<std::byte*>(pool.data());
        const auto begin = reinterpret_cast<std::byte*>(kv.scales()) - kv.data;
        QCOMPARE(int64_t{begin}, int64_t{3 * 2 * 5 * 4 * 2 * 7});
        QCOMPARE(kv.rowIndex(2, PagedKvView::kValue, 19, 1), kv.numRows() - 1);
        QCOMPARE(kv.rowIndex(1, PagedKvView::kKey, 6, 1), int64_t{((1 * 2 + 0) * 20 + 6) * 2 + 1});
        // Values that end inside a float: the scales begin with the next one.
        kv.num_layers = kv.num_blocks = kv.block_size = kv.num_kv_heads = kv.head_dim = 1;
        QCOMPARE(reinterpret_cast<std::byte*>(kv.scales()) - kv.data, 4);
        QCOMPARE(kv.numBytes(), int64_t{4 + 2 * 4});
    }

    void writesGoToTheirSlotsAndNowhereElse() {
        PagedKvView kv;
        kv.num_layers = 2;
        kv.num_blocks = 3;
        kv.block_size = 4;
        kv.num_kv_heads = 2;
        kv.head_dim = 3;
        for (const DataType dtype : kKvDataTypes) {
            kv.dtype = dtype;
            std::vector<std::byte> pool(static_cast<size_t>(kv.numBytes()), std::byte{0xff});
            kv.data = pool.data();
            const auto key = normalValues(2 * 2 * 3, 7);
            const auto value = normalValues(2 * 2 * 3, 8);
            // Each plane its own slots: head 0 writes tokens to 5 and 6, head 1 to 7 and nowhere.
            const std::vector<int32_t> slot_mapping{5, 6, 7, -1};
            KvCacheWriteParams p;
            p.key = key.data();
            p.value = value.data();
            p.slot_mapping = slot_mapping.data();
            p.plane_stride = 2;
            p.num_tokens = 2;
            p.layer = 1;
            p.kv = kv;
            Runner runner(1);
            kvCacheWriteCpu(p, runner.context);
            const int bytes = dataTypeBytes(dtype);
            size_t untouched = 0;
            for (const std::byte b : pool) untouched += b == std::byte{0xff};
            QVERIFY(untouched >= pool.size() - static_cast<size_t>(3 * 2 * kvRowBytes(dtype, 3)));
            const auto stored = [&](int which, int slot, int head, int d) {
                float wide = 0;
                vectorPaths().widen(pool.data() + (kv.offset(1, which, slot, head) + d) * bytes,
                                    dtype, 1, &wide);
                if (dtype != DataType::kInt8) return wide;
                return wide * kv.scales()[kv.rowIndex(1, which, slot, head)];
            };
            const double tolerance = dtype == DataType::kF32   ? 0
                                     : dtype == DataType::kF16 ? 1e-3
                                                               : 1e-2;
            // int8 is off by a share of the row's largest magnitude; all here are below 3.
            const double absolute = dtype == DataType::kInt8 ? 3. / 254 : 0;
            for (int d = 0; d < 3; ++d) {
                const auto isClose = [&](float a, float b) {
                    return std::abs(a - b) <= tolerance * std::abs(b) + absolute;
                };
                QVERIFY(isClose(stored(PagedKvView::kKey, 5, 0, d), key[static_cast<size_t>(d)]));
                QVERIFY(isClose(stored(PagedKvView::kValue, 6, 0, d),
                                value[static_cast<size_t>(6 + d)]));
                QVERIFY(
                    isClose(stored(PagedKvView::kKey, 7, 1, d), key[static_cast<size_t>(3 + d)]));
            }
        }
    }

    void copiesTakeTheScalesAlong() {
        PagedKvView kv;
        kv.dtype = DataType::kInt8;
        kv.num_layers = 2;
        kv.num_blocks = 4;
        kv.block_size = 3;
        kv.num_kv_heads = 2;
        kv.head_dim = 5;
        const auto random = normalValues(static_cast<size_t>(kv.numBytes()) / sizeof(float), 10);
        std::vector<float> pool = random;
        kv.data = reinterpret_cast<std::byte*>(pool.data());
        PagedKvView before = kv;
        std::vector<float> pool_before = random;
        before.data = reinterpret_cast<std::byte*>(pool_before.data());
        const std::vector<int32_t> source{1, 0}, target{3, 2}, num_slots{2, 3};
        CopyBlocksParams p;
        p.source = source.data();
        p.target = target.data();
        p.num_slots = num_slots.data();
        p.num_pairs = 2;
        p.kv = kv;
        Runner runner(1);
        copyBlocksCpu(p, runner.context);
        const std::vector<int> came_from{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 11};
        for (int layer = 0; layer < 2; ++layer) {
            for (int which = 0; which < 2; ++which) {
                for (int slot = 0; slot < 12; ++slot) {
                    for (int head = 0; head < 2; ++head) {
                        const int64_t at = kv.rowIndex(layer, which, slot, head);
                        const int64_t from = before.rowIndex(
                            layer, which, came_from[static_cast<size_t>(slot)], head);
                        QCOMPARE(kv.scales()[at], before.scales()[from]);
                        QVERIFY(std::memcmp(kv.data + at * 5, before.data + from * 5, 5) == 0);
                    }
                }
            }
        }
    }

    void copiesTakeWrittenSlotsOfEveryLayer() {
        PagedKvView kv;
        kv.dtype = DataType::kF32;
        kv.num_layers = 2;
        kv.num_blocks = 4;
        kv.block_size = 3;
        kv.num_kv_heads = 1;
        kv.head_dim = 2;
        std::vector<float> pool = normalValues(static_cast<size_t>(kv.numValues()), 9);
        const std::vector<float> before = pool;
        kv.data = reinterpret_cast<std::byte*>(pool.data());
        const std::vector<int32_t> source{1}, target{3}, num_slots{2};
        CopyBlocksParams p;
        p.source = source.data();
        p.target = target.data();
        p.num_slots = num_slots.data();
        p.num_pairs = 1;
        p.kv = kv;
        Runner runner(1);
        copyBlocksCpu(p, runner.context);
        for (int layer = 0; layer < 2; ++layer) {
            for (int which = 0; which < 2; ++which) {
                for (int slot = 0; slot < 12; ++slot) {
                    const bool copied = slot == 9 || slot == 10;
                    const int64_t at = kv.offset(layer, which, slot, 0);
                    const int64_t from = copied ? kv.offset(layer, which, slot - 6, 0) : at;
                    for (int d = 0; d < 2; ++d) {
                        QCOMPARE(pool[static_cast<size_t>(at + d)],
                                 before[static_cast<size_t>(from + d)]);
                    }
                }
            }
        }
    }

    void everyItemRunsOnce() {
        for (const int num_threads : {1, 2, 5}) {
            ThreadPool pool(num_threads);
            for (const int64_t num_items : {0, 1, 7, 1000}) {
                std::vector<std::atomic<int>> runs(static_cast<size_t>(num_items));
                pool.parallelFor(num_items, 3, [&](int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) ++runs[static_cast<size_t>(i)];
                });
                for (const auto& count : runs) QCOMPARE(count.load(), 1);
            }
        }
    }
};

QTEST_GUILESS_MAIN(CpuOpsTest)
#include "cpu_ops_test.moc"
