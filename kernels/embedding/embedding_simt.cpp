// SPDX-License-Identifier: MIT
#include "kernels/embedding/embedding_kernel.cuh"

namespace kvlab {

// The ids are host memory here, so they can be checked instead of giving NaN.
void embeddingSimt(const EmbeddingParams& params, ExecutionContext& context) {
    for (int t = 0; params.token_ids != nullptr && t < params.num_tokens; ++t) {
        embedding_detail::require(
            params.token_ids[t] >= 0 && params.token_ids[t] < params.vocab_size,
            "a token id is outside the table");
    }
    launchEmbedding(params, context.stream);
}

}  // namespace kvlab
