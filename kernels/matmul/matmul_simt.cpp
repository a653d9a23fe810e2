// SPDX-License-Identifier: MIT
#include "kernels/matmul/matmul_kernel.cuh"

namespace kvlab {

void matmulSimt(const MatmulParams& params, ExecutionContext& context) {
    launchMatmul(params, context.stream);
}

void matmulGroupSimt(const MatmulGroupParams& params, ExecutionContext& context) {
    if (launchMatmulGroup(params, context.stream)) return;
    if (params.norm_weight != nullptr) {
        launchRmsNorm(rmsNormOfGroup(params), context.stream);
        return matmulGroupSimt(groupOfNormed(params), context);
    }
    for (int i = 0; i < params.num_parts; ++i) matmulSimt(matmulOfPart(params, i), context);
    if (params.silu_mul) launchSiluMul(siluMulOfGroup(params), context.stream);
}

}  // namespace kvlab
