// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/execution_context.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/silu_mul/silu_mul.h"
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
// sum depends on which thread comes first. With quantised weights the input is 16-byte aligned. No
// kernel queued before on the stream writes the weights: they may be read before it has ended.
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

constexpr int kMatmulMaxParts = 3;

struct MatmulPart {
    const void* weight = nullptr;  // [num_outputs, num_inputs]
    TensorType type = TensorType::kF16;
    const float* bias = nullptr;  // [num_outputs], or none
    float* output = nullptr;      // [num_rows, num_outputs]
    int num_outputs = 0;
};

// Products of the same input rows with several matrices: Q, K and V of a layer; gate and up. On a
// GPU the few rows of a decode step take one launch for all neighbours of one type.
//
// With norm_weight the rows are normalised first (rms_norm.h). On a GPU a single row is so within
// the product: the weights of the norm go with the inputs, and the factor, known at the end, with
// the sums.
//
// With silu_mul there are two parts with as many outputs and no biases, and the first output is
// silu(first product) * (second product); the second output is scratch memory of the same size.
//
// Contract: on the CPU each part has the bits that rms_norm, matmul and silu_mul give alone. CUDA:
// as matmul.
struct MatmulGroupParams {
    const float* input = nullptr;        // [num_rows, num_inputs]
    const float* norm_weight = nullptr;  // [num_inputs], or none
    float norm_epsilon = 1e-5f;
    float* normed = nullptr;  // [num_rows, num_inputs], scratch with norm_weight; may be the input
    MatmulPart parts[kMatmulMaxParts];
    int num_parts = 0;  // from 1
    int num_rows = 0;
    int num_inputs = 0;
    bool silu_mul = false;
};

// Part `index` as a product of its own.
constexpr MatmulParams matmulOfPart(const MatmulGroupParams& group, int index) {
    const MatmulPart& part = group.parts[index];
    MatmulParams params;
    params.input = group.input;
    params.weight = part.weight;
    params.type = part.type;
    params.bias = part.bias;
    params.output = part.output;
    params.num_rows = group.num_rows;
    params.num_inputs = group.num_inputs;
    params.num_outputs = part.num_outputs;
    return params;
}

// The norm of the rows, where it is made apart; the products are then of `normed`.
constexpr RmsNormParams rmsNormOfGroup(const MatmulGroupParams& group) {
    RmsNormParams params;
    params.input = group.input;
    params.weight = group.norm_weight;
    params.output = group.normed;
    params.num_rows = group.num_rows;
    params.dim = group.num_inputs;
    params.epsilon = group.norm_epsilon;
    return params;
}

constexpr MatmulGroupParams groupOfNormed(const MatmulGroupParams& group) {
    MatmulGroupParams params = group;
    params.input = group.normed;
    params.norm_weight = nullptr;
    return params;
}

// What silu_mul does after the products, where they were made one by one.
constexpr SiluMulParams siluMulOfGroup(const MatmulGroupParams& group) {
    SiluMulParams params;
    params.gate = group.parts[0].output;
    params.up = group.parts[1].output;
    params.output = group.parts[0].output;
    params.num_values = int64_t{group.num_rows} * group.parts[0].num_outputs;
    return params;
}

void matmulCpu(const MatmulParams& params, ExecutionContext& context);
void matmulGroupCpu(const MatmulGroupParams& params, ExecutionContext& context);
// Through kernels/simt: the CUDA source, run thread block by thread block on the CPU.
void matmulSimt(const MatmulParams& params, ExecutionContext& context);
void matmulGroupSimt(const MatmulGroupParams& params, ExecutionContext& context);
// As matmulCuda where it goes through cuBLAS, for F32, F16 and BF16: inputs split in two, a product
// (plain loops stand in for cuBLAS's), sums finished.
void matmulSplitSimt(const MatmulParams& params, ExecutionContext& context);
// Pointers are device memory. Present when KVLAB_CUDA is on.
void matmulCuda(const MatmulParams& params, ExecutionContext& context);
void matmulGroupCuda(const MatmulGroupParams& params, ExecutionContext& context);

}  // namespace kvlab
