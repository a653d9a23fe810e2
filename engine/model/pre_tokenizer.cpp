// SPDX-License-Identifier: MIT
#include "engine/model/pre_tokenizer.h"

#include <cstdint>

#include "engine/model/unicode_class.h"

namespace kvlab {
namespace {

bool isNewline(const CharAt& character) { return character.code == '\n' || character.code == '\r'; }

// Bytes of the run of `char_class` at `begin`, at most `max_chars` characters of it.
size_t runBytes(std::string_view text,
                size_t begin,
                CharClass char_class,
                size_t max_chars = SIZE_MAX) {
    size_t end = begin;
    for (size_t i = 0; i < max_chars; ++i) {
        const CharAt next = firstChar(text.substr(end));
        if (next.num_bytes == 0 || next.char_class != char_class) break;
        end += next.num_bytes;
    }
    return end - begin;
}

// 's 't 're 've 'm 'll 'd at the start of `text`; 0: none. `any_case` as (?i:…): U+017F ſ is the
// one character beyond ASCII that folds to one of these letters.
size_t contractionBytes(std::string_view text, bool any_case) {
    if (text.empty() || text[0] != '\'') return 0;
    const auto letterAt = [&](size_t pos) -> CharAt {
        CharAt letter = firstChar(text.substr(pos));
        if (any_case && letter.code >= 'A' && letter.code <= 'Z') letter.code += 'a' - 'A';
        if (any_case && letter.code == 0x17f) letter.code = 's';
        return letter;
    };
    const CharAt first = letterAt(1);
    switch (first.code) {
        case 's':
        case 't':
        case 'm':
        case 'd':
            return 1 + first.num_bytes;
        case 'r':
        case 'v':
            return letterAt(2).code == 'e' ? 3 : 0;
        case 'l':
            return letterAt(2).code == 'l' ? 3 : 0;
        default:
            return 0;
    }
}

// \s+(?!\S)|\s+ at a space: the run, less its last character where text follows, which takes that
// one along; a lone space that cannot be given away stands alone. With `newlines_end`, \s*[\r\n]+
// comes first: up to the last line break of the run.
size_t spaceBytes(std::string_view text, bool newlines_end) {
    size_t end = 0;
    size_t last_begin = 0;
    size_t newline_end = 0;
    CharAt next = firstChar(text);
    while (next.num_bytes > 0 && next.char_class == CharClass::kSpace) {
        last_begin = end;
        end += next.num_bytes;
        if (isNewline(next)) newline_end = end;
        next = firstChar(text.substr(end));
    }
    if (newlines_end && newline_end > 0) return newline_end;
    if (next.num_bytes == 0 || last_begin == 0) return end;
    return last_begin;
}

size_t gpt2Bytes(std::string_view text, bool lone_numbers) {
    if (const size_t contraction = contractionBytes(text, false); contraction > 0) {
        return contraction;
    }
    const CharAt first = firstChar(text);
    if (lone_numbers && first.char_class == CharClass::kNumber) return first.num_bytes;
    // " ?" before a run of one class; a number that stands alone ends the text for what precedes
    // it.
    const size_t begin = first.code == ' ' ? 1 : 0;
    const CharAt start = firstChar(text.substr(begin));
    const bool at_end =
        start.num_bytes == 0 || (lone_numbers && start.char_class == CharClass::kNumber);
    if (!at_end && start.char_class != CharClass::kSpace) {
        return begin + runBytes(text, begin, start.char_class);
    }
    if (!lone_numbers) return spaceBytes(text, false);
    const size_t run = runBytes(text, 0, CharClass::kSpace);
    const CharAt after = firstChar(text.substr(run));
    return spaceBytes(after.char_class == CharClass::kNumber ? text.substr(0, run) : text, false);
}

size_t llama3Bytes(std::string_view text, size_t max_digits) {
    if (const size_t contraction = contractionBytes(text, true); contraction > 0) {
        return contraction;
    }
    const CharAt first = firstChar(text);
    if (first.char_class == CharClass::kLetter) return runBytes(text, 0, CharClass::kLetter);
    if (first.char_class == CharClass::kNumber) {
        return runBytes(text, 0, CharClass::kNumber, max_digits);
    }
    const CharAt second = firstChar(text.substr(first.num_bytes));
    if (!isNewline(first) && second.num_bytes > 0 && second.char_class == CharClass::kLetter) {
        return first.num_bytes + runBytes(text, first.num_bytes, CharClass::kLetter);
    }
    const size_t begin = first.code == ' ' ? 1 : 0;
    const size_t others = runBytes(text, begin, CharClass::kOther);
    if (others == 0) return spaceBytes(text, true);
    size_t end = begin + others;
    while (end < text.size() && (text[end] == '\r' || text[end] == '\n')) ++end;
    return end;
}

}  // namespace

std::optional<PreTokenizer> preTokenizerByName(std::string_view name) {
    if (name == "llama-bpe" || name == "llama3" || name == "llama-v3") return PreTokenizer::kLlama3;
    if (name == "qwen2") return PreTokenizer::kQwen2;
    if (name == "smollm") return PreTokenizer::kSmolLm;
    if (name == "gpt-2" || name == "default") return PreTokenizer::kGpt2;
    return std::nullopt;
}

size_t firstPieceBytes(PreTokenizer rule, std::string_view text) {
    if (text.empty()) return 0;
    switch (rule) {
        case PreTokenizer::kGpt2:
            return gpt2Bytes(text, false);
        case PreTokenizer::kLlama3:
            return llama3Bytes(text, 3);
        case PreTokenizer::kQwen2:
            return llama3Bytes(text, 1);
        case PreTokenizer::kSmolLm:
            return gpt2Bytes(text, true);
    }
    return text.size();
}

}  // namespace kvlab
