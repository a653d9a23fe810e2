// SPDX-License-Identifier: MIT
#include <algorithm>
#include <thread>

#include "engine/backend/host_backend.h"
#include "kernels/simt/simt.h"

namespace kvlab {

namespace {

// The operation with its thread blocks spread over the backend's threads; the order of the threads
// in a thread block stays the caller's choice.
template <auto kOperation, class Params>
void spread(const Params& params, ExecutionContext& context) {
    simt::Settings settings = simt::currentSettings();
    settings.num_os_threads = std::max(settings.num_os_threads, context.num_simt_threads);
    const simt::ScopedSettings scope(settings);
    kOperation(params, context);
}

Ops simtOps() {
    Ops ops;
    ops.embedding = spread<embeddingSimt, EmbeddingParams>;
    ops.rms_norm = spread<rmsNormSimt, RmsNormParams>;
    ops.matmul = spread<matmulSimt, MatmulParams>;
    ops.matmul_group = spread<matmulGroupSimt, MatmulGroupParams>;
    ops.rope = spread<ropeSimt, RopeParams>;
    ops.kv_cache_write = spread<kvCacheWriteSimt, KvCacheWriteParams>;
    ops.paged_attention = spread<pagedAttentionSimt, PagedAttentionParams>;
    ops.silu_mul = spread<siluMulSimt, SiluMulParams>;
    ops.copy_blocks = spread<copyBlocksSimt, CopyBlocksParams>;
    ops.matmul_split = spread<matmulSplitSimt, MatmulParams>;
    ops.contiguous_attention = spread<contiguousAttentionSimt, ContiguousAttentionParams>;
    return ops;
}

class SimtBackend : public HostBackend {
  public:
    explicit SimtBackend(int num_threads) : HostBackend("simt", simtOps()) {
        const auto num_cores = static_cast<int>(std::thread::hardware_concurrency());
        context_.num_simt_threads = num_threads > 0 ? num_threads : std::max(num_cores, 1);
    }
    int numThreads() const override { return context_.num_simt_threads; }
};

}  // namespace

std::unique_ptr<Backend> makeSimtBackend(int num_threads) {
    return std::make_unique<SimtBackend>(num_threads);
}

}  // namespace kvlab
