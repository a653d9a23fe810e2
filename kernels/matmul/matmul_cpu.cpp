// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/vector_paths.h"
#include "kernels/matmul/matmul.h"

namespace kvlab {

namespace {

// Weight rows widened together: as many as leave the tile in the second-level cache, and a whole
// number of the groups that a vector path multiplies at once.
constexpr int kFewestTileRows = 12;
constexpr int kMostTileRows = 24;
constexpr int kTileValues = 1 << 15;        // 128 KiB of f32
constexpr int64_t kWorkPerChunk = 1 << 15;  // multiply-adds that are worth handing to a thread
constexpr int kChunksPerThread = 4;         // so that a thread that is held up leaves little behind

int tileOutputs(int num_inputs) {
    return std::clamp(kTileValues / num_inputs / kFewestTileRows * kFewestTileRows, kFewestTileRows,
                      kMostTileRows);
}

// `count` zeros that begin on a cache line: a vector that straddles two costs two reads.
float* alignedZeros(std::vector<float>& storage, size_t count) {
    constexpr uintptr_t kLine = 64;
    storage.assign(count + kLine / sizeof(float), 0.f);
    const uintptr_t begin = reinterpret_cast<uintptr_t>(storage.data());
    return storage.data() + ((begin + kLine - 1) / kLine * kLine - begin) / sizeof(float);
}

}  // namespace

void matmulCpu(const MatmulParams& p, ExecutionContext& context) {
    const VectorPaths& paths = vectorPaths();
    const int padded = paddedToLanes(p.num_inputs);
    const float* input = p.input;
    thread_local std::vector<float> copied_input;
    if (padded != p.num_inputs || p.num_rows > 1) {
        // Zeros in the missing lanes leave every sum as it is.
        float* copied = alignedZeros(copied_input,
                                     static_cast<size_t>(p.num_rows) * static_cast<size_t>(padded));
        for (int r = 0; r < p.num_rows; ++r) {
            std::copy_n(p.input + static_cast<int64_t>(r) * p.num_inputs, p.num_inputs,
                        copied + static_cast<int64_t>(r) * padded);
        }
        input = copied;
    }
    const int64_t stored_row_bytes = tensorBytes(p.type, p.num_inputs);
    // Worth a copy only when several groups of rows meet it.
    const bool in_registers =
        padded == p.num_inputs && (p.type == TensorType::kF32 || p.num_rows <= paths.tile_rows);
    const int tile_outputs = tileOutputs(padded);
    const int64_t num_tiles = (p.num_outputs + tile_outputs - 1) / tile_outputs;
    const int64_t work_per_tile = int64_t{tile_outputs} * padded * p.num_rows;
    const int64_t chunk =
        std::max({int64_t{1}, kWorkPerChunk / std::max<int64_t>(work_per_tile, 1),
                  num_tiles / (kChunksPerThread * int64_t{context.threads->numThreads()})});
    context.threads->parallelFor(num_tiles, chunk, [&](int64_t begin, int64_t end) {
        thread_local std::vector<float> storage;
        float* widened = in_registers ? nullptr
                                      : alignedZeros(storage, static_cast<size_t>(tile_outputs) *
                                                                  static_cast<size_t>(padded));
        for (int64_t tile = begin; tile < end; ++tile) {
            const int first = static_cast<int>(tile) * tile_outputs;
            const int count = std::min(tile_outputs, p.num_outputs - first);
            const std::byte* stored =
                static_cast<const std::byte*>(p.weight) + first * stored_row_bytes;
            for (int r = 0; p.bias != nullptr && r < p.num_rows; ++r) {
                float* out = p.output + static_cast<int64_t>(r) * p.num_outputs + first;
                for (int o = 0; o < count; ++o) {
                    out[o] = p.accumulate ? out[o] + p.bias[first + o] : p.bias[first + o];
                }
            }
            const void* weight = stored;
            TensorType type = p.type;
            int64_t row_bytes = stored_row_bytes;
            if (!in_registers) {
                for (int o = 0; o < count; ++o) {
                    paths.dequantise(stored + o * stored_row_bytes, p.type, p.num_inputs,
                                     widened + static_cast<int64_t>(o) * padded);
                }
                weight = widened;
                type = TensorType::kF32;
                row_bytes = int64_t{padded} * static_cast<int64_t>(sizeof(float));
            }
            paths.matmulTile(input, p.num_rows, padded, weight, type, row_bytes, count,
                             p.output + first, p.num_outputs, p.accumulate || p.bias != nullptr);
        }
    });
}

void matmulGroupCpu(const MatmulGroupParams& p, ExecutionContext& context) {
    if (p.norm_weight != nullptr) {
        rmsNormCpu(rmsNormOfGroup(p), context);
        return matmulGroupCpu(groupOfNormed(p), context);
    }
    for (int i = 0; i < p.num_parts; ++i) matmulCpu(matmulOfPart(p, i), context);
    if (p.silu_mul) siluMulCpu(siluMulOfGroup(p), context);
}

}  // namespace kvlab
