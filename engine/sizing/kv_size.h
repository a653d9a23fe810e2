// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/config.h"
#include "engine/sizing/model_table.h"

// The one place that computes the size of a KV cache. Window, command line, lessons and exports
// call these functions and show the formula that comes with each number.
//
// Symbols: L layers, H_kv KV heads, D values per head, C latent values (MLA), b bytes per value, S
// tokens of a sequence, W window, L_local layers with the window, L_global the others, N sequences,
// B tokens per block, P prompt tokens, G tokens written after the prompt, n samples.
//
// All functions throw EngineError kBadArgument for a negative or impossible input and for a result
// beyond 2^63 - 1.
namespace kvlab {

struct Quantity {
    int64_t value = 0;
    std::string unit;         // "B", "tokens", "blocks", "slots", "sequences", "copies"
    std::string formula;      // "2 · L · H_kv · D · b"
    std::string substituted;  // "2 · 80 · 8 · 128 · 2 = 327,680"
};

// Storage type of K and V; kInt8 keeps one f32 scale per token and plane, for K and for V.
using KvDtype = DataType;
// "f32", "f16", "bf16", "int8"; anything else is refused by name.
KvDtype parseKvDtype(std::string_view name);

// What decides a model's KV size; heads (num_kv_heads, head_dim) or MLA (latent_dim).
struct KvShape {
    int num_layers = 0;
    int num_kv_heads = 0;
    int head_dim = 0;
    int latent_dim = 0;
    int num_local_layers = 0;
    int window = 0;

    static KvShape of(const ModelSpec& spec);
    static KvShape of(const ModelConfig& config);
};

// Bytes that one token adds while every layer still holds it: 2 · L · H_kv · D · b; int8: 2 · L ·
// H_kv · (D + 4); MLA: L · C · b.
Quantity kvBytesPerToken(const KvShape& shape, KvDtype dtype);
// Bytes of one sequence of `seq_len` tokens; a local layer holds at most its window.
Quantity kvBytesPerSequence(const KvShape& shape, KvDtype dtype, int64_t seq_len);
// Bytes of `num_sequences` such sequences that share nothing.
Quantity kvBytesTotal(const KvShape& shape, KvDtype dtype, int64_t seq_len, int64_t num_sequences);
// Bytes of one block: `block_size` tokens over all layers.
Quantity kvBytesPerBlock(const KvShape& shape, KvDtype dtype, int64_t block_size);
// Blocks that hold `num_tokens` tokens: ceil(S / B).
Quantity blocksForTokens(int64_t num_tokens, int64_t block_size);

// `n` samples of one prompt, with and without sharing its blocks, once every sample has written G
// tokens. A sampled token counts as written when it has been fed back: a run that printed 101
// tokens of a sample holds G = 100. Always tokens_held + slots_unused = slots_allocated.
struct SamplesSize {
    Quantity tokens_held;      // slots with K/V: P + n · G, and the copied tokens
    Quantity tokens_unshared;  // without sharing: n · (P + G)
    Quantity blocks_held;      // the prompt's full blocks once, its last partial block n times
    Quantity blocks_unshared;  // n · ceil((P + G) / B)
    Quantity copy_on_write;  // block copies: all samples but the last to write copy a partial block
    Quantity tokens_copied;  // prompt tokens that those copies duplicate
    Quantity slots_allocated;  // blocks_held · B
    Quantity slots_unused;     // allocated, with no K/V in them
};
SamplesSize samplesOfOnePrompt(int64_t prompt_len,
                               int64_t written_len,
                               int64_t num_samples,
                               int64_t block_size);

struct CapacityRequest {
    int64_t memory_bytes = 0;       // of the device
    double utilisation = 0.9;       // share of it that may be used; 0 < u <= 1, to six decimals
    int64_t weights_bytes = 0;      // taken before the cache
    int64_t block_size = 16;        // tokens
    int64_t seq_len = 0;            // tokens of each sequence, at least 1
    int64_t shared_prefix_len = 0;  // leading tokens that all sequences have in common
};

struct Capacity {
    Quantity kv_bytes;             // left for the cache; 0 when the weights alone do not fit
    Quantity blocks_fit;           // whole blocks in kv_bytes
    Quantity blocks_per_sequence;  // that each sequence needs for itself, over all layers
    // Whole sequences. A shared prefix counts with its full blocks, once. Windowed models: a local
    // layer holds the blocks of its window, at most ⌈(W − 1) / B⌉ + 1 of them, since W tokens may
    // begin with the last one of a block (CacheConfig::mostBlocks); W = 1 counts as 2, because the
    // last block always stays. Where only some layers have a window, blocks are assumed to be
    // allotted layer by layer; this engine's serve all layers, and it holds ⌈S / B⌉ there.
    Quantity sequences_fit;
};
// Throws kUnsupported for a shared prefix in a windowed model (its local layers drop the prefix).
Capacity kvCapacity(const KvShape& shape, KvDtype dtype, const CapacityRequest& request);

// "80GB" → 80 · 10^9, "1.5GiB" → 1.5 · 2^30, "4096" and "4096 B" → bytes. KB MB GB TB are powers of
// 1000, KiB MiB GiB TiB of 1024; upper or lower case; a fraction is rounded down to a byte.
int64_t parseByteSize(std::string_view text);

}  // namespace kvlab
