// SPDX-License-Identifier: MIT
#pragma once

// Scatters new K and V rows to their slots, in the pool's storage type.
//
//   pool[layer][K or V][slot_mapping[g * plane_stride + r]][g] = store(key or value [r, g])
//
// In   key, value [num_tokens, num_kv_heads, head_dim] f32; slot_mapping [num_kv_heads or 1,
//      num_tokens], -1: not stored
// Out  the rows of those slots: f32, f16, bf16, or int8 with its scale (int8_row.h)
//
// Who owns what
//   warp     one row: (token, KV head, K or V), four warps a thread block, grid x over all rows
//   lane     4 neighbouring values in every 128 of the row: reads 16 bytes, writes 16 (f32), 8
//            (f16, bf16) or 4 (int8), a warp one contiguous run
//
// Shared memory: none.
//
// Why so: each value is read once and written once; the largest magnitude that int8 needs first is
// five shuffles away, and the second read of the row comes from the first-level cache. A step's new
// rows are a few KiB: the launch costs more than the work.

#include <cstdint>
#include <type_traits>

#include "kernels/int8_row.h"
#include "kernels/kv_cache_write/kv_cache_write.h"
#include "kernels/launch_check.h"
#include "kernels/simt/simt.h"
#include "kernels/simt/storage_types.h"

namespace kvlab {

namespace kv_cache_write_detail {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kFour = 4;  // values a lane moves at once

template <typename T>
using Four = Chunk<T, kFour>;

template <typename T>
__device__ __forceinline__ T stored(float value, float scale) {
    if constexpr (std::is_same_v<T, int8_t>) {
        return toInt8(value, scale);
    } else {
        return fromFloat<T>(value);
    }
}

}  // namespace kv_cache_write_detail

// kWhole: head_dim is a multiple of 4 and all rows are aligned to 4 of their values.
template <typename T, bool kWhole>
__global__ void __launch_bounds__(kv_cache_write_detail::kThreads)
    kvCacheWriteKernel(KvCacheWriteParams params) {
    waitForPredecessors();
    using namespace kv_cache_write_detail;
    const PagedKvView& kv = params.kv;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int64_t item =
        static_cast<int64_t>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
    const int64_t plane_row = item / 2;  // token * num_kv_heads + head
    const int token = static_cast<int>(plane_row / kv.num_kv_heads);
    const int head = static_cast<int>(plane_row % kv.num_kv_heads);
    if (token >= params.num_tokens) return;
    const int32_t slot = params.slot_mapping[head * params.plane_stride + token];
    if (slot < 0) return;
    const int which = item % 2 == 0 ? PagedKvView::kKey : PagedKvView::kValue;
    const float* const source =
        (which == PagedKvView::kKey ? params.key : params.value) + plane_row * kv.head_dim;
    const int64_t row_idx = kv.rowIndex(params.layer, which, slot, head);
    T* const target = reinterpret_cast<T*>(kv.data) + row_idx * kv.head_dim;

    float scale = 0.f;
    if constexpr (std::is_same_v<T, int8_t>) {
        float largest = 0.f;
        for (int d = lane; d < kv.head_dim; d += 32) largest = int8Largest(largest, source[d]);
        KVLAB_UNROLL
        for (int offset = 16; offset > 0; offset /= 2) {
            largest = int8Largest(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
        }
        scale = int8Scale(largest);
        if (lane == 0) kv.scales()[row_idx] = scale;
    }
    if constexpr (kWhole) {
        for (int d = lane * kFour; d < kv.head_dim; d += 32 * kFour) {
            const Four<float> from = *reinterpret_cast<const Four<float>*>(source + d);
            Four<T> to;
            KVLAB_UNROLL
            for (int i = 0; i < kFour; ++i) to.values[i] = stored<T>(from.values[i], scale);
            *reinterpret_cast<Four<T>*>(target + d) = to;
        }
    } else {
        for (int d = lane; d < kv.head_dim; d += 32) target[d] = stored<T>(source[d], scale);
    }
}

namespace kv_cache_write_detail {

inline constexpr LaunchCheck require{"kv_cache_write"};

// What can be seen without reading device memory.
inline void checkShapes(const KvCacheWriteParams& params) {
    const PagedKvView& kv = params.kv;
    require(params.key != nullptr && params.value != nullptr && params.slot_mapping != nullptr &&
                kv.data != nullptr,
            "a pointer is null");
    require(kv.head_dim >= 1 && kv.num_kv_heads >= 1, "the rows are empty");
    require(kv.block_size >= 1 && kv.num_blocks >= 1, "the pool is empty");
    require(params.layer >= 0 && params.layer < kv.num_layers, "the layer is outside the pool");
    require(params.plane_stride == 0 || params.plane_stride >= params.num_tokens,
            "plane_stride must be 0 or num_tokens");
    require(kv.dtype != DataType::kInt8 || isAligned(kv.data, alignof(float)),
            "an int8 pool must lie where its f32 scales are aligned");
}

// The launch configuration. `stream` is a cudaStream_t.
template <typename T>
void launch(const KvCacheWriteParams& params, void* stream) {
    const int64_t num_items = static_cast<int64_t>(params.num_tokens) * params.kv.num_kv_heads * 2;
    const dim3 grid(static_cast<unsigned>((num_items + kWarps - 1) / kWarps));
    if (params.kv.head_dim % kFour == 0 && isAligned(params.kv.data, sizeof(Four<T>)) &&
        isAligned(params.key, sizeof(Four<float>)) &&
        isAligned(params.value, sizeof(Four<float>))) {
        KVLAB_LAUNCH_EARLY((kvCacheWriteKernel<T, true>), grid, kThreads, 0, stream, params);
    } else {
        KVLAB_LAUNCH_EARLY((kvCacheWriteKernel<T, false>), grid, kThreads, 0, stream, params);
    }
}

}  // namespace kv_cache_write_detail

// Checks the shapes and launches the variant for them; no tokens, no launch.
inline void launchKvCacheWrite(const KvCacheWriteParams& params, void* stream) {
    using namespace kv_cache_write_detail;
    require(params.num_tokens >= 0, "num_tokens is negative");
    if (params.num_tokens == 0) return;
    checkShapes(params);
    withStorageType(params.kv.dtype, [&](auto type) { launch<decltype(type)>(params, stream); });
}

}  // namespace kvlab
