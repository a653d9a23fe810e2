// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/execution_context.h"
#include "kernels/tensor_type.h"

namespace kvlab {

// output[r, o] = sum_k input[r, k] * weight[o, k]  (+ bias[o]) (+ output[r, o] when accumulate is
// set)
//
// Weights stay as the file stores them, quantised or not. One pass over them serves all rows: a
// tile of weight rows is widened to f32 once and meets every input row while it is in the cache;
// for the few rows of a decode step the widening happens in registers instead.
//
// Contract, CPU: batch-invariant. Each output element is one reduction over the weights as f32
// (tensor_type.h): kMatmulLanes partial sums over k mod kMatmulLanes, added pairwise in a fixed
// tree, then added to the bias or the output, whatever the number of rows, the row, the threads or
// the way of widening.
// CUDA: not promised; the number of rows chooses the kernel. The same call gives the same bits: no
// sum depends on which thread comes first. With quantised weights the input is 16-byte aligned.
struct MatmulParams {
    const float* input = nullptr;  // [num_rows, num_inputs]
    const void* weight = nullptr;  // [num_outputs, num_inputs], rows contiguous, of type `type`
    // num_inputs is a multiple of tensorBlockValues(type).
    TensorType type = TensorType::kF16;
    const float* bias = nullptr;  // [num_outputs], or none
    float* output = nullptr;      // [num_rows, num_outputs]
    int num_rows = 0;
    int num_inputs = 0;
    int num_outputs = 0;
    bool accumulate = false;  // add to output (the residual stream)
};

constexpr int kMatmulLanes = 16;

void matmulCpu(const MatmulParams& params, ExecutionContext& context);
// Through kernels/simt: the CUDA source, run thread block by thread block on the CPU.
void matmulSimt(const MatmulParams& params, ExecutionContext& context);
// Pointers are device memory. Present when KVLAB_CUDA is on.
void matmulCuda(const MatmulParams& params, ExecutionContext& context);

}  // namespace kvlab
