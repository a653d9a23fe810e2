// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/data_type.h"
#include "kernels/tensor_type.h"

namespace kvlab {

// The inner loops that profit from wide vectors, in one body compiled three times (baseline, AVX2 +
// FMA, AVX-512) and chosen once at run time. All three add in the same order: 16 partial sums over
// k mod 16, then (l, l+8), (l, l+4), (l, l+2), (l, l+1). The AVX paths give equal bits; the
// baseline rounds products before it adds them (no FMA), so it may differ in the last bits, on
// machines that have nothing better.
struct VectorPaths {
    const char* name;  // "avx512", "avx2", "baseline"

    // dst[i] = src[i] widened to f32, i < num_values; int8 without its scale.
    void (*widen)(const void* src, DataType dtype, int64_t num_values, float* dst);

    // dst[i] = weight i of a row of a stored tensor, i < num_values: a multiple of the type's
    // block.
    void (*dequantise)(const void* src, TensorType type, int64_t num_values, float* dst);

    // out[i] = sum_k a[k] * rows[i][k], i < num_rows, over stored K (int8 without its scale); n is
    // a multiple of 16. Widened in registers: the same bits as over f32 rows widened before.
    void (*dotRows)(
        const float* a, const void* const* rows, DataType dtype, int num_rows, int n, float* out);

    // out[k] += weights[i] * rows[i][k], row after row; n is a multiple of 16. Likewise.
    void (*axpyRows)(float* out,
                     const void* const* rows,
                     DataType dtype,
                     const float* weights,
                     int num_rows,
                     int n);
    // out[i] *= weight; n is a multiple of 16.
    void (*scale)(float* out, float weight, int n);

    // output[r * output_stride + o] (+)= sum_k input[r * num_inputs + k] * weight[o, k] for all
    // rows and o < num_outputs; num_inputs is a multiple of 16, weight rows of `type` lie row_bytes
    // apart. Stored types are widened in registers: the same bits as over rows widened before.
    void (*matmulTile)(const float* input,
                       int num_rows,
                       int num_inputs,
                       const void* weight,
                       TensorType type,
                       int64_t row_bytes,
                       int num_outputs,
                       float* output,
                       int64_t output_stride,
                       bool accumulate);
    int tile_rows;  // rows that share one widening of a weight in matmulTile

    // What this path reaches at best, for the bench's floors: multiply-adds on registers alone
    // (multiply_adds_a_round of them a round), and a read of memory from one end to the other
    // (num_bytes a multiple of 256). They return what keeps the loops from being dropped.
    float (*multiplyAddLoop)(int64_t num_rounds);
    int multiply_adds_a_round;
    float (*readLoop)(const void* memory, int64_t num_bytes);
};

const VectorPaths& vectorPaths();

constexpr int kVectorLanes = 16;
constexpr int paddedToLanes(int n) { return (n + kVectorLanes - 1) / kVectorLanes * kVectorLanes; }

}  // namespace kvlab
