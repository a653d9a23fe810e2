// SPDX-License-Identifier: MIT
#pragma once

// Copies the first num_slots[i] slots of block source[i] to block target[i], in every layer, K and
// V, int8 scales included.
//
// In   source, target, num_slots [num_pairs]
// Out  the pool
//
// Who owns what
//   grid x   pair
//   grid y   (layer, K or V): there a block is one contiguous run of values, and one of scales
//   grid z   pieces of the run: 256 threads, kVectors vectors each
//   thread   16 bytes at once (4 or 1 where head_dim or the pool's address do not allow it),
//            neighbours side by side
//
// Shared memory: none.
//
// Why so: one launch for a whole step, whatever the layers; each byte is read once and written
// once.

#include <cstdint>

#include "kernels/copy_blocks/copy_blocks.h"
#include "kernels/launch_check.h"
#include "kernels/simt/simt.h"
#include "kernels/simt/storage_types.h"

namespace kvlab {

namespace copy_blocks_detail {

constexpr int kThreads = 256;
constexpr int kVectors = 4;  // that a thread copies, all read before the first is written

}  // namespace copy_blocks_detail

template <int kBytes>
__global__ void __launch_bounds__(copy_blocks_detail::kThreads)
    copyBlocksKernel(CopyBlocksParams params, int value_bytes) {
    using namespace copy_blocks_detail;
    using V = Chunk<unsigned char, kBytes>;
    const PagedKvView& kv = params.kv;
    const int pair = static_cast<int>(blockIdx.x);
    const int layer = static_cast<int>(blockIdx.y) / 2;
    const int which = static_cast<int>(blockIdx.y) % 2;
    const int64_t source = static_cast<int64_t>(params.source[pair]) * kv.block_size;
    const int64_t target = static_cast<int64_t>(params.target[pair]) * kv.block_size;
    const int64_t num_rows = static_cast<int64_t>(params.num_slots[pair]) * kv.num_kv_heads;
    const int64_t num_vectors = num_rows * kv.head_dim * value_bytes / kBytes;
    const V* const from =
        reinterpret_cast<const V*>(kv.data + kv.offset(layer, which, source, 0) * value_bytes);
    V* const to = reinterpret_cast<V*>(kv.data + kv.offset(layer, which, target, 0) * value_bytes);

    const int64_t first =
        static_cast<int64_t>(blockIdx.z) * kThreads * kVectors + static_cast<int>(threadIdx.x);
    V values[kVectors];
    KVLAB_UNROLL
    for (int i = 0; i < kVectors; ++i) {
        if (first + i * kThreads < num_vectors) values[i] = from[first + i * kThreads];
    }
    KVLAB_UNROLL
    for (int i = 0; i < kVectors; ++i) {
        if (first + i * kThreads < num_vectors) to[first + i * kThreads] = values[i];
    }
    if (kv.dtype != DataType::kInt8) return;
    const float* const from_scale = kv.scales() + kv.rowIndex(layer, which, source, 0);
    float* const to_scale = kv.scales() + kv.rowIndex(layer, which, target, 0);
    for (int64_t i = static_cast<int64_t>(blockIdx.z) * kThreads + static_cast<int>(threadIdx.x);
         i < num_rows; i += static_cast<int64_t>(gridDim.z) * kThreads) {
        to_scale[i] = from_scale[i];
    }
}

namespace copy_blocks_detail {

inline constexpr LaunchCheck require{"copy_blocks"};

// What can be seen without reading device memory.
inline void checkShapes(const CopyBlocksParams& params) {
    const PagedKvView& kv = params.kv;
    require(params.source != nullptr && params.target != nullptr && params.num_slots != nullptr &&
                kv.data != nullptr,
            "a pointer is null");
    require(kv.head_dim >= 1 && kv.num_kv_heads >= 1, "the rows are empty");
    require(kv.block_size >= 1 && kv.num_blocks >= 1, "the pool is empty");
    require(kv.num_layers >= 1 && kv.num_layers <= 32767, "num_layers must be 1 to 32767");
}

// The launch configuration. `stream` is a cudaStream_t.
template <int kBytes>
void launch(const CopyBlocksParams& params, void* stream) {
    const PagedKvView& kv = params.kv;
    const int64_t block_bytes = static_cast<int64_t>(kv.block_size) * kv.num_kv_heads *
                                kv.head_dim * dataTypeBytes(kv.dtype);
    constexpr int64_t kPieceBytes = int64_t{kThreads} * kVectors * kBytes;
    const int64_t num_pieces = (block_bytes + kPieceBytes - 1) / kPieceBytes;
    require(num_pieces <= 65535, "a block is too large");
    const dim3 grid(static_cast<unsigned>(params.num_pairs),
                    static_cast<unsigned>(2 * kv.num_layers), static_cast<unsigned>(num_pieces));
    KVLAB_LAUNCH((copyBlocksKernel<kBytes>), grid, kThreads, 0, stream, params,
                 dataTypeBytes(kv.dtype));
}

}  // namespace copy_blocks_detail

// Checks the shapes and launches the variant for them; no pairs, no launch.
inline void launchCopyBlocks(const CopyBlocksParams& params, void* stream) {
    using namespace copy_blocks_detail;
    require(params.num_pairs >= 0, "num_pairs is negative");
    if (params.num_pairs == 0) return;
    checkShapes(params);
    // Every run begins and ends at a slot: what divides a slot and the pool's address divides all.
    const auto slot_bytes = static_cast<uintptr_t>(params.kv.num_kv_heads * params.kv.head_dim *
                                                   dataTypeBytes(params.kv.dtype));
    const uintptr_t alignment = slot_bytes | reinterpret_cast<uintptr_t>(params.kv.data);
    if (alignment % 16 == 0) {
        launch<16>(params, stream);
    } else if (alignment % 4 == 0) {
        launch<4>(params, stream);
    } else {
        launch<1>(params, stream);
    }
}

}  // namespace kvlab
