// SPDX-License-Identifier: MIT
#include "kernels/cuda/check.cuh"
#include "kernels/rms_norm/rms_norm_kernel.cuh"

namespace kvlab {

void rmsNormCuda(const RmsNormParams& params, ExecutionContext& context) {
    launchRmsNorm(params, context.stream);
    checkLaunch("rmsNormKernel");
}

}  // namespace kvlab
