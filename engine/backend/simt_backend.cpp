// SPDX-License-Identifier: MIT
#include "engine/backend/host_backend.h"

namespace kvlab {

namespace {

Ops simtOps() {
    Ops ops;
    ops.embedding = embeddingSimt;
    ops.rms_norm = rmsNormSimt;
    ops.matmul = matmulSimt;
    ops.matmul_group = matmulGroupSimt;
    ops.rope = ropeSimt;
    ops.kv_cache_write = kvCacheWriteSimt;
    ops.paged_attention = pagedAttentionSimt;
    ops.silu_mul = siluMulSimt;
    ops.copy_blocks = copyBlocksSimt;
    ops.matmul_split = matmulSplitSimt;
    ops.contiguous_attention = contiguousAttentionSimt;
    return ops;
}

}  // namespace

std::unique_ptr<Backend> makeSimtBackend() {
    return std::make_unique<HostBackend>("simt", simtOps());
}

}  // namespace kvlab
