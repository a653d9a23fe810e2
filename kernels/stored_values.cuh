// SPDX-License-Identifier: MIT
#pragma once

// Weights as files store them (tensor_type.h), read in a kernel: one value at a time, and in pieces
// of 8 for the inner loops of matmul.
//
// A piece is two runs of 4 values, `kDistance` values apart: those whose bits share a word. Lanes
// that are neighbours take pieces that are neighbours, so a warp reads one contiguous stretch:
//
//   type       bytes a lane reads of a piece         kDistance
//   F32        2 x 16                                        4
//   F16 BF16   16                                            4
//   Q8_0       8 (in twos: blocks of 34 B) + scale           4
//   Q4_0       4 (in twos: blocks of 18 B) + scale          16
//   Q4_K       4, or 16 for four pieces at once + 16        32
//   Q6_K       4 + 4 (in twos: blocks of 210 B) + scales    64
//
// Small integers become floats without a conversion, whose rate is a half to a quarter of an
// addition's: put into the upper bits of the mantissa of 1.0, n of 16 reads as 1 + n / 16, and one
// multiply-add takes it to its value.

#include <cstdint>
#include <type_traits>

#include "kernels/simt/simt.h"
#include "kernels/simt/storage_types.h"
#include "kernels/tensor_type.h"

namespace kvlab {

namespace stored_values_detail {

// Where only 2-byte alignment is certain.
__device__ __forceinline__ uint32_t load16(const uint8_t* bytes) {
    return *reinterpret_cast<const uint16_t*>(bytes);
}

__device__ __forceinline__ uint32_t load32(const uint8_t* bytes) {
    return load16(bytes) | load16(bytes + 2) << 16;
}

__device__ __forceinline__ float loadHalf(const uint8_t* bytes) {
    return toFloat(*reinterpret_cast<const Half*>(bytes));
}

// An f16 by its 16 bits.
__device__ __forceinline__ float bitsToFloat(uint32_t bits) {
#if defined(__CUDACC__)
    return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
#else
    return halfToFloat(static_cast<uint16_t>(bits));
#endif
}

// 1 + bits / 128 for the low 7 bits of byte i; the top bit of each byte must be set.
template <int kByte>
__device__ __forceinline__ float onePlus(uint32_t bytes) {
    return __uint_as_float(__byte_perm(bytes, 0x3f000000u, 0x7044u | kByte << 8));
}

// values[i] = factor * (1 + bits of byte i / 128) + offset
__device__ __forceinline__ void fourValues(uint32_t bits,
                                           float factor,
                                           float offset,
                                           float* values) {
    const uint32_t bytes = bits | 0x80808080u;
    values[0] = onePlus<0>(bytes) * factor + offset;
    values[1] = onePlus<1>(bytes) * factor + offset;
    values[2] = onePlus<2>(bytes) * factor + offset;
    values[3] = onePlus<3>(bytes) * factor + offset;
}

__device__ __forceinline__ void fourInt8(uint32_t bytes, float scale, float* values) {
    values[0] = scale * static_cast<float>(static_cast<int8_t>(bytes & 0xff));
    values[1] = scale * static_cast<float>(static_cast<int8_t>(bytes >> 8 & 0xff));
    values[2] = scale * static_cast<float>(static_cast<int8_t>(bytes >> 16 & 0xff));
    values[3] = scale * static_cast<float>(static_cast<int8_t>(bytes >> 24));
}

}  // namespace stored_values_detail

// Calls use(std::integral_constant<TensorType, …>) with the type as a constant. Host only.
template <typename Use>
void withTensorType(TensorType type, Use&& use) {
    switch (type) {
        case TensorType::kF32:
            return use(std::integral_constant<TensorType, TensorType::kF32>{});
        case TensorType::kF16:
            return use(std::integral_constant<TensorType, TensorType::kF16>{});
        case TensorType::kBF16:
            return use(std::integral_constant<TensorType, TensorType::kBF16>{});
        case TensorType::kQ8_0:
            return use(std::integral_constant<TensorType, TensorType::kQ8_0>{});
        case TensorType::kQ4_0:
            return use(std::integral_constant<TensorType, TensorType::kQ4_0>{});
        case TensorType::kQ4_K:
            return use(std::integral_constant<TensorType, TensorType::kQ4_K>{});
        case TensorType::kQ6_K:
            return use(std::integral_constant<TensorType, TensorType::kQ6_K>{});
    }
}

constexpr int kPieceValues = 8;

// What a lane holds of one weight row between the load and its use. kWhole: the row begins on a
// 16-byte boundary, and plain types have a multiple of 8 values in it. kNumPieces pieces are read
// together.
//   load(row, unit, num_values)  unit u has the pieces u * kNumPieces …
//   widen(piece, values)         piece 0 … kNumPieces - 1 as f32
//   firstValue(unit, piece)      index in the row of the piece's first run
template <TensorType kType, bool kWhole, int kNumPieces = 1>
struct StoredUnit;

template <typename T, bool kWhole>
struct PlainUnit {
    static constexpr int kDistance = 4;
    Chunk<T, kPieceValues> chunk;

    __device__ __forceinline__ static int firstValue(int unit, int) { return unit * kPieceValues; }

    __device__ __forceinline__ void load(const uint8_t* row, int unit, int num_values) {
        const T* const values = reinterpret_cast<const T*>(row);
        const int first = unit * kPieceValues;
        if constexpr (kWhole) {
            chunk = *reinterpret_cast<const Chunk<T, kPieceValues>*>(values + first);
        } else {
            KVLAB_UNROLL
            for (int i = 0; i < kPieceValues; ++i) {
                chunk.values[i] = first + i < num_values ? values[first + i] : fromFloat<T>(0.f);
            }
        }
    }

    __device__ __forceinline__ void widen(int, float (&values)[kPieceValues]) const {
        KVLAB_UNROLL
        for (int i = 0; i < kPieceValues; ++i) values[i] = toFloat(chunk.values[i]);
    }
};

template <bool kWhole>
struct StoredUnit<TensorType::kF32, kWhole, 1> : PlainUnit<float, kWhole> {};
template <bool kWhole>
struct StoredUnit<TensorType::kF16, kWhole, 1> : PlainUnit<Half, kWhole> {};
template <bool kWhole>
struct StoredUnit<TensorType::kBF16, kWhole, 1> : PlainUnit<Bfloat16, kWhole> {};

template <bool kWhole>
struct StoredUnit<TensorType::kQ8_0, kWhole, 1> {
    static constexpr int kDistance = 4;
    uint32_t quanta[2];
    float scale;

    __device__ __forceinline__ static int firstValue(int unit, int) { return unit * kPieceValues; }

    __device__ __forceinline__ void load(const uint8_t* row, int unit, int) {
        using namespace stored_values_detail;
        const uint8_t* const block = row + static_cast<int64_t>(unit / 4) * 34;
        scale = loadHalf(block);
        quanta[0] = load32(block + 2 + 8 * (unit % 4));
        quanta[1] = load32(block + 6 + 8 * (unit % 4));
    }

    __device__ __forceinline__ void widen(int, float (&values)[kPieceValues]) const {
        stored_values_detail::fourInt8(quanta[0], scale, values);
        stored_values_detail::fourInt8(quanta[1], scale, values + 4);
    }
};

template <bool kWhole>
struct StoredUnit<TensorType::kQ4_0, kWhole, 1> {
    static constexpr int kDistance = 16;
    uint32_t quanta;
    float scale;

    __device__ __forceinline__ static int firstValue(int unit, int) {
        return unit / 4 * 32 + unit % 4 * 4;
    }

    __device__ __forceinline__ void load(const uint8_t* row, int unit, int) {
        using namespace stored_values_detail;
        const uint8_t* const block = row + static_cast<int64_t>(unit / 4) * 18;
        scale = loadHalf(block);
        quanta = load32(block + 2 + 4 * (unit % 4));
    }

    // scale (q - 8) = 16 scale (1 + q / 16) - 24 scale, without rounding
    __device__ __forceinline__ void widen(int, float (&values)[kPieceValues]) const {
        using namespace stored_values_detail;
        const float factor = 16.f * scale;
        const float offset = -24.f * scale;
        fourValues(quanta << 3 & 0x78787878u, factor, offset, values);
        fourValues(quanta >> 1 & 0x78787878u, factor, offset, values + 4);
    }
};

// Four pieces share their header, so that unpacking it (some 20 instructions) is spread over 32
// values.
template <bool kWhole, int kNumPieces>
struct StoredUnit<TensorType::kQ4_K, kWhole, kNumPieces> {
    static_assert(kNumPieces == 1 || kNumPieces == 4);
    static constexpr int kDistance = 32;
    static constexpr int kUnitsOfBlock = 32 / kNumPieces;
    Chunk<uint32_t, 4> header;
    uint32_t quanta[kNumPieces];
    int group;  // chunk of 64 values in the block, 0 … 3

    __device__ __forceinline__ static int firstValue(int unit, int piece) {
        const int word = unit % kUnitsOfBlock * kNumPieces + piece;  // of the block's 32
        return unit / kUnitsOfBlock * 256 + word / 8 * 64 + word % 8 * 4;
    }

    __device__ __forceinline__ void load(const uint8_t* row, int unit, int) {
        using namespace stored_values_detail;
        const uint8_t* const block = row + static_cast<int64_t>(unit / kUnitsOfBlock) * 144;
        const int first_word = unit % kUnitsOfBlock * kNumPieces;
        const uint8_t* const words = block + 16 + 4 * first_word;
        group = first_word / 8;
        if constexpr (kWhole) {
            header = *reinterpret_cast<const Chunk<uint32_t, 4>*>(block);
            if constexpr (kNumPieces == 4) {
                const Chunk<uint32_t, 4> all = *reinterpret_cast<const Chunk<uint32_t, 4>*>(words);
                KVLAB_UNROLL
                for (int i = 0; i < 4; ++i) quanta[i] = all.values[i];
            } else {
                quanta[0] = *reinterpret_cast<const uint32_t*>(words);
            }
        } else {
            KVLAB_UNROLL
            for (int i = 0; i < 4; ++i) header.values[i] = load32(block + 4 * i);
            KVLAB_UNROLL
            for (int i = 0; i < kNumPieces; ++i) quanta[i] = load32(words + 4 * i);
        }
    }

    // d s q - dmin m = 16 d s (1 + q / 16) - (16 d s + dmin m): rounds once more than the other
    // types do.
    __device__ __forceinline__ void widen(int piece, float (&values)[kPieceValues]) const {
        using namespace stored_values_detail;
        // Two groups of 32 values meet in a piece: their scales and minima in the low two bytes.
        const int shift = 16 * (group & 1);
        const uint32_t low = header.values[1] >> shift;
        const uint32_t middle = header.values[2] >> shift;
        const uint32_t high = header.values[3] >> shift;
        const bool first_half = group < 2;
        const uint32_t scales =
            first_half ? low & 0x3f3fu : (high & 0x0f0fu) | (low >> 2 & 0x3030u);
        const uint32_t minima =
            first_half ? middle & 0x3f3fu : (high >> 4 & 0x0f0fu) | (middle >> 2 & 0x3030u);
        const float d = bitsToFloat(header.values[0] & 0xffffu);
        const float dmin = bitsToFloat(header.values[0] >> 16);
        const float factor0 = 16.f * d * static_cast<float>(scales & 0xffu);
        const float factor1 = 16.f * d * static_cast<float>(scales >> 8 & 0xffu);
        const float offset0 = -factor0 - dmin * static_cast<float>(minima & 0xffu);
        const float offset1 = -factor1 - dmin * static_cast<float>(minima >> 8 & 0xffu);
        fourValues(quanta[piece] << 3 & 0x78787878u, factor0, offset0, values);
        fourValues(quanta[piece] >> 1 & 0x78787878u, factor1, offset1, values + 4);
    }
};

template <bool kWhole>
struct StoredUnit<TensorType::kQ6_K, kWhole, 1> {
    static constexpr int kDistance = 64;
    uint32_t low_bits;   // of 4 values of the first run, and of the second
    uint32_t high_bits;  // in bits 0-1 and 4-5 of each byte
    float scales[2];

    __device__ __forceinline__ static int firstValue(int unit, int) {
        return unit / 16 * 128 + unit % 16 * 4;
    }

    __device__ __forceinline__ void load(const uint8_t* row, int unit, int) {
        using namespace stored_values_detail;
        const uint8_t* const block = row + static_cast<int64_t>(unit / 32) * 210;
        const int half = unit / 16 % 2;
        const int word = unit % 16;
        low_bits = load32(block + 64 * half + 4 * word);
        high_bits = load32(block + 128 + 32 * half + 4 * (word % 8)) >> 2 * (word / 8);
        const int8_t* const group_scales =
            reinterpret_cast<const int8_t*>(block + 192 + 8 * half + word / 4);
        const float d = loadHalf(block + 208);
        scales[0] = d * static_cast<float>(group_scales[0]);
        scales[1] = d * static_cast<float>(group_scales[4]);
    }

    // scale (q - 32) = 64 scale (1 + q / 64) - 96 scale, without rounding
    __device__ __forceinline__ void widen(int, float (&values)[kPieceValues]) const {
        using namespace stored_values_detail;
        const uint32_t first = (low_bits & 0x0f0f0f0fu) | (high_bits << 4 & 0x30303030u);
        const uint32_t second = (low_bits >> 4 & 0x0f0f0f0fu) | (high_bits & 0x30303030u);
        fourValues(first << 1, 64.f * scales[0], -96.f * scales[0], values);
        fourValues(second << 1, 64.f * scales[1], -96.f * scales[1], values + 4);
    }
};

// Value `index` of a row, exactly as every other way of widening gives it.
template <TensorType kType>
__device__ __forceinline__ float storedValue(const uint8_t* row, int index) {
    using namespace stored_values_detail;
    const uint8_t* const block =
        row + static_cast<int64_t>(index / tensorBlockValues(kType)) * tensorBlockBytes(kType);
    const int at = index % tensorBlockValues(kType);
    if constexpr (kType == TensorType::kF32) {
        return *reinterpret_cast<const float*>(block);
    } else if constexpr (kType == TensorType::kF16) {
        return loadHalf(block);
    } else if constexpr (kType == TensorType::kBF16) {
        return toFloat(*reinterpret_cast<const Bfloat16*>(block));
    } else if constexpr (kType == TensorType::kQ8_0) {
        return loadHalf(block) * static_cast<float>(static_cast<int8_t>(block[2 + at]));
    } else if constexpr (kType == TensorType::kQ4_0) {
        const int quantum = block[2 + at % 16] >> (at < 16 ? 0 : 4) & 15;
        return loadHalf(block) * static_cast<float>(quantum - 8);
    } else if constexpr (kType == TensorType::kQ4_K) {
        const uint8_t* const packed = block + 4;
        const int group = at / 32;
        const int quantum = block[16 + 32 * (at / 64) + at % 32] >> (at % 64 < 32 ? 0 : 4) & 15;
        int scale = packed[group % 4] & 63;
        int minimum = packed[4 + group % 4] & 63;
        if (group >= 4) {
            scale = (packed[4 + group] & 15) | packed[group - 4] >> 6 << 4;
            minimum = packed[4 + group] >> 4 | packed[group] >> 6 << 4;
        }
        const float factor = loadHalf(block) * static_cast<float>(scale);
        const float offset = loadHalf(block + 2) * static_cast<float>(minimum);
        return factor * static_cast<float>(quantum) - offset;
    } else {
        const int half = at / 128;
        const int in_half = at % 128;
        const int low = block[64 * half + in_half % 64] >> (in_half < 64 ? 0 : 4) & 15;
        const int high = block[128 + 32 * half + in_half % 32] >> (in_half / 32 * 2) & 3;
        const float scale = static_cast<float>(static_cast<int8_t>(block[192 + at / 16]));
        return loadHalf(block + 208) * scale * static_cast<float>((low | high << 4) - 32);
    }
}

}  // namespace kvlab
