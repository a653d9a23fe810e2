// SPDX-License-Identifier: MIT
#include "kernels/silu_mul/silu_mul_kernel.cuh"

namespace kvlab {

void siluMulSimt(const SiluMulParams& params, ExecutionContext& context) {
    launchSiluMul(params, context.stream);
}

}  // namespace kvlab
