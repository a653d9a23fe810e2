// SPDX-License-Identifier: MIT
#include "engine/kernel_walk.h"

#include <QTest>

#include "engine/engine.h"
#include "tests/support/tiny_model.h"

using namespace kvlab;

// Walks of a whole decode: each step's, by layer, against the block tables of the engine.
class KernelWalkTest : public QObject {
    Q_OBJECT

    using Walks = std::vector<std::shared_ptr<const KernelWalk>>;

    static EngineConfig configOf(const std::string& backend, Walks& told, int layer) {
        EngineConfig config;
        config.backend = backend;
        config.cache.block_size = 16;
        config.cache.num_blocks = 24;
        auto listener = std::make_shared<KernelWalkListener>();
        listener->wants = [layer](int asked) { return layer < 0 || asked == layer; };
        listener->on_walks = [&told](Walks walks) { told = std::move(walks); };
        config.kernel_walks = listener;
        return config;
    }

    static EngineRequest requestOf(int prompt_len, int num_samples) {
        EngineRequest request;
        for (int i = 0; i < prompt_len; ++i) request.prompt.push_back(TokenId(i % 20));
        request.num_samples = num_samples;
        request.max_tokens = 3;
        request.ignore_eos = true;
        return request;
    }

  private slots:
    void readsFollowTheTables() {
        Walks told;
        const auto weights = tinyModel();
        Engine engine(weights, nullptr, configOf("simt", told, -1));
        engine.submit(requestOf(50, 2));
        engine.submit(requestOf(17, 1));
        int num_reads = 0;
        while (engine.step() != nullptr) {
            // What finished in a step is released by the next, so the tables are those it ran with.
            const CacheState state = engine.state();
            if (!engine.hasWork()) break;
            QCOMPARE(told.size(), static_cast<size_t>(weights->config.num_layers));
            for (size_t layer = 0; layer < told.size(); ++layer) {
                const KernelWalk& walk = *told[layer];
                QCOMPARE(walk.attention.layer, static_cast<int>(layer));
                QCOMPARE(walk.attention.row_bytes, int64_t{2} * weights->config.head_dim);
                for (const AttentionLaunch& launch : walk.attention.launches) {
                    for (const AttentionThreadBlock& thread_block : launch.thread_blocks) {
                        for (const AttentionRun& run : thread_block.runs) {
                            const SequenceId id = walk.sequences[static_cast<size_t>(run.seq_idx)];
                            const auto& table =
                                state.sequences[static_cast<size_t>(id.value)].table;
                            for (const AttentionRead& read : run.reads) {
                                QCOMPARE(read.block,
                                         table[static_cast<size_t>(read.block_idx)].value);
                                ++num_reads;
                            }
                        }
                    }
                }
            }
            told.clear();
        }
        QVERIFY(num_reads > 50);
    }

    void onlyWantedLayersAreRecorded() {
        Walks told;
        Engine engine(tinyModel(), nullptr, configOf("simt", told, 1));
        engine.submit(requestOf(20, 1));
        engine.step();
        QCOMPARE(told.size(), size_t{1});
        QCOMPARE(told.front()->attention.layer, 1);
    }

    void otherBackendsTellNothing() {
        Walks told;
        Engine engine(tinyModel(), nullptr, configOf("cpu", told, -1));
        engine.submit(requestOf(20, 1));
        while (engine.step() != nullptr) {
        }
        QVERIFY(told.empty());
    }
};

QTEST_GUILESS_MAIN(KernelWalkTest)
#include "kernel_walk_test.moc"
