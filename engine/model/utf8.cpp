// SPDX-License-Identifier: MIT
#include "engine/model/utf8.h"

#include <cstdint>

namespace kvlab {

size_t utf8CharacterLength(std::string_view text) {
    if (text.empty()) return 0;
    const auto byteAt = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
    const uint8_t first = byteAt(0);
    if (first < 0x80) return 1;
    size_t length = 0;
    // The second byte's range excludes overlong forms, surrogates and values above U+10FFFF.
    uint8_t second_min = 0x80;
    uint8_t second_max = 0xbf;
    if (first >= 0xc2 && first <= 0xdf) {
        length = 2;
    } else if (first >= 0xe0 && first <= 0xef) {
        length = 3;
        if (first == 0xe0) second_min = 0xa0;
        if (first == 0xed) second_max = 0x9f;
    } else if (first >= 0xf0 && first <= 0xf4) {
        length = 4;
        if (first == 0xf0) second_min = 0x90;
        if (first == 0xf4) second_max = 0x8f;
    } else {
        return 0;
    }
    if (text.size() < length) return 0;
    if (byteAt(1) < second_min || byteAt(1) > second_max) return 0;
    for (size_t i = 2; i < length; ++i) {
        if ((byteAt(i) & 0xc0) != 0x80) return 0;
    }
    return length;
}

bool isValidUtf8(std::string_view text) {
    while (!text.empty()) {
        const size_t length = utf8CharacterLength(text);
        if (length == 0) return false;
        text.remove_prefix(length);
    }
    return true;
}

std::string quotedForMessage(std::string_view text) {
    static constexpr size_t kMaxBytes = 60;
    static constexpr std::string_view kHex = "0123456789abcdef";
    std::string quoted = "\"";
    size_t pos = 0;
    while (pos < text.size() && pos < kMaxBytes) {
        const size_t length = utf8CharacterLength(text.substr(pos));
        const auto byte = static_cast<uint8_t>(text[pos]);
        if (length == 0 || byte < 0x20 || byte == 0x7f) {
            quoted += "\\x";
            quoted += kHex[byte >> 4];
            quoted += kHex[byte & 15];
            ++pos;
        } else {
            quoted += text.substr(pos, length);
            pos += length;
        }
    }
    if (pos < text.size()) quoted += "…";
    return quoted + "\"";
}

}  // namespace kvlab
