// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "kernels/paged_attention/paged_attention.h"

namespace kvlab {

// The value of PagedAttentionParams::output, [num_rows, num_heads, head_dim], in double precision
// and by another road: K and V of a row are first gathered through its block table into dense
// arrays, as stored (int8 times its scale), and the softmax is written out over all of them at once
// (no tiles, no running state), so that no kernel shares its mistakes. Host memory only.
// params.output is not written.
std::vector<double> attentionReference(const PagedAttentionParams& params);

// What PagedAttentionParams::mass gets, [num_seqs, num_kv_heads, mass_stride], likewise.
// params.mass is not looked at.
std::vector<double> attentionMassReference(const PagedAttentionParams& params);

// Attention over K and V that were never paged: softmax(scale * query · keyᵀ) value.
//   query [num_heads, head_dim]; key, value [num_positions, num_kv_heads, head_dim];
//   output [num_heads, head_dim]
void denseAttention(const double* query,
                    const double* key,
                    const double* value,
                    int num_positions,
                    int num_heads,
                    int num_kv_heads,
                    int head_dim,
                    double scale,
                    double* output);

}  // namespace kvlab
