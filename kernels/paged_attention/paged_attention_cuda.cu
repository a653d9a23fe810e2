// SPDX-License-Identifier: MIT
#include "kernels/cuda/check.cuh"
#include "kernels/paged_attention/paged_attention_kernel.cuh"

namespace kvlab {

void pagedAttentionCuda(const PagedAttentionParams& params, ExecutionContext& context) {
    launchPagedAttention(params, context.stream);
    checkLaunch("pagedAttentionKernel");
}

}  // namespace kvlab
