// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvlab {

// What the published splitting rules of byte-level tokenizers distinguish (Unicode 16.0).
enum class CharClass : uint8_t {
    kOther,
    kLetter,  // \p{L}: general categories Lu, Ll, Lt, Lm, Lo
    kNumber,  // \p{N}: Nd, Nl, No
    kSpace,   // \s: the property White_Space
};

struct CharAt {
    size_t num_bytes = 0;  // 0: the text is empty
    uint32_t code = 0;     // code point; 0xfffd for a byte that starts no character
    CharClass char_class = CharClass::kOther;
};

// The first character of `text`. A byte that starts no well-formed UTF-8 character counts as one
// character of class kOther, as its usual stand-in U+FFFD is.
CharAt firstChar(std::string_view text);

}  // namespace kvlab
