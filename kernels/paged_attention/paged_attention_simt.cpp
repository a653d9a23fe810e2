// SPDX-License-Identifier: MIT
#include <memory>

#include "kernels/paged_attention/attention_walk.h"
#include "kernels/paged_attention/paged_attention_launch.cuh"

namespace kvlab {
namespace {

// The pointers are host memory here, so their contents can be checked too: a wrong id would read
// somewhere in this process.
void checkTables(const PagedAttentionParams& params) {
    using paged_attention_detail::require;
    const PagedKvView& kv = params.kv;
    for (int r = 0; r < params.num_rows; ++r) {
        const int seq_idx = params.row_to_seq[r];
        require(seq_idx >= 0 && seq_idx < params.num_seqs, "a row names no sequence");
        const int64_t context_len = params.context_lens[r];
        require(context_len >= 1 && context_len <= paged_attention_detail::longestContext(params),
                "a context is empty, longer than its block table or than max_context_len");
        require(params.mass == nullptr || context_len <= params.mass_stride,
                "a context is longer than mass_stride");
        const int32_t* const table =
            params.block_tables + static_cast<int64_t>(seq_idx) * params.max_blocks_per_seq;
        const int64_t first = firstVisiblePosition(params.context_lens[r], params.window);
        for (int64_t i = first / kv.block_size; i * kv.block_size < context_len; ++i) {
            require(table[i] >= 0 && table[i] < kv.num_blocks, "a block id is outside the pool");
        }
    }
}

// The context's workspace, or one of that size that lives as long as this.
class Workspace {
  public:
    Workspace(const ExecutionContext& context, int64_t num_bytes) : context_(context) {
        if (context_.workspace != nullptr || num_bytes == 0) return;
        // 0xff: a NaN where a kernel would read what it has not written.
        values_ = std::make_unique<float[]>(static_cast<size_t>(num_bytes / 4));
        std::memset(values_.get(), 0xff, static_cast<size_t>(num_bytes));
        context_.workspace = values_.get();
        context_.workspace_bytes = num_bytes;
    }
    const ExecutionContext& context() const { return context_; }

  private:
    ExecutionContext context_;
    std::unique_ptr<float[]> values_;
};

}  // namespace

void pagedAttentionSimt(const PagedAttentionParams& given, ExecutionContext& context) {
    PagedAttentionParams params = given;
    if (params.host_row_to_seq == nullptr) params.host_row_to_seq = params.row_to_seq;
    if (params.num_rows > 0) {
        paged_attention_detail::checkShapes(params);
        checkTables(params);
    }
    const int64_t num_bytes = params.num_rows > 0 ? pagedAttentionWorkspaceBytes(
                                                        params, context.num_multiprocessors, true)
                                                  : 0;
    const Workspace workspace(context, num_bytes);
    AttentionTap* const tap = context.attention_tap;
    if (tap == nullptr || params.num_rows == 0 || !tap->wants(params.layer)) {
        launchPagedAttention(params, workspace.context(), true);
        return;
    }
    std::vector<simt::LaunchRecord> records;
    {
        const simt::ScopedRecorder recorder(&records);
        launchPagedAttention(params, workspace.context(), true);
    }
    AttentionWalk walk;
    walk.layer = params.layer;
    walk.block_size = params.kv.block_size;
    walk.num_kv_heads = params.kv.num_kv_heads;
    walk.row_bytes = kvRowBytes(params.kv.dtype, params.kv.head_dim);
    addAttentionLaunches(records, walk);
    tap->on_walk(std::move(walk));
}

int64_t pagedAttentionWorkspaceBytes(const PagedAttentionParams& params, int num_multiprocessors) {
    return pagedAttentionWorkspaceBytes(params, num_multiprocessors, true);
}

void contiguousAttentionSimt(const ContiguousAttentionParams& params, ExecutionContext& context) {
    for (int s = 0; s < params.num_seqs; ++s) {
        paged_attention_detail::require(
            params.context_lens[s] >= 1 && params.context_lens[s] <= params.max_context_len,
            "a context is empty or longer than max_context_len");
    }
    const Workspace workspace(
        context, contiguousAttentionWorkspaceBytes(params, context.num_multiprocessors, true));
    launchContiguousAttention(params, workspace.context(), true);
}

int64_t contiguousAttentionWorkspaceBytes(const ContiguousAttentionParams& params,
                                          int num_multiprocessors) {
    return contiguousAttentionWorkspaceBytes(params, num_multiprocessors, true);
}

}  // namespace kvlab
