// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "kernels/data_type.h"
#include "kernels/half.h"
#include "kernels/simt/simt.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace kvlab {

// The types in which weights and K/V are stored, as kernels name them: float, Half, Bfloat16, and
// int8_t, whose scale is applied apart. Sums are always f32. Under nvcc these are CUDA's own types,
// which convert in one instruction; the host compiler gets bit patterns and needs no CUDA
// installation.
#if defined(__CUDACC__)

using Half = __half;
using Bfloat16 = __nv_bfloat16;

__device__ __forceinline__ float toFloat(float value) { return value; }
__device__ __forceinline__ float toFloat(int8_t value) { return static_cast<float>(value); }
__device__ __forceinline__ float toFloat(Half value) { return __half2float(value); }
__device__ __forceinline__ float toFloat(Bfloat16 value) { return __bfloat162float(value); }

template <typename T>
__device__ __forceinline__ T fromFloat(float value) {
    if constexpr (sizeof(T) == 4) {
        return value;
    } else if constexpr (std::is_same_v<T, Half>) {
        return __float2half_rn(value);
    } else {
        return __float2bfloat16_rn(value);
    }
}

#else

struct Half {
    uint16_t bits;
};
struct Bfloat16 {
    uint16_t bits;
};

inline float toFloat(float value) { return value; }
inline float toFloat(int8_t value) { return static_cast<float>(value); }
inline float toFloat(Half value) { return halfToFloat(value.bits); }
inline float toFloat(Bfloat16 value) { return bfloat16ToFloat(value.bits); }

template <typename T>
inline T fromFloat(float value) {
    if constexpr (sizeof(T) == 4) {
        return value;
    } else if constexpr (std::is_same_v<T, Half>) {
        return Half{floatToHalf(value)};
    } else {
        return Bfloat16{floatToBfloat16(value)};
    }
}

#endif

// Calls use(T{}) with the storage type.
template <typename Use>
void withStorageType(DataType dtype, Use&& use) {
    switch (dtype) {
        case DataType::kF32:
            use(float{});
            break;
        case DataType::kF16:
            use(Half{});
            break;
        case DataType::kBF16:
            use(Bfloat16{});
            break;
        case DataType::kInt8:
            use(int8_t{});
            break;
    }
}

// Some values that lie side by side and are read in 16-byte pieces, or at once where they are fewer
// bytes.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Chunk {
    T values[kCount];
};

}  // namespace kvlab
