// SPDX-License-Identifier: MIT
#include "kernels/cuda/check.cuh"
#include "kernels/silu_mul/silu_mul_kernel.cuh"

namespace kvlab {

void siluMulCuda(const SiluMulParams& params, ExecutionContext& context) {
    launchSiluMul(params, context.stream);
    checkLaunch("siluMulKernel");
}

}  // namespace kvlab
