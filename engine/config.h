// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/data_type.h"
#include "kernels/rope/rope.h"

namespace kvlab {

struct KernelWalkListener;

// Shape of a Llama-architecture decoder; read from the model file, never guessed.
struct ModelConfig {
    std::string name;           // general.name of the file
    std::string architecture;   // "llama", "mistral" (the same under another name), "qwen2"
    int num_layers = 0;         // transformer blocks
    int num_heads = 0;          // query heads per layer
    int num_kv_heads = 0;       // key/value heads per layer; divides num_heads
    int head_dim = 0;           // values per head
    int rope_dim = 0;           // leading values of a head that rotate; <= head_dim, even
    int embedding_dim = 0;      // values per token between layers
    int feed_forward_dim = 0;   // hidden values of the SwiGLU
    int vocab_size = 0;         // tokens
    int context_len = 0;        // tokens the model was trained on
    float rope_base = 10000.f;  // RoPE theta
    float rms_epsilon = 1e-5f;
    RopeStyle rope_style = RopeStyle::kInterleaved;
    float rope_scale = 1.f;            // linear scaling: positions times this, 1 / factor
    std::vector<float> rope_divisors;  // [rope_dim / 2] of the frequencies (Llama 3.1); empty: 1
    bool has_attention_bias = false;   // Q, K and V have biases (qwen2)
    bool tied_output = false;          // the head is the token embedding
    // Tokens that each layer sees, own token included; 0: all. Empty: all layers see everything.
    std::vector<int> layer_windows;

    int window(int layer) const {
        return layer_windows.empty() ? 0 : layer_windows[static_cast<size_t>(layer)];
    }

    // The window when it is the same in every layer; 0 otherwise.
    int uniformWindow() const {
        const auto same = [&](int w) { return w == layer_windows.front(); };
        return !layer_windows.empty() &&
                       std::all_of(layer_windows.begin(), layer_windows.end(), same)
                   ? layer_windows.front()
                   : 0;
    }

    // A plane is one (layer, KV head); DESIGN.md section 3.
    int numPlanes() const { return num_layers * num_kv_heads; }
    // Bytes of K and V of one token in one layer, the scales of int8 included.
    int64_t kvBytesPerLayer(DataType kv_dtype) const {
        return int64_t{2} * num_kv_heads * kvRowBytes(kv_dtype, head_dim);
    }
    // Over all layers.
    int64_t kvBytesPerToken(DataType kv_dtype) const {
        return num_layers * kvBytesPerLayer(kv_dtype);
    }
};

// How a sequence gets its blocks. Paged: one by one, as they fill. Slab: a contiguous run for
// max_len tokens at admission, first fit; no sharing. Same pool, same kernels.
enum class CacheLayout : uint8_t { kPaged, kSlab };

// What becomes of a sequence whose blocks another one needs.
enum class PreemptionKind : uint8_t { kNone, kRecompute, kSwap };

// Blocks that hold num_tokens tokens.
constexpr int64_t blocksFor(int64_t num_tokens, int block_size) {
    return (num_tokens + block_size - 1) / block_size;
}

// Size of the paged pool.
struct CacheConfig {
    int block_size = 16;                 // tokens per block, 1 … 256
    int num_blocks = 0;                  // blocks in the pool
    DataType kv_dtype = DataType::kF16;  // storage type of K and V
    int num_host_blocks = 0;             // blocks of the host pool, for swapped-out sequences
    CacheLayout layout = CacheLayout::kPaged;
    int max_len = 0;  // tokens that a slab is cut for; slab only
    // Slab: each is cut for its own request's prompt and tokens to generate instead of max_len, so
    // runs differ in length and free blocks may lie in pieces too short for anyone.
    bool slab_per_request = false;
    // The model's uniform sliding window; the engine sets it. Paged tables give back the blocks
    // that have left it. 0: every layer sees everything, or the layers differ (they only mask).
    int window = 0;

    bool slabsHaveOneLength() const { return layout == CacheLayout::kSlab && !slab_per_request; }
    // Blocks of the run of a sequence that grows to `longest` tokens at most.
    int64_t runBlocks(int64_t longest) const {
        return blocksFor(slab_per_request ? longest : max_len, block_size);
    }

    bool freesLeftBlocks() const { return window > 0 && layout == CacheLayout::kPaged; }
    // Leading blocks that no token from position kv_len on sees. The last block always stays, so
    // that a table that holds tokens is never without a block.
    int blocksLeft(int kv_len) const {
        return freesLeftBlocks() ? std::max(0, kv_len + 1 - std::max(window, 2)) / block_size : 0;
    }
    // Most blocks that a table holds at a time while it grows to num_tokens tokens, at most `chunk`
    // of them in a step.
    int64_t mostBlocks(int64_t num_tokens, int64_t chunk = 1) const {
        const int64_t all = blocksFor(num_tokens, block_size);
        if (!freesLeftBlocks()) return all;
        // The first of window - 1 + chunk tokens may be the last one of its block.
        return std::min(all, blocksFor(std::max(window, 2) - 2 + chunk, block_size) + 1);
    }
};

struct EngineConfig {
    CacheConfig cache;
    int token_budget = 512;  // tokens of one step, decode rows first, then prefill chunks
    int num_threads = 0;     // CPU threads; 0: one per core
    // cpu | cuda | simt, or auto: cuda if a GPU is there and takes the model and the pool, else
    // cpu.
    std::string backend = "auto";
    // With "cuda": go on on the CPU when the GPU cannot be used or fails in the middle of a run, as
    // `auto` does.
    bool cpu_fallback = false;
    // Told why the CPU took over from a GPU, at the start or in the middle of a run: one sentence.
    std::function<void(const std::string& why)> on_fallback;
    // Of a simt run: what its attention launches read (kernel_walk.h). Null: nothing is recorded.
    std::shared_ptr<const KernelWalkListener> kernel_walks;
    // kSwap falls back to recompute while the host pool is full.
    PreemptionKind preempt = PreemptionKind::kRecompute;
    // Share of the pool that admission leaves free, so that running sequences can grow before the
    // next preemption. vLLM's figure.
    double watermark = 0.01;
    // Texts of sequences that left stay in state(), and requests keep each token's time. Runs of
    // many requests switch it off.
    bool keep_history = true;
};

// How the next token is chosen.
struct SamplingParams {
    float temperature = 0.f;  // 0: greedy
    int top_k = 0;            // 0: all tokens
    float top_p = 1.f;        // smallest set of tokens whose probability reaches top_p
    uint64_t seed = 0;        // random numbers depend on (seed, sample index, position) only
};

}  // namespace kvlab
