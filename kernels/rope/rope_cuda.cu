// SPDX-License-Identifier: MIT
#include "kernels/cuda/check.cuh"
#include "kernels/rope/rope_kernel.cuh"

namespace kvlab {

void ropeCuda(const RopeParams& params, ExecutionContext& context) {
    launchRope(params, context.stream);
    checkLaunch("ropeKernel");
}

}  // namespace kvlab
