// SPDX-License-Identifier: MIT
#include "engine/model/spm_tokenizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "engine/model/utf8.h"

namespace kvlab {
namespace {

constexpr std::string_view kSpaceMark =
    "\xe2\x96\x81";  // ▁ U+2581, how a vocabulary spells a space
constexpr std::string_view kUnknownText = "\xe2\x81\x87";  // ⁇ U+2047, sentencepiece's spelling

std::string withMarks(std::string_view text) {
    std::string marked;
    marked.reserve(text.size() + kSpaceMark.size());
    for (const char c : text) {
        if (c == ' ') {
            marked += kSpaceMark;
        } else {
            marked += c;
        }
    }
    return marked;
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

class SpmEncoder : public TextEncoder {
  public:
    SpmEncoder(const GgufFile& file, Vocabulary& words) : words_(words) {
        readScores(file);
        indexPieces(file, words);
    }

    void encode(std::string_view text, std::vector<TokenId>& out) const override {
        encodeMarked(withMarks(text), out);
    }

  private:
    void readScores(const GgufFile& file);
    void indexPieces(const GgufFile& file, Vocabulary& words);
    void encodeMarked(std::string_view text, std::vector<TokenId>& out) const;

    const Vocabulary& words_;
    std::vector<float> scores_;
    // Pieces that text can become: normal, user-defined and unused. Keys point into raw_pieces.
    std::unordered_map<std::string_view, int32_t> piece_ids_;
    PieceTrie user_defined_;
    std::array<int32_t, 256> byte_ids_{};
    size_t max_piece_bytes_ = 0;
};

void SpmEncoder::readScores(const GgufFile& file) {
    const auto* file_scores = findArray<double>(file, "tokenizer.ggml.scores");
    if (file_scores == nullptr || file_scores->size() != words_.raw_pieces.size()) {
        failVocabulary(file, "it does not have one score for each token");
    }
    for (const double score : *file_scores) {
        // Scores order the merges; not-a-number would break the order.
        if (!std::isfinite(score)) {
            failVocabulary(
                file, "the score of token " + std::to_string(scores_.size()) + " is not a number");
        }
        scores_.push_back(static_cast<float>(score));
    }
}

void SpmEncoder::indexPieces(const GgufFile& file, Vocabulary& words) {
    byte_ids_.fill(kNoToken);
    for (size_t i = 0; i < words.raw_pieces.size(); ++i) {
        const std::string& piece = words.raw_pieces[i];
        const auto id = static_cast<int32_t>(i);
        switch (words.types[i]) {
            case TokenType::kControl:
                continue;
            case TokenType::kUnknown:
                words.texts[i] = kUnknownText;
                continue;
            case TokenType::kByte: {
                const int byte = byteOfPiece(piece);
                if (byte < 0) {
                    failVocabulary(file, words.shown(id) + " is a byte that is not spelt <0xHH>");
                }
                int32_t& token = byte_ids_[static_cast<size_t>(byte)];
                if (token != kNoToken) {
                    failVocabulary(file, words.shown(id) + " repeats the byte of token " +
                                             std::to_string(token));
                }
                token = id;
                words.texts[i] = std::string(1, static_cast<char>(byte));
                continue;
            }
            case TokenType::kNormal:
            case TokenType::kUserDefined:
            case TokenType::kUnused:
                break;
        }
        words.texts[i] = withSpaces(piece);
        const bool is_unused = words.types[i] == TokenType::kUnused;
        if (piece.empty()) {
            if (is_unused) continue;
            failVocabulary(file, words.shown(id) + " is empty");
        }
        const auto [entry, is_new] = piece_ids_.emplace(piece, id);
        if (!is_new) {
            // Padding may repeat itself; nothing that text can become may.
            if (is_unused) continue;
            if (words.types[static_cast<size_t>(entry->second)] != TokenType::kUnused) {
                failVocabulary(file, words.shown(id) + " is the same as token " +
                                         std::to_string(entry->second));
            }
            entry->second = id;
        }
        max_piece_bytes_ = std::max(max_piece_bytes_, piece.size());
        if (words.types[i] == TokenType::kUserDefined) user_defined_.add(piece, id);
    }
}

// Starts from single characters (and whole user-defined pieces, which never merge) and joins the
// adjacent pair whose union is the piece of the highest score, left-most first on ties, until no
// pair is a piece. A heap keeps the candidates; one that names a symbol that has merged meanwhile
// is stale and skipped, which its remembered length shows. n characters make at most 2n candidates:
// O(n log n).
void SpmEncoder::encodeMarked(std::string_view text, std::vector<TokenId>& out) const {
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
        size_t num_bytes = user_defined_.longestMatch(text.substr(pos)).num_bytes;
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
    symbols.back().next = kNoToken;

    std::vector<Candidate> heap;
    // How an unused piece was made, to take it apart again: it may only be a step between merges.
    std::unordered_map<std::string_view, uint32_t> left_bytes_of_unused;
    const auto spelling = [&](const Symbol& symbol) {
        return text.substr(symbol.begin, symbol.num_bytes);
    };
    const auto consider = [&](int32_t left, int32_t right) {
        if (left == kNoToken || right == kNoToken) return;
        const Symbol& left_symbol = symbols[static_cast<size_t>(left)];
        const Symbol& right_symbol = symbols[static_cast<size_t>(right)];
        if (left_symbol.frozen || right_symbol.frozen) return;
        const uint32_t num_bytes = left_symbol.num_bytes + right_symbol.num_bytes;
        if (num_bytes > max_piece_bytes_) return;
        const std::string_view merged = text.substr(left_symbol.begin, num_bytes);
        const auto found = piece_ids_.find(merged);
        if (found == piece_ids_.end()) return;
        const auto token = static_cast<size_t>(found->second);
        heap.push_back({scores_[token], left, right, num_bytes, found->second});
        std::push_heap(heap.begin(), heap.end());
        if (words_.types[token] == TokenType::kUnused) {
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
        if (right.next != kNoToken) symbols[static_cast<size_t>(right.next)].previous = best.left;
        consider(left.previous, best.left);
        consider(best.left, left.next);
    }

    const auto emit = [&](std::string_view piece) {
        const auto found = piece_ids_.find(piece);
        if (found != piece_ids_.end() &&
            words_.types[static_cast<size_t>(found->second)] != TokenType::kUnused) {
            out.push_back(TokenId(found->second));
            return;
        }
        for (const char c : piece) {
            const int32_t byte_token = byte_ids_[static_cast<uint8_t>(c)];
            if (byte_token != kNoToken) {
                out.push_back(TokenId(byte_token));
            } else if (words_.unknown != kNoToken &&
                       (out.empty() || out.back().value != words_.unknown)) {
                out.push_back(TokenId(words_.unknown));  // one for a run of unknown text
            }
        }
    };
    std::vector<std::string_view> pending;  // parts still to be taken apart, left-most on top
    for (int32_t i = 0; i != kNoToken; i = symbols[static_cast<size_t>(i)].next) {
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

}  // namespace

std::unique_ptr<const TextEncoder> makeSpmEncoder(const GgufFile& file, Vocabulary& words) {
    return std::make_unique<SpmEncoder>(file, words);
}

}  // namespace kvlab
