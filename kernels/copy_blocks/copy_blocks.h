// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/execution_context.h"
#include "kernels/paged_kv_view.h"

namespace kvlab {

// Copies the first num_slots[i] slots of block source[i] to block target[i] in every layer, K and
// V, the scales of int8 included: the copy of copy-on-write. All pairs of a step go in one call; no
// block is both source and target. Contract: bytes move as they are, on CUDA too.
struct CopyBlocksParams {
    const int32_t* source = nullptr;     // [num_pairs], block ids
    const int32_t* target = nullptr;     // [num_pairs], block ids
    const int32_t* num_slots = nullptr;  // [num_pairs], written slots of the source, <= block_size
    int num_pairs = 0;
    PagedKvView kv;
};

void copyBlocksCpu(const CopyBlocksParams& params, ExecutionContext& context);
// Through kernels/simt: the CUDA source, run on the CPU.
void copyBlocksSimt(const CopyBlocksParams& params, ExecutionContext& context);
// All pointers are device memory. Present when KVLAB_CUDA is on. One launch for all layers.
void copyBlocksCuda(const CopyBlocksParams& params, ExecutionContext& context);

}  // namespace kvlab
