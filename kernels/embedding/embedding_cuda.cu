// SPDX-License-Identifier: MIT
#include "kernels/cuda/check.cuh"
#include "kernels/embedding/embedding_kernel.cuh"

namespace kvlab {

void embeddingCuda(const EmbeddingParams& params, ExecutionContext& context) {
    launchEmbedding(params, context.stream);
    checkLaunch("embeddingKernel");
}

}  // namespace kvlab
