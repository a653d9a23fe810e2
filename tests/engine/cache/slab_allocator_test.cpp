// SPDX-License-Identifier: MIT
#include "engine/cache/slab_allocator.h"

#include <random>
#include <vector>

#include <QTest>

#include "engine/error.h"

using namespace kvlab;

class SlabAllocatorTest : public QObject {
    Q_OBJECT

  private slots:
    void theLowestRunThatFitsIsTaken() {
        SlabAllocator slabs(32);
        QCOMPARE(slabs.firstFit(33), BlockId());
        slabs.take(BlockId(0), 8);
        slabs.take(BlockId(20), 8);
        QCOMPARE(slabs.firstFit(4), BlockId(8));
        QCOMPARE(slabs.firstFit(12), BlockId(8));
        QCOMPARE(slabs.firstFit(13), BlockId());
        QCOMPARE(slabs.longestRun(), 12);
        for (int block = 27; block >= 20; --block) slabs.free(BlockId(block));
        QCOMPARE(slabs.firstFit(24), BlockId(8));
    }

    void brokenProtocolIsCaught() {
        SlabAllocator slabs(8);
        QVERIFY_THROWS_EXCEPTION(EngineError, slabs.free(BlockId(3)));
        slabs.take(BlockId(2), 3);
        QVERIFY_THROWS_EXCEPTION(EngineError, slabs.take(BlockId(4), 2));
        slabs.free(BlockId(3));
        QVERIFY_THROWS_EXCEPTION(EngineError, slabs.free(BlockId(3)));
    }

    // Against one bit a block and a scan from the start.
    void randomRunsMatchABitmap() {
        std::mt19937_64 random(3);
        const auto below = [&](int n) {
            return static_cast<int>(random() % static_cast<uint64_t>(n));
        };
        for (int episode = 0; episode < 200; ++episode) {
            const int num_blocks = 1 + below(60);
            SlabAllocator slabs(num_blocks);
            std::vector<bool> is_free(static_cast<size_t>(num_blocks), true);
            for (int operation = 0; operation < 300; ++operation) {
                const int count = 1 + below(12);
                int fit = -1, longest = 0, run = 0;
                for (int block = 0; block < num_blocks; ++block) {
                    run = is_free[static_cast<size_t>(block)] ? run + 1 : 0;
                    longest = std::max(longest, run);
                    if (run == count && fit < 0) fit = block - count + 1;
                }
                QCOMPARE(slabs.firstFit(count), fit < 0 ? BlockId() : BlockId(fit));
                QCOMPARE(slabs.longestRun(), longest);
                if (fit >= 0 && below(2) == 0) {
                    slabs.take(BlockId(fit), count);
                    for (int i = 0; i < count; ++i) is_free[static_cast<size_t>(fit + i)] = false;
                } else {
                    const int block = below(num_blocks);
                    if (is_free[static_cast<size_t>(block)]) continue;
                    slabs.free(BlockId(block));
                    is_free[static_cast<size_t>(block)] = true;
                }
            }
        }
    }
};

QTEST_GUILESS_MAIN(SlabAllocatorTest)
#include "slab_allocator_test.moc"
