// SPDX-License-Identifier: MIT
#include "kernels/cuda/check.cuh"
#include "kernels/matmul/matmul_kernel.cuh"

namespace kvlab {

void matmulCuda(const MatmulParams& params, ExecutionContext& context) {
    launchMatmul(params, context.stream);
    checkLaunch("matmul kernels");
}

}  // namespace kvlab
