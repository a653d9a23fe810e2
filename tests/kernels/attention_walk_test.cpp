// SPDX-License-Identifier: MIT
#include "kernels/paged_attention/attention_walk.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include <QtTest>

#include "kernels/paged_attention/attention_task.cuh"
#include "kernels/paged_attention/paged_attention.h"

using namespace kvlab;

namespace {

struct Case {
    DataType dtype = DataType::kF16;
    int head_dim = 16;
    int num_heads = 2;
    int num_kv_heads = 2;
    int block_size = 16;
    int window = 0;
    int num_splits = 1;
    int num_prefill_rows = 0;  // of the last sequence, behind its decode row's place
    AttentionVariant variant = AttentionVariant::kAuto;
};

// Ragged sequences in a pool whose blocks are handed out at random; values are of no interest.
struct Problem {
    PagedAttentionParams params;
    std::vector<std::byte> pool;
    std::vector<float> query, output;
    std::vector<int32_t> tables, row_to_seq, context_lens;

    Problem(const Case& shape, const std::vector<int>& seq_lens) {
        PagedKvView& kv = params.kv;
        kv.dtype = shape.dtype;
        kv.num_layers = 2;
        kv.block_size = shape.block_size;
        kv.num_kv_heads = shape.num_kv_heads;
        kv.head_dim = shape.head_dim;
        for (const int len : seq_lens) {
            const int num_blocks = (len + kv.block_size - 1) / kv.block_size;
            params.max_blocks_per_seq = std::max(params.max_blocks_per_seq, num_blocks);
            kv.num_blocks += num_blocks;
        }
        std::vector<int32_t> ids(static_cast<size_t>(kv.num_blocks));
        for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
        std::shuffle(ids.begin(), ids.end(), std::mt19937(7));
        pool.resize(static_cast<size_t>(kv.numBytes()));
        kv.data = pool.data();
        const int num_seqs = static_cast<int>(seq_lens.size());
        tables.assign(static_cast<size_t>(num_seqs * params.max_blocks_per_seq), 0);
        for (int s = 0; s < num_seqs; ++s) {
            const int len = seq_lens[static_cast<size_t>(s)];
            for (int i = 0; i * kv.block_size < len; ++i) {
                tables[static_cast<size_t>(s * params.max_blocks_per_seq + i)] = ids.back();
                ids.pop_back();
            }
            const bool is_chunk = s + 1 == num_seqs && shape.num_prefill_rows > 0;
            for (int i = is_chunk ? shape.num_prefill_rows : 1; i > 0; --i) {
                row_to_seq.push_back(s);
                context_lens.push_back(len - i + 1);
            }
        }
        params.layer = 1;
        params.num_seqs = num_seqs;
        params.num_rows = static_cast<int>(row_to_seq.size());
        params.num_heads = shape.num_heads;
        query.assign(static_cast<size_t>(params.num_rows * shape.num_heads * shape.head_dim), 0.f);
        output = query;
        params.query = query.data();
        params.output = output.data();
        params.block_tables = tables.data();
        params.row_to_seq = row_to_seq.data();
        params.context_lens = context_lens.data();
        params.scale = 1.f;
        params.window = shape.window;
        params.num_splits = shape.num_splits;
        params.variant = shape.variant;
    }

    std::vector<AttentionWalk> run() {
        std::vector<AttentionWalk> walks;
        AttentionTap tap{[](int) { return true; },
                         [&](AttentionWalk walk) { walks.push_back(std::move(walk)); }};
        ExecutionContext context;
        context.attention_tap = &tap;
        pagedAttentionSimt(params, context);
        return walks;
    }
    int block(int seq_idx, int block_idx) const {
        return tables[static_cast<size_t>(seq_idx * params.max_blocks_per_seq + block_idx)];
    }
    // What the row sees, from the definition.
    std::vector<int> visible(int row) const {
        std::vector<int> positions;
        const int len = context_lens[static_cast<size_t>(row)];
        for (int i = 0; i < len; ++i) {
            if (params.window == 0 || i >= len - params.window) positions.push_back(i);
        }
        return positions;
    }
};

}  // namespace

// What the kernels tell they read, against what must be read.
class AttentionWalkTest : public QObject {
    Q_OBJECT

  private slots:
    void eachVisiblePositionIsReadOncePerSlice_data() {
        QTest::addColumn<int>("dtype");
        QTest::addColumn<QList<int>>("shape");  // head_dim, heads, KV heads, block_size, window
        QTest::addColumn<int>("splits");
        QTest::addColumn<int>("prefill");
        QTest::addColumn<bool>("mma");
        const auto add = [](const char* name, DataType dtype, QList<int> shape, int splits,
                            int prefill, bool mma) {
            QTest::newRow(name) << static_cast<int>(dtype) << shape << splits << prefill << mma;
        };
        add("f32", DataType::kF32, {16, 2, 2, 16, 0}, 1, 0, false);
        add("f16, no group", DataType::kF16, {64, 2, 2, 16, 0}, 1, 0, false);
        add("f16, group of 2, split", DataType::kF16, {32, 4, 2, 16, 0}, 3, 0, false);
        add("blocks of 5", DataType::kF16, {16, 2, 1, 5, 0}, 2, 0, false);
        add("head of 20", DataType::kF16, {20, 4, 2, 16, 0}, 1, 0, false);
        add("window", DataType::kF16, {16, 2, 1, 16, 40}, 1, 0, false);
        add("group of 12, slices", DataType::kF32, {16, 12, 1, 16, 0}, 2, 0, false);
        add("matrix, group of 4", DataType::kF16, {64, 8, 2, 16, 0}, 1, 0, true);
        add("matrix, group of 8, split", DataType::kBF16, {64, 8, 1, 16, 0}, 3, 0, true);
        add("matrix, int8, blocks of 24", DataType::kInt8, {64, 8, 2, 24, 0}, 2, 0, true);
        add("matrix, window", DataType::kF16, {64, 4, 1, 16, 50}, 2, 0, true);
        add("matrix, head of 256", DataType::kF16, {256, 4, 1, 16, 0}, 1, 0, true);
        add("chunk", DataType::kF32, {16, 2, 2, 16, 0}, 1, 21, false);
        add("chunk, split, window", DataType::kF32, {16, 4, 2, 16, 30}, 2, 37, false);
        add("matrix, chunk", DataType::kF16, {64, 4, 2, 16, 0}, 1, 45, true);
        add("matrix, chunk, split, window", DataType::kF16, {64, 4, 2, 8, 33}, 2, 45, true);
    }
    void eachVisiblePositionIsReadOncePerSlice() {
        QFETCH(int, dtype);
        QFETCH(QList<int>, shape);
        QFETCH(int, splits);
        QFETCH(int, prefill);
        QFETCH(bool, mma);
        Case given;
        given.dtype = static_cast<DataType>(dtype);
        given.head_dim = shape[0];
        given.num_heads = shape[1];
        given.num_kv_heads = shape[2];
        given.block_size = shape[3];
        given.window = shape[4];
        given.num_splits = splits;
        given.num_prefill_rows = prefill;
        given.variant = mma ? AttentionVariant::kMma : AttentionVariant::kFma;
        Problem problem(given, {1, 70, 333, 131});

        for (const auto order : {simt::LaneOrder::kForward, simt::LaneOrder::kReverse}) {
            const simt::ScopedSettings settings({order, 0, 2});
            const std::vector<AttentionWalk> walks = problem.run();
            QCOMPARE(walks.size(), size_t{1});
            check(problem, walks.front(), mma, prefill > 0);
        }
    }

  private:
    void check(const Problem& problem, const AttentionWalk& walk, bool mma, bool has_chunk) {
        QCOMPARE(walk.layer, 1);
        QCOMPARE(walk.launches.size(), size_t{has_chunk ? 2u : 1u});
        // By row and query head: the positions that reached it, in all parts.
        std::map<std::pair<int, int>, std::vector<int>> read;
        int num_rows = 0;
        for (const AttentionLaunch& launch : walk.launches) {
            QCOMPARE(launch.kernel.find("Mma") != std::string::npos, mma);
            QCOMPARE(launch.thread_blocks.size(),
                     static_cast<size_t>(launch.grid_x * launch.grid_y * launch.grid_z));
            QCOMPARE(launch.grid_z, launch.num_splits);
            QCOMPARE(launch.grid_y, problem.params.kv.num_kv_heads * launch.num_slices);
            QCOMPARE(launch.grid_x, (launch.num_rows + launch.rows_per_thread_block - 1) /
                                        launch.rows_per_thread_block);
            QCOMPARE(launch.num_threads, 128);
            QVERIFY(launch.shared_bytes > 0);
            num_rows += launch.num_rows;
            for (const AttentionThreadBlock& thread_block : launch.thread_blocks) {
                for (const AttentionRun& run : thread_block.runs) {
                    QCOMPARE(run.kv_head, thread_block.y / launch.num_slices);
                    const int group = problem.params.num_heads / problem.params.kv.num_kv_heads;
                    QCOMPARE(run.first_head / group, run.kv_head);
                    std::vector<int> positions;
                    int last_round = 0;
                    for (const AttentionRead& entry : run.reads) {
                        QCOMPARE(entry.block, problem.block(run.seq_idx, entry.block_idx));
                        QVERIFY(entry.round >= last_round);
                        last_round = entry.round;
                        for (int i = entry.begin; i < entry.end; ++i) {
                            QCOMPARE(i / walk.block_size, entry.block_idx);
                            positions.push_back(i);
                        }
                    }
                    // All it looked up and nothing else was read, of K and of V.
                    const auto count = static_cast<int64_t>(positions.size());
                    QCOMPARE(count, int64_t{run.end - run.begin});
                    if (count > 0 || !mma) {
                        QCOMPARE(run.num_key_rows, count);
                        QCOMPARE(run.num_value_rows, count);
                    }
                    if (!mma) QCOMPARE(run.num_repeated, int64_t{0});
                    for (int row = run.row_begin; row < run.row_end; ++row) {
                        QCOMPARE(problem.row_to_seq[static_cast<size_t>(row)], run.seq_idx);
                        const std::vector<int> visible = problem.visible(row);
                        for (int h = run.first_head; h < run.first_head + run.num_heads; ++h) {
                            for (const int i : positions) {
                                // Rows of a chunk walk together and mask what they do not see.
                                if (run.row_end - run.row_begin > 1 &&
                                    !std::binary_search(visible.begin(), visible.end(), i)) {
                                    continue;
                                }
                                read[{row, h}].push_back(i);
                            }
                        }
                    }
                }
            }
        }
        QCOMPARE(num_rows, problem.params.num_rows);
        for (int row = 0; row < problem.params.num_rows; ++row) {
            for (int h = 0; h < problem.params.num_heads; ++h) {
                std::vector<int>& positions = read[{row, h}];
                std::sort(positions.begin(), positions.end());
                QVERIFY2(positions == problem.visible(row),
                         qPrintable(QString("row %1, head %2: %3 positions, %4 are seen")
                                        .arg(row)
                                        .arg(h)
                                        .arg(positions.size())
                                        .arg(problem.visible(row).size())));
            }
        }
    }

  private slots:
    // The rows of K and V that were touched, one by one, with their heads.
    void theRowsAreThoseOfTheOwnHead() {
        Case given;
        given.head_dim = 64;
        given.num_heads = 8;
        given.variant = AttentionVariant::kMma;
        for (const AttentionVariant variant : {AttentionVariant::kFma, AttentionVariant::kMma}) {
            given.variant = variant;
            Problem problem(given, {100, 37});
            problem.params.host_row_to_seq = problem.row_to_seq.data();
            std::vector<simt::LaunchRecord> records;
            {
                const simt::ScopedRecorder recorder(&records);
                ExecutionContext context;
                pagedAttentionSimt(problem.params, context);
            }
            QCOMPARE(records.size(), size_t{1});
            QCOMPARE(records[0].notes.size(), size_t{4});
            for (size_t i = 0; i < 4; ++i) {
                const int seq_idx = static_cast<int>(i % 2);
                const int kv_head = static_cast<int>(i / 2);
                std::set<int> expected;
                for (const int position : problem.visible(seq_idx)) {
                    expected.insert(problem.block(seq_idx, position / 16) * 16 + position % 16);
                }
                std::set<int> keys, values;
                for (const simt::LaunchNote& note : records[0].notes[i]) {
                    if (note.kind != kNoteKey && note.kind != kNoteValue) continue;
                    QCOMPARE(note.value[2], kv_head);
                    (note.kind == kNoteKey ? keys : values).insert(note.value[1]);
                }
                QVERIFY(keys == expected);
                QVERIFY(values == expected);
            }
        }
    }

    void nothingIsRecordedUnasked() {
        Problem problem({}, {40});
        int asked = 0;
        AttentionTap tap{[&](int layer) {
                             ++asked;
                             return layer == 0;
                         },
                         [](AttentionWalk) { QFAIL("a walk of a layer nobody wanted"); }};
        ExecutionContext context;
        context.attention_tap = &tap;
        pagedAttentionSimt(problem.params, context);
        QCOMPARE(asked, 1);
        QVERIFY(simt::current_notes == nullptr);
    }

    void recordingChangesNoResult() {
        Case given;
        given.num_splits = 2;
        Problem problem(given, {40, 300});
        for (size_t i = 0; i < problem.pool.size(); ++i) {
            problem.pool[i] = static_cast<std::byte>(i * 7 % 60);
        }
        for (size_t i = 0; i < problem.query.size(); ++i) {
            problem.query[i] = static_cast<float>(i % 5) - 2.f;
        }
        ExecutionContext context;
        pagedAttentionSimt(problem.params, context);
        const std::vector<float> before = problem.output;
        QCOMPARE(problem.run().size(), size_t{1});
        QVERIFY(problem.output == before);
    }
};

QTEST_GUILESS_MAIN(AttentionWalkTest)
#include "attention_walk_test.moc"
