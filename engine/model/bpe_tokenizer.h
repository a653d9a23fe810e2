// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/model/pre_tokenizer.h"
#include "engine/model/vocabulary.h"

namespace kvlab {

// GPT-2's spelling of bytes (openai/gpt-2, encoder.py): the 188 bytes that Latin-1 prints stand for
// themselves, the other 68 take U+0100, U+0101, … in order, so " a" is spelt "Ġa". Code points, by
// byte.
const std::array<uint16_t, 256>& byteSpelling();

// The bytes that such a piece spells; nullopt: a character of it spells none.
std::optional<std::string> bytesOfSpelling(std::string_view piece);

// tokenizer.ggml.model = "gpt2": byte-level BPE. `rule` cuts the text; each piece starts as bytes
// and joins the adjacent pair of the lowest rank in tokenizer.ggml.merges, left-most first. With
// `whole_pieces_first` (ignore_merges in tokenizer.json) a piece that is a token is taken as it is.
// Every byte string encodes and decodes to itself, provided that the vocabulary has all bytes.
// Fills `words.texts`; `words` must outlive the encoder. Throws EngineError kBadFile.
std::unique_ptr<const TextEncoder> makeBpeEncoder(const GgufFile& file,
                                                  Vocabulary& words,
                                                  PreTokenizer rule,
                                                  bool whole_pieces_first);

}  // namespace kvlab
