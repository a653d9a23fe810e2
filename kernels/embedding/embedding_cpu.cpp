// SPDX-License-Identifier: MIT
#include <cstddef>

#include "kernels/cpu/vector_paths.h"
#include "kernels/embedding/embedding.h"

namespace kvlab {

void embeddingCpu(const EmbeddingParams& p, ExecutionContext&) {
    const int64_t row_bytes = int64_t{p.dim} * dataTypeBytes(p.dtype);
    for (int token = 0; token < p.num_tokens; ++token) {
        const std::byte* row =
            static_cast<const std::byte*>(p.table) + p.token_ids[token] * row_bytes;
        vectorPaths().widen(row, p.dtype, p.dim, p.output + int64_t{token} * p.dim);
    }
}

}  // namespace kvlab
