// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvlab {

// How a model shares keys and values between query heads.
enum class AttentionKind {
    kMha,  // every query head has its own
    kGqa,  // a group of query heads shares one KV head
    kMla,  // one compressed latent vector a layer (DeepSeek)
};

// Shape of a published model's KV cache. No weights are needed, so models far larger than the
// machine can be planned with.
struct ModelSpec {
    std::string slug;  // "llama-3-70b": what --model takes
    std::string name;  // "Llama-3-70B"
    AttentionKind attention = AttentionKind::kMha;
    int num_layers = 0;
    int num_heads = 0;          // query heads
    int num_kv_heads = 0;       // 0 for MLA
    int head_dim = 0;           // values per head; for MLA 0
    int latent_dim = 0;         // MLA: values cached per token and layer; else 0
    int context_len = 0;        // tokens
    int window = 0;             // tokens a local layer sees; 0: no local layers
    int num_local_layers = 0;   // layers with the window; the others see everything
    int64_t weights_bytes = 0;  // in bf16; 0: not known
    std::string source;         // where the figures come from

    int numGlobalLayers() const { return num_layers - num_local_layers; }
};

// All known models, in the order of the table (family, then size).
const std::vector<ModelSpec>& modelTable();

// nullptr: unknown.
const ModelSpec* findModelSpec(const std::string& slug);
// Throws EngineError kBadArgument that names the nearest slugs.
const ModelSpec& modelSpec(const std::string& slug);

const char* attentionKindName(AttentionKind kind);  // "MHA", "GQA", "MLA"

}  // namespace kvlab
