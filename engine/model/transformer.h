// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/model/weights.h"

namespace kvlab {

// What one step runs: rows of any number of sequences, decode and prefill mixed.
struct StepBatch {
    std::vector<int32_t> token_ids;  // [num_tokens]
    std::vector<int32_t> positions;  // [num_tokens], place in the sequence
    // [num_planes or 1, num_tokens], slot of each new K/V row; plane_stride 0: one row serves all
    // planes.
    std::vector<int32_t> slot_mapping;
    int64_t plane_stride = 0;
    std::vector<int32_t> block_tables;  // [num_seqs, max_blocks_per_seq]
    int max_blocks_per_seq = 0;
    int num_seqs = 0;
    std::vector<int32_t> row_to_seq;    // [num_tokens]
    std::vector<int32_t> context_lens;  // [num_tokens], own token included
    std::vector<int32_t> logit_rows;    // rows whose logits are wanted, ascending

    int numTokens() const { return static_cast<int>(token_ids.size()); }
};

// The one forward pass of a decoder of the llama or qwen2 architecture: RMSNorm, GQA with RoPE over
// the paged pool, SwiGLU. Any ratio of query to KV heads, tied or untied head, weights of any
// TensorType, biases on Q, K and V.
class Transformer {
  public:
    Transformer(std::shared_ptr<const ModelWeights> weights, Backend& backend);

    // Writes K/V of all rows to `kv` (slot mapping), attends through the block tables, and returns
    // logits [logit_rows.size(), vocab_size]: readable after the backend's endStep, until the next
    // call.
    const float* forward(const StepBatch& batch, const PagedKvView& kv);

    const ModelConfig& config() const { return weights_->config; }

  private:
    // Activations, which only grow: on a device their addresses are part of what is recorded.
    struct Buffer {
        Backend::Memory memory;
        int64_t num_values = 0;
        float* data() const { return reinterpret_cast<float*>(memory.get()); }
    };
    // A step's arrays where the operations read them.
    struct Arrays {
        const int32_t* token_ids;
        const int32_t* positions;
        const int32_t* slot_mapping;
        const int32_t* block_tables;
        const int32_t* row_to_seq;
        const int32_t* context_lens;
        const int32_t* logit_rows;
    };

    WeightMatrix moved(const WeightMatrix& matrix);
    const float* widened(const WeightMatrix& vector);
    void grow(Buffer& buffer, int64_t num_values);
    void run(const StepBatch& batch, const Arrays& arrays, const PagedKvView& kv);

    std::shared_ptr<const ModelWeights> weights_;
    Backend& backend_;
    std::vector<std::vector<float>> widened_norms_;
    std::vector<Backend::Memory> residents_;
    // Where the operations read them; the norms as f32: two per layer, then the last.
    WeightMatrix token_embedding_, output_;
    std::vector<LayerWeights> layers_;
    std::vector<const float*> norms_;
    const float* rope_divisors_ = nullptr;
    Buffer hidden_, normed_, query_, key_, value_, attention_, gate_, up_, logits_;
};

}  // namespace kvlab
