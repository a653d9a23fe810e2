// SPDX-License-Identifier: MIT
#include <cstring>

#include "kernels/half.h"
#include "kernels/int8_row.h"
#include "kernels/kv_cache_write/kv_cache_write.h"

namespace kvlab {

namespace {

void storeRow(const float* row, const PagedKvView& kv, int64_t row_idx) {
    std::byte* target = kv.data + row_idx * kv.head_dim * dataTypeBytes(kv.dtype);
    switch (kv.dtype) {
        case DataType::kF32:
            std::memcpy(target, row, static_cast<size_t>(kv.head_dim) * sizeof(float));
            break;
        case DataType::kF16:
        case DataType::kBF16: {
            uint16_t* values = reinterpret_cast<uint16_t*>(target);
            for (int d = 0; d < kv.head_dim; ++d) {
                values[d] =
                    kv.dtype == DataType::kF16 ? floatToHalf(row[d]) : floatToBfloat16(row[d]);
            }
            break;
        }
        case DataType::kInt8:
            kv.scales()[row_idx] =
                storeInt8Row(row, kv.head_dim, reinterpret_cast<int8_t*>(target));
            break;
    }
}

}  // namespace

// One thread: a step's new rows are a few KiB, not worth waking another.
void kvCacheWriteCpu(const KvCacheWriteParams& p, ExecutionContext&) {
    for (int token = 0; token < p.num_tokens; ++token) {
        for (int head = 0; head < p.kv.num_kv_heads; ++head) {
            const int32_t slot = p.slot_mapping[head * p.plane_stride + token];
            if (slot < 0) continue;
            const int64_t source =
                (static_cast<int64_t>(token) * p.kv.num_kv_heads + head) * p.kv.head_dim;
            storeRow(p.key + source, p.kv, p.kv.rowIndex(p.layer, PagedKvView::kKey, slot, head));
            storeRow(p.value + source, p.kv,
                     p.kv.rowIndex(p.layer, PagedKvView::kValue, slot, head));
        }
    }
}

}  // namespace kvlab
