// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/data_type.h"

namespace kvlab {

// The paged pool as kernels see it. This is the one place that names its layout:
//
//   values  [layer][K or V][block][slot in block][kv_head][head_dim]
//   scales  [layer][K or V][block][slot in block][kv_head], f32: int8 only, behind all values
//
// so that a block is one contiguous run per (layer, K or V), and one token's heads lie side by
// side. A slot index is block_id * block_size + offset; block ids are the same in every layer.
// Whoever moves a block moves its scales too.
struct PagedKvView {
    std::byte* data = nullptr;  // host or device memory, aligned as the values and scales are
    DataType dtype = DataType::kF16;
    int num_layers = 0;
    int num_blocks = 0;
    int block_size = 0;  // tokens per block
    int num_kv_heads = 0;
    int head_dim = 0;  // values per head

    static constexpr int kKey = 0;
    static constexpr int kValue = 1;

    // Index of the row (layer, K or V, slot, kv_head), which has head_dim values and, in int8, one
    // scale.
    KVLAB_HOST_DEVICE int64_t rowIndex(int layer,
                                       int key_or_value,
                                       int64_t slot,
                                       int kv_head) const {
        const int64_t num_slots = static_cast<int64_t>(num_blocks) * block_size;
        return ((static_cast<int64_t>(layer) * 2 + key_or_value) * num_slots + slot) *
                   num_kv_heads +
               kv_head;
    }
    // Index of the first value of a row, in values, not bytes.
    KVLAB_HOST_DEVICE int64_t offset(int layer, int key_or_value, int64_t slot, int kv_head) const {
        return rowIndex(layer, key_or_value, slot, kv_head) * head_dim;
    }
    KVLAB_HOST_DEVICE int64_t numRows() const {
        return static_cast<int64_t>(num_layers) * 2 * num_blocks * block_size * num_kv_heads;
    }
    KVLAB_HOST_DEVICE int64_t numValues() const { return numRows() * head_dim; }
    // The scale of row i is scales()[i]. int8 only.
    KVLAB_HOST_DEVICE float* scales() const {
        return reinterpret_cast<float*>(data + scalesBegin());
    }
    int64_t numBytes() const {
        if (dtype != DataType::kInt8) return numValues() * dataTypeBytes(dtype);
        return scalesBegin() + numRows() * static_cast<int64_t>(sizeof(float));
    }

  private:
    // In bytes: the values of an int8 pool, rounded up to where a float may lie.
    KVLAB_HOST_DEVICE int64_t scalesBegin() const { return (numValues() + 3) / 4 * 4; }
};

}  // namespace kvlab
