// SPDX-License-Identifier: MIT
#include "engine/model/vocabulary.h"

#include <array>

#include "engine/error.h"
#include "engine/model/utf8.h"

namespace kvlab {

void failVocabulary(const GgufFile& file, const std::string& what) {
    throw EngineError(ErrorKind::kBadFile, "the vocabulary of " + quotedForMessage(file.path()) +
                                               " is not usable: " + what +
                                               "; export the model again");
}

int byteOfPiece(std::string_view piece) {
    if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return -1;
    int value = 0;
    for (const char c : piece.substr(3, 2)) {
        if (c >= '0' && c <= '9') {
            value = value * 16 + (c - '0');
        } else if (c >= 'A' && c <= 'F') {
            value = value * 16 + (c - 'A' + 10);
        } else if (c >= 'a' && c <= 'f') {
            value = value * 16 + (c - 'a' + 10);
        } else {
            return -1;
        }
    }
    return value;
}

std::string Vocabulary::shown(int32_t token) const {
    return "token " + std::to_string(token) + " (" +
           quotedForMessage(raw_pieces[static_cast<size_t>(token)]) + ")";
}

Vocabulary Vocabulary::read(const GgufFile& file, const Defaults& defaults) {
    const auto* pieces = findArray<std::string>(file, "tokenizer.ggml.tokens");
    const auto* file_types = findArray<int64_t>(file, "tokenizer.ggml.token_type");
    if (pieces == nullptr || pieces->empty()) failVocabulary(file, "it has no tokens");
    if (file_types != nullptr && file_types->size() != pieces->size()) {
        failVocabulary(file, "it does not have one type for each token");
    }
    Vocabulary words;
    words.raw_pieces = *pieces;
    words.texts.resize(pieces->size());

    const auto readToken = [&](const char* key, int64_t fallback) {
        const int64_t token = file.getInt(key, fallback);
        if (token >= 0 && token < static_cast<int64_t>(words.raw_pieces.size())) {
            return static_cast<int32_t>(token);
        }
        if (file.metadata().contains(key)) {
            failVocabulary(file, std::string(key) + " is " + std::to_string(token) +
                                     ", which is no token of it");
        }
        return kNoToken;
    };
    words.unknown = readToken("tokenizer.ggml.unknown_token_id", defaults.unknown);
    words.bos = TokenId(readToken("tokenizer.ggml.bos_token_id", defaults.bos));
    words.eos = TokenId(readToken("tokenizer.ggml.eos_token_id", defaults.eos));
    words.eot = TokenId(readToken("tokenizer.ggml.eot_token_id", kNoToken));
    words.adds_bos = file.getBool("tokenizer.ggml.add_bos_token", defaults.adds_bos);
    words.adds_eos = file.getBool("tokenizer.ggml.add_eos_token", false);
    words.adds_space_prefix =
        file.getBool("tokenizer.ggml.add_space_prefix", defaults.adds_space_prefix);
    words.chat_template = file.getString("tokenizer.chat_template", "");

    words.types.reserve(words.raw_pieces.size());
    for (size_t i = 0; i < words.raw_pieces.size(); ++i) {
        const auto id = static_cast<int32_t>(i);
        const std::string& piece = words.raw_pieces[i];
        if (piece.size() > kMaxPieceBytes) {
            failVocabulary(file,
                           words.shown(id) + " is " + std::to_string(piece.size()) + " bytes long");
        }
        TokenType type = TokenType::kNormal;
        if (file_types != nullptr) {
            const int64_t number = (*file_types)[i];
            if (number < 1 || number > 6) {
                failVocabulary(file, "token " + std::to_string(i) + " has the unknown type " +
                                         std::to_string(number));
            }
            type = static_cast<TokenType>(number);
        } else if (id == words.unknown) {
            type = TokenType::kUnknown;
        } else if (id == words.bos.value || id == words.eos.value || id == words.eot.value) {
            type = TokenType::kControl;
        } else if (byteOfPiece(piece) >= 0) {
            type = TokenType::kByte;
        }
        words.types.push_back(type);
    }
    // Files older than the key eot_token_id: Llama 3's and ChatML's ends of a turn, by name.
    static constexpr std::array<std::string_view, 2> kTurnEnds = {"<|eot_id|>", "<|im_end|>"};
    for (size_t i = 0; i < words.raw_pieces.size() && !words.eot.valid(); ++i) {
        for (const std::string_view name : kTurnEnds) {
            if (words.types[i] == TokenType::kControl && words.raw_pieces[i] == name) {
                words.eot = TokenId(static_cast<int32_t>(i));
            }
        }
    }
    return words;
}

void PieceTrie::add(std::string_view piece, int32_t token) {
    uint32_t node = 0;
    for (const char c : piece) {
        const auto [entry, is_new] = children_.emplace(keyOf(node, c), num_nodes_);
        if (is_new) ++num_nodes_;
        node = entry->second;
    }
    ends_.emplace(node, token);
}

PieceTrie::Match PieceTrie::longestMatch(std::string_view text) const {
    Match longest;
    if (children_.empty()) return longest;
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
        const auto child = children_.find(keyOf(node, text[i]));
        if (child == children_.end()) break;
        node = child->second;
        const auto end = ends_.find(node);
        if (end != ends_.end()) longest = {i + 1, end->second};
    }
    return longest;
}

}  // namespace kvlab
