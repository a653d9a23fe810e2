// SPDX-License-Identifier: MIT
#include "kernels/rope/rope_kernel.cuh"

namespace kvlab {

void ropeSimt(const RopeParams& params, ExecutionContext& context) {
    launchRope(params, context.stream);
}

}  // namespace kvlab
