// SPDX-License-Identifier: MIT
// For processors other than x86-64: the same sums in the same order, in plain loops.
#include <cstdint>

#include "kernels/cpu/vector_paths.h"
#include "kernels/half.h"

namespace kvlab {
namespace {

void widen(const void* src, DataType dtype, int64_t num_values, float* dst) {
    for (int64_t i = 0; i < num_values; ++i) {
        switch (dtype) {
            case DataType::kF32:
                dst[i] = static_cast<const float*>(src)[i];
                break;
            case DataType::kF16:
                dst[i] = halfToFloat(static_cast<const uint16_t*>(src)[i]);
                break;
            case DataType::kBF16:
                dst[i] = bfloat16ToFloat(static_cast<const uint16_t*>(src)[i]);
                break;
            case DataType::kInt8:
                dst[i] = static_cast<const int8_t*>(src)[i];
                break;
        }
    }
}

float dot(const float* a, const float* b, int n) {
    float sum[kVectorLanes] = {};
    for (int k = 0; k < n; k += kVectorLanes) {
        for (int lane = 0; lane < kVectorLanes; ++lane) sum[lane] += a[k + lane] * b[k + lane];
    }
    for (int width = kVectorLanes / 2; width > 0; width /= 2) {
        for (int lane = 0; lane < width; ++lane) sum[lane] += sum[lane + width];
    }
    return sum[0];
}

void axpy(float* out, const float* v, float weight, int n) {
    for (int i = 0; i < n; ++i) out[i] += weight * v[i];
}

void scale(float* out, float weight, int n) {
    for (int i = 0; i < n; ++i) out[i] *= weight;
}

void matmulTile(const float* input,
                int num_rows,
                int num_inputs,
                const float* weight,
                int num_outputs,
                float* output,
                int64_t output_stride,
                bool accumulate) {
    for (int r = 0; r < num_rows; ++r) {
        for (int o = 0; o < num_outputs; ++o) {
            const float value = dot(input + static_cast<int64_t>(r) * num_inputs,
                                    weight + static_cast<int64_t>(o) * num_inputs, num_inputs);
            float* out = output + r * output_stride + o;
            *out = accumulate ? *out + value : value;
        }
    }
}

}  // namespace

extern const VectorPaths kVectorPaths_portable;
const VectorPaths kVectorPaths_portable{"portable", widen, dot, axpy, scale, matmulTile};

}  // namespace kvlab
