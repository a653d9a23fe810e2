// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/execution_context.h"
#include "kernels/paged_kv_view.h"

namespace kvlab {

// How the CUDA kernel multiplies: with an f32 multiply-add per value and query head, or with matrix
// instructions that take 8 query vectors at once (f16, bf16, int8; head_dim a multiple of 8).
enum class AttentionVariant : uint8_t { kAuto, kFma, kMma };

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
// CUDA: not promised, because how a context is split depends on the batch. There, too, an infinity
// or NaN in a V row of f16 or bf16 may show in the rows of the same chunk before it.
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

    // Attention mass, for policies and heat maps; null: not asked for, and not paid for. To
    // mass[s, g, i] is added the sum over the rows of sequence s and the query heads of KV head g
    // of the probability that they give to token i. Zero it first.
    float* mass = nullptr;    // [num_seqs, num_kv_heads, mass_stride]
    int64_t mass_stride = 0;  // at least the longest context

    // For the CUDA kernels; the CPU looks at none of it.
    // A copy of row_to_seq in host memory: neighbouring rows of one sequence then share what they
    // read of the cache. Null: each row reads for itself.
    const int32_t* host_row_to_seq = nullptr;
    int max_context_len = 0;  // longest of context_lens; 0: what the block tables have room for
    // For tests and benchmarks; what is not possible is not done.
    int num_splits = 0;  // parts of each context worked on side by side; 0: chosen
    AttentionVariant variant = AttentionVariant::kAuto;
};

// The row at position p = context_len - 1 sees the positions above p - window (sliding window
// attention: Mistral 7B, Jiang et al. 2023, section 2).
KVLAB_HOST_DEVICE constexpr int firstVisiblePosition(int context_len, int window) {
    return window > 0 && context_len > window ? context_len - window : 0;
}

constexpr int kAttentionTile =
    32;  // positions summed together before they join the running softmax

void pagedAttentionCpu(const PagedAttentionParams& params, ExecutionContext& context);
// Through kernels/simt: the CUDA source, run thread block by thread block on the CPU. Without a
// workspace in the context it finds one itself.
void pagedAttentionSimt(const PagedAttentionParams& params, ExecutionContext& context);
// Pointers but host_row_to_seq are device memory. Present when KVLAB_CUDA is on. What launches
// follow from num_rows, max_context_len or max_blocks_per_seq, and host_row_to_seq alone, so a
// graph of it may be replayed with other tables and context lengths up to those.
void pagedAttentionCuda(const PagedAttentionParams& params, ExecutionContext& context);

// What ExecutionContext::workspace should have for this call on a GPU of that many
// multiprocessors; with less, contexts are split less. Attention mass cannot be had without. Reads
// no device memory.
int64_t pagedAttentionWorkspaceBytes(const PagedAttentionParams& params, int num_multiprocessors);

}  // namespace kvlab
