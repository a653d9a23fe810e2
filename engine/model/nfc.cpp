// SPDX-License-Identifier: MIT
#include "engine/model/nfc.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/error.h"
#include "engine/model/utf8.h"

#ifdef KVLAB_UTF8PROC
#include <utf8proc.h>
#endif

namespace kvlab {

#ifdef KVLAB_UTF8PROC

namespace {

// Code points that a segment may have before an ASCII character ends it: none of those joins what
// stands before it, and memory stays small.
constexpr size_t kSegmentCodes = 4096;

int combiningClass(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

// Appends the form of `codes`, decomposed but not in order, and empties it. The library would sort
// marks by exchanging neighbours, which takes n^2 for a long run of them, so they come sorted.
void compose(std::vector<utf8proc_int32_t>& codes, std::string& out) {
    for (auto begin = codes.begin(); begin != codes.end();) {
        const auto isStarter = [](utf8proc_int32_t code) { return combiningClass(code) == 0; };
        begin = std::find_if_not(begin, codes.end(), isStarter);
        const auto end = std::find_if(begin, codes.end(), isStarter);
        std::stable_sort(begin, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
            return combiningClass(a) < combiningClass(b);
        });
        begin = end;
    }
    const utf8proc_ssize_t count = utf8proc_normalize_utf32(
        codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    KVLAB_CHECK(count >= 0, "libutf8proc refused code points that are valid");
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
        utf8proc_uint8_t bytes[4];
        const utf8proc_ssize_t num_bytes =
            utf8proc_encode_char(codes[static_cast<size_t>(i)], bytes);
        out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(num_bytes));
    }
    codes.clear();
}

void decompose(utf8proc_int32_t code, std::vector<utf8proc_int32_t>& codes) {
    // No character has a canonical decomposition of more than four.
    utf8proc_int32_t parts[16];
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(
        code, parts, 16, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE),
        &boundary);
    KVLAB_CHECK(count >= 0 && count <= 16, "libutf8proc refused a code point that is valid");
    codes.insert(codes.end(), parts, parts + count);
}

}  // namespace

bool canNormalise() { return true; }

std::string toNfc(std::string_view text) {
    // Below U+0300 every text is in this form; UTF-8 of the rest starts with 0xCC or above.
    const auto isLow = [](char c) { return static_cast<uint8_t>(c) < 0xcc; };
    if (std::all_of(text.begin(), text.end(), isLow)) return std::string(text);
    std::string out;
    out.reserve(text.size());
    std::vector<utf8proc_int32_t> codes;
    while (!text.empty()) {
        const size_t length = utf8CharacterLength(text);
        if (length == 0) {
            compose(codes, out);
            out += text.front();
            text.remove_prefix(1);
            continue;
        }
        if (length == 1 && codes.size() >= kSegmentCodes) compose(codes, out);
        utf8proc_int32_t code = 0;
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                         static_cast<utf8proc_ssize_t>(length), &code);
        decompose(code, codes);
        text.remove_prefix(length);
    }
    compose(codes, out);
    return out;
}

#else

bool canNormalise() { return false; }
std::string toNfc(std::string_view text) { return std::string(text); }

#endif

}  // namespace kvlab
