// SPDX-License-Identifier: MIT
#pragma once

// output[i] = gate[i] / (1 + exp(-gate[i])) * up[i]
//
// In   gate, up [num_values] f32
// Out  output [num_values] f32, may be gate or up
//
// Who owns what
//   grid x   up to kSiluMulMaxThreadBlocks thread blocks of 256 threads, which go over all values
//            in strides of the grid
//   thread   4 values, 16 bytes of each array; single values where the pointers do not allow it
//
// Shared memory: none.
//
// Why so: it is bound by memory, 12 bytes a value; a fixed upper number of thread blocks keeps many
// values from becoming many launches of almost nothing. Not good at: it would not exist as a kernel
// of its own if the two products before it wrote its result at once.

#include <cmath>
#include <cstdint>

#include "kernels/launch_check.h"
#include "kernels/silu_mul/silu_mul.h"
#include "kernels/simt/simt.h"
#include "kernels/simt/storage_types.h"

namespace kvlab {

constexpr int kSiluMulThreads = 256;
constexpr int64_t kSiluMulMaxThreadBlocks = 132 * 16;

__device__ __forceinline__ float silu(float gate) { return gate / (1.f + expf(-gate)); }

template <int kValues>
__global__ void __launch_bounds__(kSiluMulThreads) siluMulKernel(SiluMulParams params) {
    waitForPredecessors();
    using Values = Chunk<float, 4>;
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * kSiluMulThreads + threadIdx.x;
    const int64_t step = static_cast<int64_t>(gridDim.x) * kSiluMulThreads * kValues;
    for (int64_t i = thread * kValues; i < params.num_values; i += step) {
        if constexpr (kValues == 4) {
            if (i + 4 <= params.num_values) {
                Values values = *reinterpret_cast<const Values*>(params.gate + i);
                const Values up = *reinterpret_cast<const Values*>(params.up + i);
                KVLAB_UNROLL
                for (int j = 0; j < 4; ++j)
                    values.values[j] = silu(values.values[j]) * up.values[j];
                *reinterpret_cast<Values*>(params.output + i) = values;
                continue;
            }
        }
        for (int64_t j = i; j < i + kValues && j < params.num_values; ++j) {
            params.output[j] = silu(params.gate[j]) * params.up[j];
        }
    }
}

// Checks the shapes and launches; no values, no launch. `stream` is a cudaStream_t.
inline void launchSiluMul(const SiluMulParams& params, void* stream) {
    constexpr LaunchCheck require{"silu_mul"};
    require(params.num_values >= 0, "num_values is negative");
    if (params.num_values == 0) return;
    require(params.gate != nullptr && params.up != nullptr && params.output != nullptr,
            "a pointer is null");
    const bool whole =
        isAligned(params.gate, 16) && isAligned(params.up, 16) && isAligned(params.output, 16);
    const int64_t values = int64_t{kSiluMulThreads} * (whole ? 4 : 1);
    const int64_t needed = (params.num_values + values - 1) / values;
    const auto grid =
        static_cast<unsigned>(needed < kSiluMulMaxThreadBlocks ? needed : kSiluMulMaxThreadBlocks);
    if (whole) {
        KVLAB_LAUNCH_EARLY(siluMulKernel<4>, grid, kSiluMulThreads, 0, stream, params);
    } else {
        KVLAB_LAUNCH_EARLY(siluMulKernel<1>, grid, kSiluMulThreads, 0, stream, params);
    }
}

}  // namespace kvlab
