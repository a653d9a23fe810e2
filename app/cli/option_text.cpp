// SPDX-License-Identifier: MIT
#include "app/cli/option_text.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <fcntl.h>
#include <poll.h>
#include <system_error>
#include <unistd.h>

#include "engine/error.h"
#include "engine/input_file.h"
#include "engine/model/utf8.h"
#include "engine/sizing/kv_size.h"
#include "engine/text_format.h"

namespace kvlab {

namespace {

constexpr size_t kMaxTextFileBytes = size_t{64} << 20;

[[noreturn]] void refuse(std::string_view option, const std::string& wanted, std::string_view got) {
    throw EngineError(ErrorKind::kBadArgument,
                      std::string(option) + " wants " + wanted + ", not " + quotedForMessage(got));
}

std::string realText(double value) {
    std::array<char, 32> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value);
    return {text.data(), end.ptr};
}

// The whole text as a number; false when anything is left over or it does not fit.
template <class Number>
bool readNumber(std::string_view text, Number& value) {
    if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

// A file's size is not asked for: files that the system makes up (/proc) say 0 and hold text, or
// fail when they are read.
std::string readToEnd(int fd, const std::string& name) {
    std::string text;
    std::array<char, 65536> chunk{};
    while (true) {
        const ssize_t count = ::read(fd, chunk.data(), chunk.size());
        if (count == 0) return text;
        if (count < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN) {  // a pipe that whoever started us has set not to wait
                pollfd wait = {fd, POLLIN, 0};
                ::poll(&wait, 1, -1);
                continue;
            }
            throw EngineError(ErrorKind::kBadFile, name + " cannot be read (" +
                                                       std::generic_category().message(errno) +
                                                       "); give a text that can");
        }
        text.append(chunk.data(), static_cast<size_t>(count));
        if (text.size() > kMaxTextFileBytes) {
            throw EngineError(ErrorKind::kBadFile,
                              name + " is larger than 64 MiB; use a shorter text");
        }
    }
}

}  // namespace

int64_t parseWhole(std::string_view option, std::string_view text, int64_t low, int64_t high) {
    int64_t value = 0;
    if (!readNumber(text, value) || value < low || value > high) {
        refuse(option, "a whole number from " + formatCount(low) + " to " + formatCount(high),
               text);
    }
    return value;
}

int64_t parseWhole(std::string_view option,
                   const std::optional<std::string>& text,
                   int64_t low,
                   int64_t high,
                   int64_t fallback) {
    return text ? parseWhole(option, std::string_view(*text), low, high) : fallback;
}

uint64_t parseSeed(std::string_view option, const std::optional<std::string>& text) {
    if (!text) return 0;
    uint64_t value = 0;
    if (!readNumber(std::string_view(*text), value)) {
        refuse(option, "a whole number from 0 to 2^64 - 1", *text);
    }
    return value;
}

double parseReal(std::string_view option,
                 const std::optional<std::string>& text,
                 double low,
                 double high,
                 double fallback) {
    if (!text) return fallback;
    double value = 0;
    if (!readNumber(std::string_view(*text), value) || !std::isfinite(value) || value < low ||
        value > high) {
        refuse(option, "a number from " + realText(low) + " to " + realText(high), *text);
    }
    return value;
}

int64_t parseBytes(std::string_view option,
                   const std::optional<std::string>& text,
                   int64_t low,
                   int64_t high,
                   int64_t fallback) {
    if (!text) return fallback;
    // There is no half a byte.
    if (text->find_first_not_of("0123456789.") != std::string::npos ||
        text->find('.') == std::string::npos) {
        try {
            const int64_t value = parseByteSize(*text);
            if (value >= low && value <= high) return value;
        } catch (const EngineError&) {
        }
    }
    refuse(option,
           "bytes, from " + formatCount(low) + " to " + formatCount(high) + ", such as 141GB",
           *text);
}

std::vector<TokenId> parseTokens(std::string_view option, std::string_view text) {
    std::vector<TokenId> tokens;
    std::string_view rest = text;
    while (true) {
        const size_t comma = rest.find(',');
        int32_t value = 0;
        if (!readNumber(rest.substr(0, comma), value) || value < 0) {
            refuse(option, "token ids such as 1,5,9", text);
        }
        tokens.emplace_back(value);
        if (comma == std::string_view::npos) return tokens;
        rest.remove_prefix(comma + 1);
    }
}

void checkOutputName(std::string_view option, std::string_view name) {
    if (!name.empty()) return;
    throw EngineError(ErrorKind::kBadArgument,
                      std::string(option) + " wants the name of a file to write");
}

std::string readTextFile(const std::string& path) {
    if (path == "-") return readToEnd(STDIN_FILENO, "standard input");
    const std::string name = quotedForMessage(path);
    checkInputFile(path, "give the path of a text file, or - for standard input");
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        throw EngineError(ErrorKind::kBadFile,
                          name + " cannot be opened for reading; check its permissions");
    }
    struct Closer {
        int fd;
        ~Closer() { ::close(fd); }
    } const closer{fd};
    return readToEnd(fd, name);
}

}  // namespace kvlab
