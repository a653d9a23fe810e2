// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "engine/model/vocabulary.h"

namespace kvlab {

// tokenizer.ggml.model = "llama": SentencePiece's bpe. Joins the adjacent pair whose union is the
// piece of the highest score, bytes as fallback; user-defined pieces are matched before any merge.
// Invalid UTF-8 encodes byte by byte (sentencepiece would replace it by U+FFFD). Fills
// `words.texts`; `words` must outlive the encoder. Throws EngineError kBadFile.
std::unique_ptr<const TextEncoder> makeSpmEncoder(const GgufFile& file, Vocabulary& words);

}  // namespace kvlab
