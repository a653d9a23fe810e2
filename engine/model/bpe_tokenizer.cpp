// SPDX-License-Identifier: MIT
#include "engine/model/bpe_tokenizer.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "engine/error.h"
#include "engine/model/unicode_class.h"
#include "engine/model/utf8.h"

namespace kvlab {
namespace {

class BpeEncoder : public TextEncoder {
  public:
    BpeEncoder(const GgufFile& file, Vocabulary& words, PreTokenizer rule, bool whole_pieces_first)
        : words_(words), rule_(rule), whole_pieces_first_(whole_pieces_first) {
        indexPieces(file, words);
        readMerges(file);
    }

    void encode(std::string_view text, std::vector<TokenId>& out) const override {
        Scratch scratch;
        while (!text.empty()) {
            const size_t num_bytes = firstPieceBytes(rule_, text);
            encodePiece(text.substr(0, num_bytes), scratch, out);
            text.remove_prefix(num_bytes);
        }
    }

  private:
    struct Merge {
        uint32_t rank;  // lower first
        int32_t merged;
    };
    static constexpr int32_t kMergedAway = -2;
    struct Symbol {
        int32_t token;  // kNoToken: a byte that the vocabulary lacks
        int32_t previous;
        int32_t next;
    };
    struct Candidate {
        uint32_t rank;
        int32_t left;
        int32_t right;
        int32_t left_token;
        int32_t right_token;
        int32_t merged;
        bool operator<(const Candidate& other) const {  // a max-heap pops the greatest
            return rank != other.rank ? rank > other.rank : left > other.left;
        }
    };
    struct Scratch {  // kept from piece to piece
        std::vector<Symbol> symbols;
        std::vector<Candidate> heap;
    };

    static uint64_t pairOf(int32_t left, int32_t right) {
        return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
    }

    void indexPieces(const GgufFile& file, Vocabulary& words);
    void readMerges(const GgufFile& file);
    void encodePiece(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const;
    void emit(int32_t token, uint8_t byte, std::vector<TokenId>& out) const;

    const Vocabulary& words_;
    PreTokenizer rule_;
    bool whole_pieces_first_;
    // By the bytes they spell; keys point into words_.texts. Pieces that text can become.
    std::unordered_map<std::string_view, int32_t> piece_ids_;
    std::array<int32_t, 256> byte_ids_{};
    std::unordered_map<uint64_t, Merge> merges_;  // by pairOf(left, right)
};

void BpeEncoder::indexPieces(const GgufFile& file, Vocabulary& words) {
    for (size_t i = 0; i < words.raw_pieces.size(); ++i) {
        const std::string& piece = words.raw_pieces[i];
        const auto id = static_cast<int32_t>(i);
        switch (words.types[i]) {
            case TokenType::kControl:
            case TokenType::kUnknown:
                continue;
            case TokenType::kUserDefined:
                // Spelt as it reads, not byte by byte.
                if (piece.empty()) failVocabulary(file, words.shown(id) + " is empty");
                words.texts[i] = piece;
                continue;
            case TokenType::kNormal:
            case TokenType::kUnused:
            case TokenType::kByte:  // "<0x41>" is an ordinary spelling here
                break;
        }
        const std::optional<std::string> bytes = bytesOfSpelling(piece);
        words.texts[i] = bytes.value_or(piece);
        const bool is_unused = words.types[i] == TokenType::kUnused;
        if (!bytes || is_unused) continue;  // text cannot become it
        if (piece.empty()) failVocabulary(file, words.shown(id) + " is empty");
        const auto [entry, is_new] = piece_ids_.emplace(words.texts[i], id);
        if (!is_new) {
            failVocabulary(
                file, words.shown(id) + " is the same as token " + std::to_string(entry->second));
        }
    }
    for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
        const char c = static_cast<char>(byte);
        const auto found = piece_ids_.find(std::string_view(&c, 1));
        byte_ids_[byte] = found == piece_ids_.end() ? kNoToken : found->second;
    }
}

void BpeEncoder::readMerges(const GgufFile& file) {
    const auto* lines = findArray<std::string>(file, "tokenizer.ggml.merges");
    if (lines == nullptr) failVocabulary(file, "it has no tokenizer.ggml.merges");
    merges_.reserve(std::min(lines->size(), words_.raw_pieces.size()));
    for (size_t i = 0; i < lines->size(); ++i) {
        const std::string_view line = (*lines)[i];
        const auto fail = [&](const char* what) {
            failVocabulary(
                file, "merge " + std::to_string(i) + " (" + quotedForMessage(line) + ") " + what);
        };
        const size_t space = line.find(' ');
        if (space == std::string_view::npos || line.find(' ', space + 1) != line.npos) {
            fail("is not two pieces with a space between");
        }
        const auto idOf = [&](const std::string& bytes) {
            const auto found = piece_ids_.find(bytes);
            return found == piece_ids_.end() ? kNoToken : found->second;
        };
        const std::optional<std::string> left = bytesOfSpelling(line.substr(0, space));
        const std::optional<std::string> right = bytesOfSpelling(line.substr(space + 1));
        const int32_t left_id = left ? idOf(*left) : kNoToken;
        const int32_t right_id = right ? idOf(*right) : kNoToken;
        const int32_t merged = left && right ? idOf(*left + *right) : kNoToken;
        if (left_id == kNoToken || right_id == kNoToken || merged == kNoToken) {
            fail("names or makes a piece that is no token");
        }
        // Of a repeated pair the first, lowest rank counts.
        merges_.emplace(pairOf(left_id, right_id), Merge{static_cast<uint32_t>(i), merged});
    }
}

void BpeEncoder::emit(int32_t token, uint8_t byte, std::vector<TokenId>& out) const {
    if (token == kNoToken) token = words_.unknown;
    // A control token must not come from text, not even as the stand-in for unknown bytes.
    if (token == kNoToken || words_.isControl(token)) {
        throw EngineError(ErrorKind::kBadArgument,
                          "the model's vocabulary has no token for the byte " +
                              std::to_string(int{byte}) +
                              ", which the text contains; leave that character out");
    }
    out.push_back(TokenId(token));
}

// A heap keeps the pairs that can merge. One whose symbols have merged meanwhile is stale, which
// their tokens show: a symbol only grows, and its right neighbour changes only when that one merges
// into it. n bytes make at most 2n candidates: O(n log n).
void BpeEncoder::encodePiece(std::string_view piece,
                             Scratch& scratch,
                             std::vector<TokenId>& out) const {
    if (whole_pieces_first_) {
        const auto whole = piece_ids_.find(piece);
        if (whole != piece_ids_.end()) {
            out.push_back(TokenId(whole->second));
            return;
        }
    }
    std::vector<Symbol>& symbols = scratch.symbols;
    std::vector<Candidate>& heap = scratch.heap;
    symbols.clear();
    heap.clear();
    for (size_t i = 0; i < piece.size(); ++i) {
        const auto index = static_cast<int32_t>(i);
        symbols.push_back({byte_ids_[static_cast<uint8_t>(piece[i])], index - 1, index + 1});
    }
    symbols.back().next = kNoToken;

    const auto consider = [&](int32_t left, int32_t right) {
        if (left == kNoToken || right == kNoToken) return;
        const int32_t left_token = symbols[static_cast<size_t>(left)].token;
        const int32_t right_token = symbols[static_cast<size_t>(right)].token;
        const auto found = merges_.find(pairOf(left_token, right_token));
        if (found == merges_.end()) return;
        heap.push_back(
            {found->second.rank, left, right, left_token, right_token, found->second.merged});
        std::push_heap(heap.begin(), heap.end());
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
        if (left.token != best.left_token || right.token != best.right_token) continue;
        left.token = best.merged;
        right.token = kMergedAway;
        left.next = right.next;
        if (right.next != kNoToken) symbols[static_cast<size_t>(right.next)].previous = best.left;
        consider(left.previous, best.left);
        consider(best.left, left.next);
    }
    for (int32_t i = 0; i != kNoToken; i = symbols[static_cast<size_t>(i)].next) {
        const auto index = static_cast<size_t>(i);
        emit(symbols[index].token, static_cast<uint8_t>(piece[index]), out);
    }
}

}  // namespace

const std::array<uint16_t, 256>& byteSpelling() {
    static const std::array<uint16_t, 256> spelling = [] {
        std::array<uint16_t, 256> codes{};
        uint16_t next = 256;
        for (uint16_t byte = 0; byte < 256; ++byte) {
            // Visible in Latin-1: neither control, space, no-break space nor soft hyphen.
            const bool is_visible =
                (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
            codes[byte] = is_visible ? byte : next++;
        }
        return codes;
    }();
    return spelling;
}

std::optional<std::string> bytesOfSpelling(std::string_view piece) {
    constexpr size_t kNumCodes = 256 + 68;
    static const std::array<int16_t, kNumCodes> byte_of = [] {
        std::array<int16_t, kNumCodes> bytes{};
        bytes.fill(-1);
        for (size_t byte = 0; byte < 256; ++byte) {
            bytes[byteSpelling()[byte]] = static_cast<int16_t>(byte);
        }
        return bytes;
    }();
    std::string bytes;
    while (!piece.empty()) {
        const CharAt character = firstChar(piece);
        if (character.code >= byte_of.size() || byte_of[character.code] < 0) return std::nullopt;
        bytes += static_cast<char>(byte_of[character.code]);
        piece.remove_prefix(character.num_bytes);
    }
    return bytes;
}

std::unique_ptr<const TextEncoder> makeBpeEncoder(const GgufFile& file,
                                                  Vocabulary& words,
                                                  PreTokenizer rule,
                                                  bool whole_pieces_first) {
    return std::make_unique<BpeEncoder>(file, words, rule, whole_pieces_first);
}

}  // namespace kvlab
