// SPDX-License-Identifier: MIT
#include "engine/model/tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "engine/error.h"
#include "engine/model/bpe_tokenizer.h"
#include "engine/model/gguf.h"
#include "engine/model/nfc.h"
#include "engine/model/spm_tokenizer.h"
#include "engine/model/utf8.h"
#include "engine/model/vocabulary.h"

namespace kvlab {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 26;

}  // namespace

struct Tokenizer::Impl {
    Vocabulary words;
    std::unique_ptr<const TextEncoder> encoder;
    PieceTrie in_text;       // whole pieces to find in any text, before the encoder cuts it
    PieceTrie in_markup;     // the same and the control tokens
    bool wants_nfc = false;  // of the text between whole pieces, before it is cut

    explicit Impl(const GgufFile& file);
    void readSpm(const GgufFile& file);
    void readBpe(const GgufFile& file);
    size_t checkedIndex(TokenId token) const {
        if (!token.valid() || static_cast<size_t>(token.value) >= words.raw_pieces.size()) {
            throw EngineError(ErrorKind::kBadArgument,
                              "there is no token " + std::to_string(token.value) +
                                  "; the vocabulary has tokens 0 to " +
                                  std::to_string(words.raw_pieces.size() - 1));
        }
        return static_cast<size_t>(token.value);
    }
};

Tokenizer::Impl::Impl(const GgufFile& file) {
    const std::string model = file.getString("tokenizer.ggml.model", "");
    if (model.empty()) failVocabulary(file, "tokenizer.ggml.model is missing");
    bool is_bpe = false;
    if (model == "llama") {
        readSpm(file);
    } else if (model == "gpt2") {
        readBpe(file);
        is_bpe = true;
    } else {
        throw EngineError(ErrorKind::kUnsupported,
                          quotedForMessage(file.path()) + " has a tokenizer of the kind " +
                              quotedForMessage(model) +
                              ", but only \"llama\" (SentencePiece bpe) and \"gpt2\" (byte-level "
                              "bpe) are supported; choose another model");
    }
    for (size_t i = 0; i < words.raw_pieces.size(); ++i) {
        const std::string& piece = words.raw_pieces[i];
        const auto id = static_cast<int32_t>(i);
        if (piece.empty()) continue;
        if (words.types[i] == TokenType::kControl) in_markup.add(piece, id);
        // SentencePiece finds its user-defined pieces itself: they do not part the text.
        if (words.types[i] == TokenType::kUserDefined && is_bpe) {
            in_text.add(piece, id);
            in_markup.add(piece, id);
        }
    }
}

// Meanings of missing keys as in ggml-org/llama.cpp, src/llama-vocab.cpp, so that a file gives the
// same tokens there; a byte-level file that names no special token has none, though.
void Tokenizer::Impl::readSpm(const GgufFile& file) {
    words = Vocabulary::read(
        file, {.unknown = 0, .bos = 1, .eos = 2, .adds_bos = true, .adds_space_prefix = true});
    encoder = makeSpmEncoder(file, words);
}

void Tokenizer::Impl::readBpe(const GgufFile& file) {
    const std::string pre = file.getString("tokenizer.ggml.pre", "default");
    const std::optional<PreTokenizer> rule = preTokenizerByName(pre);
    if (!rule) {
        throw EngineError(
            ErrorKind::kUnsupported,
            quotedForMessage(file.path()) +
                " cuts text by the rule tokenizer.ggml.pre = " + quotedForMessage(pre) +
                ", but only \"llama-bpe\", \"qwen2\", \"smollm\" and \"gpt-2\" are "
                "supported; choose another model");
    }
    const bool is_llama3 = *rule == PreTokenizer::kLlama3;
    words = Vocabulary::read(file, {.adds_bos = is_llama3});
    encoder = makeBpeEncoder(file, words, *rule, is_llama3);
    // As the model's tokenizer.json asks ("normalizer": NFC); llama.cpp does without.
    wants_nfc = *rule == PreTokenizer::kQwen2;
}

Tokenizer Tokenizer::fromGguf(const GgufFile& file) {
    Tokenizer tokenizer;
    tokenizer.impl_ = std::make_shared<const Impl>(file);
    return tokenizer;
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool add_bos, bool add_eos) const {
    return encode({{std::string(text), false}}, add_bos, add_eos);
}

std::vector<TokenId> Tokenizer::encode(const std::vector<TextPart>& parts,
                                       bool add_bos,
                                       bool add_eos) const {
    size_t num_bytes = 0;
    for (const TextPart& part : parts) {
        num_bytes += std::min(part.text.size(), kMaxTextBytes + 1);
        if (num_bytes > kMaxTextBytes) {
            throw EngineError(ErrorKind::kBadArgument,
                              "the text has " + std::to_string(num_bytes) +
                                  " bytes, more than the " + std::to_string(kMaxTextBytes) +
                                  " that can be encoded at once; split it");
        }
    }
    std::vector<TokenId> tokens;
    if (add_bos && impl_->words.adds_bos && impl_->words.bos.valid()) {
        tokens.push_back(impl_->words.bos);
    }
    // Text since the last whole piece: parts that follow each other are cut as one text, so what
    // markup ends with may join what text begins with, as where a template is filled in and cut
    // afterwards. Text that follows a whole piece gets the space prefix again (as in llama.cpp).
    std::string pending;
    bool wants_prefix = impl_->words.adds_space_prefix;
    const auto encodePending = [&] {
        if (pending.empty()) return;
        if (impl_->wants_nfc) pending = toNfc(pending);
        if (wants_prefix) pending.insert(0, 1, ' ');
        impl_->encoder->encode(pending, tokens);
        pending.clear();
        wants_prefix = false;
    };
    for (const TextPart& part : parts) {
        const PieceTrie& whole_pieces = part.is_markup ? impl_->in_markup : impl_->in_text;
        if (whole_pieces.empty()) {
            pending += part.text;
            continue;
        }
        const std::string_view text = part.text;
        for (size_t pos = 0; pos < text.size();) {
            const PieceTrie::Match match = whole_pieces.longestMatch(text.substr(pos));
            if (match.num_bytes == 0) {
                pending += text[pos++];
                continue;
            }
            encodePending();
            tokens.push_back(TokenId(match.token));
            wants_prefix = impl_->words.adds_space_prefix;
            pos += match.num_bytes;
        }
    }
    encodePending();
    if (add_eos && impl_->words.adds_eos && impl_->words.eos.valid()) {
        tokens.push_back(impl_->words.eos);
    }
    return tokens;
}

std::string Tokenizer::decode(const std::vector<TokenId>& tokens, bool skip_leading_space) const {
    std::string text;
    bool at_start = skip_leading_space && impl_->words.adds_space_prefix;
    for (const TokenId token : tokens) {
        const size_t index = impl_->checkedIndex(token);
        const TokenType type = impl_->words.types[index];
        if (type == TokenType::kControl) continue;
        std::string_view piece = impl_->words.texts[index];
        // The prefix is always spelt ▁ (Ġ): a space from a byte token is the text's own.
        if (at_start && type != TokenType::kByte && !piece.empty() && piece.front() == ' ') {
            piece.remove_prefix(1);
        }
        at_start = false;
        text += piece;
    }
    return text;
}

std::string Tokenizer::piece(TokenId token) const {
    return impl_->words.texts[impl_->checkedIndex(token)];
}

const std::string& Tokenizer::rawPiece(TokenId token) const {
    return impl_->words.raw_pieces[impl_->checkedIndex(token)];
}

bool Tokenizer::lacksNormalisation() const { return impl_->wants_nfc && !canNormalise(); }

int Tokenizer::vocabSize() const { return static_cast<int>(impl_->words.raw_pieces.size()); }
TokenId Tokenizer::bos() const { return impl_->words.bos; }
TokenId Tokenizer::eos() const { return impl_->words.eos; }

bool Tokenizer::endsText(TokenId token) const {
    return token.valid() && (token == impl_->words.eos || token == impl_->words.eot);
}

bool Tokenizer::isControl(TokenId token) const {
    return impl_->words.types[impl_->checkedIndex(token)] == TokenType::kControl;
}

const std::string& Tokenizer::chatTemplate() const { return impl_->words.chat_template; }

}  // namespace kvlab
