// SPDX-License-Identifier: MIT
#pragma once

// output[r, i] = input[r, i] * weight[i] / sqrt(mean_j(input[r, j]^2) + epsilon)
//
// In   input [num_rows, dim], weight [dim], f32
// Out  output [num_rows, dim] f32, may be the input
//
// Who owns what
//   grid x   row r
//   thread   values 4 t, 4 (t + num_threads), …: 16 bytes at a time; single values where the rows
//            are no multiple of 16 bytes
//
// Shared memory, static: 32 floats, a sum per warp.
//
// Why so: one launch for the few rows of a decode step costs its latency, not its bytes, so a row
// has as many threads as give each at most a few loads in flight. The row is read twice; the second
// time it comes from the L1 cache. Not good at: rows beyond some 50,000 values, which leave the
// cache between the two.

#include <cstdint>

#include "kernels/launch_check.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/simt/simt.h"
#include "kernels/simt/storage_types.h"

namespace kvlab {

constexpr int kRmsNormMaxThreads = 512;

template <bool kWhole>
__global__ void __launch_bounds__(kRmsNormMaxThreads) rmsNormKernel(RmsNormParams params) {
    waitForPredecessors();
    constexpr int kValues = kWhole ? 4 : 1;
    using Values = Chunk<float, 4>;
    KVLAB_SHARED(float, warp_sums, 32);
    const int64_t first = static_cast<int64_t>(blockIdx.x) * params.dim;
    const float* const input = params.input + first;
    float* const output = params.output + first;
    const int begin = static_cast<int>(threadIdx.x) * kValues;
    const int step = static_cast<int>(blockDim.x) * kValues;

    float sum = 0.f;
    for (int i = begin; i < params.dim; i += step) {
        if constexpr (kWhole) {
            const Values values = *reinterpret_cast<const Values*>(input + i);
            KVLAB_UNROLL
            for (int j = 0; j < 4; ++j) sum += values.values[j] * values.values[j];
        } else {
            sum += input[i] * input[i];
        }
    }
    KVLAB_UNROLL
    for (int offset = 16; offset > 0; offset /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    }
    if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
    __syncthreads();
    const unsigned num_warps = blockDim.x / 32;
    float total = threadIdx.x % 32 < num_warps ? warp_sums[threadIdx.x % 32] : 0.f;
    KVLAB_UNROLL
    for (int offset = 16; offset > 0; offset /= 2) {
        total += __shfl_xor_sync(0xffffffffu, total, offset);
    }
    const float factor = 1.f / sqrtf(total / static_cast<float>(params.dim) + params.epsilon);

    for (int i = begin; i < params.dim; i += step) {
        if constexpr (kWhole) {
            Values values = *reinterpret_cast<const Values*>(input + i);
            const Values weights = *reinterpret_cast<const Values*>(params.weight + i);
            KVLAB_UNROLL
            for (int j = 0; j < 4; ++j) values.values[j] *= factor * weights.values[j];
            *reinterpret_cast<Values*>(output + i) = values;
        } else {
            output[i] = input[i] * (factor * params.weight[i]);
        }
    }
}

// Checks the shapes and launches; no rows, no launch. `stream` is a cudaStream_t.
inline void launchRmsNorm(const RmsNormParams& params, void* stream) {
    constexpr LaunchCheck require{"rms_norm"};
    require(params.num_rows >= 0, "num_rows is negative");
    if (params.num_rows == 0) return;
    require(params.input != nullptr && params.weight != nullptr && params.output != nullptr,
            "a pointer is null");
    require(params.dim >= 1, "dim must be at least 1");
    const bool whole = params.dim % 4 == 0 && isAligned(params.input, 16) &&
                       isAligned(params.weight, 16) && isAligned(params.output, 16);
    const int loads = whole ? params.dim / 4 : params.dim;
    const int num_threads =
        loads >= kRmsNormMaxThreads ? kRmsNormMaxThreads : (loads + 31) / 32 * 32;
    if (whole) {
        KVLAB_LAUNCH_EARLY(rmsNormKernel<true>, static_cast<unsigned>(params.num_rows),
                           static_cast<unsigned>(num_threads), 0, stream, params);
    } else {
        KVLAB_LAUNCH_EARLY(rmsNormKernel<false>, static_cast<unsigned>(params.num_rows),
                           static_cast<unsigned>(num_threads), 0, stream, params);
    }
}

}  // namespace kvlab
