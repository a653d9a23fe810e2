// SPDX-License-Identifier: MIT
// For processors other than x86-64: the same sums in the same order, in plain loops.
#include <cstdint>
#include <vector>

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

uint16_t word(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }

float stored(const uint8_t* row, TensorType type, int64_t k) {
    const int block_values = tensorBlockValues(type);
    const uint8_t* block = row + k / block_values * tensorBlockBytes(type);
    const int at = static_cast<int>(k % block_values);
    switch (type) {
        case TensorType::kF32:
            return reinterpret_cast<const float*>(row)[k];
        case TensorType::kF16:
            return halfToFloat(word(block));
        case TensorType::kBF16:
            return bfloat16ToFloat(word(block));
        case TensorType::kQ8_0:
            return halfToFloat(word(block)) *
                   static_cast<float>(static_cast<int8_t>(block[2 + at]));
        case TensorType::kQ4_0: {
            const int quantum = (block[2 + at % 16] >> (at < 16 ? 0 : 4) & 15) - 8;
            return halfToFloat(word(block)) * static_cast<float>(quantum);
        }
        case TensorType::kQ4_K: {
            const uint8_t* packed = block + 4;
            const int group = at / 32;
            const bool first = group < 4;
            const int scale =
                first ? packed[group] & 63 : (packed[group + 4] & 15) | packed[group - 4] >> 6 << 4;
            const int minimum =
                first ? packed[group + 4] & 63 : packed[group + 4] >> 4 | packed[group] >> 6 << 4;
            const int quantum = block[16 + at / 64 * 32 + at % 32] >> group % 2 * 4 & 15;
            return halfToFloat(word(block)) * static_cast<float>(scale * quantum) -
                   halfToFloat(word(block + 2)) * static_cast<float>(minimum);
        }
        case TensorType::kQ6_K: {
            const int low = block[at / 128 * 64 + at % 64] >> at % 128 / 64 * 4 & 15;
            const int high = block[128 + at / 128 * 32 + at % 32] >> at % 128 / 32 * 2 & 3;
            const int scale = static_cast<int8_t>(block[192 + at / 16]);
            return halfToFloat(word(block + 208)) *
                   static_cast<float>(scale * ((low | high << 4) - 32));
        }
    }
    return 0.f;
}

void dequantise(const void* src, TensorType type, int64_t num_values, float* dst) {
    const uint8_t* row = static_cast<const uint8_t*>(src);
    for (int64_t k = 0; k < num_values; ++k) dst[k] = stored(row, type, k);
}

void dotRows(
    const float* a, const void* const* rows, DataType type, int num_rows, int n, float* out) {
    std::vector<float> row(static_cast<size_t>(n));
    for (int i = 0; i < num_rows; ++i) {
        widen(rows[i], type, n, row.data());
        float sum[kVectorLanes] = {};
        for (int k = 0; k < n; ++k) sum[k % kVectorLanes] += a[k] * row[static_cast<size_t>(k)];
        for (int width = kVectorLanes / 2; width > 0; width /= 2) {
            for (int lane = 0; lane < width; ++lane) sum[lane] += sum[lane + width];
        }
        out[i] = sum[0];
    }
}

void axpyRows(
    float* out, const void* const* rows, DataType type, const float* weights, int num_rows, int n) {
    std::vector<float> row(static_cast<size_t>(n));
    for (int i = 0; i < num_rows; ++i) {
        widen(rows[i], type, n, row.data());
        for (int k = 0; k < n; ++k) out[k] += weights[i] * row[static_cast<size_t>(k)];
    }
}

void scale(float* out, float weight, int n) {
    for (int i = 0; i < n; ++i) out[i] *= weight;
}

void matmulTile(const float* input,
                int num_rows,
                int num_inputs,
                const void* weight,
                TensorType type,
                int64_t row_bytes,
                int num_outputs,
                float* output,
                int64_t output_stride,
                bool accumulate) {
    for (int o = 0; o < num_outputs; ++o) {
        const uint8_t* row = static_cast<const uint8_t*>(weight) + o * row_bytes;
        for (int r = 0; r < num_rows; ++r) {
            const float* x = input + static_cast<int64_t>(r) * num_inputs;
            float sum[kVectorLanes] = {};
            for (int k = 0; k < num_inputs; ++k)
                sum[k % kVectorLanes] += x[k] * stored(row, type, k);
            for (int width = kVectorLanes / 2; width > 0; width /= 2) {
                for (int lane = 0; lane < width; ++lane) sum[lane] += sum[lane + width];
            }
            float* out = output + r * output_stride + o;
            *out = accumulate ? *out + sum[0] : sum[0];
        }
    }
}

constexpr int kPeakSums = 32;

float multiplyAddLoop(int64_t num_rounds) {
    float sum[kPeakSums];
    for (int c = 0; c < kPeakSums; ++c) sum[c] = static_cast<float>(c);
    for (int64_t i = 0; i < num_rounds; ++i) {
        for (int c = 0; c < kPeakSums; ++c) sum[c] = sum[c] * 0.5f + 0.5f;
    }
    float total = 0.f;
    for (int c = 0; c < kPeakSums; ++c) total += sum[c];
    return total;
}

float readLoop(const void* memory, int64_t num_bytes) {
    const float* values = static_cast<const float*>(memory);
    float sum[kVectorLanes] = {};
    for (int64_t i = 0; i + kVectorLanes <= num_bytes / 4; i += kVectorLanes) {
        for (int lane = 0; lane < kVectorLanes; ++lane) sum[lane] += values[i + lane];
    }
    float total = 0.f;
    for (int lane = 0; lane < kVectorLanes; ++lane) total += sum[lane];
    return total;
}

}  // namespace

extern const VectorPaths kVectorPaths_portable;
const VectorPaths kVectorPaths_portable{"portable",      widen,     dequantise, dotRows,
                                        axpyRows,        scale,     matmulTile, 1,
                                        multiplyAddLoop, kPeakSums, readLoop};

}  // namespace kvlab
