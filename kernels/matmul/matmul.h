// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/data_type.h"
#include "kernels/execution_context.h"

namespace kvlab {

// output[r, o] = sum_k input[r, k] * weight[o, k]  (+ output[r, o] when accumulate is set)
//
// One pass over the weights serves all rows: a tile of weight rows is widened to f32 once and meets
// every input row while it is in the cache.
//
// Contract, CPU: batch-invariant. Each output element is one reduction: kMatmulLanes partial sums
// over k mod kMatmulLanes, added pairwise in a fixed tree, whatever the number of rows, the row or
// the threads.
struct MatmulParams {
    const float* input = nullptr;  // [num_rows, num_inputs]
    const void* weight = nullptr;  // [num_outputs, num_inputs], rows contiguous, of type dtype
    DataType dtype = DataType::kF16;
    float* output = nullptr;  // [num_rows, num_outputs]
    int num_rows = 0;
    int num_inputs = 0;
    int num_outputs = 0;
    bool accumulate = false;  // add to output (the residual stream)
};

constexpr int kMatmulLanes = 16;

void matmulCpu(const MatmulParams& params, ExecutionContext& context);

}  // namespace kvlab
