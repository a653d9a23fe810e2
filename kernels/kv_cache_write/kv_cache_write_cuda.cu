// SPDX-License-Identifier: MIT
#include "kernels/cuda/check.cuh"
#include "kernels/kv_cache_write/kv_cache_write_kernel.cuh"

namespace kvlab {

void kvCacheWriteCuda(const KvCacheWriteParams& params, ExecutionContext& context) {
    launchKvCacheWrite(params, context.stream);
    checkLaunch("kvCacheWriteKernel");
}

}  // namespace kvlab
