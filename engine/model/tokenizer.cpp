// SPDX-License-Identifier: MIT
#include "engine/model/tokenizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "engine/error.h"
#include "engine/model/gguf.h"
#include "engine/model/gguf_writer.h"
#include "engine/model/utf8.h"

namespace kvlab {
namespace {

constexpr std::string_view kSpaceMark =
    "\xe2\x96\x81";  // ▁ U+2581, how a vocabulary spells a space
constexpr std::string_view kUnknownText = "\xe2\x81\x87";  // ⁇ U+2047, sentencepiece's spelling
constexpr int32_t kNone = -1;
// Longer than any published piece by far; bounds the work of one look-up.
constexpr size_t kMaxPieceBytes = 1024;
constexpr size_t kMaxTextBytes = size_t{1} << 26;

[[noreturn]] void failVocabulary(const GgufFile& file, const std::string& what) {
    throw EngineError(ErrorKind::kBadFile, "the vocabulary of " + quotedForMessage(file.path()) +
                                               " is not usable: " + what +
                                               "; export the model again");
}

template <class T>
const std::vector<T>* findArray(const GgufFile& file, const std::string& key) {
    const auto found = file.metadata().find(key);
    if (found == file.metadata().end()) return nullptr;
    const auto* values = std::get_if<std::vector<T>>(&found->second);
    if (values == nullptr) failVocabulary(file, key + " is not an array of the expected kind");
    return values;
}

// The byte that "<0xHH>" spells.
std::optional<uint8_t> byteOfPiece(std::string_view piece) {
    if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return std::nullopt;
    int value = 0;
    for (const char c : piece.substr(3, 2)) {
        if (c >= '0' && c <= '9') {
            value = value * 16 + (c - '0');
        } else if (c >= 'A' && c <= 'F') {
            value = value * 16 + (c - 'A' + 10);
        } else if (c >= 'a' && c <= 'f') {
            value = value * 16 + (c - 'a' + 10);
        } else {
            return std::nullopt;
        }
    }
    return static_cast<uint8_t>(value);
}

// `text` with spaces as the vocabulary spells them.
void appendMarked(std::string& marked, std::string_view text) {
    for (const char c : text) {
        if (c == ' ') {
            marked += kSpaceMark;
        } else {
            marked += c;
        }
    }
}

std::string withSpaces(std::string_view piece) {
    std::string text;
    for (size_t pos = 0; pos < piece.size();) {
        if (piece.substr(pos, kSpaceMark.size()) == kSpaceMark) {
            text += ' ';
            pos += kSpaceMark.size();
        } else {
            text += piece[pos++];
        }
    }
    return text;
}

// Longest-match look-up of the user-defined pieces, byte by byte.
class PieceTrie {
  public:
    void add(std::string_view piece) {
        uint32_t node = 0;
        for (const char c : piece) {
            const auto [entry, is_new] = children_.emplace(keyOf(node, c), num_nodes_);
            if (is_new) ++num_nodes_;
            node = entry->second;
        }
        ends_.emplace(node, true);
    }
    // Bytes of the longest piece that `text` starts with; 0: none.
    size_t longestMatch(std::string_view text) const {
        if (children_.empty()) return 0;
        size_t longest = 0;
        uint32_t node = 0;
        for (size_t i = 0; i < text.size(); ++i) {
            const auto child = children_.find(keyOf(node, text[i]));
            if (child == children_.end()) break;
            node = child->second;
            if (ends_.contains(node)) longest = i + 1;
        }
        return longest;
    }

  private:
    static uint64_t keyOf(uint32_t node, char c) {
        return (uint64_t{node} << 8) | static_cast<uint8_t>(c);
    }
    uint32_t num_nodes_ = 1;
    std::unordered_map<uint64_t, uint32_t> children_;
    std::unordered_map<uint32_t, bool> ends_;
};

}  // namespace

struct Tokenizer::Impl {
    std::vector<std::string> raw_pieces;
    std::vector<std::string> texts;  // what piece() returns
    std::vector<float> scores;
    std::vector<TokenType> types;
    // Pieces that text can become: normal, user-defined and unused. Keys point into raw_pieces.
    std::unordered_map<std::string_view, int32_t> piece_ids;
    PieceTrie user_defined;
    std::array<int32_t, 256> byte_ids;
    size_t max_piece_bytes = 0;
    int32_t unknown = kNone;
    TokenId bos;
    TokenId eos;
    bool file_adds_bos = false;
    bool adds_space_prefix = true;

    void readVocabulary(const GgufFile& file);
    void indexPieces(const GgufFile& file);
    void encodeMarked(std::string_view text, std::vector<TokenId>& out) const;
    size_t checkedIndex(TokenId token) const {
        if (!token.valid() || static_cast<size_t>(token.value) >= raw_pieces.size()) {
            throw EngineError(ErrorKind::kBadArgument, "there is no token " +
                                                           std::to_string(token.value) +
                                                           "; the vocabulary has tokens 0 to " +
                                                           std::to_string(raw_pieces.size() - 1));
        }
        return static_cast<size_t>(token.value);
    }
};

void Tokenizer::Impl::readVocabulary(const GgufFile& file) {
    const std::string model = file.getString("tokenizer.ggml.model", "");
    if (model.empty()) failVocabulary(file, "tokenizer.ggml.model is missing");
    if (model != "llama") {
        throw EngineError(ErrorKind::kUnsupported,
                          quotedForMessage(file.path()) + " has a tokenizer of the kind " +
                              quotedForMessage(model) +
                              ", but only \"llama\" (SentencePiece bpe) is supported");
    }
    const auto* pieces = findArray<std::string>(file, "tokenizer.ggml.tokens");
    const auto* file_scores = findArray<double>(file, "tokenizer.ggml.scores");
    const auto* file_types = findArray<int64_t>(file, "tokenizer.ggml.token_type");
    if (pieces == nullptr || pieces->empty()) failVocabulary(file, "it has no tokens");
    if (file_scores == nullptr || file_scores->size() != pieces->size()) {
        failVocabulary(file, "it does not have one score for each token");
    }
    if (file_types != nullptr && file_types->size() != pieces->size()) {
        failVocabulary(file, "it does not have one type for each token");
    }
    raw_pieces = *pieces;

    const auto readToken = [&](const char* key, int64_t fallback) {
        const int64_t token = file.getInt(key, fallback);
        if (token >= 0 && token < static_cast<int64_t>(raw_pieces.size())) {
            return static_cast<int32_t>(token);
        }
        if (file.metadata().contains(key)) {
            failVocabulary(file, std::string(key) + " is " + std::to_string(token) +
                                     ", which is no token of it");
        }
        return kNone;
    };
    unknown = readToken("tokenizer.ggml.unknown_token_id", 0);
    bos = TokenId(readToken("tokenizer.ggml.bos_token_id", 1));
    eos = TokenId(readToken("tokenizer.ggml.eos_token_id", 2));
    file_adds_bos = file.getBool("tokenizer.ggml.add_bos_token", true);
    adds_space_prefix = file.getBool("tokenizer.ggml.add_space_prefix", true);

    for (size_t i = 0; i < raw_pieces.size(); ++i) {
        const double score = (*file_scores)[i];
        // Scores order the merges; not-a-number would break the order.
        if (!std::isfinite(score)) {
            failVocabulary(file, "the score of token " + std::to_string(i) + " is not a number");
        }
        scores.push_back(static_cast<float>(score));
        TokenType type = TokenType::kNormal;
        const auto id = static_cast<int32_t>(i);
        if (file_types != nullptr) {
            const int64_t number = (*file_types)[i];
            if (number < 1 || number > 6) {
                failVocabulary(file, "token " + std::to_string(i) + " has the unknown type " +
                                         std::to_string(number));
            }
            type = static_cast<TokenType>(number);
        } else if (id == unknown) {
            type = TokenType::kUnknown;
        } else if (id == bos.value || id == eos.value) {
            type = TokenType::kControl;
        } else if (byteOfPiece(raw_pieces[i])) {
            type = TokenType::kByte;
        }
        types.push_back(type);
    }
}

void Tokenizer::Impl::indexPieces(const GgufFile& file) {
    byte_ids.fill(kNone);
    texts.resize(raw_pieces.size());
    for (size_t i = 0; i < raw_pieces.size(); ++i) {
        const std::string& piece = raw_pieces[i];
        const auto id = static_cast<int32_t>(i);
        const std::string shown =
            "token " + std::to_string(i) + " (" + quotedForMessage(piece) + ")";
        if (piece.size() > kMaxPieceBytes) {
            failVocabulary(file, shown + " is " + std::to_string(piece.size()) + " bytes long");
        }
        switch (types[i]) {
            case TokenType::kControl:
                continue;
            case TokenType::kUnknown:
                texts[i] = kUnknownText;
                continue;
            case TokenType::kByte: {
                const std::optional<uint8_t> byte = byteOfPiece(piece);
                if (!byte) failVocabulary(file, shown + " is a byte that is not spelt <0xHH>");
                if (byte_ids[*byte] != kNone) {
                    failVocabulary(file, shown + " repeats the byte of token " +
                                             std::to_string(byte_ids[*byte]));
                }
                byte_ids[*byte] = id;
                texts[i] = std::string(1, static_cast<char>(*byte));
                continue;
            }
            case TokenType::kNormal:
            case TokenType::kUserDefined:
            case TokenType::kUnused:
                break;
        }
        texts[i] = withSpaces(piece);
        if (piece.empty()) {
            if (types[i] == TokenType::kUnused) continue;
            failVocabulary(file, shown + " is empty");
        }
        const auto [entry, is_new] = piece_ids.emplace(piece, id);
        if (!is_new) {
            // Padding may repeat itself; nothing that text can become may.
            if (types[i] == TokenType::kUnused) continue;
            if (types[static_cast<size_t>(entry->second)] != TokenType::kUnused) {
                failVocabulary(file,
                               shown + " is the same as token " + std::to_string(entry->second));
            }
            entry->second = id;
        }
        max_piece_bytes = std::max(max_piece_bytes, piece.size());
        if (types[i] == TokenType::kUserDefined) user_defined.add(piece);
    }
}

// Starts from single characters (and whole user-defined pieces, which never merge) and joins the
// adjacent pair whose union is the piece of the highest score, left-most first on ties, until no
// pair is a piece. A heap keeps the candidates; one that names a symbol that has merged meanwhile
// is stale and skipped, which its remembered length shows. n characters make at most 2n candidates:
// O(n log n).
void Tokenizer::Impl::encodeMarked(std::string_view text, std::vector<TokenId>& out) const {
    struct Symbol {
        uint32_t begin;      // bytes into text
        uint32_t num_bytes;  // 0: merged into its left neighbour
        int32_t previous;
        int32_t next;
        bool frozen;
    };
    struct Candidate {
        float score;
        int32_t left;
        int32_t right;
        uint32_t num_bytes;
        int32_t token;
        bool operator<(const Candidate& other) const {  // a max-heap pops the greatest
            return score != other.score ? score < other.score : left > other.left;
        }
    };
    std::vector<Symbol> symbols;
    for (size_t pos = 0; pos < text.size();) {
        size_t num_bytes = user_defined.longestMatch(text.substr(pos));
        const bool frozen = num_bytes > 0;
        // A byte that starts no character stands alone and ends as a byte token, so any input
        // survives a round trip (sentencepiece would replace it by U+FFFD).
        if (!frozen) num_bytes = std::max(utf8CharacterLength(text.substr(pos)), size_t{1});
        const auto index = static_cast<int32_t>(symbols.size());
        symbols.push_back({static_cast<uint32_t>(pos), static_cast<uint32_t>(num_bytes), index - 1,
                           index + 1, frozen});
        pos += num_bytes;
    }
    if (symbols.empty()) return;
    symbols.back().next = kNone;

    std::vector<Candidate> heap;
    // How an unused piece was made, to take it apart again: it may only be a step between merges.
    std::unordered_map<std::string_view, uint32_t> left_bytes_of_unused;
    const auto spelling = [&](const Symbol& symbol) {
        return text.substr(symbol.begin, symbol.num_bytes);
    };
    const auto consider = [&](int32_t left, int32_t right) {
        if (left == kNone || right == kNone) return;
        const Symbol& left_symbol = symbols[static_cast<size_t>(left)];
        const Symbol& right_symbol = symbols[static_cast<size_t>(right)];
        if (left_symbol.frozen || right_symbol.frozen) return;
        const uint32_t num_bytes = left_symbol.num_bytes + right_symbol.num_bytes;
        if (num_bytes > max_piece_bytes) return;
        const std::string_view merged = text.substr(left_symbol.begin, num_bytes);
        const auto found = piece_ids.find(merged);
        if (found == piece_ids.end()) return;
        const auto token = static_cast<size_t>(found->second);
        heap.push_back({scores[token], left, right, num_bytes, found->second});
        std::push_heap(heap.begin(), heap.end());
        if (types[token] == TokenType::kUnused) {
            left_bytes_of_unused[merged] = left_symbol.num_bytes;
        }
    };
    for (size_t i = 1; i < symbols.size(); ++i) {
        consider(static_cast<int32_t>(i - 1), static_cast<int32_t>(i));
    }
    while (!heap.empty()) {
        std::pop_heap(heap.begin(), heap.end());
        const Candidate best = heap.back();
        heap.pop_back();
        Symbol& left = symbols[static_cast<size_t>(best.left)];
        Symbol& right = symbols[static_cast<size_t>(best.right)];
        if (left.num_bytes == 0 || right.num_bytes == 0 ||
            left.num_bytes + right.num_bytes != best.num_bytes) {
            continue;
        }
        left.num_bytes = best.num_bytes;
        right.num_bytes = 0;
        left.next = right.next;
        if (right.next != kNone) symbols[static_cast<size_t>(right.next)].previous = best.left;
        consider(left.previous, best.left);
        consider(best.left, left.next);
    }

    const auto emit = [&](std::string_view piece) {
        const auto found = piece_ids.find(piece);
        if (found != piece_ids.end() &&
            types[static_cast<size_t>(found->second)] != TokenType::kUnused) {
            out.push_back(TokenId(found->second));
            return;
        }
        for (const char c : piece) {
            const int32_t byte_token = byte_ids[static_cast<uint8_t>(c)];
            if (byte_token != kNone) {
                out.push_back(TokenId(byte_token));
            } else if (unknown != kNone && (out.empty() || out.back().value != unknown)) {
                out.push_back(TokenId(unknown));  // one for a run of unknown text
            }
        }
    };
    std::vector<std::string_view> pending;  // parts still to be taken apart, left-most on top
    for (int32_t i = 0; i != kNone; i = symbols[static_cast<size_t>(i)].next) {
        pending.push_back(spelling(symbols[static_cast<size_t>(i)]));
        while (!pending.empty()) {
            const std::string_view piece = pending.back();
            pending.pop_back();
            const auto split = left_bytes_of_unused.find(piece);
            if (split == left_bytes_of_unused.end()) {
                emit(piece);
            } else {
                pending.push_back(piece.substr(split->second));
                pending.push_back(piece.substr(0, split->second));
            }
        }
    }
}

Tokenizer Tokenizer::fromGguf(const GgufFile& file) {
    auto impl = std::make_shared<Impl>();
    impl->readVocabulary(file);
    impl->indexPieces(file);
    Tokenizer tokenizer;
    tokenizer.impl_ = std::move(impl);
    return tokenizer;
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool add_bos) const {
    if (text.size() > kMaxTextBytes) {
        throw EngineError(ErrorKind::kBadArgument, "the text has " + std::to_string(text.size()) +
                                                       " bytes, more than the " +
                                                       std::to_string(kMaxTextBytes) +
                                                       " that can be encoded at once; split it");
    }
    std::vector<TokenId> tokens;
    if (add_bos && impl_->file_adds_bos && impl_->bos.valid()) tokens.push_back(impl_->bos);
    if (text.empty()) return tokens;
    std::string marked;
    marked.reserve(text.size() + kSpaceMark.size());
    if (impl_->adds_space_prefix) marked += kSpaceMark;
    appendMarked(marked, text);
    impl_->encodeMarked(marked, tokens);
    return tokens;
}

std::string Tokenizer::decode(const std::vector<TokenId>& tokens, bool skip_leading_space) const {
    std::string text;
    bool at_start = skip_leading_space && impl_->adds_space_prefix;
    for (const TokenId token : tokens) {
        const size_t index = impl_->checkedIndex(token);
        const TokenType type = impl_->types[index];
        if (type == TokenType::kControl) continue;
        std::string_view piece = impl_->texts[index];
        // The prefix is always spelt ▁: a space from a byte token is the text's own.
        if (at_start && type != TokenType::kByte && !piece.empty() && piece.front() == ' ') {
            piece.remove_prefix(1);
        }
        at_start = false;
        text += piece;
    }
    return text;
}

std::string Tokenizer::piece(TokenId token) const {
    return impl_->texts[impl_->checkedIndex(token)];
}

const std::string& Tokenizer::rawPiece(TokenId token) const {
    return impl_->raw_pieces[impl_->checkedIndex(token)];
}

int Tokenizer::vocabSize() const { return static_cast<int>(impl_->raw_pieces.size()); }
TokenId Tokenizer::bos() const { return impl_->bos; }
TokenId Tokenizer::eos() const { return impl_->eos; }

bool Tokenizer::isControl(TokenId token) const {
    return impl_->types[impl_->checkedIndex(token)] == TokenType::kControl;
}

}  // namespace kvlab
