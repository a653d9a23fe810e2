// SPDX-License-Identifier: MIT
#include "engine/model/unicode_class.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "engine/model/utf8.h"

namespace kvlab {
namespace {

struct ClassRange {
    uint32_t first;
    uint32_t last;
    CharClass char_class;
};

using enum CharClass;
constexpr ClassRange kRanges[] = {
#include "engine/model/unicode_class_table.inc"
};

CharClass classInTable(uint32_t code) {
    const auto* after = std::upper_bound(
        std::begin(kRanges), std::end(kRanges), code,
        [](uint32_t wanted, const ClassRange& range) { return wanted < range.first; });
    if (after == std::begin(kRanges)) return CharClass::kOther;
    const ClassRange& range = *std::prev(after);
    return code <= range.last ? range.char_class : CharClass::kOther;
}

}  // namespace

CharAt firstChar(std::string_view text) {
    // Most text is ASCII: one look-up.
    static const std::array<CharClass, 128> kAscii = [] {
        std::array<CharClass, 128> classes{};
        for (uint32_t code = 0; code < 128; ++code) classes[code] = classInTable(code);
        return classes;
    }();
    if (text.empty()) return {};
    const auto byteAt = [&](size_t i) { return uint32_t{static_cast<uint8_t>(text[i])}; };
    const uint32_t first = byteAt(0);
    if (first < 0x80) return {1, first, kAscii[first]};
    const size_t length = utf8CharacterLength(text);
    if (length == 0) return {1, 0xfffd, CharClass::kOther};
    uint32_t code = first & (0x7fU >> length);
    for (size_t i = 1; i < length; ++i) code = (code << 6) | (byteAt(i) & 0x3f);
    return {length, code, classInTable(code)};
}

}  // namespace kvlab
