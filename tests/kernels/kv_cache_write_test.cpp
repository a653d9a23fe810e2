// SPDX-License-Identifier: MIT
#include "kernels/kv_cache_write/kv_cache_write.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include <QtTest>

#include "kernels/simt/simt.h"

using namespace kvlab;

namespace {

// New rows for a pool of 0xff bytes (NaN), in slots of random order; some tokens are not stored.
struct Problem {
    KvCacheWriteParams params;
    std::vector<float> key;
    std::vector<float> value;
    std::vector<int32_t> slot_mapping;
    std::vector<std::byte> pool;  // where no alignment is promised, 1 to 15 bytes too many
    size_t shift;

    Problem(DataType dtype,
            int head_dim,
            int num_kv_heads,
            int num_tokens,
            bool planes,
            size_t shift_bytes = 0)
        : shift(shift_bytes) {
        PagedKvView& kv = params.kv;
        kv.dtype = dtype;
        kv.num_layers = 2;
        kv.block_size = 3;
        kv.num_blocks = num_tokens / 3 + 2;
        kv.num_kv_heads = num_kv_heads;
        kv.head_dim = head_dim;
        pool.resize(static_cast<size_t>(kv.numBytes()) + shift);
        std::mt19937 random(static_cast<unsigned>(head_dim * 1000 + num_tokens));
        std::normal_distribution<float> normal;
        const size_t num_values = static_cast<size_t>(num_tokens) * num_kv_heads * head_dim;
        // Magnitudes from the smallest to the largest that f16 rounds, so that every case of the
        // rounding occurs.
        for (std::vector<float>* values : {&key, &value}) {
            for (size_t i = 0; i < num_values; ++i) {
                values->push_back(
                    std::ldexp(normal(random), static_cast<int>(random() % 40u) - 26));
            }
        }
        std::vector<int32_t> order(static_cast<size_t>(kv.num_blocks) * kv.block_size);
        for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
        for (int plane = 0; plane < (planes ? num_kv_heads : 1); ++plane) {
            std::shuffle(order.begin(), order.end(), random);
            for (int t = 0; t < num_tokens; ++t) {
                slot_mapping.push_back(random() % 5u == 0 ? -1 : order[static_cast<size_t>(t)]);
            }
        }
        params.key = key.data();
        params.value = value.data();
        params.slot_mapping = slot_mapping.data();
        params.plane_stride = planes ? num_tokens : 0;
        params.num_tokens = num_tokens;
        params.layer = 1;
    }
    Problem(const Problem&) = delete;

    std::vector<std::byte> run(const std::function<void(const KvCacheWriteParams&)>& write) {
        std::fill(pool.begin(), pool.end(), std::byte{0xff});
        params.kv.data = pool.data() + shift;
        write(params);
        return pool;
    }
};

}  // namespace

class KvCacheWriteTest : public QObject {
    Q_OBJECT

  private:
    ExecutionContext context_;

  private slots:
    // Every byte of the pool, so that nothing else is touched; cpu_ops_test checks the CPU.
    void simtStoresTheBitsOfTheCpu() {
        for (const DataType dtype : kKvDataTypes) {
            for (const int head_dim : {1, 3, 16, 20, 64, 80, 128, 256}) {
                for (const bool planes : {false, true}) {
                    Problem problem(dtype, head_dim, 3, 7, planes);
                    const auto expected = problem.run(
                        [&](const KvCacheWriteParams& p) { kvCacheWriteCpu(p, context_); });
                    for (const simt::Settings& settings :
                         {simt::Settings{}, simt::Settings{simt::LaneOrder::kReverse, 0},
                          simt::Settings{simt::LaneOrder::kRandom, 3}}) {
                        const simt::ScopedSettings scoped(settings);
                        const auto stored = problem.run(
                            [&](const KvCacheWriteParams& p) { kvCacheWriteSimt(p, context_); });
                        QVERIFY2(stored == expected,
                                 qPrintable(QString("%1, head_dim %2, planes %3")
                                                .arg(dataTypeName(dtype))
                                                .arg(head_dim)
                                                .arg(planes)));
                    }
                }
            }
        }
    }

    void unalignedPoolsAreWritten() {
        for (const DataType dtype : {DataType::kF16, DataType::kBF16, DataType::kInt8}) {
            Problem problem(dtype, 64, 2, 5, false, dtype == DataType::kInt8 ? 4 : 2);
            const auto expected =
                problem.run([&](const KvCacheWriteParams& p) { kvCacheWriteCpu(p, context_); });
            const auto stored =
                problem.run([&](const KvCacheWriteParams& p) { kvCacheWriteSimt(p, context_); });
            QVERIFY(stored == expected);
        }
    }

    // int8_row.h: NaN and infinity become NaN of the whole row, zeros stay zeros; and no other row
    // notices.
    void brokenRowsAreStoredAsTheCpuStoresThem() {
        for (const float broken :
             {NAN, INFINITY, -INFINITY, 0.f, 1e-37f, std::numeric_limits<float>::max()}) {
            for (const int at : {0, 1, 31, 63}) {
                Problem problem(DataType::kInt8, 64, 1, 6, false);
                for (int t = 0; t < 6; ++t) {
                    problem.slot_mapping[static_cast<size_t>(t)] = t;
                    if (t % 2 == 0) {
                        std::fill_n(problem.key.begin() + t * 64, 64, 0.f);
                        problem.key[static_cast<size_t>(t * 64 + at)] = broken;
                        problem.value[static_cast<size_t>(t * 64 + at)] = broken;
                    }
                }
                const auto expected =
                    problem.run([&](const KvCacheWriteParams& p) { kvCacheWriteCpu(p, context_); });
                const auto stored = problem.run(
                    [&](const KvCacheWriteParams& p) { kvCacheWriteSimt(p, context_); });
                QVERIFY(stored == expected);
            }
        }
    }

    void wrongShapesAreRefused() {
        const auto refused = [&](const std::function<void(Problem&)>& spoil) {
            Problem problem(DataType::kF16, 8, 2, 4, true);
            spoil(problem);
            try {
                problem.run([&](const KvCacheWriteParams& p) { kvCacheWriteSimt(p, context_); });
            } catch (const std::invalid_argument&) {
                return true;
            }
            return false;
        };
        QVERIFY(!refused([](Problem&) {}));
        QVERIFY(!refused([](Problem& p) { p.params.num_tokens = 0; }));
        QVERIFY(refused([](Problem& p) { p.params.num_tokens = -1; }));
        QVERIFY(refused([](Problem& p) { p.params.key = nullptr; }));
        QVERIFY(refused([](Problem& p) { p.params.layer = 2; }));
        QVERIFY(refused([](Problem& p) { p.params.plane_stride = 3; }));
        QVERIFY(refused([](Problem& p) { p.slot_mapping[7] = 9; }));
        QVERIFY(refused([](Problem& p) { p.slot_mapping[0] = -2; }));
    }
};

QTEST_GUILESS_MAIN(KvCacheWriteTest)
#include "kv_cache_write_test.moc"
