// SPDX-License-Identifier: MIT
#pragma once

// The launches of an attention call: per region of rows (paged_attention_plan.h) one of the two
// kernels, then the merge where contexts are split; last of all attention mass, if asked for.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/contiguous_attention/contiguous_attention.h"
#include "kernels/launch_check.h"
#include "kernels/paged_attention/attention_mass_kernel.cuh"
#include "kernels/paged_attention/attention_task.cuh"
#include "kernels/paged_attention/paged_attention_kernel.cuh"
#include "kernels/paged_attention/paged_attention_mma.cuh"
#include "kernels/paged_attention/paged_attention_plan.h"

namespace kvlab {

constexpr int kPagedAttentionMaxHeadDim = 256;

namespace paged_attention_detail {

// `stream` is a cudaStream_t.
template <typename T, int kTeam, int kVectors, bool kWhole, bool kPaged, bool kShared>
void launchFma(const AttentionTask& task, dim3 grid, void* stream) {
    KVLAB_LAUNCH_EARLY((pagedAttentionKernel<T, kTeam, kVectors, kWhole, kPaged, kShared>), grid,
                       kAttentionThreads, 0, stream, task);
}

template <typename T, int kTeam, bool kPaged>
void launchFmaForPlan(
    const AttentionTask& task, const AttentionPlan& plan, bool is_shared, dim3 grid, void* stream) {
    if (is_shared || plan.vectors_per_tile > 4) {
        launchFma<T, kTeam, 8, true, kPaged, kPaged>(task, grid, stream);
    } else if (plan.vectors_per_tile == 1) {
        launchFma<T, kTeam, 1, true, kPaged, false>(task, grid, stream);
    } else if (plan.vectors_per_tile == 2) {
        launchFma<T, kTeam, 2, true, kPaged, false>(task, grid, stream);
    } else {
        launchFma<T, kTeam, 4, true, kPaged, false>(task, grid, stream);
    }
}

template <typename T, int kDim, bool kPaged>
void launchMma(
    const AttentionTask& task, const AttentionPlan& plan, bool is_shared, dim3 grid, void* stream) {
    if constexpr (kPaged) {
        if (is_shared) {
            KVLAB_LAUNCH_EARLY(
                (pagedAttentionMmaKernel<T, kDim, (kDim <= 128 ? 2 : 1), true, true>), grid,
                kAttentionThreads, 0, stream, task);
            return;
        }
    }
    if constexpr (kDim <= 128) {
        if (plan.vectors_per_tile == 16) {
            KVLAB_LAUNCH_EARLY((pagedAttentionMmaKernel<T, kDim, 2, kPaged, false>), grid,
                               kAttentionThreads, 0, stream, task);
            return;
        }
    }
    KVLAB_LAUNCH_EARLY((pagedAttentionMmaKernel<T, kDim, 1, kPaged, false>), grid,
                       kAttentionThreads, 0, stream, task);
}

// The launch configuration of one region.
template <typename T, bool kPaged>
void launchRegion(const AttentionTask& task,
                  const AttentionPlan& plan,
                  bool is_shared,
                  bool rows_are_whole,
                  void* stream) {
    const int rows_per_thread_block = plan.rows_per_tile * plan.tiles_per_thread_block;
    const dim3 grid(
        static_cast<unsigned>((task.num_rows + rows_per_thread_block - 1) / rows_per_thread_block),
        static_cast<unsigned>(task.num_kv_heads * plan.num_slices),
        static_cast<unsigned>(task.num_splits));
    if constexpr (!std::is_same_v<T, float>) {
        if (plan.use_mma) {
            if (task.head_dim <= 64) {
                launchMma<T, 64, kPaged>(task, plan, is_shared, grid, stream);
            } else if (task.head_dim <= 128) {
                launchMma<T, 128, kPaged>(task, plan, is_shared, grid, stream);
            } else {
                launchMma<T, 256, kPaged>(task, plan, is_shared, grid, stream);
            }
            return;
        }
    }
    if constexpr (kPaged) {
        if (!rows_are_whole) {
            launchFma<T, 32, 4, false, true, true>(task, grid, stream);
            return;
        }
    }
    if (task.head_dim <= 64) {
        launchFmaForPlan<T, 8, kPaged>(task, plan, is_shared, grid, stream);
    } else if (task.head_dim <= 128) {
        launchFmaForPlan<T, 16, kPaged>(task, plan, is_shared, grid, stream);
    } else {
        launchFmaForPlan<T, 32, kPaged>(task, plan, is_shared, grid, stream);
    }
}

template <typename T>
void launchMass(const AttentionTask& task,
                float* mass,
                int64_t mass_stride,
                int max_context_len,
                void* stream) {
    const dim3 grid(static_cast<unsigned>(task.num_rows), static_cast<unsigned>(task.num_kv_heads),
                    static_cast<unsigned>((max_context_len + kMassPositions - 1) / kMassPositions));
    KVLAB_LAUNCH((attentionMassKernel<T>), grid, kAttentionThreads, 0, stream, task, mass,
                 mass_stride);
}

inline constexpr LaunchCheck require{"paged_attention"};

// What can be seen without reading device memory.
inline void checkShapes(const PagedAttentionParams& params) {
    const PagedKvView& kv = params.kv;
    require(params.query != nullptr && params.output != nullptr && kv.data != nullptr &&
                params.block_tables != nullptr && params.row_to_seq != nullptr &&
                params.context_lens != nullptr,
            "a pointer is null");
    require(kv.head_dim >= 1 && kv.head_dim <= kPagedAttentionMaxHeadDim,
            "head_dim must be 1 to 256");
    require(kv.num_kv_heads >= 1, "there are no KV heads");
    require(params.num_heads >= 1 && params.num_heads <= 65535 &&
                params.num_heads % kv.num_kv_heads == 0,
            "num_heads must be a multiple of num_kv_heads, 65535 at most");
    require(kv.block_size >= 1 && kv.num_blocks >= 1, "the pool is empty");
    require(int64_t{kv.num_blocks} * kv.block_size <= INT32_MAX, "the pool has too many slots");
    require(params.layer >= 0 && params.layer < kv.num_layers, "the layer is outside the pool");
    require(params.window >= 0, "the window is negative");
    require(kv.dtype != DataType::kInt8 || isAligned(kv.data, alignof(float)),
            "an int8 pool must lie where its f32 scales are aligned");
    require(params.num_seqs >= 1 && params.max_blocks_per_seq >= 1, "the block tables are empty");
    require(params.max_context_len >= 0 &&
                params.max_context_len <= int64_t{params.max_blocks_per_seq} * kv.block_size,
            "max_context_len is more than the block tables hold");
    require(params.num_splits >= 0, "num_splits is negative");
    require(params.mass == nullptr || params.mass_stride >= params.max_context_len,
            "mass_stride is less than the longest context");
}

inline int longestContext(const PagedAttentionParams& params) {
    if (params.max_context_len > 0) return params.max_context_len;
    return static_cast<int>(
        std::min<int64_t>(int64_t{params.max_blocks_per_seq} * params.kv.block_size, INT32_MAX));
}

// All that a call needs to know about its memory, paged or not.
struct Call {
    AttentionTask task{};
    DataType dtype = DataType::kF16;
    bool rows_are_whole = false;
    int max_context_len = 0;
    int num_splits = 0;
    AttentionVariant variant = AttentionVariant::kAuto;
    bool can_mma = true;

    AttentionPlan plan(const AttentionRegion& region, int num_multiprocessors) const {
        const int group = task.num_heads / task.num_kv_heads;
        AttentionPlan plan = attentionPlan(region.is_shared, rows_are_whole, dtype, task.head_dim,
                                           group, variant, can_mma);
        plan.num_splits =
            std::min(kAttentionMaxSplits,
                     num_splits > 0
                         ? num_splits
                         : attentionSplits(
                               plan.numThreadBlocks(region.num_rows, task.num_kv_heads),
                               window() > 0 ? std::min(window(), max_context_len) : max_context_len,
                               num_multiprocessors));
        return plan;
    }
    int window() const { return task.window; }
    int64_t bytesPerSplit(const AttentionRegion& region) const {
        return int64_t{region.num_rows} * task.num_heads * attentionPartFloats(task.head_dim) *
               static_cast<int64_t>(sizeof(float));
    }
};

inline Call pagedCall(const PagedAttentionParams& params, bool can_mma) {
    const PagedKvView& kv = params.kv;
    Call call;
    AttentionTask& task = call.task;
    const int value_bytes = dataTypeBytes(kv.dtype);
    task.query = params.query;
    task.output = params.output;
    task.key = kv.data + kv.offset(params.layer, PagedKvView::kKey, 0, 0) * value_bytes;
    task.value = kv.data + kv.offset(params.layer, PagedKvView::kValue, 0, 0) * value_bytes;
    if (kv.dtype == DataType::kInt8) {
        task.key_scales = kv.scales() + kv.rowIndex(params.layer, PagedKvView::kKey, 0, 0);
        task.value_scales = kv.scales() + kv.rowIndex(params.layer, PagedKvView::kValue, 0, 0);
    }
    task.block_tables = params.block_tables;
    task.row_to_seq = params.row_to_seq;
    task.context_lens = params.context_lens;
    task.seq_stride = params.max_blocks_per_seq;
    task.block_size = kv.block_size;
    task.block_shift = std::has_single_bit(static_cast<unsigned>(kv.block_size))
                           ? std::countr_zero(static_cast<unsigned>(kv.block_size))
                           : -1;
    task.num_heads = params.num_heads;
    task.num_kv_heads = kv.num_kv_heads;
    task.head_dim = kv.head_dim;
    task.scale = params.scale;
    task.window = params.window;
    call.dtype = kv.dtype;
    call.rows_are_whole = attentionRowsAreWhole(task.key, task.value, kv.dtype, kv.head_dim);
    call.max_context_len = longestContext(params);
    call.num_splits = params.num_splits;
    call.variant = params.variant;
    call.can_mma = can_mma;
    return call;
}

inline int64_t massStateBytes(const PagedAttentionParams& params) {
    if (params.mass == nullptr) return 0;
    const int64_t bytes =
        int64_t{params.num_rows} * params.num_heads * 2 * static_cast<int64_t>(sizeof(float));
    return (bytes + 255) / 256 * 256;
}

// Splits as far as the workspace reaches and launches kernel and merge.
template <bool kPaged>
void launchCall(Call& call,
                const AttentionRegion& region,
                std::byte* workspace,
                int64_t workspace_bytes,
                int num_multiprocessors,
                void* stream) {
    AttentionPlan plan = call.plan(region, num_multiprocessors);
    const int64_t fitting = workspace_bytes / std::max<int64_t>(1, call.bytesPerSplit(region));
    // One part is the whole, and needs no room.
    plan.num_splits = static_cast<int>(std::clamp<int64_t>(fitting, 1, plan.num_splits));
    AttentionTask& task = call.task;
    require(int64_t{task.num_kv_heads} * plan.num_slices <= 65535, "there are too many heads");
    task.first_row = region.first_row;
    task.num_rows = region.num_rows;
    task.rows_per_tile = plan.rows_per_tile;
    task.heads_per_tile = plan.heads_per_tile;
    task.num_slices = plan.num_slices;
    task.num_splits = plan.num_splits;
    task.part_outputs = reinterpret_cast<float*>(workspace);
    task.part_states = task.part_outputs +
                       int64_t{region.num_rows} * task.num_heads * plan.num_splits * task.head_dim;
    withStorageType(call.dtype, [&](auto type) {
        using T = decltype(type);
        if constexpr (kPaged || std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>) {
            launchRegion<T, kPaged>(task, plan, region.is_shared, call.rows_are_whole, stream);
        }
    });
    if (plan.num_splits > 1) {
        const dim3 grid(static_cast<unsigned>(region.num_rows),
                        static_cast<unsigned>(task.num_heads));
        KVLAB_LAUNCH_EARLY(mergePartsKernel, grid, kAttentionThreads, 0, stream, task);
    }
}

inline std::byte* workspaceOf(const ExecutionContext& context) {
    require(isAligned(context.workspace, 16), "the workspace must be aligned to 16 bytes");
    return static_cast<std::byte*>(context.workspace);
}

}  // namespace paged_attention_detail

inline int64_t pagedAttentionWorkspaceBytes(const PagedAttentionParams& params,
                                            int num_multiprocessors,
                                            bool can_mma) {
    using namespace paged_attention_detail;
    if (params.num_rows == 0) return 0;
    checkShapes(params);
    const Call call = pagedCall(params, can_mma);
    int64_t bytes = 0;
    for (const AttentionRegion& region :
         attentionRegions(params.host_row_to_seq, params.num_rows)) {
        const int num_splits = call.plan(region, num_multiprocessors).num_splits;
        if (num_splits > 1) bytes = std::max(bytes, num_splits * call.bytesPerSplit(region));
    }
    return massStateBytes(params) + bytes;
}

// Checks the shapes and launches what they need; no rows, no launch. can_mma: the device code at
// hand has fast matrix instructions (compute capability 8.0 and up).
inline void launchPagedAttention(const PagedAttentionParams& params,
                                 const ExecutionContext& context,
                                 bool can_mma) {
    using namespace paged_attention_detail;
    require(params.num_rows >= 0, "num_rows is negative");
    if (params.num_rows == 0) return;
    checkShapes(params);
    Call call = pagedCall(params, can_mma);
    std::byte* const workspace = workspaceOf(context);
    const int64_t state_bytes = massStateBytes(params);
    if (state_bytes > 0) {
        require(context.workspace_bytes >= state_bytes, "attention mass needs a workspace");
        call.task.row_states = reinterpret_cast<float*>(workspace);
    }
    for (const AttentionRegion& region :
         attentionRegions(params.host_row_to_seq, params.num_rows)) {
        launchCall<true>(call, region, workspace + state_bytes,
                         context.workspace_bytes - state_bytes, context.num_multiprocessors,
                         context.stream);
    }
    if (params.mass != nullptr) {
        call.task.first_row = 0;
        call.task.num_rows = params.num_rows;
        withStorageType(call.dtype, [&](auto type) {
            launchMass<decltype(type)>(call.task, params.mass, params.mass_stride,
                                       call.max_context_len, context.stream);
        });
    }
}

namespace paged_attention_detail {

inline Call contiguousCall(const ContiguousAttentionParams& params, bool can_mma) {
    require(params.num_seqs >= 0, "num_seqs is negative");
    require(params.query != nullptr && params.output != nullptr && params.key != nullptr &&
                params.value != nullptr && params.context_lens != nullptr,
            "a pointer is null");
    require(params.dtype == DataType::kF16 || params.dtype == DataType::kBF16,
            "contiguous K and V must be f16 or bf16");
    require(params.head_dim >= 1 && params.head_dim <= kPagedAttentionMaxHeadDim,
            "head_dim must be 1 to 256");
    require(params.num_kv_heads >= 1 && params.num_heads >= 1 && params.num_heads <= 65535 &&
                params.num_heads % params.num_kv_heads == 0,
            "num_heads must be a multiple of num_kv_heads, 65535 at most");
    require(params.max_context_len >= 1 &&
                int64_t{params.num_seqs} * params.max_context_len <= INT32_MAX,
            "max_context_len is not positive, or there are too many tokens");
    require(params.num_splits >= 0, "num_splits is negative");
    require(attentionRowsAreWhole(params.key, params.value, params.dtype, params.head_dim),
            "contiguous rows must be aligned to 16 bytes");
    Call call;
    AttentionTask& task = call.task;
    task.query = params.query;
    task.output = params.output;
    task.key = params.key;
    task.value = params.value;
    task.context_lens = params.context_lens;
    task.seq_stride = params.max_context_len;
    task.num_heads = params.num_heads;
    task.num_kv_heads = params.num_kv_heads;
    task.head_dim = params.head_dim;
    task.scale = params.scale;
    call.dtype = params.dtype;
    call.rows_are_whole = true;
    call.max_context_len = params.max_context_len;
    call.num_splits = params.num_splits;
    call.variant = params.variant;
    call.can_mma = can_mma;
    return call;
}

}  // namespace paged_attention_detail

inline int64_t contiguousAttentionWorkspaceBytes(const ContiguousAttentionParams& params,
                                                 int num_multiprocessors,
                                                 bool can_mma) {
    using namespace paged_attention_detail;
    if (params.num_seqs == 0) return 0;
    const Call call = contiguousCall(params, can_mma);
    const AttentionRegion region{0, params.num_seqs, false};
    const int num_splits = call.plan(region, num_multiprocessors).num_splits;
    return num_splits > 1 ? num_splits * call.bytesPerSplit(region) : 0;
}

inline void launchContiguousAttention(const ContiguousAttentionParams& params,
                                      const ExecutionContext& context,
                                      bool can_mma) {
    using namespace paged_attention_detail;
    if (params.num_seqs == 0) return;
    Call call = contiguousCall(params, can_mma);
    launchCall<false>(call, {0, params.num_seqs, false}, workspaceOf(context),
                      context.workspace_bytes, context.num_multiprocessors, context.stream);
}

}  // namespace kvlab
