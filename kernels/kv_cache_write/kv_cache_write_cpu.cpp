// SPDX-License-Identifier: MIT
#include <cstring>

#include "kernels/half.h"
#include "kernels/kv_cache_write/kv_cache_write.h"

namespace kvlab {

namespace {

void storeRow(const float* row, const PagedKvView& kv, int64_t offset) {
    std::byte* target = kv.data + offset * dataTypeBytes(kv.dtype);
    if (kv.dtype == DataType::kF32) {
        std::memcpy(target, row, static_cast<size_t>(kv.head_dim) * sizeof(float));
        return;
    }
    uint16_t* values = reinterpret_cast<uint16_t*>(target);
    for (int d = 0; d < kv.head_dim; ++d) {
        values[d] = kv.dtype == DataType::kF16 ? floatToHalf(row[d]) : floatToBfloat16(row[d]);
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
            storeRow(p.key + source, p.kv, p.kv.offset(p.layer, PagedKvView::kKey, slot, head));
            storeRow(p.value + source, p.kv, p.kv.offset(p.layer, PagedKvView::kValue, slot, head));
        }
    }
}

}  // namespace kvlab
