// SPDX-License-Identifier: MIT
//
// The product's kernels through simt on several OS threads, in small shapes. Links no Qt, so that
// ThreadSanitizer sees all of it: a barrier that a kernel lacks is a data race with its file and
// line. Results are compared with the CPU's, so that a build without sanitizers checks something
// too.

#include <cstdio>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/embedding/embedding.h"
#include "kernels/half.h"
#include "kernels/matmul/matmul.h"
#include "kernels/paged_attention/paged_attention.h"
#include "kernels/quantise.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "kernels/silu_mul/silu_mul.h"
#include "kernels/simt/simt.h"
#include "tests/support/numbers.h"

using namespace kvlab;

namespace {

int num_failures = 0;

// Runs the operation both ways; `output` is the member of the parameters that is written.
template <typename Params>
void compare(const char* name,
             Params params,
             float* Params::*output,
             const std::vector<float>& before,
             ExecutionContext& context,
             void (*cpu)(const Params&, ExecutionContext&),
             void (*simt)(const Params&, ExecutionContext&)) {
    std::vector<float> expected = before;
    std::vector<float> actual = before;
    params.*output = expected.data();
    cpu(params, context);
    params.*output = actual.data();
    simt(params, context);
    const bool agrees = relativeError(actual, expected) <= 1e-4;
    std::printf("%-32s %s\n", name, agrees ? "agrees" : "DIFFERS");
    if (!agrees) ++num_failures;
}

void runAll(ExecutionContext& context) {
    const auto input = normalValues(80 * 512, 1);
    const auto weight = normalValues(512, 2);

    RmsNormParams norm;
    norm.input = input.data();
    norm.weight = weight.data();
    norm.num_rows = 3;
    norm.dim = 260;
    compare("rms_norm", norm, &RmsNormParams::output, std::vector<float>(3 * 260), context,
            rmsNormCpu, rmsNormSimt);

    const std::vector<int32_t> numbers{3, 1, 200};
    RopeParams rope;
    rope.positions = numbers.data();
    rope.num_tokens = 3;
    rope.num_heads = 2;
    rope.head_dim = rope.rope_dim = 32;
    for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalfSplit}) {
        rope.style = style;
        compare("rope", rope, &RopeParams::data,
                std::vector<float>(input.begin(), input.begin() + 3 * 2 * 32), context, ropeCpu,
                ropeSimt);
    }

    SiluMulParams silu;
    silu.gate = input.data();
    silu.up = input.data() + 3000;
    silu.num_values = 3000;
    compare("silu_mul", silu, &SiluMulParams::output, std::vector<float>(3000), context, siluMulCpu,
            siluMulSimt);

    for (const TensorType type : kAllTensorTypes) {
        const auto stored = quantise(type, input.data(), 80 * 512);
        EmbeddingParams embedding;
        const std::vector<int32_t> ids{3, 0};
        embedding.table = stored.data();
        embedding.type = type;
        embedding.token_ids = ids.data();
        embedding.num_tokens = 2;
        embedding.vocab_size = 80;
        embedding.dim = 512;
        compare(tensorTypeName(type), embedding, &EmbeddingParams::output,
                std::vector<float>(2 * 512), context, embeddingCpu, embeddingSimt);

        MatmulParams matmul;
        matmul.input = input.data();
        matmul.weight = stored.data();
        matmul.type = type;
        matmul.num_inputs = 256;
        matmul.num_outputs = 12;
        for (const int rows : {1, 2, 4, 9}) {
            matmul.num_rows = rows;
            compare(tensorTypeName(type), matmul, &MatmulParams::output,
                    std::vector<float>(static_cast<size_t>(rows) * 12), context, matmulCpu,
                    matmulSimt);
        }
    }

    // 96 tiles: the fewest for which the launcher takes the tiled kernel.
    const auto wide = normalValues(96 * 64 * 40, 3);
    MatmulParams tiled;
    tiled.input = input.data();
    tiled.weight = wide.data();
    tiled.type = TensorType::kF32;
    tiled.num_rows = 33;
    tiled.num_inputs = 40;
    tiled.num_outputs = 96 * 64;
    compare("matmul, tiles", tiled, &MatmulParams::output, std::vector<float>(33 * 96 * 64),
            context, matmulCpu, matmulSimt);

    PagedAttentionParams attention;
    std::vector<uint16_t> pool;
    for (const float value : normalValues(4 * 2 * 4 * 2 * 64, 4)) {
        pool.push_back(floatToHalf(value));
    }
    const std::vector<int32_t> tables{2, 0, 1, 3};
    const std::vector<int32_t> rows{0, 1};
    const std::vector<int32_t> lengths{7, 5};
    attention.query = input.data();
    attention.kv.data = reinterpret_cast<std::byte*>(pool.data());
    attention.kv.dtype = DataType::kF16;
    attention.kv.num_layers = 1;
    attention.kv.num_blocks = 4;
    attention.kv.block_size = 4;
    attention.kv.num_kv_heads = 2;
    attention.kv.head_dim = 64;
    attention.block_tables = tables.data();
    attention.max_blocks_per_seq = 2;
    attention.row_to_seq = rows.data();
    attention.context_lens = lengths.data();
    attention.num_rows = 2;
    attention.num_seqs = 2;
    attention.num_heads = 4;
    attention.scale = 0.125f;
    compare("paged_attention", attention, &PagedAttentionParams::output,
            std::vector<float>(2 * 4 * 64), context, pagedAttentionCpu, pagedAttentionSimt);
}

}  // namespace

int main() {
    ThreadPool threads(2);
    ExecutionContext context;
    context.threads = &threads;
    simt::Settings settings;
    settings.num_os_threads = 2;
    const simt::ScopedSettings scoped(settings);
    runAll(context);
    std::printf(num_failures == 0 ? "all agree\n" : "%d differ\n", num_failures);
    return num_failures == 0 ? 0 : 1;
}
