// SPDX-License-Identifier: MIT
#pragma once

// Attention mass: what each cached token gets of its sequence's attention.
//
//   mass[s, g, i] += sum over rows r of sequence s, query heads h of KV head g of
//                    exp(scale * query[r, h] · K[i, g] - max[r, h]) / sum[r, h]
//
// In   query, K and the tables as paged_attention_kernel.cuh; row_states [num_rows, num_heads, 2],
//      which attention left
// Out  mass [num_seqs, num_kv_heads, mass_stride] f32, added to
//
// Who owns what
//   grid x   row
//   grid y   KV head
//   grid z   kMassPositions positions
//   warp     every fourth of them; lane d takes values d, d + 32, … of the dot products
//
// Shared memory: none.
//
// Why so: only the end of the walk over the context knows maximum and sum, so the scores are worked
// out a second time, where they are wanted; attention itself pays nothing. Rows of one sequence add
// to the same places one atomic addition after the other, in no fixed order on a GPU. Not tuned: a
// multiply-add per value and query head, the query from the cache.

#include <cstdint>
#include <type_traits>

#include "kernels/paged_attention/attention_task.cuh"

namespace kvlab {

constexpr int kMassPositions = 64;

template <typename T>
__global__ void __launch_bounds__(kAttentionThreads)
    attentionMassKernel(AttentionTask task, float* mass, int64_t mass_stride) {
    const int row = static_cast<int>(blockIdx.x);
    const int kv_head = static_cast<int>(blockIdx.y);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int group = task.num_heads / task.num_kv_heads;
    const int head_dim = task.head_dim;
    const RowRun run = rowRun<false>(task, row, row + 1);
    const int begin = static_cast<int>(blockIdx.z) * kMassPositions;
    const int end = begin + kMassPositions < run.end ? begin + kMassPositions : run.end;
    const float* const query =
        task.query + (static_cast<int64_t>(row) * task.num_heads + kv_head * group) * head_dim;
    const float* const states =
        task.row_states + (static_cast<int64_t>(row) * task.num_heads + kv_head * group) * 2;
    for (int position = begin + static_cast<int>(threadIdx.x) / 32; position < end;
         position += kAttentionWarps) {
        if (position < run.begin) continue;
        const int64_t row_idx =
            static_cast<int64_t>(attentionSlot<true>(task, run.seq_idx, position)) *
                task.num_kv_heads +
            kv_head;
        const T* const key = static_cast<const T*>(task.key) + row_idx * head_dim;
        float key_scale = task.scale;
        if constexpr (std::is_same_v<T, int8_t>) key_scale *= task.key_scales[row_idx];
        float total = 0.f;
        for (int h = 0; h < group; ++h) {
            float dot = 0.f;
            for (int d = lane; d < head_dim; d += 32) {
                dot += query[h * head_dim + d] * toFloat(key[d]);
            }
            for (int offset = 16; offset > 0; offset /= 2) {
                dot += __shfl_xor_sync(0xffffffffu, dot, offset);
            }
            const OnlineSoftmax state{states[2 * h], states[2 * h + 1]};
            total += state.weight(dot * key_scale) * state.inverseSum();
        }
        if (lane == 0) {
            atomicAdd(mass +
                          (static_cast<int64_t>(run.seq_idx) * task.num_kv_heads + kv_head) *
                              mass_stride +
                          position,
                      total);
        }
    }
}

}  // namespace kvlab
