// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/data_type.h"

namespace kvlab {

// How a weight tensor is stored. The quantised types cut each row into blocks of values that share
// scales; a row is a whole number of blocks. d, dmin and the scales are as ggml stores them (ggml-
// org/ggml, docs/gguf.md and the block structs of ggml-common.h); numbers are little-endian.
//
//   Q8_0   32 values, 34 B   f16 d | int8 q[32]                          w = d q
//   Q4_0   32 values, 18 B   f16 d | 16 B: value j low, j + 16 high      w = d (q - 8)
//   Q4_K  256 values, 144 B  f16 d | f16 dmin | 12 B: eight 6-bit scales s and minima m |
//                            128 B: chunk c of 64 values in bytes 32 c .. 32 c + 31, its first 32
//                            values low, the others high                 w = d s q - dmin m
//   Q6_K  256 values, 210 B  128 B: low 4 bits | 64 B: high 2 bits | int8 s[16] | f16 d
//                                                                        w = d s (q - 32)
//
// Widening to f32 is the same on every machine: every product above is exact in f32, so only the
// one subtraction of Q4_K rounds.
enum class TensorType : uint8_t { kF32, kF16, kBF16, kQ8_0, kQ4_0, kQ4_K, kQ6_K };

constexpr TensorType kAllTensorTypes[] = {TensorType::kF32,  TensorType::kF16,  TensorType::kBF16,
                                          TensorType::kQ8_0, TensorType::kQ4_0, TensorType::kQ4_K,
                                          TensorType::kQ6_K};

// Values that share one block; 1 for the plain types.
KVLAB_HOST_DEVICE constexpr int tensorBlockValues(TensorType type) {
    switch (type) {
        case TensorType::kF32:
        case TensorType::kF16:
        case TensorType::kBF16:
            return 1;
        case TensorType::kQ8_0:
        case TensorType::kQ4_0:
            return 32;
        case TensorType::kQ4_K:
        case TensorType::kQ6_K:
            return 256;
    }
    return 1;
}

KVLAB_HOST_DEVICE constexpr int tensorBlockBytes(TensorType type) {
    switch (type) {
        case TensorType::kF32:
            return 4;
        case TensorType::kF16:
        case TensorType::kBF16:
            return 2;
        case TensorType::kQ8_0:
            return 34;
        case TensorType::kQ4_0:
            return 18;
        case TensorType::kQ4_K:
            return 144;
        case TensorType::kQ6_K:
            return 210;
    }
    return 0;
}

// Bytes of `num_values` values, a multiple of tensorBlockValues.
KVLAB_HOST_DEVICE constexpr int64_t tensorBytes(TensorType type, int64_t num_values) {
    return num_values / tensorBlockValues(type) * tensorBlockBytes(type);
}

KVLAB_HOST_DEVICE constexpr bool isQuantised(TensorType type) {
    return tensorBlockValues(type) > 1;
}

// As model files and their tools spell it.
constexpr const char* tensorTypeName(TensorType type) {
    switch (type) {
        case TensorType::kF32:
            return "F32";
        case TensorType::kF16:
            return "F16";
        case TensorType::kBF16:
            return "BF16";
        case TensorType::kQ8_0:
            return "Q8_0";
        case TensorType::kQ4_0:
            return "Q4_0";
        case TensorType::kQ4_K:
            return "Q4_K";
        case TensorType::kQ6_K:
            return "Q6_K";
    }
    return "?";
}

// The tensor type that stores values as this K/V type does; f32 where there is none.
constexpr TensorType tensorTypeOf(DataType type) {
    switch (type) {
        case DataType::kF16:
            return TensorType::kF16;
        case DataType::kBF16:
            return TensorType::kBF16;
        default:
            return TensorType::kF32;
    }
}

}  // namespace kvlab
