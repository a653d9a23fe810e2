// SPDX-License-Identifier: MIT
#include "kernels/matmul/matmul_kernel.cuh"

namespace kvlab {

void matmulSimt(const MatmulParams& params, ExecutionContext& context) {
    launchMatmul(params, context.stream);
}

}  // namespace kvlab
