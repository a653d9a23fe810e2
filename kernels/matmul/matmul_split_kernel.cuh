// SPDX-License-Identifier: MIT
#pragma once

// What a product of f32 inputs and 16-bit weights needs to go through tensor cores, which multiply
// two numbers of the same 16-bit type: each input row becomes two 16-bit rows whose sum it is, and
// the sum of the two products is turned back.
//
//   high[r, k] = T(input[r, k] / scale[r])
//   low[r, k] = T(input[r, k] / scale[r] - high[r, k])
//   output[r, o] = scale[r] * sums[r, o] (+ bias[o]) (+ output[r, o] when accumulate)
//
// scale[r] is a power of two that brings the row's largest finite magnitude to 2^13 … 2^14: below
// f16's 65,504, far above its smallest. Two f16 keep 22 bits of a value, two bf16 16 bits; one f16
// alone would keep 11, and products would be off by 3e-4.
//
// An infinity or NaN goes into `high` as it is, and its `low` is 0: with finite weights the product
// is what f32 gives (infinite, or NaN where infinities of both signs or a weight of 0 meet), and
// the row's other values lose nothing. An infinite weight gives NaN where some `low` is 0.
//
// In   input [num_rows, num_inputs] f32; sums [num_rows, num_outputs] f32
// Out  high, low [num_rows, num_inputs] of T; scales [num_rows]; output [num_rows, num_outputs]
//
// Who owns what
//   matmulSplitKernel    grid x: a row; thread: values t, t + 256, …
//   matmulFinishKernel   grid x: a row, grid y: 1,024 outputs; thread: values t, t + 256, …
//
// Shared memory, static: 8 floats (split), none (finish).
//
// Why so: both are bound by memory and small beside the product, whose reads they do not touch.

#include <cmath>
#include <cstdint>

#include "kernels/matmul/matmul.h"
#include "kernels/simt/simt.h"
#include "kernels/simt/storage_types.h"

namespace kvlab {

constexpr int kMatmulSplitThreads = 256;
constexpr int kMatmulFinishValues = 1024;  // of a thread block
constexpr float kLargestFloat = 3.402823466e+38f;

struct MatmulSplitParams {
    const float* input = nullptr;  // [num_rows, num_inputs]
    void* high = nullptr;          // [num_rows, num_inputs], 16 bits each
    void* low = nullptr;           // [num_rows, num_inputs]
    float* scales = nullptr;       // [num_rows]
    int num_rows = 0;
    int num_inputs = 0;
};

template <typename T>
__global__ void __launch_bounds__(kMatmulSplitThreads) matmulSplitKernel(MatmulSplitParams params) {
    KVLAB_SHARED(float, warp_largest, kMatmulSplitThreads / 32);
    const int64_t first = static_cast<int64_t>(blockIdx.x) * params.num_inputs;
    const int thread = static_cast<int>(threadIdx.x);
    float largest = 0.f;
    for (int i = thread; i < params.num_inputs; i += kMatmulSplitThreads) {
        const float magnitude = fabsf(params.input[first + i]);
        if (magnitude <= kLargestFloat) largest = fmaxf(largest, magnitude);
    }
    KVLAB_UNROLL
    for (int offset = 16; offset > 0; offset /= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    }
    if (thread % 32 == 0) warp_largest[thread / 32] = largest;
    __syncthreads();
    KVLAB_UNROLL
    for (int w = 0; w < kMatmulSplitThreads / 32; ++w) largest = fmaxf(largest, warp_largest[w]);

    // 2^exponent with largest in [2^13, 2^14) times it; a row of zeros, or of numbers of which no
    // power of two in f32 can say so, is as good with one at the edge.
    int exponent = 0;
    if (largest > 0.f) {
        frexpf(largest, &exponent);
        exponent = exponent - 14 > -126 ? exponent - 14 : -126;
    }
    const float inverse = ldexpf(1.f, -exponent);
    T* const high = static_cast<T*>(params.high) + first;
    T* const low = static_cast<T*>(params.low) + first;
    for (int i = thread; i < params.num_inputs; i += kMatmulSplitThreads) {
        const float value = params.input[first + i] * inverse;
        high[i] = fromFloat<T>(value);
        low[i] = fromFloat<T>(fabsf(value) <= kLargestFloat ? value - toFloat(high[i]) : 0.f);
    }
    if (thread == 0) params.scales[blockIdx.x] = ldexpf(1.f, exponent);
}

// `scales` may be null: all 1.
template <int kThreads = kMatmulSplitThreads>
__global__ void __launch_bounds__(kThreads)
    matmulFinishKernel(MatmulParams params, const float* sums, const float* scales) {
    const int64_t row = static_cast<int64_t>(blockIdx.x);
    const float scale = scales == nullptr ? 1.f : scales[row];
    const int first = static_cast<int>(blockIdx.y) * kMatmulFinishValues;
    KVLAB_UNROLL
    for (int j = 0; j < kMatmulFinishValues; j += kThreads) {
        const int output = first + j + static_cast<int>(threadIdx.x);
        if (output >= params.num_outputs) continue;
        const int64_t at = row * params.num_outputs + output;
        float sum = scale * sums[at];
        if (params.bias != nullptr) sum += params.bias[output];
        if (params.accumulate) sum += params.output[at];
        params.output[at] = sum;
    }
}

// Launches for kF16 or kBF16. `stream` is a cudaStream_t.
inline void launchMatmulSplit(const MatmulSplitParams& params, TensorType type, void* stream) {
    const auto grid = static_cast<unsigned>(params.num_rows);
    if (type == TensorType::kF16) {
        KVLAB_LAUNCH(matmulSplitKernel<Half>, grid, kMatmulSplitThreads, 0, stream, params);
    } else {
        KVLAB_LAUNCH(matmulSplitKernel<Bfloat16>, grid, kMatmulSplitThreads, 0, stream, params);
    }
}

inline void launchMatmulFinish(const MatmulParams& params,
                               const float* sums,
                               const float* scales,
                               void* stream) {
    const dim3 grid(static_cast<unsigned>(params.num_rows),
                    static_cast<unsigned>((params.num_outputs + kMatmulFinishValues - 1) /
                                          kMatmulFinishValues));
    KVLAB_LAUNCH(matmulFinishKernel<>, grid, kMatmulSplitThreads, 0, stream, params, sums, scales);
}

}  // namespace kvlab
