// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "engine/ids.h"
#include "engine/model/gguf.h"
#include "engine/model/gguf_writer.h"

namespace kvlab {

constexpr int32_t kNoToken = -1;
// Longer than any published piece by far; bounds the work of one look-up.
constexpr size_t kMaxPieceBytes = 1024;

// Throws kBadFile: "the vocabulary of FILE is not usable: WHAT; export the model again".
[[noreturn]] void failVocabulary(const GgufFile& file, const std::string& what);

// nullptr: the key is missing. Throws kBadFile where its value is no such array.
template <class T>
const std::vector<T>* findArray(const GgufFile& file, const std::string& key) {
    const auto found = file.metadata().find(key);
    if (found == file.metadata().end()) return nullptr;
    const auto* values = std::get_if<std::vector<T>>(&found->second);
    if (values == nullptr) failVocabulary(file, key + " is not an array of the expected kind");
    return values;
}

// What tokenizers of both kinds read from tokenizer.ggml.*; one entry a token in the vectors.
struct Vocabulary {
    std::vector<std::string> raw_pieces;  // as the file spells them
    std::vector<std::string> texts;       // bytes a token adds to the text; the encoder fills them
    std::vector<TokenType> types;
    int32_t unknown = kNoToken;
    TokenId bos;
    TokenId eos;
    TokenId eot;  // end of a chat turn, where it is another token than eos
    bool adds_bos = false;
    bool adds_eos = false;
    bool adds_space_prefix = false;
    std::string chat_template;  // Jinja source; "": none

    // Meanings of missing keys, which differ between the kinds.
    struct Defaults {
        int32_t unknown = kNoToken;
        int32_t bos = kNoToken;
        int32_t eos = kNoToken;
        bool adds_bos = false;
        bool adds_space_prefix = false;
    };
    // All but `texts`. Throws kBadFile.
    static Vocabulary read(const GgufFile& file, const Defaults& defaults);

    bool isControl(int32_t token) const {
        return types[static_cast<size_t>(token)] == TokenType::kControl;
    }
    // "token 5 ("abc")", for error sentences.
    std::string shown(int32_t token) const;
};

// The byte that a "<0xHH>" piece spells; -1: it is no such piece.
int byteOfPiece(std::string_view piece);

// Longest-match look-up of whole pieces, byte by byte.
class PieceTrie {
  public:
    // The first of equal pieces counts. `piece` is not empty.
    void add(std::string_view piece, int32_t token);
    bool empty() const { return ends_.empty(); }
    struct Match {
        size_t num_bytes = 0;  // 0: no piece starts here
        int32_t token = kNoToken;
    };
    // The longest piece that `text` starts with.
    Match longestMatch(std::string_view text) const;

  private:
    static uint64_t keyOf(uint32_t node, char c) {
        return (uint64_t{node} << 8) | static_cast<uint8_t>(c);
    }
    uint32_t num_nodes_ = 1;
    std::unordered_map<uint64_t, uint32_t> children_;
    std::unordered_map<uint32_t, int32_t> ends_;
};

// Cuts text that holds no token spelt out by the caller. Immutable after construction.
class TextEncoder {
  public:
    virtual ~TextEncoder() = default;
    // Appends the tokens of `text`, which has its space prefix already.
    virtual void encode(std::string_view text, std::vector<TokenId>& out) const = 0;
};

}  // namespace kvlab
