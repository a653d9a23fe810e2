// SPDX-License-Identifier: MIT
#include "engine/text_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace kvlab {

std::string formatCount(int64_t value) {
    std::string digits = std::to_string(value);
    const size_t first = value < 0 ? 1 : 0;
    for (size_t end = digits.size(); end > first + 3;) {
        end -= 3;
        digits.insert(end, ",");
    }
    return digits;
}

std::string formatBytes(int64_t bytes) {
    static constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(bytes);
    size_t unit = 0;
    while (std::abs(value) >= 1024.0 && unit + 1 < kUnits.size()) {
        value /= 1024.0;
        ++unit;
    }
    char text[64];
    if (unit == 0 || value == std::floor(value)) {
        std::snprintf(text, sizeof text, "%.0f %s", value, kUnits[unit]);
    } else {
        std::snprintf(text, sizeof text, "%.*f %s",
                      value < 10    ? 2
                      : value < 100 ? 1
                                    : 0,
                      value, kUnits[unit]);
    }
    return text;
}

std::string formatNeed(const std::string& purpose, int64_t num_bytes) {
    return purpose + (purpose.ends_with("weights") ? " need " : " needs ") + formatBytes(num_bytes);
}

std::string counted(int64_t count, const char* one, const char* many) {
    return formatCount(count) + " " + (count == 1 ? one : many);
}

std::string oneLine(const std::string& text) {
    constexpr size_t kLongest = 120;  // bytes
    std::string line = text.substr(0, std::min(text.find_first_of("\r\n"), text.size()));
    if (line.size() <= kLongest) return line;
    size_t end = kLongest;
    while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) --end;
    return line.substr(0, end) + "…";
}

}  // namespace kvlab
