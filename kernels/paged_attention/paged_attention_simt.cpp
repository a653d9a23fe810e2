// SPDX-License-Identifier: MIT
#include "kernels/paged_attention/paged_attention_kernel.cuh"

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
        require(context_len >= 1 &&
                    context_len <= static_cast<int64_t>(params.max_blocks_per_seq) * kv.block_size,
                "a context is empty or longer than its block table");
        const int32_t* const table =
            params.block_tables + static_cast<int64_t>(seq_idx) * params.max_blocks_per_seq;
        const int64_t first = firstVisiblePosition(params.context_lens[r], params.window);
        for (int64_t i = first / kv.block_size; i * kv.block_size < context_len; ++i) {
            require(table[i] >= 0 && table[i] < kv.num_blocks, "a block id is outside the pool");
        }
    }
}

}  // namespace

void pagedAttentionSimt(const PagedAttentionParams& params, ExecutionContext& context) {
    if (params.num_rows > 0) {
        paged_attention_detail::checkShapes(params);
        checkTables(params);
    }
    launchPagedAttention(params, context.stream);
}

}  // namespace kvlab
