// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/execution_context.h"
#include "kernels/paged_kv_view.h"

namespace kvlab {

// Scatters new K and V rows to their slots, rounding to the pool's storage type (nearest even);
// int8 with one scale per token, head, and K or V (int8_row.h says how, and what becomes of NaN).
// slot_mapping is [num_kv_heads or 1, num_tokens] for this layer: plane_stride 0 means that all
// planes share one row, which is so unless a policy drops tokens per plane; -1 means "do not
// store".
//
// Contract: every row is converted on its own; the result never depends on batch or threads.
struct KvCacheWriteParams {
    const float* key = nullptr;             // [num_tokens, num_kv_heads, head_dim], after RoPE
    const float* value = nullptr;           // [num_tokens, num_kv_heads, head_dim]
    const int32_t* slot_mapping = nullptr;  // [num_kv_heads or 1, num_tokens]
    int64_t plane_stride = 0;               // 0 or num_tokens
    int num_tokens = 0;
    int layer = 0;
    PagedKvView kv;
};

void kvCacheWriteCpu(const KvCacheWriteParams& params, ExecutionContext& context);
// Through kernels/simt: the CUDA source, run on the CPU. Stores the bits that the CPU stores.
void kvCacheWriteSimt(const KvCacheWriteParams& params, ExecutionContext& context);
// Pointers are device memory. Present when KVLAB_CUDA is on. Stores the bits that the CPU stores,
// but for the payload of a NaN.
void kvCacheWriteCuda(const KvCacheWriteParams& params, ExecutionContext& context);

}  // namespace kvlab
