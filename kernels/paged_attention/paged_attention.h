// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/execution_context.h"
#include "kernels/paged_kv_view.h"

namespace kvlab {

// Attention of each query row over its sequence's K/V, found through the block table
// (PagedAttention, Kwon et al., SOSP 2023, section 4.1):
//
//   output[r, h] = sum_i softmax_i(scale * query[r, h] · K[i, h / group]) V[i, h / group],
//                  firstVisiblePosition(context_lens[r], window) <= i < context_lens[r]
//
// where row i of sequence s lies in slot block_tables[s, i / block_size] * block_size + i %
// block_size. A decode step has one row per sequence; a prefill chunk has one row per prompt token,
// whose context ends at the token itself. K and V are written to the pool first: attention reads
// only the pool, and nothing of it, block tables included, that no row sees: blocks that have left
// the window may have been freed. K and V in int8 are q * scale of their row (int8_row.h).
//
// Contract, CPU: batch-invariant. Each (row, head) is summed in tiles of kAttentionTile positions
// counted from 0, in order, whatever the batch, the block size, the threads or the other rows.
// CUDA: not promised.
struct PagedAttentionParams {
    const float* query = nullptr;  // [num_rows, num_heads, head_dim], after RoPE
    PagedKvView kv;                // pool
    int layer = 0;
    const int32_t* block_tables = nullptr;  // [num_seqs, max_blocks_per_seq], physical block ids
    int max_blocks_per_seq = 0;
    const int32_t* row_to_seq = nullptr;    // [num_rows], row of block_tables
    const int32_t* context_lens = nullptr;  // [num_rows], tokens that the row attends to, >= 1
    int num_rows = 0;
    int num_seqs = 0;
    int num_heads = 0;        // query heads, a multiple of kv.num_kv_heads
    float scale = 0.f;        // 1 / sqrt(head_dim)
    int window = 0;           // tokens a row sees, itself included; 0: all of its context
    float* output = nullptr;  // [num_rows, num_heads, head_dim]
};

// The row at position p = context_len - 1 sees the positions above p - window (sliding window
// attention: Mistral 7B, Jiang et al. 2023, section 2).
KVLAB_HOST_DEVICE constexpr int firstVisiblePosition(int context_len, int window) {
    return window > 0 && context_len > window ? context_len - window : 0;
}

constexpr int kAttentionTile =
    32;  // positions summed together before they join the running softmax

void pagedAttentionCpu(const PagedAttentionParams& params, ExecutionContext& context);
// Through kernels/simt: the CUDA source, run thread block by thread block on the CPU.
void pagedAttentionSimt(const PagedAttentionParams& params, ExecutionContext& context);
// Pointers are device memory. Present when KVLAB_CUDA is on.
void pagedAttentionCuda(const PagedAttentionParams& params, ExecutionContext& context);

}  // namespace kvlab
