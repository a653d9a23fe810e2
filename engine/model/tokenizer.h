// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ids.h"

namespace kvlab {

class GgufFile;

// SentencePiece (bpe) tokenizer stored in a GGUF file with tokenizer.ggml.model = "llama": greedy
// merges by score, bytes as fallback, so every UTF-8 text encodes. Invalid UTF-8 encodes byte by
// byte.
class Tokenizer {
  public:
    // Throws EngineError kBadFile (inconsistent vocabulary) or kUnsupported (another tokenizer,
    // named).
    static Tokenizer fromGguf(const GgufFile& file);

    // `add_bos`: put the begin token first when the file asks for one.
    std::vector<TokenId> encode(std::string_view text, bool add_bos) const;
    // Text of a token run. Bytes of an unfinished UTF-8 character are kept as they are.
    // `skip_leading_space`: drop the space that encode() put before the first word.
    std::string decode(const std::vector<TokenId>& tokens, bool skip_leading_space = true) const;
    // Bytes that one token adds to the text ("▁key" gives " key"); "" for control tokens.
    std::string piece(TokenId token) const;
    // The vocabulary's own spelling ("▁key", "<0x0A>", "<s>").
    const std::string& rawPiece(TokenId token) const;

    int vocabSize() const;
    TokenId bos() const;
    TokenId eos() const;
    bool isControl(TokenId token) const;

  private:
    struct Impl;
    std::shared_ptr<const Impl> impl_;
};

}  // namespace kvlab
