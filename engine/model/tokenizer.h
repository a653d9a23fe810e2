// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ids.h"

namespace kvlab {

class GgufFile;

// A run of text for Tokenizer::encode(). Text from outside is no markup.
struct TextPart {
    std::string text;
    bool is_markup = false;  // control tokens spelt out in it become those tokens
};

// The tokenizer stored in a GGUF file. tokenizer.ggml.model = "llama": SentencePiece's bpe
// (spm_tokenizer.h); "gpt2": byte-level BPE (bpe_tokenizer.h), cut as tokenizer.ggml.pre says
// (pre_tokenizer.h). Every UTF-8 text encodes, and invalid UTF-8 byte by byte. Qwen 2's text is
// normalised first (nfc.h).
class Tokenizer {
  public:
    // Throws EngineError kBadFile (inconsistent vocabulary) or kUnsupported (another tokenizer or
    // another way to cut text, named).
    static Tokenizer fromGguf(const GgufFile& file);

    // `add_bos`: put the begin token first when the file asks for one (add_bos_token). `add_eos`:
    // likewise the end token last (add_eos_token), as llama.cpp's llama_tokenize does with
    // add_special; not for a prompt, which is there to be continued. Control tokens never come from
    // `text`. Throws kBadArgument for a text above 64 MiB, or one with bytes that the
    // vocabulary cannot spell.
    std::vector<TokenId> encode(std::string_view text, bool add_bos, bool add_eos = false) const;
    // Of the parts one after another, as if they were one text, except that control tokens are
    // looked for within each part of markup, longest first.
    std::vector<TokenId> encode(const std::vector<TextPart>& parts,
                                bool add_bos,
                                bool add_eos = false) const;
    // Text of a token run. Bytes of an unfinished UTF-8 character are kept as they are.
    // `skip_leading_space`: drop the space that encode() put before the first word.
    std::string decode(const std::vector<TokenId>& tokens, bool skip_leading_space = true) const;
    // Bytes that one token adds to the text ("▁key" and "Ġkey" give " key"); "" for control tokens.
    std::string piece(TokenId token) const;
    // The vocabulary's own spelling ("▁key", "Ġkey", "<0x0A>", "<s>").
    const std::string& rawPiece(TokenId token) const;

    // The model wants normalised text and this build cannot do it: text stays as it is.
    bool lacksNormalisation() const;

    int vocabSize() const;
    TokenId bos() const;  // not valid: the file names none
    TokenId eos() const;  // likewise
    // The end of the text, or of a chat turn: generation stops here.
    bool endsText(TokenId token) const;
    bool isControl(TokenId token) const;
    // Jinja source of the file's tokenizer.chat_template (chat_template.h); "": none.
    const std::string& chatTemplate() const;

  private:
    struct Impl;
    std::shared_ptr<const Impl> impl_;
};

}  // namespace kvlab
