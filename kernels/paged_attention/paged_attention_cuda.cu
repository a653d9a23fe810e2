// SPDX-License-Identifier: MIT
#include "kernels/cuda/check.cuh"
#include "kernels/paged_attention/paged_attention_launch.cuh"

namespace kvlab {
namespace {

// Which code the driver took for this device: PTX for Turing has no bf16 matrix instructions even
// on a newer GPU.
bool canMma() {
    static const bool can = [] {
        cudaFuncAttributes attributes;
        checkCuda(cudaFuncGetAttributes(&attributes,
                                        pagedAttentionMmaKernel<Bfloat16, 128, 1, true, false>),
                  "pagedAttentionMmaKernel");
        return attributes.ptxVersion >= 80;
    }();
    return can;
}

}  // namespace

void pagedAttentionCuda(const PagedAttentionParams& params, ExecutionContext& context) {
    launchPagedAttention(params, context, canMma());
    checkLaunch("pagedAttentionKernel");
}

int64_t pagedAttentionWorkspaceBytes(const PagedAttentionParams& params, int num_multiprocessors) {
    return pagedAttentionWorkspaceBytes(params, num_multiprocessors, canMma());
}

void contiguousAttentionCuda(const ContiguousAttentionParams& params, ExecutionContext& context) {
    launchContiguousAttention(params, context, canMma());
    checkLaunch("pagedAttentionKernel");
}

int64_t contiguousAttentionWorkspaceBytes(const ContiguousAttentionParams& params,
                                          int num_multiprocessors) {
    return contiguousAttentionWorkspaceBytes(params, num_multiprocessors, canMma());
}

}  // namespace kvlab
