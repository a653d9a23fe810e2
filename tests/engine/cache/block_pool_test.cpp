// SPDX-License-Identifier: MIT
#include "engine/cache/block_pool.h"

#include <QTest>

#include "engine/error.h"

using namespace kvlab;

class BlockPoolTest : public QObject {
    Q_OBJECT

  private slots:
    void blocksAreTakenInOrderAndReturnToTheEnd() {
        BlockPool pool(3, 16);
        QCOMPARE(pool.allocate(), BlockId(0));
        QCOMPARE(pool.allocate(), BlockId(1));
        QVERIFY(pool.release(BlockId(0)));
        QCOMPARE(pool.allocate(), BlockId(2));
        QCOMPARE(pool.allocate(), BlockId(0));
        QCOMPARE(pool.numFree(), 0);
        QCOMPARE(pool.numActive(), 3);
    }

    void aSharedBlockIsFreeOnlyAfterItsLastHolder() {
        BlockPool pool(2, 4);
        const BlockId block = pool.allocate();
        pool.setFilled(block, 3);
        pool.retain(block);
        QCOMPARE(pool.refCount(block), 2);
        QVERIFY(!pool.release(block));
        QCOMPARE(pool.numFilled(block), 3);
        QVERIFY(pool.release(block));
        QCOMPARE(pool.numFilled(block), 0);
        QCOMPARE(pool.numFree(), 2);
    }

    void anEmptyPoolSaysSo() {
        BlockPool pool(1, 1);
        pool.allocate();
        QVERIFY_THROWS_EXCEPTION(EngineError, pool.allocate());
    }

    void brokenProtocolIsCaught() {
        BlockPool pool(2, 16);
        QVERIFY_THROWS_EXCEPTION(EngineError, pool.release(BlockId(0)));
        QVERIFY_THROWS_EXCEPTION(EngineError, pool.retain(BlockId(0)));
        QVERIFY_THROWS_EXCEPTION(EngineError, pool.refCount(BlockId(2)));
        QVERIFY_THROWS_EXCEPTION(EngineError, pool.refCount(BlockId()));
        const BlockId block = pool.allocate();
        QVERIFY_THROWS_EXCEPTION(EngineError, pool.setFilled(block, 17));
    }

    void impossibleSizesAreRefused() {
        QVERIFY_THROWS_EXCEPTION(EngineError, BlockPool(0, 16));
        QVERIFY_THROWS_EXCEPTION(EngineError, BlockPool(1, 0));
        QVERIFY_THROWS_EXCEPTION(EngineError, BlockPool(1, 257));
    }
};

QTEST_GUILESS_MAIN(BlockPoolTest)
#include "block_pool_test.moc"
