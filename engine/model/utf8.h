// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace kvlab {

// Bytes of the well-formed UTF-8 character at the start of `text` (1 … 4), or 0 where none starts
// there: empty text, a stray continuation byte, an overlong form, a surrogate, a cut-off character
// (Unicode 15, table 3-7).
size_t utf8CharacterLength(std::string_view text);

bool isValidUtf8(std::string_view text);

// `text` in double quotes for an error sentence: at most 60 bytes of it, control characters and
// malformed bytes as \xHH, so the sentence stays one line of valid UTF-8 whatever a file contains.
std::string quotedForMessage(std::string_view text);

}  // namespace kvlab
