// SPDX-License-Identifier: MIT
#include <cstddef>

#include "kernels/cpu/vector_paths.h"
#include "kernels/embedding/embedding.h"

namespace kvlab {

void embeddingCpu(const EmbeddingParams& p, ExecutionContext&) {
    const int64_t row_bytes = tensorBytes(p.type, p.dim);
    for (int token = 0; token < p.num_tokens; ++token) {
        const std::byte* row =
            static_cast<const std::byte*>(p.table) + p.token_ids[token] * row_bytes;
        vectorPaths().dequantise(row, p.type, p.dim, p.output + int64_t{token} * p.dim);
    }
}

}  // namespace kvlab
