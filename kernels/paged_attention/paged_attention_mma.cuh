// SPDX-License-Identifier: MIT
#pragma once

// Attention through matrix instructions: 8 or 16 query vectors, (row, query head) pairs of one
// sequence and KV head, for one read of K and V. For decode steps with many query heads to a KV
// head, and for prefill chunks. The formula, inputs and outputs are those of
// paged_attention_kernel.cuh; K and V in f16, bf16 or int8.
//
// Each warp goes through 16 positions at a time, and transposes the usual product so that vectors
// are columns, of which an instruction has eight:
//
//   scores  [16 positions, 8 vectors] = K [16, head_dim] · queryᵀ      head_dim / 16 instructions
//   output  [head_dim, 8 vectors]    += Vᵀ [head_dim, 16] · weights    head_dim / 16 instructions
//
// Which values stand behind an instruction's index k, and which rows of V ᵀ behind its index m, is
// free as long as both factors agree. They are chosen so that lanes read K and V 16 bytes at a time
// and use the words as they come (K) or after exchanging halves (V).
//
// K and V are multiplied as stored, but query and weights are f32: each is the sum of two 16-bit
// numbers, and of two products. So scores and outputs keep 16 (bf16) or 22 (f16) bits, and agree
// with the f32 variant within 1e-4. For f16's narrow range a query vector is first brought near 1
// by a power of two. int8 goes as bf16, which holds every whole number to 256; its scales multiply
// scores and weights in f32.
//
// Who owns what
//   grid x   kShared: four tiles of rows; else one row
//   grid y   KV head, and 8 * kTiles of its group's query heads where it has more
//   grid z   part of the context
//   warp     kShared: a tile of its own, all of its positions; the four read the same rows at
//            about the same time, from the first-level cache. Else: every fourth 16 positions
//   lane     4 g + t (g 0..7, t 0..3). Of K: rows g and g + 8, chunks of 8 values t, t + 4, …;
//            of V: rows 2t, 2t + 1, 2t + 8, 2t + 9, chunks g, g + 8, …; of scores and outputs:
//            vectors 2t and 2t + 1 of each eight
//
// Shared memory, static: 32 * kDim * kTiles bytes of queries (four times that if kShared), or 128 *
// kDim bytes for joining the warps' outputs, whichever is more, plus less than 1 KiB.
//
// Why so: a group of 8 with plain multiply-adds would spend two thirds of an H200's f32 peak on
// keeping up with its memory; here that is a few per cent of the matrix units' peak, doubled
// products included. Queries come from shared memory, 16 bytes per lane and instruction pair, to
// leave registers for rows under way. Limits: with fewer than 8 vectors, columns are computed for
// nothing; and 0 times a V row that is NaN is NaN, also for vectors of the tile that do not see it.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/paged_attention/attention_task.cuh"
#include "kernels/simt/mma.h"

namespace kvlab {

namespace paged_attention_mma_detail {

// The 16-bit type in which T is multiplied.
template <typename T>
using Factor = std::conditional_t<std::is_same_v<T, Half>, Half, Bfloat16>;

struct alignas(16) Words {
    uint32_t word[4];
};

// Byte i of four int8 with their sign bits turned, as a float: 2^23 + 128 + value has the byte in
// its last bits.
__device__ __forceinline__ float floatOfByte(uint32_t turned, int i) {
#if defined(__CUDA_ARCH__)
    const uint32_t bits = __byte_perm(turned, 0x4b000000u, 0x7540u | static_cast<uint32_t>(i));
#else
    const uint32_t bits = 0x4b000000u | (turned >> (8 * i) & 0xffu);
#endif
    return floatOfBits(bits) - 8388736.f;
}

// Eight stored values as four words of 16-bit factors.
template <typename T>
__device__ __forceinline__ Words wordsOf(const RowChunk<T>& chunk) {
    Words words;
    if constexpr (std::is_same_v<T, int8_t>) {
        KVLAB_UNROLL
        for (int half = 0; half < 2; ++half) {
            const uint32_t turned = chunk.word[half] ^ 0x80808080u;
            KVLAB_UNROLL
            for (int pair = 0; pair < 2; ++pair) {
                // A whole number to 256 has nothing in the lower half of its float.
                words.word[2 * half + pair] =
                    highHalves(bitsOfFloat(floatOfByte(turned, 2 * pair)),
                               bitsOfFloat(floatOfByte(turned, 2 * pair + 1)));
            }
        }
    } else {
        KVLAB_UNROLL
        for (int i = 0; i < 4; ++i) words.word[i] = chunk.word[i];
    }
    return words;
}

// Two f32 values as the sum of two pairs of 16-bit ones.
template <typename M>
__device__ __forceinline__ void splitPair(float first,
                                          float second,
                                          uint32_t& high,
                                          uint32_t& low) {
    const M first_high = fromFloat<M>(first);
    const M second_high = fromFloat<M>(second);
    high = packPair(first_high, second_high);
    low = packPair(fromFloat<M>(first - toFloat(first_high)),
                   fromFloat<M>(second - toFloat(second_high)));
}

// A power of two that brings `largest` to between 1 and 2; 1 for 0, NaN and infinity.
__device__ __forceinline__ float powerTowards1(float largest) {
    if (!(largest > 0.f) || !(largest < INFINITY)) return 1.f;
    int exponent = ilogbf(largest);
    exponent = exponent < -126 ? -126 : exponent > 126 ? 126 : exponent;
    return ldexpf(1.f, -exponent);
}

}  // namespace paged_attention_mma_detail

// kDim: head_dim rounded up to 64, 128 or 256. kTiles * 8 vectors.
template <typename T, int kDim, int kTiles, bool kPaged, bool kShared>
__global__ void __launch_bounds__(kAttentionThreads, kDim* kTiles <= 128 ? 3 : 2)
    pagedAttentionMmaKernel(AttentionTask task) {
    using namespace paged_attention_mma_detail;
    using M = Factor<T>;
    constexpr int kVectors = 8 * kTiles;
    constexpr int kDepth = kDim / 16;      // instructions for one product of 16 positions
    constexpr int kKeyChunks = kDim / 32;  // of a row of K, in a lane
    constexpr int kValueChunks = kDim / 64;
    constexpr bool kScaled = std::is_same_v<T, int8_t>;
    // Rows of 256 values are asked for when they are needed: two sets would not fit the registers.
    constexpr bool kAhead = kDim <= 128;
    constexpr int kWalkers = kShared ? 1 : kAttentionWarps;  // warps that share a context

    const int head_dim = task.head_dim;
    const HeadSlice heads = headSlice(task);
    const int kv_head = heads.kv_head;
    const int first_head = heads.first_head;
    const int num_heads_here = heads.num_heads;

    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int g = lane / 4;
    const int t = lane % 4;
    const RowTile tile =
        rowTile(task, kShared ? static_cast<int>(blockIdx.x) * kAttentionWarps + warp
                              : static_cast<int>(blockIdx.x));
    const T* const keys = static_cast<const T*>(task.key);
    const T* const values = static_cast<const T*>(task.value);

    // Queries [kTiles][kDepth][32 lanes] of a warp, or of all: two words of the high parts, two of
    // the low ones. Later, where warps share a context, [4 warps][8 vectors][kDim] of outputs.
    constexpr int kQueryWords = kTiles * kDepth * 32;
    constexpr int kSharedWords =
        kShared ? kQueryWords * kAttentionWarps
                : (kQueryWords > kAttentionWarps * 8 * kDim / 4 ? kQueryWords
                                                                : kAttentionWarps * 8 * kDim / 4);
    KVLAB_SHARED(Words, shared_words, kSharedWords);
    KVLAB_SHARED(float, shared_powers, kVectors*(kShared ? kAttentionWarps : 1));
    KVLAB_SHARED(float, warp_states, kShared ? 1 : kAttentionWarps* kVectors * 2);
    Words* const queries = shared_words + (kShared ? warp * kQueryWords : 0);
    float* const powers = shared_powers + (kShared ? warp * kVectors : 0);

    waitForPredecessors();
    KVLAB_NOTE_IF(threadIdx.x + blockIdx.x + blockIdx.y + blockIdx.z == 0, kNoteLaunch,
                  task.first_row, task.num_rows,
                  task.rows_per_tile * (kShared ? kAttentionWarps : 1), task.num_slices,
                  task.num_splits);
    // Uniform in a warp; where warps share a context there is one row and one round.
    for (int row = tile.begin; row < tile.end;) {
        RowRun run = rowRun<kShared>(task, row, tile.end);
        takePart(task, run);
        const int num_vectors = (run.row_end - row) * num_heads_here;
        KVLAB_NOTE_IF(lane == 0 && (kShared || warp == 0), kNoteRun, row, run.row_end, run.seq_idx,
                      run.begin, run.end, kv_head, first_head, num_heads_here, 16 * kWalkers);

        // The queries, as the lanes will multiply them: lane (vector g, t) of instruction j has
        // values 4 * (j % 2) … + 3 of chunk t + 4 * (j / 2).
        for (int v = kShared ? 0 : warp; v < kVectors; v += kWalkers) {
            const float* const source =
                task.query + (static_cast<int64_t>(row + v / num_heads_here) * task.num_heads +
                              first_head + v % num_heads_here) *
                                 head_dim;
            float largest = 0.f;
            for (int d = lane; v < num_vectors && d < head_dim; d += 32) {
                largest = fmaxf(largest, fabsf(source[d] * task.scale));
            }
            KVLAB_UNROLL
            for (int offset = 16; offset > 0; offset /= 2) {
                largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
            }
            const float power = powerTowards1(largest);
            if (lane == 0) powers[v] = 1.f / power;
            for (int i = lane; i < kDepth * 4; i += 32) {
                const int j = i / 4;
                const int first = 8 * (i % 4 + 4 * (j / 2)) + 4 * (j % 2);
                float q[4];
                KVLAB_UNROLL
                for (int k = 0; k < 4; ++k) {
                    q[k] = v < num_vectors && first + k < head_dim
                               ? source[first + k] * task.scale * power
                               : 0.f;
                }
                Words words;
                splitPair<M>(q[0], q[1], words.word[0], words.word[2]);
                splitPair<M>(q[2], q[3], words.word[1], words.word[3]);
                queries[(v / 8 * kDepth + j) * 32 + v % 8 * 4 + i % 4] = words;
            }
        }
        if constexpr (kShared) {
            __syncwarp();
        } else {
            __syncthreads();
        }

        int context_len[kTiles][2];
        OnlineSoftmax state[kTiles][2];  // the sums are of this lane's positions only
        float output[kTiles][kValueChunks][4][4] = {};
        KVLAB_UNROLL
        for (int n = 0; n < kTiles; ++n) {
            KVLAB_UNROLL
            for (int u = 0; u < 2; ++u) {
                const int v = 8 * n + 2 * t + u;
                context_len[n][u] =
                    v < num_vectors ? task.context_lens[row + v / num_heads_here] : 0;
            }
        }

        RowChunk<T> key[2][kKeyChunks];
        RowChunk<T> value[4][kValueChunks];
        float key_scale = 1.f;  // of position lane % 16
        float value_scale = 1.f;
        // Of position lane % 16 of those to be read next. Behind the last one it is read again: its
        // scores are masked, which costs less than not to read.
        int slot = 0;
        const auto lookUp = [&](int base) {
            const int position = base + lane % 16;
            slot = attentionSlot<kPaged>(task, run.seq_idx,
                                         position < run.end ? position : run.end - 1);
            KVLAB_NOTE_IF(lane < 16 && position < run.end, kNoteLookUp, row, position, slot);
        };
        const auto ownRow = [&] {
            return static_cast<int64_t>(slot) * task.num_kv_heads + kv_head;
        };
        const auto rowIndex = [&](int position_of_step) {
            return static_cast<int64_t>(__shfl_sync(0xffffffffu, slot, position_of_step)) *
                       task.num_kv_heads +
                   kv_head;
        };
        // Likewise a chunk behind head_dim is the first one again: its queries are 0, its outputs
        // not wanted.
        const auto chunkOf = [&](const T* row_values, int first) {
            return *reinterpret_cast<const RowChunk<T>*>(row_values +
                                                         (first < head_dim ? first : 0));
        };
        const auto loadKey = [&] {
            KVLAB_UNROLL
            for (int r = 0; r < 2; ++r) {
                const int64_t row_idx = rowIndex(g + 8 * r);
                KVLAB_NOTE_IF(t == 0, kNoteKey, row, row_idx / task.num_kv_heads,
                              row_idx % task.num_kv_heads);
                KVLAB_UNROLL
                for (int c = 0; c < kKeyChunks; ++c) {
                    key[r][c] = chunkOf(keys + row_idx * head_dim, 8 * (t + 4 * c));
                }
            }
            if constexpr (kScaled) key_scale = task.key_scales[ownRow()];
        };
        const auto loadValue = [&] {
            KVLAB_UNROLL
            for (int p = 0; p < 4; ++p) {
                const int64_t row_idx = rowIndex(2 * t + p % 2 + 8 * (p / 2));
                KVLAB_NOTE_IF(g == 0, kNoteValue, row, row_idx / task.num_kv_heads,
                              row_idx % task.num_kv_heads);
                KVLAB_UNROLL
                for (int c = 0; c < kValueChunks; ++c) {
                    value[p][c] = chunkOf(values + row_idx * head_dim, 8 * (g + 8 * c));
                }
            }
            if constexpr (kScaled) value_scale = task.value_scales[ownRow()];
        };

        constexpr int kStride = 16 * kWalkers;
        const int first_base = run.begin + (kShared ? 0 : 16 * warp);
        if (run.begin < run.end) {  // else a part behind the end of a short context
            lookUp(first_base);
            if constexpr (kAhead) {
                loadKey();
                loadValue();
                lookUp(first_base + kStride);
            }
        }
        for (int base = first_base; base < run.end; base += kStride) {
            if constexpr (!kAhead) loadKey();
            float score[kTiles][4] = {};
            KVLAB_UNROLL
            for (int c = 0; c < kKeyChunks; ++c) {
                const Words upper = wordsOf<T>(key[0][c]);
                const Words lower = wordsOf<T>(key[1][c]);
                KVLAB_UNROLL
                for (int k = 0; k < 2; ++k) {
                    const uint32_t a[4] = {upper.word[2 * k], lower.word[2 * k],
                                           upper.word[2 * k + 1], lower.word[2 * k + 1]};
                    KVLAB_UNROLL
                    for (int n = 0; n < kTiles; ++n) {
                        const Words q = queries[(n * kDepth + 2 * c + k) * 32 + lane];
                        const uint32_t high[2] = {q.word[0], q.word[1]};
                        const uint32_t low[2] = {q.word[2], q.word[3]};
                        mma16x8x16<M>(score[n], a, high);
                        mma16x8x16<M>(score[n], a, low);
                    }
                }
            }
            float scale_of_key[2] = {1.f, 1.f};
            if constexpr (kScaled) {
                KVLAB_UNROLL
                for (int r = 0; r < 2; ++r) {
                    scale_of_key[r] = __shfl_sync(0xffffffffu, key_scale, g + 8 * r);
                }
            }
            if constexpr (kAhead) {
                loadKey();
            } else {
                loadValue();
            }

            float scale_of_value[2] = {1.f, 1.f};
            if constexpr (kScaled) {
                KVLAB_UNROLL
                for (int r = 0; r < 2; ++r) {
                    scale_of_value[r] = __shfl_sync(0xffffffffu, value_scale, g + 8 * r);
                }
            }

            // weights[n]: [16 positions, 8 vectors], high and low parts, as the next product's B
            uint32_t high[kTiles][2];
            uint32_t low[kTiles][2];
            float factor[kTiles][2];  // of what is summed so far
            KVLAB_UNROLL
            for (int n = 0; n < kTiles; ++n) {
                float weight[2][2];  // [position g, g + 8][vector]
                KVLAB_UNROLL
                for (int u = 0; u < 2; ++u) {
                    float s[2];
                    KVLAB_UNROLL
                    for (int r = 0; r < 2; ++r) {
                        const int position = base + g + 8 * r;
                        const int len = context_len[n][u];
                        const bool is_seen =
                            position < run.end &&
                            (!kShared || (position < len &&
                                          position >= firstVisiblePosition(len, task.window)));
                        s[r] = is_seen ? score[n][2 * r + u] * powers[8 * n + 2 * t + u] *
                                             (kScaled ? scale_of_key[r] : 1.f)
                                       : -INFINITY;
                    }
                    float tile_max = fmaxf(s[0], s[1]);
                    KVLAB_UNROLL
                    for (int offset = 4; offset < 32; offset *= 2) {
                        tile_max = fmaxf(tile_max, __shfl_xor_sync(0xffffffffu, tile_max, offset));
                    }
                    factor[n][u] = state[n][u].raise(tile_max);
                    KVLAB_UNROLL
                    for (int r = 0; r < 2; ++r) {
                        weight[r][u] = state[n][u].weight(s[r]);
                        state[n][u].sum += weight[r][u];
                        // A row that this vector does not see may have a scale of NaN.
                        if (kScaled && s[r] != -INFINITY) weight[r][u] *= scale_of_value[r];
                    }
                }
                KVLAB_UNROLL
                for (int r = 0; r < 2; ++r) {
                    splitPair<M>(weight[r][0], weight[r][1], high[n][r], low[n][r]);
                    high[n][r] = transpose8x8(high[n][r]);
                    low[n][r] = transpose8x8(low[n][r]);
                }
            }
            KVLAB_UNROLL
            for (int c = 0; c < kValueChunks; ++c) {
                Words rows[4];
                KVLAB_UNROLL
                for (int p = 0; p < 4; ++p) rows[p] = wordsOf<T>(value[p][c]);
                KVLAB_UNROLL
                for (int e = 0; e < 4; ++e) {
                    const uint32_t a[4] = {lowHalves(rows[0].word[e], rows[1].word[e]),
                                           highHalves(rows[0].word[e], rows[1].word[e]),
                                           lowHalves(rows[2].word[e], rows[3].word[e]),
                                           highHalves(rows[2].word[e], rows[3].word[e])};
                    KVLAB_UNROLL
                    for (int n = 0; n < kTiles; ++n) {
                        // From 0, and added here: the instruction's own sums are cut off, not
                        // rounded, which over 100,000 positions would add up to 5e-4.
                        float sums[4] = {};
                        mma16x8x16<M>(sums, a, high[n]);
                        mma16x8x16<M>(sums, a, low[n]);
                        KVLAB_UNROLL
                        for (int i = 0; i < 4; ++i) {
                            output[n][c][e][i] = output[n][c][e][i] * factor[n][i % 2] + sums[i];
                        }
                    }
                }
            }
            if constexpr (kAhead) {
                loadValue();
                lookUp(base + 2 * kStride);
            } else {
                lookUp(base + kStride);
            }
        }

        KVLAB_UNROLL
        for (int n = 0; n < kTiles; ++n) {
            KVLAB_UNROLL
            for (int u = 0; u < 2; ++u) {
                KVLAB_UNROLL
                for (int offset = 4; offset < 32; offset *= 2) {
                    state[n][u].sum += __shfl_xor_sync(0xffffffffu, state[n][u].sum, offset);
                }
            }
        }
        if constexpr (kShared) {
            KVLAB_UNROLL
            for (int n = 0; n < kTiles; ++n) {
                KVLAB_UNROLL
                for (int u = 0; u < 2; ++u) {
                    const int v = 8 * n + 2 * t + u;
                    if (v >= num_vectors) continue;
                    const AttentionTarget target =
                        attentionTarget(task, row + v / num_heads_here,
                                        first_head + v % num_heads_here, state[n][u]);
                    KVLAB_UNROLL
                    for (int c = 0; c < kValueChunks; ++c) {
                        const int d = 8 * (g + 8 * c);
                        if (d >= head_dim) continue;
                        KVLAB_UNROLL
                        for (int e = 0; e < 4; ++e) {
                            target.values[d + 2 * e] = output[n][c][e][u] * target.factor;
                            target.values[d + 2 * e + 1] = output[n][c][e][2 + u] * target.factor;
                        }
                    }
                    if (g == 0 && target.state != nullptr) {
                        target.state[0] = state[n][u].max;
                        target.state[1] = state[n][u].sum;
                    }
                }
            }
            __syncwarp();  // before the next rows' queries are written
        } else {
            float* const outputs = reinterpret_cast<float*>(shared_words);
            KVLAB_UNROLL
            for (int n = 0; n < kTiles; ++n) {
                KVLAB_UNROLL
                for (int u = 0; u < 2; ++u) {
                    if (g != 0) continue;
                    const int at = (warp * kVectors + 8 * n + 2 * t + u) * 2;
                    warp_states[at] = state[n][u].max;
                    warp_states[at + 1] = state[n][u].sum;
                }
            }
            KVLAB_UNROLL
            for (int n = 0; n < kTiles; ++n) {
                if (8 * n >= num_vectors) break;
                __syncthreads();  // queries, or the last eight vectors, have been read
                KVLAB_UNROLL
                for (int c = 0; c < kValueChunks; ++c) {
                    KVLAB_UNROLL
                    for (int e = 0; e < 4; ++e) {
                        KVLAB_UNROLL
                        for (int i = 0; i < 4; ++i) {
                            const int v = 2 * t + i % 2;
                            const int d = 8 * (g + 8 * c) + 2 * e + i / 2;
                            outputs[(warp * 8 + v) * kDim + d] = output[n][c][e][i];
                        }
                    }
                }
                __syncthreads();
                const int num_here = num_vectors - 8 * n < 8 ? num_vectors - 8 * n : 8;
                for (int i = static_cast<int>(threadIdx.x); i < num_here * head_dim;
                     i += kAttentionThreads) {
                    const int v = i / head_dim;
                    const int d = i % head_dim;
                    OnlineSoftmax merged;
                    float sum = 0.f;
                    KVLAB_UNROLL
                    for (int w = 0; w < kAttentionWarps; ++w) {
                        const int at = (w * kVectors + 8 * n + v) * 2;
                        const OnlineSoftmax theirs{warp_states[at], warp_states[at + 1]};
                        const OnlineSoftmax::MergeFactors factors = merged.merge(theirs);
                        sum = sum * factors.own + outputs[(w * 8 + v) * kDim + d] * factors.theirs;
                    }
                    const AttentionTarget target =
                        attentionTarget(task, row, first_head + 8 * n + v, merged);
                    target.values[d] = sum * target.factor;
                    if (d == 0 && target.state != nullptr) {
                        target.state[0] = merged.max;
                        target.state[1] = merged.sum;
                    }
                }
            }
        }
        row = run.row_end;
    }
}

}  // namespace kvlab
