// SPDX-License-Identifier: MIT
#include "kernels/copy_blocks/copy_blocks_kernel.cuh"

namespace kvlab {

void copyBlocksSimt(const CopyBlocksParams& params, ExecutionContext& context) {
    using copy_blocks_detail::require;
    if (params.num_pairs > 0) {
        copy_blocks_detail::checkShapes(params);
        // Host memory here, so a wrong id is caught before it writes somewhere in this process.
        for (int i = 0; i < params.num_pairs; ++i) {
            const auto inside = [&](int32_t id) { return id >= 0 && id < params.kv.num_blocks; };
            require(inside(params.source[i]) && inside(params.target[i]),
                    "a block id is outside the pool");
            require(params.num_slots[i] >= 0 && params.num_slots[i] <= params.kv.block_size,
                    "a pair copies more slots than a block has");
        }
    }
    launchCopyBlocks(params, context.stream);
}

}  // namespace kvlab
