// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ids.h"

namespace kvlab {

class Tokenizer;

// The first `num_tokens` tokens (begin token included) of the corpus document that `seed` names.
// Throws EngineError(kBadArgument) for a length that no document has, or that this tokenizer does
// not make of it.
std::vector<TokenId> corpusPrompt(const Tokenizer& tokenizer, uint64_t seed, int num_tokens);

}  // namespace kvlab
