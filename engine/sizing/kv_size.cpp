// SPDX-License-Identifier: MIT
#include "engine/sizing/kv_size.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <utility>

#include "engine/error.h"
#include "engine/model/utf8.h"
#include "engine/text_format.h"

namespace kvlab {
namespace {

[[noreturn]] void fail(const std::string& what) {
    throw EngineError(ErrorKind::kBadArgument, what);
}

[[noreturn]] void failTooLarge() {
    fail("these sizes give a number above 2^63, which nothing can hold; use smaller ones");
}

int64_t times(int64_t a, int64_t b) {
    int64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product)) failTooLarge();
    return product;
}

int64_t plus(int64_t a, int64_t b) {
    int64_t sum = 0;
    if (__builtin_add_overflow(a, b, &sum)) failTooLarge();
    return sum;
}

int64_t ceilDivide(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

void checkAtLeast(const char* name, int64_t value, int64_t minimum) {
    if (value < minimum) {
        fail(std::string(name) + " is " + std::to_string(value) + ", but must be at least " +
             std::to_string(minimum) + "; give more");
    }
}

std::string num(int64_t value) { return formatCount(value); }

Quantity quantity(int64_t value,
                  const char* unit,
                  std::string formula,
                  const std::string& expression) {
    return {value, unit, std::move(formula), expression + " = " + num(value)};
}

// Bytes per token of a number of layers, as a product that formulas of several functions start
// with.
struct LayerBytes {
    int64_t value = 0;   // of one layer
    std::string before;  // of the layer count: "2 · "; MLA: ""
    std::string after;   // " · H_kv · D · b"
    std::string after_numbers;
};

LayerBytes layerBytes(const KvShape& shape, KvDtype dtype) {
    LayerBytes bytes;
    const bool is_int8 = dtype == KvDtype::kInt8;
    const int64_t value_bytes = dataTypeBytes(dtype);
    static constexpr int64_t kScaleBytes = 4;  // kvRowBytes() says so too, without checks
    const bool is_latent = shape.latent_dim != 0;
    checkAtLeast("the number of layers", shape.num_layers, 1);
    checkAtLeast("the number of local layers", shape.num_local_layers, 0);
    if (shape.num_local_layers > shape.num_layers)
        fail("there are more local layers than layers; give fewer");
    if (shape.num_local_layers > 0) checkAtLeast("the window", shape.window, 1);
    if (is_latent) {
        checkAtLeast("the latent size", shape.latent_dim, 1);
    } else {
        checkAtLeast("the number of KV heads", shape.num_kv_heads, 1);
        checkAtLeast("the head size", shape.head_dim, 1);
    }
    const int64_t vector_dim = is_latent ? shape.latent_dim : shape.head_dim;
    const int64_t vector_bytes = times(vector_dim, value_bytes) + (is_int8 ? kScaleBytes : 0);
    const std::string symbol = is_latent ? "C" : "D";
    bytes.after = is_int8 ? " · (" + symbol + " + 4)" : " · " + symbol + " · b";
    bytes.after_numbers = is_int8 ? " · (" + num(vector_dim) + " + 4)"
                                  : " · " + num(vector_dim) + " · " + num(value_bytes);
    if (is_latent) {
        bytes.value = vector_bytes;
    } else {
        bytes.value = times(times(2, shape.num_kv_heads), vector_bytes);
        bytes.before = "2 · ";
        bytes.after = " · H_kv" + bytes.after;
        bytes.after_numbers = " · " + num(shape.num_kv_heads) + bytes.after_numbers;
    }
    return bytes;
}

}  // namespace

KvDtype parseKvDtype(std::string_view name) {
    if (const auto dtype = dataTypeFromName(name)) return *dtype;
    fail("there is no K/V type " + quotedForMessage(name) + "; use f32, f16, bf16 or int8");
}

KvShape KvShape::of(const ModelSpec& spec) {
    return {spec.num_layers, spec.num_kv_heads,     spec.head_dim,
            spec.latent_dim, spec.num_local_layers, spec.window};
}

KvShape KvShape::of(const ModelConfig& config) {
    KvShape shape{config.num_layers, config.num_kv_heads, config.head_dim, 0, 0, 0};
    for (const int window : config.layer_windows) {
        if (window > 0) ++shape.num_local_layers;
        shape.window = std::max(shape.window, window);
    }
    return shape;
}

Quantity kvBytesPerToken(const KvShape& shape, KvDtype dtype) {
    const LayerBytes layer = layerBytes(shape, dtype);
    return quantity(times(layer.value, shape.num_layers), "B", layer.before + "L" + layer.after,
                    layer.before + num(shape.num_layers) + layer.after_numbers);
}

Quantity kvBytesPerSequence(const KvShape& shape, KvDtype dtype, int64_t seq_len) {
    checkAtLeast("the sequence length", seq_len, 0);
    const LayerBytes layer = layerBytes(shape, dtype);
    if (shape.num_local_layers == 0) {
        return quantity(
            times(times(layer.value, shape.num_layers), seq_len), "B",
            layer.before + "L" + layer.after + " · S",
            layer.before + num(shape.num_layers) + layer.after_numbers + " · " + num(seq_len));
    }
    const int64_t num_global_layers = shape.num_layers - shape.num_local_layers;
    const int64_t local_len = std::min<int64_t>(seq_len, shape.window);
    // Tokens summed over layers.
    const int64_t layer_tokens =
        plus(times(num_global_layers, seq_len), times(shape.num_local_layers, local_len));
    const std::string local =
        num(shape.num_local_layers) + " · min(" + num(seq_len) + ", " + num(shape.window) + ")";
    const bool all_local = num_global_layers == 0;
    return quantity(
        times(layer.value, layer_tokens), "B",
        layer.before + (all_local ? "L" + layer.after + " · min(S, W)"
                                  : "(L_global · S + L_local · min(S, W))" + layer.after),
        layer.before + (all_local ? num(shape.num_layers) + layer.after_numbers + " · min(" +
                                        num(seq_len) + ", " + num(shape.window) + ")"
                                  : "(" + num(num_global_layers) + " · " + num(seq_len) + " + " +
                                        local + ")" + layer.after_numbers));
}

Quantity kvBytesTotal(const KvShape& shape, KvDtype dtype, int64_t seq_len, int64_t num_sequences) {
    checkAtLeast("the number of sequences", num_sequences, 0);
    const Quantity sequence = kvBytesPerSequence(shape, dtype, seq_len);
    return quantity(times(sequence.value, num_sequences), "B", sequence.formula + " · N",
                    num(sequence.value) + " · " + num(num_sequences));
}

Quantity kvBytesPerBlock(const KvShape& shape, KvDtype dtype, int64_t block_size) {
    checkAtLeast("the block size", block_size, 1);
    const LayerBytes layer = layerBytes(shape, dtype);
    return quantity(
        times(times(layer.value, shape.num_layers), block_size), "B",
        layer.before + "L" + layer.after + " · B",
        layer.before + num(shape.num_layers) + layer.after_numbers + " · " + num(block_size));
}

Quantity blocksForTokens(int64_t num_tokens, int64_t block_size) {
    checkAtLeast("the number of tokens", num_tokens, 0);
    checkAtLeast("the block size", block_size, 1);
    return quantity(ceilDivide(num_tokens, block_size), "blocks", "⌈S / B⌉",
                    "⌈" + num(num_tokens) + " / " + num(block_size) + "⌉");
}

SamplesSize samplesOfOnePrompt(int64_t prompt_len,
                               int64_t written_len,
                               int64_t num_samples,
                               int64_t block_size) {
    checkAtLeast("the prompt length", prompt_len, 0);
    checkAtLeast("the number of written tokens", written_len, 0);
    checkAtLeast("the number of samples", num_samples, 1);
    checkAtLeast("the block size", block_size, 1);
    const std::string p = num(prompt_len);
    const std::string g = num(written_len);
    const std::string n = num(num_samples);
    const std::string b = num(block_size);
    const int64_t full_blocks = prompt_len / block_size;
    const int64_t partial_len = prompt_len % block_size;
    // Before a sample writes, it holds the prompt's blocks with all others, the partial one too.
    const bool has_written = written_len > 0;

    SamplesSize size;
    size.tokens_held = quantity(plus(prompt_len, times(num_samples, written_len)), "tokens",
                                "P + n · G", p + " + " + n + " · " + g);
    size.tokens_unshared = quantity(times(num_samples, plus(prompt_len, written_len)), "tokens",
                                    "n · (P + G)", n + " · (" + p + " + " + g + ")");
    if (has_written) {
        size.blocks_held = quantity(
            plus(full_blocks,
                 times(num_samples, ceilDivide(plus(partial_len, written_len), block_size))),
            "blocks", "⌊P / B⌋ + n · ⌈(P mod B + G) / B⌉",
            "⌊" + p + " / " + b + "⌋ + " + n + " · ⌈(" + num(partial_len) + " + " + g + ") / " + b +
                "⌉");
    } else {
        size.blocks_held = quantity(ceilDivide(prompt_len, block_size), "blocks", "⌈P / B⌉",
                                    "⌈" + p + " / " + b + "⌉");
    }
    size.blocks_unshared =
        quantity(times(num_samples, ceilDivide(plus(prompt_len, written_len), block_size)),
                 "blocks", "n · ⌈(P + G) / B⌉", n + " · ⌈(" + p + " + " + g + ") / " + b + "⌉");

    const bool copies = has_written && partial_len != 0;
    const int64_t num_copies = copies ? num_samples - 1 : 0;
    const char* why_no_copy =
        has_written ? "0, because P mod B = 0" : "0, because no sample has written yet";
    if (copies) {
        size.copy_on_write =
            quantity(num_copies, "copies", "n − 1, because P mod B > 0", n + " − 1");
        size.tokens_copied =
            quantity(times(num_copies, partial_len), "tokens", "(n − 1) · (P mod B)",
                     "(" + n + " − 1) · " + num(partial_len));
        size.tokens_held =
            quantity(plus(size.tokens_held.value, size.tokens_copied.value), "tokens",
                     "P + n · G + (n − 1) · (P mod B)",
                     p + " + " + n + " · " + g + " + (" + n + " − 1) · " + num(partial_len));
    } else {
        size.copy_on_write = {0, "copies", why_no_copy, "0"};
        size.tokens_copied = {0, "tokens", why_no_copy, "0"};
    }
    size.slots_allocated = quantity(times(size.blocks_held.value, block_size), "slots",
                                    "blocks held · B", num(size.blocks_held.value) + " · " + b);
    size.slots_unused =
        quantity(size.slots_allocated.value - size.tokens_held.value, "slots",
                 "slots allocated − tokens held",
                 num(size.slots_allocated.value) + " − " + num(size.tokens_held.value));
    return size;
}

Capacity kvCapacity(const KvShape& shape, KvDtype dtype, const CapacityRequest& request) {
    checkAtLeast("the memory size", request.memory_bytes, 0);
    checkAtLeast("the weights' size", request.weights_bytes, 0);
    checkAtLeast("the sequence length", request.seq_len, 1);
    checkAtLeast("the shared prefix", request.shared_prefix_len, 0);
    if (!(request.utilisation > 0.0 && request.utilisation <= 1.0)) {
        fail("the utilisation must be above 0 and at most 1; give a share such as 0.9");
    }
    if (request.shared_prefix_len > request.seq_len) {
        fail("the shared prefix is longer than the sequence; make it shorter");
    }
    if (request.shared_prefix_len > 0 && shape.num_local_layers > 0) {
        throw EngineError(
            ErrorKind::kUnsupported,
            "a shared prefix cannot be planned for a model with windowed layers; leave "
            "it out");
    }
    const Quantity block_bytes = kvBytesPerBlock(shape, dtype, request.block_size);
    const std::string b = num(request.block_size);

    Capacity capacity;
    // In millionths, so that 0.9 of a round number is exact.
    const auto millionths = std::max<int64_t>(std::llround(request.utilisation * 1e6), 1);
    const auto usable =
        static_cast<int64_t>(static_cast<__int128>(request.memory_bytes) * millionths / 1000000);
    const int64_t kv_bytes = std::max<int64_t>(usable - request.weights_bytes, 0);
    std::string share = std::to_string(static_cast<double>(millionths) / 1e6);
    share.erase(share.find_last_not_of('0') + 1);
    if (share.back() == '.') share.pop_back();
    capacity.kv_bytes = quantity(kv_bytes, "B", "max(⌊memory · utilisation⌋ − weights, 0)",
                                 "max(⌊" + num(request.memory_bytes) + " · " + share + "⌋ − " +
                                     num(request.weights_bytes) + ", 0)");
    const int64_t blocks_fit = kv_bytes / block_bytes.value;
    capacity.blocks_fit = quantity(blocks_fit, "blocks", "⌊bytes for the cache / bytes per block⌋",
                                   "⌊" + num(kv_bytes) + " / " + num(block_bytes.value) + "⌋");

    const int64_t shared_blocks = request.shared_prefix_len / request.block_size;
    if (shape.num_local_layers > 0) {
        const int64_t seq_blocks = ceilDivide(request.seq_len, request.block_size);
        const int64_t window = std::max(shape.window, 2);
        const int64_t local_blocks =
            std::min(seq_blocks, ceilDivide(window - 1, request.block_size) + 1);
        const std::string seq_numbers = "⌈" + num(request.seq_len) + " / " + b + "⌉";
        const std::string local_formula = std::string("min(⌈S / B⌉, ⌈(") +
                                          (shape.window < 2 ? "max(W, 2)" : "W") +
                                          " − 1) / B⌉ + 1)";
        const int64_t num_global_layers = shape.num_layers - shape.num_local_layers;
        const int64_t layer_block_bytes = block_bytes.value / shape.num_layers;
        const int64_t sequence_bytes =
            times(layer_block_bytes, plus(times(num_global_layers, seq_blocks),
                                          times(shape.num_local_layers, local_blocks)));
        if (num_global_layers == 0) {
            capacity.blocks_per_sequence =
                quantity(local_blocks, "blocks", local_formula,
                         "min(" + seq_numbers + ", ⌈(" + num(window) + " − 1) / " + b + "⌉ + 1)");
            capacity.sequences_fit = quantity(
                blocks_fit / local_blocks, "sequences", "⌊blocks that fit / blocks per sequence⌋",
                "⌊" + num(blocks_fit) + " / " + num(local_blocks) + "⌋");
            return capacity;
        }
        capacity.blocks_per_sequence = quantity(seq_blocks, "blocks", "⌈S / B⌉", seq_numbers);
        capacity.sequences_fit =
            quantity(kv_bytes / sequence_bytes, "sequences",
                     "⌊bytes for the cache / (bytes per layer and block · (L_global · ⌈S / B⌉ + "
                     "L_local · " +
                         local_formula + "))⌋",
                     "⌊" + num(kv_bytes) + " / (" + num(layer_block_bytes) + " · (" +
                         num(num_global_layers) + " · " + num(seq_blocks) + " + " +
                         num(shape.num_local_layers) + " · " + num(local_blocks) + "))⌋");
        return capacity;
    }
    const bool shares = shared_blocks > 0;
    const int64_t own_len = request.seq_len - shared_blocks * request.block_size;
    const int64_t own_blocks = ceilDivide(own_len, request.block_size);
    const std::string shared_text = num(shared_blocks);
    capacity.blocks_per_sequence = quantity(
        own_blocks, "blocks", shares ? "⌈(S − ⌊P / B⌋ · B) / B⌉" : "⌈S / B⌉",
        shares ? "⌈(" + num(request.seq_len) + " − " + shared_text + " · " + b + ") / " + b + "⌉"
               : "⌈" + num(request.seq_len) + " / " + b + "⌉");
    if (own_blocks == 0) {
        fail(
            "all tokens lie in shared blocks, so any number of sequences fits; give each one of "
            "its own");
    }
    capacity.sequences_fit =
        shares ? quantity(std::max<int64_t>(blocks_fit - shared_blocks, 0) / own_blocks,
                          "sequences", "⌊max(blocks that fit − ⌊P / B⌋, 0) / blocks per sequence⌋",
                          "⌊max(" + num(blocks_fit) + " − " + shared_text + ", 0) / " +
                              num(own_blocks) + "⌋")
               : quantity(blocks_fit / own_blocks, "sequences",
                          "⌊blocks that fit / blocks per sequence⌋",
                          "⌊" + num(blocks_fit) + " / " + num(own_blocks) + "⌋");
    return capacity;
}

int64_t parseByteSize(std::string_view text) {
    const std::string shown = quotedForMessage(text);
    const auto isDigit = [](char c) { return c >= '0' && c <= '9'; };
    size_t pos = 0;
    int64_t whole = 0;
    while (pos < text.size() && isDigit(text[pos])) {
        whole = plus(times(whole, 10), text[pos++] - '0');
    }
    bool has_digits = pos > 0;
    int64_t fraction = 0;
    int64_t fraction_scale = 1;
    if (pos < text.size() && text[pos] == '.') {
        ++pos;
        has_digits = has_digits && pos < text.size() && isDigit(text[pos]);
        for (; pos < text.size() && isDigit(text[pos]); ++pos) {
            if (fraction_scale == 1000000000) continue;  // finer than any byte of a TiB matters
            fraction = fraction * 10 + (text[pos] - '0');
            fraction_scale *= 10;
        }
    }
    while (pos < text.size() && text[pos] == ' ') ++pos;
    std::string unit(text.substr(pos));
    for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    struct Unit {
        std::string_view name;
        int64_t bytes;
    };
    static constexpr std::array<Unit, 10> kUnits{{{"", 1},
                                                  {"b", 1},
                                                  {"kb", 1000},
                                                  {"mb", 1000000},
                                                  {"gb", 1000000000},
                                                  {"tb", 1000000000000},
                                                  {"kib", int64_t{1} << 10},
                                                  {"mib", int64_t{1} << 20},
                                                  {"gib", int64_t{1} << 30},
                                                  {"tib", int64_t{1} << 40}}};
    for (const Unit& known : kUnits) {
        if (!has_digits || unit != known.name) continue;
        const auto part =
            static_cast<int64_t>(static_cast<__int128>(fraction) * known.bytes / fraction_scale);
        return plus(times(whole, known.bytes), part);
    }
    fail(shown +
         " is no memory size; write a number with B, KB, MB, GB, TB (powers of 1000) or KiB, "
         "MiB, GiB, TiB (powers of 1024), such as 80GB");
}

}  // namespace kvlab
