// SPDX-License-Identifier: MIT
//
// The product's kernels through simt on several OS threads, in small shapes. Links no Qt, so that
// ThreadSanitizer sees all of it: a barrier that a kernel lacks is a data race with its file and
// line. Results are compared with the CPU's, so that a build without sanitizers checks something
// too.

#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "kernels/contiguous_attention/contiguous_attention.h"
#include "kernels/copy_blocks/copy_blocks.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/embedding/embedding.h"
#include "kernels/kv_cache_write/kv_cache_write.h"
#include "kernels/matmul/matmul.h"
#include "kernels/paged_attention/paged_attention.h"
#include "kernels/quantise.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "kernels/silu_mul/silu_mul.h"
#include "kernels/simt/kernel_use.h"
#include "kernels/simt/simt.h"
#include "tests/support/numbers.h"

using namespace kvlab;

namespace {

int num_failures = 0;

void report(const std::string& name, bool agrees) {
    std::printf("%-44s %s\n", name.c_str(), agrees ? "agrees" : "DIFFERS");
    if (!agrees) ++num_failures;
}

// Runs the operation both ways; `output` is the member of the parameters that is written.
template <typename Params>
void compare(const std::string& name,
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
    report(name, relativeError(actual, expected) <= 1e-4);
}

void runSmall(ExecutionContext& context) {
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
        compare(std::string("embedding ") + tensorTypeName(type), embedding,
                &EmbeddingParams::output, std::vector<float>(2 * 512), context, embeddingCpu,
                embeddingSimt);

        MatmulParams matmul;
        matmul.input = input.data();
        matmul.weight = stored.data();
        matmul.type = type;
        matmul.num_inputs = 256;
        matmul.num_outputs = 12;
        for (const int rows : {1, 2, 4, 9}) {
            matmul.num_rows = rows;
            compare(std::string("matmul ") + tensorTypeName(type), matmul, &MatmulParams::output,
                    std::vector<float>(static_cast<size_t>(rows) * 12), context, matmulCpu,
                    matmulSimt);
            if (isQuantised(type)) continue;
            compare(std::string("matmul_split ") + tensorTypeName(type), matmul,
                    &MatmulParams::output, std::vector<float>(static_cast<size_t>(rows) * 12),
                    context, matmulCpu, matmulSplitSimt);
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
}

// Q, K and V in one launch; parts of different types; gate and up with silu_mul.
void runMatmulGroups(ExecutionContext& context) {
    constexpr int kInputs = 256;
    constexpr int kMostRows = 4;
    const auto input = normalValues(kMostRows * kInputs, 5);
    const auto weights = normalValues(40 * kInputs, 6);
    const auto bias = normalValues(16, 7);
    struct Case {
        const char* name;
        std::vector<TensorType> types;
        bool silu_mul;
    };
    const Case cases[] = {
        {"F16", {TensorType::kF16, TensorType::kF16, TensorType::kF16}, false},
        {"Q4_K", {TensorType::kQ4_K, TensorType::kQ4_K, TensorType::kQ4_K}, false},
        {"Q4_K and Q6_K", {TensorType::kQ4_K, TensorType::kQ4_K, TensorType::kQ6_K}, false},
        {"F16, silu_mul", {TensorType::kF16, TensorType::kF16}, true},
        {"Q8_0, silu_mul", {TensorType::kQ8_0, TensorType::kQ8_0}, true}};
    for (const Case& c : cases) {
        MatmulGroupParams group;
        group.input = input.data();
        group.num_inputs = kInputs;
        group.num_parts = static_cast<int>(c.types.size());
        group.silu_mul = c.silu_mul;
        std::vector<std::vector<std::byte>> stored;
        for (size_t i = 0; i < c.types.size(); ++i) {
            MatmulPart& part = group.parts[i];
            part.num_outputs = c.silu_mul || i == 0 ? 16 : 12;
            part.type = c.types[i];
            part.weight = stored
                              .emplace_back(quantise(c.types[i], weights.data() + i * 12 * kInputs,
                                                     int64_t{part.num_outputs} * kInputs))
                              .data();
            if (!c.silu_mul && i != 1) part.bias = bias.data();
        }
        for (const int rows : {1, kMostRows}) {
            group.num_rows = rows;
            const auto run = [&](void (*operation)(const MatmulGroupParams&, ExecutionContext&)) {
                std::vector<std::vector<float>> outputs;
                for (int i = 0; i < group.num_parts; ++i) {
                    outputs.emplace_back(static_cast<size_t>(rows * group.parts[i].num_outputs));
                }
                for (size_t i = 0; i < outputs.size(); ++i) {
                    group.parts[i].output = outputs[i].data();
                }
                operation(group, context);
                if (c.silu_mul) outputs.resize(1);  // the second is scratch memory
                return outputs;
            };
            const auto expected = run(matmulGroupCpu);
            const auto actual = run(matmulGroupSimt);
            bool agrees = true;
            for (size_t i = 0; i < expected.size(); ++i) {
                agrees = agrees && relativeError(actual[i], expected[i]) <= 1e-4;
            }
            report("matmul_group " + std::string(c.name) + ", rows " + std::to_string(rows),
                   agrees);
        }
    }
}

// A pool in which kv_cache_write has stored three sequences of 40, 21 and 9 tokens, 8 query heads
// to a KV head.
struct PoolRun {
    static constexpr int kMaxBlocks = 5, kBlockSize = 8, kKvHeads = 2, kGroup = 8, kHeadDim = 64;

    ExecutionContext& context;
    std::string type_name;
    PagedKvView kv;
    std::vector<std::byte> pool;
    std::vector<int32_t> tables;  // [3, kMaxBlocks]

    PoolRun(DataType dtype, ExecutionContext& given)
        : context(given), type_name(dataTypeName(dtype)) {
        kv.dtype = dtype;
        kv.num_layers = 1;
        kv.num_blocks = 3 * kMaxBlocks + 1;
        kv.block_size = kBlockSize;
        kv.num_kv_heads = kKvHeads;
        kv.head_dim = kHeadDim;
        pool.resize(static_cast<size_t>(kv.numBytes()));
        for (int i = 0; i < 3 * kMaxBlocks; ++i) tables.push_back((i * 7) % 16);
    }

    // The whole pool, by both.
    template <class Params>
    void comparePools(const char* name,
                      Params params,
                      void (*cpu)(const Params&, ExecutionContext&),
                      void (*simt)(const Params&, ExecutionContext&)) {
        std::vector<std::byte> expected = pool;
        params.kv = kv;
        params.kv.data = expected.data();
        cpu(params, context);
        params.kv.data = pool.data();
        simt(params, context);
        report(std::string(name) + " " + type_name, pool == expected);
    }

    void write() {
        constexpr int kTokens = 3 * kMaxBlocks * kBlockSize;
        const auto keys = normalValues(kTokens * kKvHeads * kHeadDim, 8);
        const auto values = normalValues(kTokens * kKvHeads * kHeadDim, 9);
        std::vector<int32_t> slot_mapping;
        for (const int32_t block : tables) {
            for (int i = 0; i < kBlockSize; ++i) slot_mapping.push_back(block * kBlockSize + i);
        }
        slot_mapping.back() = -1;
        KvCacheWriteParams p;
        p.key = keys.data();
        p.value = values.data();
        p.slot_mapping = slot_mapping.data();
        p.num_tokens = kTokens;
        comparePools("kv_cache_write", p, kvCacheWriteCpu, kvCacheWriteSimt);
    }

    void copy() {
        const std::vector<int32_t> source{tables[0], tables[1]};
        const std::vector<int32_t> target{15 * 7 % 16, tables[14]};
        const std::vector<int32_t> num_slots{kBlockSize, 3};
        CopyBlocksParams p;
        p.source = source.data();
        p.target = target.data();
        p.num_slots = num_slots.data();
        p.num_pairs = 2;
        comparePools("copy_blocks", p, copyBlocksCpu, copyBlocksSimt);
    }

    // Decode rows of all sequences, a prompt chunk of the first one between them.
    void attend(const char* name, AttentionVariant variant, int num_splits, int chunk, bool mass) {
        std::vector<int32_t> rows, lengths;
        for (int i = 0; i < chunk; ++i) {
            rows.push_back(0);
            lengths.push_back(40 - chunk + 1 + i);
        }
        if (chunk == 0) {
            rows.push_back(0);
            lengths.push_back(40);
        }
        rows.insert(rows.end(), {1, 2});
        lengths.insert(lengths.end(), {21, 9});
        const size_t num_values = rows.size() * kKvHeads * kGroup * kHeadDim;
        const auto query = normalValues(num_values, 10);
        PagedAttentionParams p;
        p.query = query.data();
        p.kv = kv;
        p.kv.data = pool.data();
        p.block_tables = tables.data();
        p.max_blocks_per_seq = kMaxBlocks;
        p.row_to_seq = p.host_row_to_seq = rows.data();
        p.context_lens = lengths.data();
        p.num_rows = static_cast<int>(rows.size());
        p.num_seqs = 3;
        p.num_heads = kKvHeads * kGroup;
        p.scale = 0.125f;
        p.window = mass ? 30 : 0;
        p.num_splits = num_splits;
        p.variant = variant;
        const std::string title = "paged_attention " + type_name + ", " + name;
        if (!mass) {
            compare(title, p, &PagedAttentionParams::output, std::vector<float>(num_values),
                    context, pagedAttentionCpu, pagedAttentionSimt);
            return;
        }
        p.mass_stride = 40;
        std::vector<float> output(num_values);
        p.output = output.data();
        compare(title, p, &PagedAttentionParams::mass, std::vector<float>(3 * kKvHeads * 40),
                context, pagedAttentionCpu, pagedAttentionSimt);
    }

    // The pool itself, in whose order two sequences of 64 slots lie: a block of 64 slots each is
    // the same to the CPU.
    void attendContiguous(AttentionVariant variant, int num_splits) {
        const std::vector<int32_t> lengths{40, 17};
        const auto query = normalValues(2 * kKvHeads * kGroup * kHeadDim, 11);
        std::vector<float> expected(query.size()), actual(query.size());
        const std::vector<int32_t> blocks{0, 1};
        PagedAttentionParams p;
        p.query = query.data();
        p.kv = kv;
        p.kv.data = pool.data();
        p.kv.num_blocks = 2;
        p.kv.block_size = 64;
        p.block_tables = p.row_to_seq = blocks.data();
        p.max_blocks_per_seq = 1;
        p.context_lens = lengths.data();
        p.num_rows = p.num_seqs = 2;
        p.num_heads = kKvHeads * kGroup;
        p.scale = 0.125f;
        p.output = expected.data();
        pagedAttentionCpu(p, context);
        ContiguousAttentionParams flat;
        flat.query = query.data();
        flat.key = pool.data();
        flat.value = pool.data() + p.kv.numBytes() / 2;
        flat.dtype = kv.dtype;
        flat.context_lens = lengths.data();
        flat.num_seqs = 2;
        flat.max_context_len = 64;
        flat.num_heads = p.num_heads;
        flat.num_kv_heads = kKvHeads;
        flat.head_dim = kHeadDim;
        flat.scale = p.scale;
        flat.output = actual.data();
        flat.num_splits = num_splits;
        flat.variant = variant;
        contiguousAttentionSimt(flat, context);
        report("contiguous_attention " + type_name + ", " + std::to_string(num_splits) + " parts",
               relativeError(actual, expected) <= 1e-4);
    }
};

void runPools(ExecutionContext& context) {
    for (const DataType dtype : kKvDataTypes) {
        PoolRun run(dtype, context);
        run.write();
        run.copy();
        run.attend("fma", AttentionVariant::kFma, 1, 0, false);
        run.attend("fma, split and merged", AttentionVariant::kFma, 3, 0, false);
        run.attend("fma, a chunk", AttentionVariant::kFma, 1, 5, false);
        if (dtype != DataType::kF32) {
            run.attend("mma", AttentionVariant::kMma, 1, 0, false);
            run.attend("mma, split and merged", AttentionVariant::kMma, 3, 0, false);
            run.attend("mma, a chunk", AttentionVariant::kMma, 2, 9, false);
        }
        run.attend("mass", AttentionVariant::kAuto, 2, 3, true);
        if (dtype == DataType::kF16 || dtype == DataType::kBF16) {
            run.attendContiguous(AttentionVariant::kFma, 1);
            run.attendContiguous(AttentionVariant::kMma, 2);
        }
    }
}

// Each kernel in some instantiation; engine/backend/selfcheck has all of them.
void reportKernelsThatNeverRan() {
    std::map<std::string, int64_t> launches;
    for (const simt::KernelUse& kernel : simt::kernelUses()) {
        launches[kernel.name.substr(0, kernel.name.find('<'))] += kernel.num_launches;
    }
    for (const auto& [name, count] : launches) {
        if (count == 0) report(name + " never ran, which", false);
    }
}

}  // namespace

int main() {
    ThreadPool threads(2);
    ExecutionContext context;
    context.threads = &threads;
    simt::Settings settings;
    settings.num_os_threads = 2;
    const simt::ScopedSettings scoped(settings);
    runSmall(context);
    runMatmulGroups(context);
    runPools(context);
    reportKernelsThatNeverRan();
    std::printf(num_failures == 0 ? "all agree\n" : "%d differ\n", num_failures);
    return num_failures == 0 ? 0 : 1;
}
