// SPDX-License-Identifier: MIT
#pragma once

// output[r, o] = sum_k input[r, k] * weight[o, k]  (+ bias[o]) (+ output[r, o] when accumulate)
//
// In   input [num_rows, num_inputs] f32; weight [num_outputs, num_inputs] of a TensorType;
//      bias [num_outputs] f32 or none
// Out  output [num_rows, num_outputs] f32
//
// Two kernels. matmulFewKernel is for the few rows of a decode step, where reading the weights is
// the work; matmulTiledKernel for the many of a prefill chunk, where multiplying is.
//
// matmulFewKernel: who owns what
//   grid x   kOutputs outputs of up to kRows rows; the thread blocks that read the same weights are
//            neighbours, so that all but the first find them in the L2 cache. Products of the same
//            rows with several matrices lie one after the other. With silu_mul a thread block has
//            kOutputs / 2 outputs of both and combines them.
//   thread   units t, t + 128, … of each of the kOutputs weight rows (stored_values.cuh: 16 bytes
//            of F32, F16, BF16 and Q4_K at a time), widened in registers; kRows x kOutputs sums
//   warp     adds its lanes' sums by halving: in each step a lane gives half of its sums away and
//            keeps the others, so 32 sums cost 31 shuffles and not 160
//   Shared memory, static: 4 warps x kRows x kOutputs floats, 512 bytes at most.
//
//   kNorm    The row is normalised on the way (rms_norm_kernel.cuh is one launch and one wait
//            more): every thread block sees the whole row, so each adds its squares itself.
//
//   Early launch: the weights of a thread's first units are asked for before the predecessors have
//   ended. For rows of 2,048 values in 16 bits these are all it will need, so most of such a matrix
//   is on its way, or there, when the inputs are.
//
//   Why so: each weight is read once, by neighbouring lanes, with 32 to 64 bytes in flight per
//   thread: 132 multiprocessors with 1,024 threads each have then 4 to 8 MB under way, more than
//   4.8 TB/s times the latency of some 700 ns. All four warps share the outputs, so that even 1,024
//   outputs (K and V of a small model) give 512 thread blocks. Input rows come from the L1 cache
//   and serve kOutputs outputs each. Not good at: eight rows with 4-bit weights, which are bound by
//   multiply-adds; Q8_0, Q4_0 and Q6_K, whose blocks are no multiple of 4 bytes and are read in
//   twos, so the L1 cache is asked for each line several times.
//
// matmulTiledKernel: who owns what
//   grid x   64 outputs;  grid y   64 rows
//   thread   4 rows x 4 outputs of the product, in registers; of each step one piece of 8 weights,
//            widened into shared memory, and one of 8 inputs
//   Shared memory, static: 2 x 32 x 68 floats, 17,408 bytes.
//
//   Why so: a value brought to shared memory serves 64 rows or outputs, and quantised weights are
//   widened once per tile instead of once per row. The next step's values are on their way while
//   this one's are multiplied. Stored with k outermost, so that a thread reads its 4 rows at once;
//   each piece's columns are turned by 8 so that the lanes that write them meet no bank twice. Not
//   good at: everything tensor cores do; they need 16-bit inputs, and f32 inputs rounded to f16 are
//   off by 3e-4.

#include <cstdint>

#include "kernels/launch_check.h"
#include "kernels/matmul/matmul.h"
#include "kernels/rms_norm/rms_norm_kernel.cuh"
#include "kernels/silu_mul/silu_mul_kernel.cuh"
#include "kernels/simt/simt.h"
#include "kernels/stored_values.cuh"

namespace kvlab {

constexpr int kMatmulFewThreads = 128;
constexpr int kMatmulFewRows = 32;  // more, and the tiled kernel is better if it fills the GPU
constexpr int kMatmulTile = 64;     // rows and outputs
constexpr int kMatmulTiledThreads = 256;

// What matmulFewKernel works out: products of the same rows, with matrices of one type.
struct MatmulFewParams {
    const float* input;
    const float* norm_weight;  // or none
    float norm_epsilon;
    MatmulPart parts[kMatmulMaxParts];
    // Thread blocks before each part, in groups of outputs; INT_MAX: there is no such part.
    int first_group[kMatmulMaxParts];
    int num_rows;
    int num_inputs;
    bool accumulate;
    bool silu_mul;
};

namespace matmul_detail {

// Outputs of a thread block: what its input row, read from L1 as f32, must be shared among so that
// the reads keep up. 4-bit weights have four to eight times as many inputs to a byte.
template <TensorType kType, int kRows>
KVLAB_HOST_DEVICE constexpr int fewOutputs() {
    const bool four_bits = kType == TensorType::kQ4_0 || kType == TensorType::kQ4_K;
    return kRows == 1 && !four_bits ? 2 : 4;
}

// Units of a weight row that a thread has in flight.
template <TensorType kType, int kRows>
KVLAB_HOST_DEVICE constexpr int fewUnits() {
    return kRows == 1 && kType != TensorType::kQ4_K ? 2 : 1;
}

// Thread blocks of a multiprocessor that the registers must allow; 0: as the compiler likes. Left
// alone it spills a few bytes of several rows' sums to fit in one more.
template <TensorType kType, int kRows, bool kWhole>
constexpr int fewThreadBlocks() {
    if (!kWhole) return 0;
    if (kType == TensorType::kQ4_K) return kRows == 1 ? 5 : 0;
    if (kRows == 1 && (kType == TensorType::kQ8_0 || kType == TensorType::kQ6_K)) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
        return 8;  // all the threads that Turing has room for
#else
        return 10;
#endif
    }
    return kRows == 1 ? 8 : kRows == 2 ? 5 : kRows == 4 ? 4 : 3;
}

// Whether a thread asks for weights before the kernel's predecessors have ended, and for the next
// ones before it has multiplied. Four units of Q4_K and the sums of four rows leave no registers.
template <TensorType kType, int kRows, bool kWhole>
KVLAB_HOST_DEVICE constexpr bool fewAhead() {
    return kWhole && (kType != TensorType::kQ4_K || kRows <= 2);
}

template <TensorType kType>
KVLAB_HOST_DEVICE constexpr int fewPieces() {
    return kType == TensorType::kQ4_K ? 4 : 1;
}

// The inputs that a piece of weights meets: 4 from `first` on and 4 more kDistance further.
template <int kDistance, bool kWhole>
__device__ __forceinline__ void loadInputs(const float* row,
                                           int first,
                                           int num_inputs,
                                           float (&values)[kPieceValues]) {
    KVLAB_UNROLL
    for (int run = 0; run < 2; ++run) {
        const int begin = first + run * kDistance;
        if constexpr (kWhole) {
            const Chunk<float, 4> four = *reinterpret_cast<const Chunk<float, 4>*>(row + begin);
            KVLAB_UNROLL
            for (int i = 0; i < 4; ++i) values[4 * run + i] = four.values[i];
        } else {
            KVLAB_UNROLL
            for (int i = 0; i < 4; ++i) {
                values[4 * run + i] = begin + i < num_inputs ? row[begin + i] : 0.f;
            }
        }
    }
}

// Adds the kCount sums of all lanes, a step at a time: while a lane has several, it gives half of
// them away and keeps the others.
template <int kCount, int kOffset>
__device__ __forceinline__ void halve(float* sums, int lane) {
    constexpr int kHalf = kCount / 2;
    if constexpr (kCount > 1) {
        const bool upper = (lane & kOffset) != 0;
        KVLAB_UNROLL
        for (int i = 0; i < kHalf; ++i) {
            const float given = upper ? sums[i] : sums[i + kHalf];
            const float kept = upper ? sums[i + kHalf] : sums[i];
            sums[i] = kept + __shfl_xor_sync(0xffffffffu, given, kOffset);
        }
    } else {
        sums[0] += __shfl_xor_sync(0xffffffffu, sums[0], kOffset);
    }
    if constexpr (kOffset > 1) halve<(kCount > 1 ? kHalf : 1), kOffset / 2>(sums, lane);
}

// `Product` is a MatmulParams or a MatmulPart.
template <typename Product>
__device__ __forceinline__ void store(
    const Product& product, bool accumulate, int row, int output, float sum) {
    float* const target = product.output + static_cast<int64_t>(row) * product.num_outputs + output;
    if (product.bias != nullptr) sum += product.bias[output];
    if (accumulate) sum += *target;
    *target = sum;
}

}  // namespace matmul_detail

template <TensorType kType, int kRows, bool kWhole, bool kNorm = false>
__global__ void __launch_bounds__(kMatmulFewThreads,
                                  (matmul_detail::fewThreadBlocks<kType, kRows, kWhole>()))
    matmulFewKernel(MatmulFewParams params) {
    using namespace matmul_detail;
    static_assert(!kNorm || (kRows == 1 && kWhole));
    constexpr int kOutputs = fewOutputs<kType, kRows>();
    constexpr int kUnits = fewUnits<kType, kRows>();
    constexpr int kPieces = fewPieces<kType>();
    constexpr int kSums = kRows * kOutputs;
    constexpr int kWarps = kMatmulFewThreads / 32;
    using Unit = StoredUnit<kType, kWhole, kPieces>;

    const int num_row_groups = (params.num_rows + kRows - 1) / kRows;
    const int first_row = static_cast<int>(blockIdx.x) % num_row_groups * kRows;
    const int group = static_cast<int>(blockIdx.x) / num_row_groups;
    const int num_inputs = params.num_inputs;
    int index = 0;
    KVLAB_UNROLL
    for (int i = 1; i < kMatmulMaxParts; ++i) {
        if (group >= params.first_group[i]) index = i;
    }
    const MatmulPart part = params.parts[index];
    // Output o of this thread block: of the part, or by halves of the first and of the second.
    const int num_own = params.silu_mul ? kOutputs / 2 : kOutputs;
    const int first_output = (group - params.first_group[index]) * num_own;

    // What is past the end repeats the last row or output and is not stored.
    const float* const input = params.input + static_cast<int64_t>(first_row) * num_inputs;
    int row_offsets[kRows];  // of at most 8 rows, in 32 bits: half the registers of addresses
    KVLAB_UNROLL
    for (int r = 0; r < kRows; ++r) {
        row_offsets[r] =
            (first_row + r < params.num_rows ? r : params.num_rows - 1 - first_row) * num_inputs;
    }
    const uint8_t* weights[kOutputs];
    KVLAB_UNROLL
    for (int o = 0; o < kOutputs; ++o) {
        const bool is_second = o >= num_own;
        const int wanted = first_output + (is_second ? o - num_own : o);
        const int output = wanted < part.num_outputs ? wanted : part.num_outputs - 1;
        weights[o] = static_cast<const uint8_t*>(is_second ? params.parts[1].weight : part.weight) +
                     output * tensorBytes(kType, num_inputs);
    }

    float sums[kSums];  // [kRows][kOutputs]
    KVLAB_UNROLL
    for (int i = 0; i < kSums; ++i) sums[i] = 0.f;
    float squares = 0.f;

    const int num_units = (num_inputs + kPieces * kPieceValues - 1) / (kPieces * kPieceValues);
    Unit units[kUnits][kOutputs];
    const auto load = [&](int base) {
        KVLAB_UNROLL
        for (int u = 0; u < kUnits; ++u) {
            // A unit past the end is read again instead, and not used.
            const int unit = base + u * kMatmulFewThreads;
            KVLAB_UNROLL
            for (int o = 0; o < kOutputs; ++o) {
                units[u][o].load(weights[o], unit < num_units ? unit : base, num_inputs);
            }
        }
    };
    constexpr bool kAhead = fewAhead<kType, kRows, kWhole>();
    constexpr bool kNextBeforeSums = kAhead && kRows == 4 && !isQuantised(kType);
    int base = static_cast<int>(threadIdx.x);
    if (kAhead && base < num_units) load(base);
    waitForPredecessors();
    while (base < num_units) {
        if (!kAhead) load(base);
        KVLAB_UNROLL
        for (int u = 0; u < kUnits; ++u) {
            const int unit = base + u * kMatmulFewThreads;
            if (unit >= num_units) break;
            KVLAB_UNROLL
            for (int piece = 0; piece < kPieces; ++piece) {
                float widened[kOutputs][kPieceValues];
                KVLAB_UNROLL
                for (int o = 0; o < kOutputs; ++o) units[u][o].widen(piece, widened[o]);
                const int first = Unit::firstValue(unit, piece);
                if constexpr (kNextBeforeSums) {
                    if (base + kMatmulFewThreads < num_units) load(base + kMatmulFewThreads);
                }
                KVLAB_UNROLL
                for (int r = 0; r < kRows; ++r) {
                    float values[kPieceValues];
                    loadInputs<Unit::kDistance, kWhole>(input + row_offsets[r], first, num_inputs,
                                                        values);
                    if constexpr (kNorm) {
                        float factors[kPieceValues];
                        loadInputs<Unit::kDistance, kWhole>(params.norm_weight, first, num_inputs,
                                                            factors);
                        KVLAB_UNROLL
                        for (int i = 0; i < kPieceValues; ++i) {
                            squares += values[i] * values[i];
                            values[i] *= factors[i];
                        }
                    }
                    KVLAB_UNROLL
                    for (int o = 0; o < kOutputs; ++o) {
                        KVLAB_UNROLL
                        for (int i = 0; i < kPieceValues; ++i) {
                            sums[r * kOutputs + o] += values[i] * widened[o][i];
                        }
                    }
                }
            }
        }
        base += kUnits * kMatmulFewThreads;
        if (kAhead && !kNextBeforeSums && base < num_units) load(base);
    }

    // Afterwards lane l has, in sums[0], its warp's sum number l / (32 / kSums).
    const int lane = static_cast<int>(threadIdx.x) % 32;
    halve<kSums, 16>(sums, lane);

    KVLAB_SHARED(float, warp_sums, kWarps* kSums);
    constexpr int kLanesOfSum = 32 / kSums;
    if (lane % kLanesOfSum == 0) {
        warp_sums[static_cast<int>(threadIdx.x) / 32 * kSums + lane / kLanesOfSum] = sums[0];
    }
    float* warp_squares = nullptr;
    if constexpr (kNorm) {
        KVLAB_SHARED(float, shared_squares, kWarps);
        warp_squares = shared_squares;
        KVLAB_UNROLL
        for (int offset = 16; offset > 0; offset /= 2) {
            squares += __shfl_xor_sync(0xffffffffu, squares, offset);
        }
        if (lane == 0) warp_squares[static_cast<int>(threadIdx.x) / 32] = squares;
    }
    __syncthreads();
    const int i = static_cast<int>(threadIdx.x);
    if (i < kSums) {
        const int row = first_row + i / kOutputs;
        const int own = i % kOutputs;
        const int output = first_output + own;
        if (row < params.num_rows && own < num_own && output < part.num_outputs) {
            float factor = 1.f;
            if constexpr (kNorm) {
                float total = 0.f;
                KVLAB_UNROLL
                for (int w = 0; w < kWarps; ++w) total += warp_squares[w];
                factor = 1.f / sqrtf(total / static_cast<float>(num_inputs) + params.norm_epsilon);
            }
            float sum = 0.f;
            KVLAB_UNROLL
            for (int w = 0; w < kWarps; ++w) sum += warp_sums[w * kSums + i];
            if constexpr (kNorm) sum *= factor;
            if (params.silu_mul) {
                float up = 0.f;
                KVLAB_UNROLL
                for (int w = 0; w < kWarps; ++w) up += warp_sums[w * kSums + i + num_own];
                if constexpr (kNorm) up *= factor;
                sum = silu(sum) * up;
            }
            store(part, params.accumulate, row, output, sum);
        }
    }
}

template <TensorType kType, bool kWhole>
__global__ void __launch_bounds__(kMatmulTiledThreads, 3) matmulTiledKernel(MatmulParams params) {
    using namespace matmul_detail;
    using Unit = StoredUnit<kType, kWhole>;
    using Four = Chunk<float, 4>;
    constexpr int kPieces = kMatmulTiledThreads / kMatmulTile;  // of a row in one step
    constexpr int kStep = kPieces * kPieceValues;
    constexpr int kStride = kMatmulTile + 4;  // floats from one k to the next
    waitForPredecessors();
    KVLAB_SHARED(Four, weight_tile, kStep * kStride / 4);
    KVLAB_SHARED(Four, input_tile, kStep * kStride / 4);
    float* const weight_values = reinterpret_cast<float*>(weight_tile);
    float* const input_values = reinterpret_cast<float*>(input_tile);

    const int thread = static_cast<int>(threadIdx.x);
    const int first_output = static_cast<int>(blockIdx.x) * kMatmulTile;
    const int first_row = static_cast<int>(blockIdx.y) * kMatmulTile;
    const int num_inputs = params.num_inputs;
    const int num_pieces = (num_inputs + kPieceValues - 1) / kPieceValues;

    // What this thread brings: one piece of a weight row and of an input row. Rows past the end
    // repeat the last one and are not stored.
    const int piece = thread % kPieces;
    const int column = thread / kPieces;
    const int output =
        first_output + column < params.num_outputs ? first_output + column : params.num_outputs - 1;
    const int row = first_row + column < params.num_rows ? first_row + column : params.num_rows - 1;
    const uint8_t* const weight =
        static_cast<const uint8_t*>(params.weight) + output * tensorBytes(kType, num_inputs);
    const float* const input = params.input + static_cast<int64_t>(row) * num_inputs;
    float* const weight_target =
        weight_values + piece * kPieceValues * kStride + (column + 8 * piece) % kMatmulTile;
    float* const input_target =
        input_values + piece * kPieceValues * kStride + (column + 8 * piece) % kMatmulTile;

    Unit unit;
    float values[kPieceValues];
    // A piece past the end is the last one times zeros.
    const auto fetch = [&](int first_piece) {
        const int at = first_piece + piece < num_pieces ? first_piece + piece : num_pieces - 1;
        unit.load(weight, at, num_inputs);
        loadInputs<Unit::kDistance, kWhole>(input, Unit::firstValue(at, 0), num_inputs, values);
        if (at != first_piece + piece) {
            KVLAB_UNROLL
            for (int i = 0; i < kPieceValues; ++i) values[i] = 0.f;
        }
    };

    // What this thread works out: 4 rows x 4 outputs.
    const int my_output = thread % 16 * 4;
    const int my_row = thread / 16 * 4;
    float sums[4][4];
    KVLAB_UNROLL
    for (int i = 0; i < 4; ++i) {
        KVLAB_UNROLL
        for (int j = 0; j < 4; ++j) sums[i][j] = 0.f;
    }

    fetch(0);
    for (int first_piece = 0; first_piece < num_pieces; first_piece += kPieces) {
        float widened[kPieceValues];
        unit.widen(0, widened);
        KVLAB_UNROLL
        for (int i = 0; i < kPieceValues; ++i) {
            weight_target[i * kStride] = widened[i];
            input_target[i * kStride] = values[i];
        }
        __syncthreads();
        if (first_piece + kPieces < num_pieces) fetch(first_piece + kPieces);
        KVLAB_UNROLL
        for (int k = 0; k < kStep; ++k) {
            const int turn = 8 * (k / kPieceValues);
            const Four a = *reinterpret_cast<const Four*>(input_values + k * kStride +
                                                          (my_row + turn) % kMatmulTile);
            const Four b = *reinterpret_cast<const Four*>(weight_values + k * kStride +
                                                          (my_output + turn) % kMatmulTile);
            KVLAB_UNROLL
            for (int i = 0; i < 4; ++i) {
                KVLAB_UNROLL
                for (int j = 0; j < 4; ++j) sums[i][j] += a.values[i] * b.values[j];
            }
        }
        __syncthreads();
    }

    KVLAB_UNROLL
    for (int i = 0; i < 4; ++i) {
        KVLAB_UNROLL
        for (int j = 0; j < 4; ++j) {
            const int r = first_row + my_row + i;
            const int o = first_output + my_output + j;
            if (r < params.num_rows && o < params.num_outputs) {
                store(params, params.accumulate, r, o, sums[i][j]);
            }
        }
    }
}

namespace matmul_detail {

inline constexpr LaunchCheck require{"matmul"};

// Blocks of the other types are no multiple of 4 bytes and read in twos, wherever they begin.
template <TensorType kType>
constexpr bool readsWide() {
    return !isQuantised(kType) || kType == TensorType::kQ4_K;
}

// Whether all rows of weights and inputs begin on 16 bytes and hold whole pieces.
template <TensorType kType>
bool isWhole(const float* input, int num_inputs, const void* weight) {
    const bool inputs = num_inputs % kPieceValues == 0 && isAligned(input, 16);
    require(inputs || !isQuantised(kType), "inputs of quantised weights must begin on 16 bytes");
    return inputs && (!readsWide<kType>() || isAligned(weight, 16));
}

// Lays out the parts for the kernel's number of outputs.
template <TensorType kType, int kRows, bool kWhole, bool kNorm = false>
void launchFew(MatmulFewParams params, int num_parts, void* stream) {
    constexpr int kOutputs = fewOutputs<kType, kRows>();
    const int num_own = params.silu_mul ? kOutputs / 2 : kOutputs;
    const int64_t num_row_groups = (params.num_rows + kRows - 1) / kRows;
    int64_t num_groups = 0;
    for (int i = 0; i < kMatmulMaxParts; ++i) {
        const bool is_there = i < num_parts && !(params.silu_mul && i > 0);
        params.first_group[i] = is_there ? static_cast<int>(num_groups) : 0x7fffffff;
        if (is_there) num_groups += (int64_t{params.parts[i].num_outputs} + num_own - 1) / num_own;
        require(num_row_groups * num_groups <= 0x7fffffff, "the product is too large");
    }
    require(int64_t{kRows} * params.num_inputs <= 0x7fffffff, "the rows are too long");
    KVLAB_LAUNCH_EARLY((matmulFewKernel<kType, kRows, kWhole, kNorm>),
                       static_cast<unsigned>(num_row_groups * num_groups), kMatmulFewThreads, 0,
                       stream, params);
}

template <TensorType kType>
void launchFewOfType(const MatmulFewParams& params, int num_parts, void* stream) {
    bool whole = true;
    for (int i = 0; i < num_parts; ++i) {
        whole = isWhole<kType>(params.input, params.num_inputs, params.parts[i].weight) && whole;
    }
    if (params.norm_weight != nullptr) {
        launchFew<kType, 1, true, true>(params, num_parts, stream);  // normsOnTheWay
    } else if (!whole) {
        if constexpr (readsWide<kType>()) launchFew<kType, 8, false>(params, num_parts, stream);
    } else if (params.num_rows == 1) {
        launchFew<kType, 1, true>(params, num_parts, stream);
    } else if (params.num_rows == 2) {
        launchFew<kType, 2, true>(params, num_parts, stream);
    } else if (params.num_rows <= 4) {
        launchFew<kType, 4, true>(params, num_parts, stream);
    } else {
        launchFew<kType, 8, true>(params, num_parts, stream);
    }
}

template <TensorType kType>
void launchTiledOfType(const MatmulParams& params, void* stream) {
    const int64_t grid_y = (params.num_rows + kMatmulTile - 1) / kMatmulTile;
    require(grid_y <= 65535, "there are too many rows");
    const dim3 grid(static_cast<unsigned>((params.num_outputs + kMatmulTile - 1) / kMatmulTile),
                    static_cast<unsigned>(grid_y));
    if (isWhole<kType>(params.input, params.num_inputs, params.weight)) {
        KVLAB_LAUNCH_EARLY((matmulTiledKernel<kType, true>), grid, kMatmulTiledThreads, 0, stream,
                           params);
    } else if constexpr (readsWide<kType>()) {
        KVLAB_LAUNCH_EARLY((matmulTiledKernel<kType, false>), grid, kMatmulTiledThreads, 0, stream,
                           params);
    }
}

// A thread block of the tiled kernel takes as long as it takes: too few of them, and most of the
// GPU waits while the other kernel would spread over all of it.
constexpr int64_t kFewestTiles = 96;

inline bool takesTiles(const MatmulParams& params) {
    const auto tiles = [](int count) { return (int64_t{count} + kMatmulTile - 1) / kMatmulTile; };
    return params.num_rows > kMatmulFewRows &&
           tiles(params.num_rows) * tiles(params.num_outputs) >= kFewestTiles;
}

template <TensorType kType>
void launchOfType(const MatmulParams& params, void* stream) {
    if (takesTiles(params)) {
        launchTiledOfType<kType>(params, stream);
    } else {
        MatmulFewParams few{};
        few.input = params.input;
        few.parts[0] = {params.weight, params.type, params.bias, params.output, params.num_outputs};
        few.num_rows = params.num_rows;
        few.num_inputs = params.num_inputs;
        few.accumulate = params.accumulate;
        launchFewOfType<kType>(few, 1, stream);
    }
}

inline void checkShapes(const MatmulParams& params) {
    require(params.num_rows >= 0, "num_rows is negative");
    if (params.num_rows == 0) return;
    require(params.input != nullptr && params.weight != nullptr && params.output != nullptr,
            "a pointer is null");
    require(params.num_outputs >= 1, "there are no outputs");
    require(params.num_inputs >= 1 && params.num_inputs % tensorBlockValues(params.type) == 0,
            "num_inputs must be a whole number of the type's blocks");
    require(isAligned(params.input, 4) &&
                isAligned(params.weight, params.type == TensorType::kF32 ? 4 : 2),
            "the input or the weights are not aligned");
}

inline void checkShapes(const MatmulGroupParams& params) {
    require(params.num_parts >= 1 && params.num_parts <= kMatmulMaxParts,
            "a group has one to three parts");
    for (int i = 0; i < params.num_parts; ++i) checkShapes(matmulOfPart(params, i));
    require(
        !params.silu_mul ||
            (params.num_parts == 2 && params.parts[0].num_outputs == params.parts[1].num_outputs &&
             params.parts[0].bias == nullptr && params.parts[1].bias == nullptr),
        "silu_mul wants two parts with as many outputs and no biases");
    require(params.norm_weight == nullptr || params.num_rows == 0 || params.normed != nullptr,
            "a norm wants room for the normalised rows");
}

// One row, and all of it read in whole pieces.
inline bool normsOnTheWay(const MatmulGroupParams& params) {
    bool whole = params.num_rows == 1 && params.num_inputs % kPieceValues == 0 &&
                 isAligned(params.input, 16) && isAligned(params.norm_weight, 16);
    for (int i = 0; i < params.num_parts; ++i) {
        whole = whole && isAligned(params.parts[i].weight, 16);
    }
    return whole;
}

}  // namespace matmul_detail

// Checks the shapes and launches the kernel for them; no rows, no launch. `stream` is a
// cudaStream_t.
inline void launchMatmul(const MatmulParams& params, void* stream) {
    using namespace matmul_detail;
    checkShapes(params);
    if (params.num_rows == 0) return;
    withTensorType(params.type, [&](auto type) { launchOfType<type.value>(params, stream); });
}

// The group for few rows; false, and nothing done, where the products are better made one by one:
// many rows, or silu_mul of two types. Neighbours of one type take one launch.
inline bool launchMatmulGroup(const MatmulGroupParams& params, void* stream) {
    using namespace matmul_detail;
    checkShapes(params);
    if (params.num_rows == 0) return true;
    const bool is_split = params.silu_mul && params.parts[0].type != params.parts[1].type;
    if (params.num_rows > kMatmulFewRows || is_split) return false;
    if (params.norm_weight != nullptr && !normsOnTheWay(params)) {
        launchRmsNorm(rmsNormOfGroup(params), stream);
        return launchMatmulGroup(groupOfNormed(params), stream);
    }
    for (int begin = 0, end = 0; begin < params.num_parts; begin = end) {
        MatmulFewParams few{};
        few.input = params.input;
        few.norm_weight = params.norm_weight;
        few.norm_epsilon = params.norm_epsilon;
        few.num_rows = params.num_rows;
        few.num_inputs = params.num_inputs;
        few.silu_mul = params.silu_mul;
        const TensorType type = params.parts[begin].type;
        while (end < params.num_parts && params.parts[end].type == type) {
            few.parts[end - begin] = params.parts[end];
            ++end;
        }
        withTensorType(type, [&](auto constant) {
            launchFewOfType<constant.value>(few, end - begin, stream);
        });
    }
    return true;
}

}  // namespace kvlab
