// SPDX-License-Identifier: MIT

// Kernels that may start before their predecessors on the stream have ended (KVLAB_LAUNCH_EARLY):
// what these write is taken away until all threads of a thread block wait for it.

#include <initializer_list>

#include "kernels/embedding/embedding.h"
#include "kernels/kv_cache_write/kv_cache_write.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_kernel.cuh"
#include "kernels/paged_attention/paged_attention.h"
#include "kernels/quantise.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "kernels/silu_mul/silu_mul.h"
#include "tests/support/kernel_test.h"

using namespace kvlab;

namespace {

struct Stretch {
    void* data;
    size_t num_bytes;
};

template <typename T>
Stretch all(std::vector<T>& values) {
    return {values.data(), values.size() * sizeof(T)};
}

// `operation` with all of `written` as 0xff until its thread blocks wait. False: a thread block
// wrote there before.
template <typename Operation>
bool runLate(std::initializer_list<Stretch> written, const Operation& operation) {
    std::vector<std::vector<std::byte>> hidden(written.size());
    bool untouched = true;
    simt::Predecessor predecessor;
    predecessor.hide = [&] {
        size_t i = 0;
        for (const Stretch& stretch : written) {
            const auto* const bytes = static_cast<const std::byte*>(stretch.data);
            hidden[i++].assign(bytes, bytes + stretch.num_bytes);
            std::memset(stretch.data, 0xff, stretch.num_bytes);
        }
    };
    predecessor.show = [&] {
        size_t i = 0;
        for (const Stretch& stretch : written) {
            const auto* const bytes = static_cast<const std::byte*>(stretch.data);
            untouched = untouched && std::all_of(bytes, bytes + stretch.num_bytes,
                                                 [](std::byte b) { return b == std::byte{0xff}; });
            std::memcpy(stretch.data, hidden[i++].data(), stretch.num_bytes);
        }
    };
    const simt::ScopedPredecessor scoped(&predecessor);
    operation();
    return untouched;
}

// Reads its input before it waits, or writes before it, or one thread does not wait.
enum class Fault { kNone, kReads, kWrites, kLeaves };

__global__ void doublingKernel(Fault fault, const int* input, int* output) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (fault == Fault::kLeaves && i == 70) return;
    const int too_early = input[i];
    if (fault == Fault::kWrites) output[i] = 1;
    waitForPredecessors();
    output[i] = 2 * (fault == Fault::kReads ? too_early : input[i]);
}

}  // namespace

class EarlyLaunchTest : public QObject {
    Q_OBJECT

  private:
    ExecutionContext context_;

  private slots:
    // That the checks below can fail.
    void findsWhatDoesNotWait() {
        std::vector<int> input(96, 5);
        std::vector<int> output(96);
        const auto run = [&](Fault fault) {
            return runLate({all(input), all(output)}, [&] {
                KVLAB_LAUNCH_EARLY(doublingKernel, 3, 32, 0, nullptr, fault, input.data(),
                                   output.data());
            });
        };
        QVERIFY(run(Fault::kNone));
        QCOMPARE(output, std::vector<int>(96, 10));
        QVERIFY(run(Fault::kReads));
        QCOMPARE(output, std::vector<int>(96, -2));
        QVERIFY(!run(Fault::kWrites));
        QVERIFY_THROWS_EXCEPTION(simt::LaunchError, run(Fault::kLeaves));
        // Also where nobody hides anything; and a launch in order need not wait.
        QVERIFY_THROWS_EXCEPTION(
            simt::LaunchError, KVLAB_LAUNCH_EARLY(doublingKernel, 3, 32, 0, nullptr, Fault::kLeaves,
                                                  input.data(), output.data()));
        KVLAB_LAUNCH(doublingKernel, 3, 32, 0, nullptr, Fault::kLeaves, input.data(),
                     output.data());
    }

    void products_data() {
        QTest::addColumn<int>("type");
        QTest::addColumn<int>("rows");
        QTest::addColumn<bool>("norm");
        for (const TensorType type : kAllTensorTypes) {
            for (const int rows : {1, 2, 3, 7, 33}) {
                for (const bool norm : {false, true}) {
                    QTest::addRow("%s, %d rows%s", tensorTypeName(type), rows, norm ? ", norm" : "")
                        << static_cast<int>(type) << rows << norm;
                }
            }
        }
    }

    void products() {
        QFETCH(int, type);
        QFETCH(int, rows);
        QFETCH(bool, norm);
        constexpr int kInputs = 1536;
        constexpr int kOutputs = 6;
        const auto stored_type = static_cast<TensorType>(type);
        const auto weight = quantise(
            stored_type, normalValues(int64_t{kInputs} * kOutputs, 1).data(), kInputs * kOutputs);
        const auto norm_weight = normalValues(kInputs, 2);
        std::vector<float> input = normalValues(int64_t{rows} * kInputs, 3);
        std::vector<float> normed(input.size());
        std::vector<float> output(static_cast<size_t>(rows) * kOutputs);
        std::vector<float> up(output.size());
        MatmulGroupParams p;
        p.input = input.data();
        p.norm_weight = norm ? norm_weight.data() : nullptr;
        p.normed = normed.data();
        p.parts[0] = {weight.data(), stored_type, nullptr, output.data(), kOutputs};
        p.parts[1] = {weight.data(), stored_type, nullptr, up.data(), kOutputs};
        p.num_parts = 2;
        p.num_rows = rows;
        p.num_inputs = kInputs;
        p.silu_mul = true;
        matmulGroupSimt(p, context_);
        const std::vector<float> expected = output;
        QVERIFY(runLate({all(input), all(normed), all(output), all(up)},
                        [&] { matmulGroupSimt(p, context_); }));
        QCOMPARE(output, expected);
    }

    void tiles() {
        const auto weight = normalValues(64 * 8, 1);
        std::vector<float> input = normalValues(65 * 8, 3);
        std::vector<float> output(65 * 64);
        MatmulParams p;
        p.input = input.data();
        p.weight = weight.data();
        p.type = TensorType::kF32;
        p.output = output.data();
        p.num_rows = 65;
        p.num_inputs = 8;
        p.num_outputs = 64;
        matmul_detail::launchTiledOfType<TensorType::kF32>(p, nullptr);
        const std::vector<float> expected = output;
        QVERIFY(runLate({all(input), all(output)},
                        [&] { matmul_detail::launchTiledOfType<TensorType::kF32>(p, nullptr); }));
        QCOMPARE(output, expected);
    }

    void rowsAndValues() {
        std::vector<float> input = normalValues(3 * 64, 1);
        const auto weight = normalValues(64, 2);
        std::vector<float> output(input.size());
        std::vector<int32_t> ids{2, 0, 1};
        const auto check = [&](const auto& operation) {
            const std::vector<float> before = input;
            operation();
            const std::vector<float> expected = output;
            const std::vector<float> changed = input;
            input = before;
            QVERIFY(runLate({all(input), all(output), all(ids)}, operation));
            QCOMPARE(output, expected);
            QCOMPARE(input, changed);
        };
        RmsNormParams norm;
        norm.input = input.data();
        norm.weight = weight.data();
        norm.output = output.data();
        norm.num_rows = 3;
        norm.dim = 64;
        check([&] { rmsNormSimt(norm, context_); });

        SiluMulParams silu;
        silu.gate = silu.up = input.data();
        silu.output = output.data();
        silu.num_values = 3 * 64;
        check([&] { siluMulSimt(silu, context_); });

        EmbeddingParams pick;
        pick.table = input.data();
        pick.type = TensorType::kF32;
        pick.token_ids = ids.data();
        pick.output = output.data();
        pick.num_tokens = 3;
        pick.vocab_size = 3;
        pick.dim = 64;
        check([&] { embeddingSimt(pick, context_); });

        RopeParams rotate;
        rotate.data = input.data();
        rotate.positions = ids.data();
        rotate.num_tokens = 3;
        rotate.num_heads = 4;
        rotate.head_dim = rotate.rope_dim = 16;
        for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalfSplit}) {
            rotate.style = style;
            check([&] { ropeSimt(rotate, context_); });
        }
    }

    // Both attention kernels and the merge, and what writes K and V before them.
    void attention_data() {
        QTest::addColumn<int>("dtype");
        QTest::addColumn<int>("variant");
        QTest::addColumn<bool>("is_shared");
        for (const DataType dtype : {DataType::kF32, DataType::kF16, DataType::kInt8}) {
            for (const AttentionVariant variant :
                 {AttentionVariant::kFma, AttentionVariant::kMma}) {
                if (dtype == DataType::kF32 && variant == AttentionVariant::kMma) continue;
                for (const bool is_shared : {false, true}) {
                    QTest::addRow("%s %s %s", dataTypeName(dtype),
                                  variant == AttentionVariant::kFma ? "fma" : "mma",
                                  is_shared ? "prefill" : "decode")
                        << static_cast<int>(dtype) << static_cast<int>(variant) << is_shared;
                }
            }
        }
    }

    void attention() {
        QFETCH(int, dtype);
        QFETCH(int, variant);
        QFETCH(bool, is_shared);
        constexpr int kTokens = 40;
        constexpr int kHeads = 4;
        constexpr int kDim = 16;
        PagedKvView kv;
        kv.dtype = static_cast<DataType>(dtype);
        kv.num_blocks = 5;
        kv.block_size = 8;
        kv.num_layers = 1;
        kv.num_kv_heads = 1;
        kv.head_dim = kDim;
        std::vector<float> pool(2 * kTokens * (kDim + 1));
        kv.data = reinterpret_cast<std::byte*>(pool.data());
        std::vector<float> key = normalValues(kTokens * kDim, 1);
        std::vector<float> value = normalValues(kTokens * kDim, 2);
        std::vector<int32_t> mapping(kTokens);
        for (int i = 0; i < kTokens; ++i) mapping[static_cast<size_t>(i)] = kTokens - 1 - i;
        KvCacheWriteParams write;
        write.key = key.data();
        write.value = value.data();
        write.slot_mapping = mapping.data();
        write.num_tokens = kTokens;
        write.kv = kv;
        kvCacheWriteSimt(write, context_);
        const std::vector<float> written = pool;
        // The table of the pool's own slots is what the host checks before: it stays visible.
        QVERIFY(
            runLate({all(key), all(value), all(pool)}, [&] { kvCacheWriteSimt(write, context_); }));
        QVERIFY(std::memcmp(pool.data(), written.data(), pool.size() * sizeof(float)) == 0);

        const int rows = is_shared ? 3 : 1;
        std::vector<float> query = normalValues(rows * kHeads * kDim, 3);
        std::vector<float> output(query.size());
        const std::vector<int32_t> table{4, 1, 0, 2, 3};
        const std::vector<int32_t> row_to_seq(static_cast<size_t>(rows), 0);
        const std::vector<int32_t> lens{38, 39, 40};
        std::vector<std::byte> workspace(1 << 20);
        ExecutionContext context;
        context.workspace = reinterpret_cast<std::byte*>(
            (reinterpret_cast<uintptr_t>(workspace.data()) + 255) / 256 * 256);
        context.workspace_bytes = (1 << 20) - 256;
        PagedAttentionParams attend;
        attend.query = query.data();
        attend.kv = kv;
        attend.block_tables = table.data();
        attend.max_blocks_per_seq = 5;
        attend.row_to_seq = row_to_seq.data();
        attend.context_lens = lens.data();
        attend.num_rows = rows;
        attend.num_seqs = 1;
        attend.num_heads = kHeads;
        attend.scale = 0.25f;
        attend.output = output.data();
        attend.host_row_to_seq = row_to_seq.data();
        attend.variant = static_cast<AttentionVariant>(variant);
        attend.num_splits = 2;
        pagedAttentionSimt(attend, context);
        const std::vector<float> expected = output;
        // Host code reads tables, lengths and rows before the launch, so they are not hidden.
        QVERIFY(runLate({all(query), all(pool), all(output), all(workspace)},
                        [&] { pagedAttentionSimt(attend, context); }));
        QCOMPARE(output, expected);
    }
};

QTEST_GUILESS_MAIN(EarlyLaunchTest)
#include "early_launch_test.moc"
