// SPDX-License-Identifier: MIT
#include "kernels/copy_blocks/copy_blocks_kernel.cuh"
#include "kernels/cuda/check.cuh"

namespace kvlab {

void copyBlocksCuda(const CopyBlocksParams& params, ExecutionContext& context) {
    launchCopyBlocks(params, context.stream);
    checkLaunch("copyBlocksKernel");
}

}  // namespace kvlab
