// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace kvlab {

// How a byte-level vocabulary cuts text before it merges: no token spans two pieces. Each rule is
// the regular expression that its model's tokenizer.json publishes, with \p{L}, \p{N} and \s of
// Unicode 16.0. Qwen 2's is to be given normalised text (nfc.h).
enum class PreTokenizer {
    // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
    kGpt2,
    // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
    // |\s*[\r\n]+|\s+(?!\S)|\s+
    kLlama3,
    // Llama 3's with \p{N} for \p{N}{1,3}.
    kQwen2,
    // First every \p{N} stands alone, then GPT-2's on what lies between.
    kSmolLm,
};

// The rule that tokenizer.ggml.pre names: "llama-bpe" (also "llama3", "llama-v3"), "qwen2",
// "smollm", "gpt-2", and "default" for GPT-2's; nullopt: not supported.
std::optional<PreTokenizer> preTokenizerByName(std::string_view name);

// Bytes of the piece that `text` starts with; 0 only for empty text. The rules look ahead but never
// back, so a text is cut by calling this on what remains. One call reads at most one character past
// the piece, and white space up to its run's end: linear over a text.
size_t firstPieceBytes(PreTokenizer rule, std::string_view text);

}  // namespace kvlab
