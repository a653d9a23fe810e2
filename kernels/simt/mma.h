// SPDX-License-Identifier: MIT
#pragma once

// The warp-level matrix primitives that kernels use: one instruction each under nvcc, a meeting of
// the 32 lanes on the CPU that does the same arithmetic. All 32 lanes of a warp must come.
//
// Two 16-bit values share a word, the first in the low half. Lane 4 * g + t (g 0..7, t 0..3) holds
// of a product C += A B, with A [16, 16], B [16, 8], C [16, 8] (PTX ISA, "Matrix fragments for
// mma.m16n8k16 with floating point type"):
//
//   A   a[0] A[g][2t, 2t + 1]          a[1] A[g + 8][2t, 2t + 1]
//       a[2] A[g][2t + 8, 2t + 9]      a[3] A[g + 8][2t + 8, 2t + 9]
//   B   b[0] B[2t, 2t + 1][g]          b[1] B[2t + 8, 2t + 9][g]
//   C   c[0], c[1] C[g][2t, 2t + 1]    c[2], c[3] C[g + 8][2t, 2t + 1]
//
// Products are exact. Sums are f32 that the hardware cuts off towards zero rather than rounds, in
// an order that it does not tell (Fasi et al., Numerical behavior of NVIDIA tensor cores, PeerJ
// Computer Science 7:e330, 2021). So an error of one sign grows with the length of a sum kept in C;
// on the CPU each C += A B is exact but for one such cut.

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/simt/simt.h"
#include "kernels/simt/storage_types.h"

namespace kvlab {

#if defined(__CUDACC__)

template <typename T>
__device__ __forceinline__ uint32_t packPair(T low, T high) {
    static_assert(sizeof(T) == 2);
    uint16_t bits[2];
    memcpy(&bits[0], &low, 2);
    memcpy(&bits[1], &high, 2);
    return bits[0] | static_cast<uint32_t>(bits[1]) << 16;
}

#else

template <typename T>
inline uint32_t packPair(T low, T high) {
    return low.bits | static_cast<uint32_t>(high.bits) << 16;
}

#endif

// The low halves of two words, or the high halves, as one word.
__device__ __forceinline__ uint32_t lowHalves(uint32_t first, uint32_t second) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(first, second, 0x5410);
#else
    return (first & 0xffffu) | second << 16;
#endif
}
__device__ __forceinline__ uint32_t highHalves(uint32_t first, uint32_t second) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(first, second, 0x7632);
#else
    return first >> 16 | (second & 0xffff0000u);
#endif
}

namespace mma_detail {

template <typename T>
__device__ __forceinline__ float half(uint32_t word, int which) {
    const auto bits = static_cast<uint16_t>(which == 0 ? word : word >> 16);
    T value;
    memcpy(&value, &bits, 2);
    return toFloat(value);
}

// This lane's four sums, from the four lanes that hold its two rows of A and the eight that hold
// its two columns of B: `a(lane, i)` and `b(lane, i)` give their words.
template <typename T, typename Sum, typename WordOfA, typename WordOfB>
__device__ __forceinline__ void multiplyAdd(Sum (&c)[4], int lane, WordOfA&& a, WordOfB&& b) {
    const int g = lane / 4;
    const int t = lane % 4;
    for (int source = 0; source < 4; ++source) {      // owners of k = 2 * source …
        for (int k_half = 0; k_half < 2; ++k_half) {  // … and of 8 + 2 * source
            const uint32_t upper = a(4 * g + source, 2 * k_half);
            const uint32_t lower = a(4 * g + source, 2 * k_half + 1);
            const uint32_t left = b(4 * (2 * t) + source, k_half);
            const uint32_t right = b(4 * (2 * t + 1) + source, k_half);
            for (int i = 0; i < 2; ++i) {
                c[0] += Sum{half<T>(upper, i)} * Sum{half<T>(left, i)};
                c[1] += Sum{half<T>(upper, i)} * Sum{half<T>(right, i)};
                c[2] += Sum{half<T>(lower, i)} * Sum{half<T>(left, i)};
                c[3] += Sum{half<T>(lower, i)} * Sum{half<T>(right, i)};
            }
        }
    }
}

}  // namespace mma_detail

#if defined(__CUDACC__)

// C += A B. T is Half or Bfloat16.
template <typename T>
__device__ __forceinline__ void mma16x8x16(float (&c)[4],
                                           const uint32_t (&a)[4],
                                           const uint32_t (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if constexpr (std::is_same_v<T, Half>) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
#else
    // Turing multiplies f16 eight deep, and bf16 not at all.
    if constexpr (std::is_same_v<T, Half>) {
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
            "{%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
            "{%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[2]), "r"(a[3]), "r"(b[1]));
    } else {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        mma_detail::multiplyAdd<T>(
            c, lane, [&](int source, int i) { return __shfl_sync(0xffffffffu, a[i], source); },
            [&](int source, int i) { return __shfl_sync(0xffffffffu, b[i], source); });
    }
#endif
}

// Lane 4 * g + t gives elements [g][2t, 2t + 1] of an [8, 8] matrix of 16-bit values and gets
// [2t, 2t + 1][g].
__device__ __forceinline__ uint32_t transpose8x8(uint32_t row_pair) {
    uint32_t column_pair;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;"
                 : "=r"(column_pair)
                 : "r"(row_pair));
    return column_pair;
}

#else

namespace mma_detail {

// Calls use(lanes) with every lane's `mine`; no lane goes on, and none changes what it gave, before
// all have used it. A pointer passes through a shuffle, so this needs no operation of its own.
template <typename Given, typename Use>
void meet(const Given& mine, Use&& use) {
    const Given* lanes[32];
    const Given** const table = reinterpret_cast<const Given**>(
        __shfl_sync(0xffffffffu, reinterpret_cast<uintptr_t>(&lanes[0]), 0));
#if defined(__SANITIZE_THREAD__)
    // Lanes of the thread block before may have read this stack of lane 0, and thread blocks are
    // not ordered: lane 0, which met them, tells the others.
    __syncwarp();
#endif
    table[threadIdx.x % 32] = &mine;
    __syncwarp();
    use(table);
    __syncwarp();
}

}  // namespace mma_detail

namespace mma_detail {

// The f32 at or next to `value` on the side of 0.
inline float cutOff(double value) {
    const float nearest = static_cast<float>(value);
    return std::fabs(static_cast<double>(nearest)) > std::fabs(value) ? std::nextafter(nearest, 0.f)
                                                                      : nearest;
}

}  // namespace mma_detail

template <typename T>
inline void mma16x8x16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    struct Fragments {
        const uint32_t* a;
        const uint32_t* b;
    };
    const Fragments mine{a, b};
    const int lane = static_cast<int>(threadIdx.x) % 32;
    mma_detail::meet(mine, [&](const Fragments* const* lanes) {
        double sums[4] = {c[0], c[1], c[2], c[3]};
        mma_detail::multiplyAdd<T>(
            sums, lane, [&](int source, int i) { return lanes[source]->a[i]; },
            [&](int source, int i) { return lanes[source]->b[i]; });
        for (int i = 0; i < 4; ++i) c[i] = mma_detail::cutOff(sums[i]);
    });
}

inline uint32_t transpose8x8(uint32_t row_pair) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int g = lane / 4;
    const int t = lane % 4;
    uint32_t column_pair = 0;
    mma_detail::meet(row_pair, [&](const uint32_t* const* lanes) {
        const auto element = [&](int row, int column) {
            const uint32_t word = *lanes[4 * row + column / 2];
            return column % 2 == 0 ? word & 0xffffu : word >> 16;
        };
        column_pair = element(2 * t, g) | element(2 * t + 1, g) << 16;
    });
    return column_pair;
}

#endif

}  // namespace kvlab
