// SPDX-License-Identifier: MIT
#include "engine/sizing/model_table.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "engine/error.h"
#include "engine/model/utf8.h"

namespace kvlab {
namespace {

constexpr AttentionKind kMha = AttentionKind::kMha;
constexpr AttentionKind kGqa = AttentionKind::kGqa;

ModelSpec heads(const char* slug,
                const char* name,
                AttentionKind attention,
                int num_layers,
                int num_heads,
                int num_kv_heads,
                int head_dim,
                int context_len,
                int64_t weights_bytes,
                const char* source) {
    ModelSpec spec;
    spec.slug = slug;
    spec.name = name;
    spec.attention = attention;
    spec.num_layers = num_layers;
    spec.num_heads = num_heads;
    spec.num_kv_heads = num_kv_heads;
    spec.head_dim = head_dim;
    spec.context_len = context_len;
    spec.weights_bytes = weights_bytes;
    spec.source = source;
    return spec;
}

ModelSpec windowed(ModelSpec spec, int window, int num_local_layers) {
    spec.window = window;
    spec.num_local_layers = num_local_layers;
    return spec;
}

ModelSpec latent(const char* slug,
                 const char* name,
                 int num_layers,
                 int num_heads,
                 int latent_dim,
                 int context_len,
                 const char* source) {
    ModelSpec spec =
        heads(slug, name, AttentionKind::kMla, num_layers, num_heads, 0, 0, context_len, 0, source);
    spec.latent_dim = latent_dim;
    return spec;
}

// Weights in bf16 are 2 bytes times the parameters counted from the published shape.
std::vector<ModelSpec> makeTable() {
    constexpr const char* kLlama1 = "Touvron et al. 2023, arXiv 2302.13971, table 2";
    constexpr const char* kLlama2 = "meta-llama, config.json of the Llama-2 models";
    constexpr const char* kLlama3 = "meta-llama, config.json of the Llama-3 models";
    constexpr const char* kLlama31 = "meta-llama, config.json of the Llama-3.1 models";
    constexpr const char* kMistral = "mistralai, config.json of the Mistral and Mixtral models";
    constexpr const char* kQwen = "Qwen, config.json of the models";
    constexpr const char* kSmol = "HuggingFaceTB, config.json of the SmolLM2 models";
    return {
        heads("llama-1-65b", "LLaMA-1-65B", kMha, 80, 64, 64, 128, 2048, 130571321344, kLlama1),
        heads("llama-2-7b", "Llama-2-7B", kMha, 32, 32, 32, 128, 4096, 13476831232, kLlama2),
        heads("llama-2-13b", "Llama-2-13B", kMha, 40, 40, 40, 128, 4096, 26031728640, kLlama2),
        heads("llama-2-70b", "Llama-2-70B", kGqa, 80, 64, 8, 128, 4096, 137953296384, kLlama2),
        heads("llama-3-8b", "Llama-3-8B", kGqa, 32, 32, 8, 128, 8192, 16060522496, kLlama3),
        heads("llama-3-70b", "Llama-3-70B", kGqa, 80, 64, 8, 128, 8192, 141107412992, kLlama3),
        heads("llama-3.1-8b", "Llama-3.1-8B", kGqa, 32, 32, 8, 128, 131072, 16060522496, kLlama31),
        heads("llama-3.1-70b", "Llama-3.1-70B", kGqa, 80, 64, 8, 128, 131072, 141107412992,
              kLlama31),
        heads("llama-3.1-405b", "Llama-3.1-405B", kGqa, 126, 128, 8, 128, 131072, 811706777600,
              kLlama31),
        heads("llama-3.2-1b", "Llama-3.2-1B", kGqa, 16, 32, 8, 64, 131072, 2471628800,
              "meta-llama, config.json of Llama-3.2-1B"),
        windowed(heads("mistral-7b-v0.1", "Mistral-7B v0.1", kGqa, 32, 32, 8, 128, 32768,
                       14483464192, kMistral),
                 4096, 32),
        heads("mistral-7b-v0.3", "Mistral-7B v0.3", kGqa, 32, 32, 8, 128, 32768, 14496047104,
              kMistral),
        heads("mixtral-8x7b", "Mixtral-8x7B", kGqa, 32, 32, 8, 128, 32768, 93405585408, kMistral),
        heads("mixtral-8x22b", "Mixtral-8x22B", kGqa, 56, 48, 8, 128, 65536, 281241268224,
              kMistral),
        heads("qwen2.5-0.5b", "Qwen2.5-0.5B", kGqa, 24, 14, 2, 64, 32768, 988065536, kQwen),
        heads("qwen2.5-7b", "Qwen2.5-7B", kGqa, 28, 28, 4, 128, 131072, 15231233024, kQwen),
        heads("qwen2.5-72b", "Qwen2.5-72B", kGqa, 80, 64, 8, 128, 131072, 145412407296, kQwen),
        heads("qwen3-0.6b", "Qwen3-0.6B", kGqa, 28, 16, 8, 128, 40960, 1192099840, kQwen),
        windowed(heads("gemma-2-9b", "Gemma-2-9B", kGqa, 42, 16, 8, 256, 8192, 18483411968,
                       "google, config.json of gemma-2-9b: every other layer has the window"),
                 4096, 21),
        windowed(heads("gemma-3-4b", "Gemma-3-4B", kGqa, 34, 8, 4, 256, 131072, 0,
                       "google, config.json of gemma-3-4b: every sixth layer is global"),
                 1024, 29),
        heads("phi-3-mini", "Phi-3-mini", kMha, 32, 32, 32, 96, 4096, 7642159104,
              "microsoft, config.json of Phi-3-mini-4k-instruct"),
        heads("phi-3-mini-128k", "Phi-3-mini 128K", kMha, 32, 32, 32, 96, 131072, 7642159104,
              "microsoft, config.json of Phi-3-mini-128k-instruct"),
        latent("deepseek-v2", "DeepSeek-V2", 60, 128, 512 + 64, 131072,
               "deepseek-ai, config.json of DeepSeek-V2: kv_lora_rank + qk_rope_head_dim"),
        latent("deepseek-v3", "DeepSeek-V3", 61, 128, 512 + 64, 131072,
               "deepseek-ai, config.json of DeepSeek-V3: kv_lora_rank + qk_rope_head_dim"),
        heads("tinyllama-1.1b", "TinyLlama-1.1B", kGqa, 22, 32, 4, 64, 2048, 2200096768,
              "TinyLlama, config.json of TinyLlama-1.1B"),
        heads("smollm2-135m", "SmolLM2-135M", kGqa, 30, 9, 3, 64, 8192, 269030016, kSmol),
        heads("smollm2-360m", "SmolLM2-360M", kGqa, 32, 15, 5, 64, 8192, 723642240, kSmol),
        heads("smollm2-1.7b", "SmolLM2-1.7B", kMha, 24, 32, 32, 64, 8192, 3422752768, kSmol),
        heads("opt-13b", "OPT-13B", kMha, 40, 40, 40, 128, 2048, 0,
              "Zhang et al. 2022, arXiv 2205.01068, table 1"),
    };
}

// Edits (insert, remove, replace one character) that turn `a` into `b`.
size_t editDistance(std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row[b.size()];
}

}  // namespace

const std::vector<ModelSpec>& modelTable() {
    static const std::vector<ModelSpec> table = makeTable();
    return table;
}

const ModelSpec* findModelSpec(const std::string& slug) {
    for (const ModelSpec& spec : modelTable()) {
        if (spec.slug == slug) return &spec;
    }
    return nullptr;
}

const ModelSpec& modelSpec(const std::string& slug) {
    if (const ModelSpec* spec = findModelSpec(slug)) return *spec;
    std::vector<std::pair<size_t, std::string>> nearest;
    const std::string_view start = std::string_view(slug).substr(0, 40);
    for (const ModelSpec& spec : modelTable()) {
        nearest.emplace_back(editDistance(start, spec.slug), spec.slug);
    }
    std::stable_sort(nearest.begin(), nearest.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    throw EngineError(ErrorKind::kBadArgument, "the model " + quotedForMessage(slug) +
                                                   " is not in the table; did you mean " +
                                                   nearest[0].second + ", " + nearest[1].second +
                                                   " or " + nearest[2].second + "?");
}

const char* attentionKindName(AttentionKind kind) {
    switch (kind) {
        case AttentionKind::kMha:
            return "MHA";
        case AttentionKind::kGqa:
            return "GQA";
        case AttentionKind::kMla:
            return "MLA";
    }
    return "?";
}

}  // namespace kvlab
