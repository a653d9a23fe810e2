// SPDX-License-Identifier: MIT
#include "engine/text_format.h"

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

}  // namespace kvlab
