// SPDX-License-Identifier: MIT
#pragma once

// Attention of a query row over its sequence's K/V, read through the block table.
//
//   output[r, h] = sum_i softmax_i(scale * query[r, h] · K[i, h / group]) V[i, h / group],
//                  context_lens[r] - window <= i < context_lens[r]; window 0: all
//
// In   query [num_rows, num_heads, head_dim] f32; the pool's layer (PagedKvView) in f32, f16,
//      bf16, or int8 with its scales;
//      block_tables [num_seqs, max_blocks_per_seq]; row_to_seq, context_lens [num_rows]
// Out  output [num_rows, num_heads, head_dim] f32
//
// Who owns what
//   grid x   row r: one for each decoding sequence, one for each token of a prefill chunk
//   grid y   KV head
//   grid z   kHeads of the KV head's query heads: K and V are read once for all of them
//   team     kTeam neighbouring lanes share a position: each has kChunk (8) values of the head, so
//   a lane
//            reads 16 bytes of f16 (8 of int8) at once and a team one contiguous row. There are 128
//            / kTeam teams in a thread block; team t takes positions t, t + num_teams, …, kStep of
//            them at a time
//   lane     its 8 values of each query head, and of that head's weighted sum of V, in registers
//
// Shared memory, static: 128 threads * kHeads * 8 values * 4 bytes for the teams' outputs, plus the
// teams' softmax states: 4 KiB (kHeads 1) or 16 KiB (kHeads 4), plus at most 512 bytes.
//
// Why so: each team runs a softmax of its own (online_softmax.h) and they are merged once at the
// end, so the walk over the context has no barrier, and needs no room that grows with the context.
// A dot product costs log2(kTeam) shuffles for 32 / kTeam positions. An int8 row's scale
// multiplies its score and its weight, once each, and not its values. Scores in shared memory and a
// second pass over V, as in the first vLLM kernels, would need one float per position and two
// barriers per tile. Limits: one thread block walks the whole context, so few rows with long
// contexts leave most of a GPU idle (a variant that splits the context is the remedy), and prefill
// rows each read their context again. With a group that is no multiple of kHeads the last heads of
// a thread block compute nothing of use.

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "kernels/online_softmax.h"
#include "kernels/paged_attention/paged_attention.h"
#include "kernels/simt/simt.h"
#include "kernels/simt/storage_types.h"

namespace kvlab {

constexpr int kPagedAttentionThreads = 128;
constexpr int kPagedAttentionMaxHeadDim = 256;

namespace paged_attention_detail {

constexpr int kChunk = 8;  // values of a head per lane
constexpr int kStep = 2;   // positions a team has in flight

// kWhole: rows are 16-byte aligned and head_dim is a multiple of kChunk.
template <bool kWhole, typename T>
__device__ __forceinline__ void loadChunk(const T* row,
                                          int first,
                                          int head_dim,
                                          float (&values)[kChunk]) {
    if constexpr (kWhole) {
        if (first < head_dim) {
            const Chunk<T, kChunk> chunk = *reinterpret_cast<const Chunk<T, kChunk>*>(row + first);
            KVLAB_UNROLL
            for (int i = 0; i < kChunk; ++i) values[i] = toFloat(chunk.values[i]);
            return;
        }
    }
    KVLAB_UNROLL
    for (int i = 0; i < kChunk; ++i) {
        values[i] = !kWhole && first + i < head_dim ? toFloat(row[first + i]) : 0.f;
    }
}

}  // namespace paged_attention_detail

// kTeam * 8 >= head_dim.
template <typename T, int kTeam, int kHeads, bool kWhole>
__global__ void __launch_bounds__(kPagedAttentionThreads)
    pagedAttentionKernel(PagedAttentionParams params) {
    using namespace paged_attention_detail;
    constexpr int kNumTeams = kPagedAttentionThreads / kTeam;
    const PagedKvView& kv = params.kv;
    const int head_dim = kv.head_dim;
    const int row = static_cast<int>(blockIdx.x);
    const int kv_head = static_cast<int>(blockIdx.y);
    const int group = params.num_heads / kv.num_kv_heads;
    const int first_in_group = static_cast<int>(blockIdx.z) * kHeads;
    const int num_heads_here = group - first_in_group < kHeads ? group - first_in_group : kHeads;
    const int64_t first_row =
        (static_cast<int64_t>(row) * params.num_heads + kv_head * group + first_in_group) *
        head_dim;

    const int team = static_cast<int>(threadIdx.x) / kTeam;
    const int first_value = static_cast<int>(threadIdx.x) % kTeam * kChunk;

    float query[kHeads][kChunk];
    float output[kHeads][kChunk];
    OnlineSoftmax state[kHeads];
    KVLAB_UNROLL
    for (int h = 0; h < kHeads; ++h) {
        KVLAB_UNROLL
        for (int i = 0; i < kChunk; ++i) {
            const int d = first_value + i;
            const bool exists = h < num_heads_here && d < head_dim;
            query[h][i] = exists
                              ? params.query[first_row + static_cast<int64_t>(h) * head_dim + d] *
                                    params.scale
                              : 0.f;
            output[h][i] = 0.f;
        }
    }

    const T* const pool = reinterpret_cast<const T*>(kv.data);
    const int32_t* const block_table =
        params.block_tables +
        static_cast<int64_t>(params.row_to_seq[row]) * params.max_blocks_per_seq;
    const int context_len = params.context_lens[row];
    constexpr bool kScaled = std::is_same_v<T, int8_t>;

    // Every lane goes round equally often, so that all of a warp meet in the shuffles.
    for (int base = firstVisiblePosition(context_len, params.window); base < context_len;
         base += kNumTeams * kStep) {
        float score[kHeads][kStep];
        float value[kStep][kChunk];
        float value_scale[kStep];
        KVLAB_UNROLL
        for (int s = 0; s < kStep; ++s) {
            const int position = base + s * kNumTeams + team;
            float key[kChunk] = {};
            float key_scale = 1.f;
            value_scale[s] = 1.f;
            KVLAB_UNROLL
            for (int i = 0; i < kChunk; ++i) value[s][i] = 0.f;
            if (position < context_len) {
                const int64_t block_id = block_table[position / kv.block_size];
                const int64_t slot = block_id * kv.block_size + position % kv.block_size;
                const int64_t key_row = kv.rowIndex(params.layer, PagedKvView::kKey, slot, kv_head);
                const int64_t value_row =
                    kv.rowIndex(params.layer, PagedKvView::kValue, slot, kv_head);
                loadChunk<kWhole>(pool + key_row * head_dim, first_value, head_dim, key);
                loadChunk<kWhole>(pool + value_row * head_dim, first_value, head_dim, value[s]);
                if constexpr (kScaled) {
                    key_scale = kv.scales()[key_row];
                    value_scale[s] = kv.scales()[value_row];
                }
            }
            KVLAB_UNROLL
            for (int h = 0; h < kHeads; ++h) {
                float dot = 0.f;
                KVLAB_UNROLL
                for (int i = 0; i < kChunk; ++i) dot += query[h][i] * key[i];
                KVLAB_UNROLL
                for (int offset = kTeam / 2; offset > 0; offset /= 2) {
                    dot += __shfl_xor_sync(0xffffffffu, dot, offset);
                }
                if constexpr (kScaled) dot *= key_scale;
                score[h][s] = position < context_len ? dot : -INFINITY;
            }
        }
        KVLAB_UNROLL
        for (int h = 0; h < kHeads; ++h) {
            float tile_max = score[h][0];
            KVLAB_UNROLL
            for (int s = 1; s < kStep; ++s) tile_max = fmaxf(tile_max, score[h][s]);
            const float factor = state[h].raise(tile_max);
            KVLAB_UNROLL
            for (int i = 0; i < kChunk; ++i) output[h][i] *= factor;
            KVLAB_UNROLL
            for (int s = 0; s < kStep; ++s) {
                const float weight = state[h].weight(score[h][s]);
                state[h].sum += weight;
                KVLAB_UNROLL
                for (int i = 0; i < kChunk; ++i) {
                    output[h][i] += (kScaled ? weight * value_scale[s] : weight) * value[s][i];
                }
            }
        }
    }

    // [kHeads][kNumTeams][kTeam * kChunk] and [kHeads][kNumTeams]
    KVLAB_SHARED(float, team_outputs, kHeads* kPagedAttentionThreads* kChunk);
    KVLAB_SHARED(float, team_max, kHeads* kNumTeams);
    KVLAB_SHARED(float, team_sum, kHeads* kNumTeams);
    KVLAB_UNROLL
    for (int h = 0; h < kHeads; ++h) {
        KVLAB_UNROLL
        for (int i = 0; i < kChunk; ++i) {
            team_outputs[(h * kNumTeams + team) * kTeam * kChunk + first_value + i] = output[h][i];
        }
        if (first_value == 0) {
            team_max[h * kNumTeams + team] = state[h].max;
            team_sum[h * kNumTeams + team] = state[h].sum;
        }
    }
    __syncthreads();

    for (int i = static_cast<int>(threadIdx.x); i < num_heads_here * head_dim;
         i += kPagedAttentionThreads) {
        const int h = i / head_dim;
        const int d = i % head_dim;
        OnlineSoftmax merged;
        float sum = 0.f;
        for (int t = 0; t < kNumTeams; ++t) {
            const OnlineSoftmax theirs{team_max[h * kNumTeams + t], team_sum[h * kNumTeams + t]};
            const OnlineSoftmax::MergeFactors factors = merged.merge(theirs);
            sum = sum * factors.own +
                  team_outputs[(h * kNumTeams + t) * kTeam * kChunk + d] * factors.theirs;
        }
        params.output[first_row + i] = sum * merged.inverseSum();
    }
}

namespace paged_attention_detail {

// The launch configuration. `stream` is a cudaStream_t.
template <typename T, int kTeam, int kHeads>
void launch(const PagedAttentionParams& params, void* stream) {
    const PagedKvView& kv = params.kv;
    const int group = params.num_heads / kv.num_kv_heads;
    const dim3 grid(static_cast<unsigned>(params.num_rows), static_cast<unsigned>(kv.num_kv_heads),
                    static_cast<unsigned>((group + kHeads - 1) / kHeads));
    const bool whole = kv.head_dim % kChunk == 0 &&
                       reinterpret_cast<uintptr_t>(kv.data) % alignof(Chunk<T, kChunk>) == 0;
    if (whole) {
        KVLAB_LAUNCH((pagedAttentionKernel<T, kTeam, kHeads, true>), grid, kPagedAttentionThreads,
                     0, stream, params);
    } else {
        KVLAB_LAUNCH((pagedAttentionKernel<T, kTeam, kHeads, false>), grid, kPagedAttentionThreads,
                     0, stream, params);
    }
}

template <typename T, int kTeam>
void launchForGroup(const PagedAttentionParams& params, void* stream) {
    if (params.num_heads == params.kv.num_kv_heads) {
        launch<T, kTeam, 1>(params, stream);
    } else {
        launch<T, kTeam, 4>(params, stream);
    }
}

template <typename T>
void launchForHeadDim(const PagedAttentionParams& params, void* stream) {
    if (params.kv.head_dim <= 64) {
        launchForGroup<T, 8>(params, stream);
    } else if (params.kv.head_dim <= 128) {
        launchForGroup<T, 16>(params, stream);
    } else {
        launchForGroup<T, 32>(params, stream);
    }
}

inline void require(bool condition, const char* what) {
    if (!condition) throw std::invalid_argument(std::string("paged_attention: ") + what);
}

// What can be seen without reading device memory.
inline void checkShapes(const PagedAttentionParams& params) {
    const PagedKvView& kv = params.kv;
    require(params.query != nullptr && params.output != nullptr && kv.data != nullptr &&
                params.block_tables != nullptr && params.row_to_seq != nullptr &&
                params.context_lens != nullptr,
            "a pointer is null");
    require(kv.head_dim >= 1 && kv.head_dim <= kPagedAttentionMaxHeadDim,
            "head_dim must be 1 to 256");
    require(kv.num_kv_heads >= 1 && kv.num_kv_heads <= 65535, "num_kv_heads must be 1 to 65535");
    require(params.num_heads >= 1 && params.num_heads % kv.num_kv_heads == 0,
            "num_heads must be a multiple of num_kv_heads");
    require(kv.block_size >= 1 && kv.num_blocks >= 1, "the pool is empty");
    require(params.layer >= 0 && params.layer < kv.num_layers, "the layer is outside the pool");
    require(params.window >= 0, "the window is negative");
    require(
        kv.dtype != DataType::kInt8 || reinterpret_cast<uintptr_t>(kv.data) % alignof(float) == 0,
        "an int8 pool must lie where its f32 scales are aligned");
    require(params.num_seqs >= 1 && params.max_blocks_per_seq >= 1, "the block tables are empty");
}

}  // namespace paged_attention_detail

// Checks the shapes and launches the variant for them; no rows, no launch.
inline void launchPagedAttention(const PagedAttentionParams& params, void* stream) {
    using namespace paged_attention_detail;
    require(params.num_rows >= 0, "num_rows is negative");
    if (params.num_rows == 0) return;
    checkShapes(params);
    switch (params.kv.dtype) {
        case DataType::kF32:
            launchForHeadDim<float>(params, stream);
            break;
        case DataType::kF16:
            launchForHeadDim<Half>(params, stream);
            break;
        case DataType::kBF16:
            launchForHeadDim<Bfloat16>(params, stream);
            break;
        case DataType::kInt8:
            launchForHeadDim<int8_t>(params, stream);
            break;
    }
}

}  // namespace kvlab
