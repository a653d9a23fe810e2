// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/execution_context.h"

namespace kvlab {

// output[r, i] = input[r, i] * weight[i] / sqrt(mean_j(input[r, j]^2) + epsilon)   (Zhang &
// Sennrich 2019)
// Contract: batch-invariant; the sum of squares has one fixed order per row, one on the CPU and
// another, in f32, on CUDA, where it depends on `dim` and on whether the rows are 16-byte aligned.
struct RmsNormParams {
    const float* input = nullptr;   // [num_rows, dim]
    const float* weight = nullptr;  // [dim]
    float* output = nullptr;        // [num_rows, dim]; may be the input
    int num_rows = 0;
    int dim = 0;
    float epsilon = 1e-5f;
};

void rmsNormCpu(const RmsNormParams& params, ExecutionContext& context);
// Through kernels/simt: the CUDA source, run thread block by thread block on the CPU.
void rmsNormSimt(const RmsNormParams& params, ExecutionContext& context);
// Pointers are device memory. Present when KVLAB_CUDA is on.
void rmsNormCuda(const RmsNormParams& params, ExecutionContext& context);

}  // namespace kvlab
