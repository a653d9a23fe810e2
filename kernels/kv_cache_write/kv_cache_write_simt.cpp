// SPDX-License-Identifier: MIT
#include "kernels/kv_cache_write/kv_cache_write_kernel.cuh"

namespace kvlab {

void kvCacheWriteSimt(const KvCacheWriteParams& params, ExecutionContext& context) {
    using kv_cache_write_detail::require;
    if (params.num_tokens > 0) {
        kv_cache_write_detail::checkShapes(params);
        // Host memory here, so a wrong slot is caught before it writes somewhere in this process.
        const int64_t num_slots = static_cast<int64_t>(params.kv.num_blocks) * params.kv.block_size;
        for (int head = 0; head < (params.plane_stride == 0 ? 1 : params.kv.num_kv_heads); ++head) {
            for (int token = 0; token < params.num_tokens; ++token) {
                const int64_t slot = params.slot_mapping[head * params.plane_stride + token];
                require(slot >= -1 && slot < num_slots, "a slot is outside the pool");
            }
        }
    }
    launchKvCacheWrite(params, context.stream);
}

}  // namespace kvlab
