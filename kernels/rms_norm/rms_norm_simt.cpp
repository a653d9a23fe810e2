// SPDX-License-Identifier: MIT
#include "kernels/rms_norm/rms_norm_kernel.cuh"

namespace kvlab {

void rmsNormSimt(const RmsNormParams& params, ExecutionContext& context) {
    launchRmsNorm(params, context.stream);
}

}  // namespace kvlab
