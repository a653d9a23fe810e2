// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/execution_context.h"
#include "kernels/paged_attention/paged_attention.h"

namespace kvlab {

// Decode attention over K and V that lie in one piece per sequence, as before paging: the yardstick
// for the price of indirection. The kernels are those of paged_attention with position i of
// sequence s in row s * max_context_len + i instead of where a block table says; nothing else
// differs.
//
//   output[s, h] = sum_i softmax_i(scale * query[s, h] · key[s, i, h / group]) value[s, i, h /
//   group],
//                  i < context_lens[s]
//
// Contract: as pagedAttentionCuda's; how a context is split depends on the batch.
struct ContiguousAttentionParams {
    const float* query = nullptr;           // [num_seqs, num_heads, head_dim]
    const std::byte* key = nullptr;         // [num_seqs, max_context_len, num_kv_heads, head_dim]
    const std::byte* value = nullptr;       // the same
    DataType dtype = DataType::kF16;        // of key and value: kF16 or kBF16
    const int32_t* context_lens = nullptr;  // [num_seqs], 1 to max_context_len
    int num_seqs = 0;
    int max_context_len = 0;
    int num_heads = 0;
    int num_kv_heads = 0;
    int head_dim = 0;  // a multiple of 8; rows 16-byte aligned
    float scale = 0.f;
    float* output = nullptr;  // [num_seqs, num_heads, head_dim]
    int num_splits = 0;       // as in PagedAttentionParams
    AttentionVariant variant = AttentionVariant::kAuto;
};

// Through kernels/simt. Without a workspace in the context it finds one itself.
void contiguousAttentionSimt(const ContiguousAttentionParams& params, ExecutionContext& context);
// Pointers are device memory. Present when KVLAB_CUDA is on.
void contiguousAttentionCuda(const ContiguousAttentionParams& params, ExecutionContext& context);

// As pagedAttentionWorkspaceBytes.
int64_t contiguousAttentionWorkspaceBytes(const ContiguousAttentionParams& params,
                                          int num_multiprocessors);

}  // namespace kvlab
