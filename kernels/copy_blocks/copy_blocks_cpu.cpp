// SPDX-License-Identifier: MIT
#include <cstring>
#include <initializer_list>

#include "kernels/copy_blocks/copy_blocks.h"

namespace kvlab {

void copyBlocksCpu(const CopyBlocksParams& p, ExecutionContext&) {
    const int value_bytes = dataTypeBytes(p.kv.dtype);
    const int64_t slot_bytes = int64_t{p.kv.num_kv_heads} * p.kv.head_dim * value_bytes;
    for (int layer = 0; layer < p.kv.num_layers; ++layer) {
        for (const int which : {PagedKvView::kKey, PagedKvView::kValue}) {
            for (int pair = 0; pair < p.num_pairs; ++pair) {
                const int64_t source = int64_t{p.source[pair]} * p.kv.block_size;
                const int64_t target = int64_t{p.target[pair]} * p.kv.block_size;
                std::memcpy(p.kv.data + p.kv.offset(layer, which, target, 0) * value_bytes,
                            p.kv.data + p.kv.offset(layer, which, source, 0) * value_bytes,
                            static_cast<size_t>(p.num_slots[pair] * slot_bytes));
                if (p.kv.dtype == DataType::kInt8) {
                    const int64_t num_rows = int64_t{p.num_slots[pair]} * p.kv.num_kv_heads;
                    std::memcpy(p.kv.scales() + p.kv.rowIndex(layer, which, target, 0),
                                p.kv.scales() + p.kv.rowIndex(layer, which, source, 0),
                                static_cast<size_t>(num_rows) * sizeof(float));
                }
            }
        }
    }
}

}  // namespace kvlab
