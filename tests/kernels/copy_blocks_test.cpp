// SPDX-License-Identifier: MIT
#include "kernels/copy_blocks/copy_blocks.h"

#include <functional>
#include <random>
#include <stdexcept>
#include <vector>

#include <QtTest>

#include "kernels/simt/simt.h"

using namespace kvlab;

namespace {

// Three pairs, a whole block, a part and nothing, in a pool of random bytes.
struct Problem {
    CopyBlocksParams params;
    std::vector<int32_t> source{1, 0, 5};
    std::vector<int32_t> target{3, 6, 2};
    std::vector<int32_t> num_slots;
    std::vector<std::byte> bytes;
    std::vector<std::byte> pool;
    size_t shift;

    Problem(DataType dtype, int head_dim, int block_size, size_t shift_bytes = 0)
        : num_slots{block_size, (block_size + 1) / 2, 0}, shift(shift_bytes) {
        PagedKvView& kv = params.kv;
        kv.dtype = dtype;
        kv.num_layers = 3;
        kv.num_blocks = 7;
        kv.block_size = block_size;
        kv.num_kv_heads = 2;
        kv.head_dim = head_dim;
        std::mt19937 random(static_cast<unsigned>(head_dim));
        for (int64_t i = 0; i < kv.numBytes() + static_cast<int64_t>(shift); ++i) {
            bytes.push_back(static_cast<std::byte>(random()));
        }
        params.source = source.data();
        params.target = target.data();
        params.num_slots = num_slots.data();
        params.num_pairs = 3;
    }
    Problem(const Problem&) = delete;

    std::vector<std::byte> run(const std::function<void(const CopyBlocksParams&)>& copy) {
        pool = bytes;
        params.kv.data = pool.data() + shift;
        copy(params);
        return pool;
    }
};

}  // namespace

class CopyBlocksTest : public QObject {
    Q_OBJECT

  private:
    ExecutionContext context_;

    void compare(Problem& problem) {
        const auto expected =
            problem.run([&](const CopyBlocksParams& p) { copyBlocksCpu(p, context_); });
        QVERIFY(expected != problem.bytes);
        for (const simt::Settings& settings :
             {simt::Settings{}, simt::Settings{simt::LaneOrder::kReverse, 0},
              simt::Settings{simt::LaneOrder::kRandom, 5}}) {
            const simt::ScopedSettings scoped(settings);
            QVERIFY(problem.run([&](const CopyBlocksParams& p) { copyBlocksSimt(p, context_); }) ==
                    expected);
        }
    }

  private slots:
    // Every byte of the pool, so that nothing else is touched; cpu_ops_test checks the CPU.
    void simtCopiesTheBytesOfTheCpu() {
        for (const DataType dtype : kKvDataTypes) {
            for (const int head_dim : {1, 5, 16, 20, 64}) {
                for (const int block_size : {1, 3, 16}) {
                    Problem problem(dtype, head_dim, block_size);
                    compare(problem);
                }
            }
        }
    }

    void blocksOfSeveralPieces() {
        Problem problem(DataType::kF32, 128, 64);  // 64 KiB each: four pieces of 16 KiB
        compare(problem);
    }

    void unalignedPoolsAreCopied() {
        for (const size_t shift : {2, 4, 8}) {
            Problem problem(DataType::kF16, 64, 4, shift);
            compare(problem);
        }
    }

    void wrongShapesAreRefused() {
        const auto refused = [&](const std::function<void(Problem&)>& spoil) {
            Problem problem(DataType::kF16, 8, 4);
            spoil(problem);
            try {
                problem.run([&](const CopyBlocksParams& p) { copyBlocksSimt(p, context_); });
            } catch (const std::invalid_argument&) {
                return true;
            }
            return false;
        };
        QVERIFY(!refused([](Problem&) {}));
        QVERIFY(!refused([](Problem& p) { p.params.num_pairs = 0; }));
        QVERIFY(refused([](Problem& p) { p.params.num_pairs = -1; }));
        QVERIFY(refused([](Problem& p) { p.params.source = nullptr; }));
        QVERIFY(refused([](Problem& p) { p.target[1] = 7; }));
        QVERIFY(refused([](Problem& p) { p.source[2] = -1; }));
        QVERIFY(refused([](Problem& p) { p.num_slots[0] = 5; }));
    }
};

QTEST_GUILESS_MAIN(CopyBlocksTest)
#include "copy_blocks_test.moc"
