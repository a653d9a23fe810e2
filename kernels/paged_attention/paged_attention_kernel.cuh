// SPDX-License-Identifier: MIT
#pragma once

// Attention of a query row over its sequence's K/V, read through the block table. This is the
// variant of plain multiply-adds, for any storage type and head size; paged_attention_mma.cuh has
// the one of matrix instructions, paged_attention_launch.cuh chooses.
//
//   output[r, h] = sum_i softmax_i(scale * query[r, h] · K[i, h / group]) V[i, h / group],
//                  context_lens[r] - window <= i < context_lens[r]; window 0: all
//
// In   query [num_rows, num_heads, head_dim] f32; the pool's layer (PagedKvView) in f32, f16,
//      bf16, or int8 with its scales;
//      block_tables [num_seqs, max_blocks_per_seq]; row_to_seq, context_lens [num_rows]
// Out  output [num_rows, num_heads, head_dim] f32; or, where contexts are split, each part's
//      weighted sum, maximum and sum, which mergePartsKernel joins
//
// Who owns what
//   grid x   tile of rows: one row, or (kShared) neighbouring rows of a prefill chunk
//   grid y   KV head, and kVectors of its group's query heads where it has more
//   grid z   part of the context
//   vector   a (row, query head) pair. K and V are read once for all kVectors of a tile
//   team     kTeam neighbouring lanes share a position: each has 8 values of the head, so a lane
//            reads 16 bytes of f16 (8 of int8) at once and a team one contiguous row. There are 128
//            / kTeam teams in a thread block; team t takes positions t, t + num_teams, …, kStep of
//            them at a time
//   lane     its 8 values of each query vector, and of that vector's weighted sum of V, in
//            registers
//
// Shared memory, static: 128 threads * kVectors * 8 values * 4 bytes for the teams' outputs, plus
// the teams' softmax states: 4, 8, 16 or 32 KiB (kVectors 1, 2, 4, 8), plus at most 1 KiB.
//
// Why so: each team runs a softmax of its own (online_softmax.h) and they are merged once at the
// end, so the walk over the context has no barrier, and needs no room that grows with the context.
// A dot product costs log2(kTeam) shuffles for 32 / kTeam positions. An int8 row's scale
// multiplies its score and its weight, once each, and not its values. K of the next positions is
// asked for as soon as the scores have used this one's, V as soon as the sums have: so half of the
// rows are always on their way, and block ids are looked up a step before that. Scores in shared
// memory and a second pass over V, as in the first vLLM kernels, would need one float per position
// and two barriers per tile. Limits: a multiply-add per value and query head and the shuffles bound
// groups of 4 and more, and prefill, by arithmetic; vectors that a tile does not have are computed
// all the same.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/paged_attention/attention_task.cuh"

namespace kvlab {

// kTeam * 8 >= head_dim.
template <typename T, int kTeam, int kVectors, bool kWhole, bool kPaged, bool kShared>
__global__ void __launch_bounds__(kAttentionThreads,
                                  kVectors <= 2   ? 4
                                  : kVectors == 4 ? 3
                                                  : 2) pagedAttentionKernel(AttentionTask task) {
    constexpr int kNumTeams = kAttentionThreads / kTeam;
    constexpr int kChunk = 8;
    constexpr int kStep = kVectors >= 4 || sizeof(T) == 4 ? 2 : 4;
    constexpr bool kScaled = std::is_same_v<T, int8_t>;
    const int head_dim = task.head_dim;
    const HeadSlice heads = headSlice(task);
    const int kv_head = heads.kv_head;
    const int first_head = heads.first_head;
    const int num_heads_here = heads.num_heads;
    const RowTile tile = rowTile(task, static_cast<int>(blockIdx.x));

    const int team = static_cast<int>(threadIdx.x) / kTeam;
    const int first_value = static_cast<int>(threadIdx.x) % kTeam * kChunk;
    const T* const keys = static_cast<const T*>(task.key);
    const T* const values = static_cast<const T*>(task.value);

    // [kVectors][kNumTeams][kTeam * kChunk] and [kVectors][kNumTeams]
    KVLAB_SHARED(float, team_outputs, kVectors* kAttentionThreads* kChunk);
    KVLAB_SHARED(float, team_max, kVectors* kNumTeams);
    KVLAB_SHARED(float, team_sum, kVectors* kNumTeams);

    waitForPredecessors();
    KVLAB_NOTE_IF(threadIdx.x + blockIdx.x + blockIdx.y + blockIdx.z == 0, kNoteLaunch,
                  task.first_row, task.num_rows, task.rows_per_tile, task.num_slices,
                  task.num_splits);
    for (int row = tile.begin; row < tile.end;) {
        RowRun run = rowRun<kShared>(task, row, tile.end);
        takePart(task, run);
        const int num_vectors = (run.row_end - row) * num_heads_here;
        KVLAB_NOTE_IF(threadIdx.x == 0, kNoteRun, row, run.row_end, run.seq_idx, run.begin, run.end,
                      kv_head, first_head, num_heads_here, kNumTeams * kStep);

        float query[kVectors][kChunk];
        float output[kVectors][kChunk];
        OnlineSoftmax state[kVectors];
        int context_len[kShared ? kVectors : 1];
        KVLAB_UNROLL
        for (int v = 0; v < kVectors; ++v) {
            const int own_row = kShared ? row + v / num_heads_here : row;
            const int head = first_head + (kShared ? v % num_heads_here : v);
            const float* const source =
                task.query + (static_cast<int64_t>(own_row) * task.num_heads + head) * head_dim;
            KVLAB_UNROLL
            for (int i = 0; i < kChunk; ++i) {
                const int d = first_value + i;
                query[v][i] = v < num_vectors && d < head_dim ? source[d] * task.scale : 0.f;
                output[v][i] = 0.f;
            }
            if constexpr (kShared) {
                context_len[v] = v < num_vectors ? task.context_lens[own_row] : 0;
            }
        }

        RowChunk<T> key[kStep];
        RowChunk<T> value[kStep];
        float key_scale[kStep];
        float value_scale[kStep];
        int slot[kStep];  // of the positions to be read next; -1: none
        const auto lookUp = [&](int base) {
            KVLAB_UNROLL
            for (int s = 0; s < kStep; ++s) {
                const int position = base + s * kNumTeams + team;
                slot[s] =
                    position < run.end ? attentionSlot<kPaged>(task, run.seq_idx, position) : -1;
                KVLAB_NOTE_IF(first_value == 0 && slot[s] >= 0, kNoteLookUp, row, position,
                              slot[s]);
            }
        };
        const auto load = [&](const T* rows, const float* scales, RowChunk<T>(&chunks)[kStep],
                              float(&row_scales)[kStep]) {
            KVLAB_UNROLL
            for (int s = 0; s < kStep; ++s) {
                chunks[s] = RowChunk<T>{};
                row_scales[s] = 1.f;
                if (slot[s] >= 0) {
                    const int64_t row_idx =
                        static_cast<int64_t>(slot[s]) * task.num_kv_heads + kv_head;
                    chunks[s] = loadChunk<kWhole>(rows + row_idx * head_dim, first_value, head_dim);
                    if constexpr (kScaled) row_scales[s] = scales[row_idx];
                    KVLAB_NOTE_IF(first_value == 0, rows == keys ? kNoteKey : kNoteValue, row,
                                  row_idx / task.num_kv_heads, row_idx % task.num_kv_heads);
                }
            }
        };
        lookUp(run.begin);
        load(keys, task.key_scales, key, key_scale);
        load(values, task.value_scales, value, value_scale);
        lookUp(run.begin + kNumTeams * kStep);

        // Every lane goes round equally often, so that all of a warp meet in the shuffles.
        for (int base = run.begin; base < run.end; base += kNumTeams * kStep) {
            float score[kVectors][kStep];
            KVLAB_UNROLL
            for (int s = 0; s < kStep; ++s) {
                const int position = base + s * kNumTeams + team;
                KVLAB_UNROLL
                for (int v = 0; v < kVectors; ++v) {
                    float dot = 0.f;
                    KVLAB_UNROLL
                    for (int i = 0; i < kChunk; ++i) {
                        dot += query[v][i] * key[s].value(i);
                    }
                    KVLAB_UNROLL
                    for (int offset = kTeam / 2; offset > 0; offset /= 2) {
                        dot += __shfl_xor_sync(0xffffffffu, dot, offset);
                    }
                    if constexpr (kScaled) dot *= key_scale[s];
                    bool is_seen = position < run.end;
                    if constexpr (kShared) {
                        is_seen = is_seen && position < context_len[v] &&
                                  position >= firstVisiblePosition(context_len[v], task.window);
                    }
                    score[v][s] = is_seen ? dot : -INFINITY;
                }
            }
            load(keys, task.key_scales, key, key_scale);
            KVLAB_UNROLL
            for (int v = 0; v < kVectors; ++v) {
                float tile_max = score[v][0];
                KVLAB_UNROLL
                for (int s = 1; s < kStep; ++s) tile_max = fmaxf(tile_max, score[v][s]);
                const float factor = state[v].raise(tile_max);
                KVLAB_UNROLL
                for (int i = 0; i < kChunk; ++i) output[v][i] *= factor;
                KVLAB_UNROLL
                for (int s = 0; s < kStep; ++s) {
                    // A row that this vector does not see may be NaN.
                    if (kShared && score[v][s] == -INFINITY) continue;
                    float weight = state[v].weight(score[v][s]);
                    state[v].sum += weight;
                    if constexpr (kScaled) weight *= value_scale[s];
                    KVLAB_UNROLL
                    for (int i = 0; i < kChunk; ++i) {
                        output[v][i] += weight * value[s].value(i);
                    }
                }
            }
            load(values, task.value_scales, value, value_scale);
            lookUp(base + 2 * kNumTeams * kStep);
        }

        KVLAB_UNROLL
        for (int v = 0; v < kVectors; ++v) {
            KVLAB_UNROLL
            for (int i = 0; i < kChunk; ++i) {
                team_outputs[(v * kNumTeams + team) * kTeam * kChunk + first_value + i] =
                    output[v][i];
            }
            if (first_value == 0) {
                team_max[v * kNumTeams + team] = state[v].max;
                team_sum[v * kNumTeams + team] = state[v].sum;
            }
        }
        __syncthreads();

        for (int i = static_cast<int>(threadIdx.x); i < num_vectors * head_dim;
             i += kAttentionThreads) {
            const int v = i / head_dim;
            const int d = i % head_dim;
            OnlineSoftmax merged;
            float sum = 0.f;
            for (int t = 0; t < kNumTeams; ++t) {
                const OnlineSoftmax theirs{team_max[v * kNumTeams + t],
                                           team_sum[v * kNumTeams + t]};
                const OnlineSoftmax::MergeFactors factors = merged.merge(theirs);
                sum = sum * factors.own +
                      team_outputs[(v * kNumTeams + t) * kTeam * kChunk + d] * factors.theirs;
            }
            const AttentionTarget target = attentionTarget(task, row + v / num_heads_here,
                                                           first_head + v % num_heads_here, merged);
            target.values[d] = sum * target.factor;
            if (d == 0 && target.state != nullptr) {
                target.state[0] = merged.max;
                target.state[1] = merged.sum;
            }
        }
        if constexpr (kShared) __syncthreads();  // before the next rows write there
        row = run.row_end;
    }
}

// Joins the parts of split contexts: grid x row, grid y head; a thread has every 128th value.
__global__ void __launch_bounds__(kAttentionThreads) mergePartsKernel(AttentionTask task) {
    waitForPredecessors();
    const int64_t own = static_cast<int64_t>(blockIdx.x) * task.num_heads + blockIdx.y;
    const int64_t item = own + static_cast<int64_t>(task.first_row) * task.num_heads;
    for (int d = static_cast<int>(threadIdx.x); d < task.head_dim; d += kAttentionThreads) {
        OnlineSoftmax merged;
        float sum = 0.f;
        for (int split = 0; split < task.num_splits; ++split) {
            const int64_t part = own * task.num_splits + split;
            const OnlineSoftmax theirs{task.part_states[part * 2], task.part_states[part * 2 + 1]};
            const OnlineSoftmax::MergeFactors factors = merged.merge(theirs);
            sum = sum * factors.own + task.part_outputs[part * task.head_dim + d] * factors.theirs;
        }
        task.output[item * task.head_dim + d] = sum * merged.inverseSum();
        if (d == 0 && task.row_states != nullptr) {
            task.row_states[item * 2] = merged.max;
            task.row_states[item * 2 + 1] = merged.sum;
        }
    }
}

}  // namespace kvlab
