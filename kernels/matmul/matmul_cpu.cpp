// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/vector_paths.h"
#include "kernels/matmul/matmul.h"

namespace kvlab {

namespace {

constexpr int kOutputTile = 16;  // weight rows widened together: 16 KiB of f32 at 256 inputs
constexpr int64_t kWorkPerChunk = 1 << 18;  // multiply-adds that are worth waking a thread

const std::byte* rowOf(const MatmulParams& p, int64_t row) {
    return static_cast<const std::byte*>(p.weight) + row * p.num_inputs * dataTypeBytes(p.dtype);
}

}  // namespace

void matmulCpu(const MatmulParams& p, ExecutionContext& context) {
    const VectorPaths& paths = vectorPaths();
    const int padded = paddedToLanes(p.num_inputs);
    const float* input = p.input;
    std::vector<float> padded_input;
    if (padded != p.num_inputs) {
        // Zeros in the missing lanes leave every sum as it is.
        padded_input.assign(static_cast<size_t>(p.num_rows) * padded, 0.f);
        for (int r = 0; r < p.num_rows; ++r) {
            std::copy_n(p.input + static_cast<int64_t>(r) * p.num_inputs, p.num_inputs,
                        padded_input.data() + static_cast<int64_t>(r) * padded);
        }
        input = padded_input.data();
    }
    const bool in_place = p.dtype == DataType::kF32 && padded == p.num_inputs;
    const int64_t num_tiles = (p.num_outputs + kOutputTile - 1) / kOutputTile;
    const int64_t work_per_tile = int64_t{kOutputTile} * padded * p.num_rows;
    const int64_t chunk = std::max<int64_t>(1, kWorkPerChunk / std::max<int64_t>(work_per_tile, 1));
    context.threads->parallelFor(num_tiles, chunk, [&](int64_t begin, int64_t end) {
        thread_local std::vector<float> widened;
        if (!in_place) widened.assign(static_cast<size_t>(kOutputTile) * padded, 0.f);
        for (int64_t tile = begin; tile < end; ++tile) {
            const int first = static_cast<int>(tile) * kOutputTile;
            const int count = std::min(kOutputTile, p.num_outputs - first);
            const float* weight = reinterpret_cast<const float*>(rowOf(p, first));
            if (!in_place) {
                for (int o = 0; o < count; ++o) {
                    paths.widen(rowOf(p, first + o), p.dtype, p.num_inputs,
                                widened.data() + static_cast<int64_t>(o) * padded);
                }
                weight = widened.data();
            }
            paths.matmulTile(input, p.num_rows, padded, weight, count, p.output + first,
                             p.num_outputs, p.accumulate);
        }
    });
}

}  // namespace kvlab
