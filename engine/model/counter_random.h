// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace kvlab {

// 64 random bits that are a pure function of (key, stream, counter): no state, no order of calls.
// Three rounds of a bijective 64-bit mixer (xor-shift-multiply, constants of Steele, Lea and
// Flood's SplitMix64, OOPSLA 2014), one for each input, so inputs that differ in one bit give
// unrelated output.
constexpr uint64_t counterRandom(uint64_t key, uint64_t stream, uint64_t counter) {
    constexpr auto mix = [](uint64_t value) {
        value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
        value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
        return value ^ (value >> 31);
    };
    constexpr uint64_t kGolden =
        0x9e3779b97f4a7c15u;  // 2^64 / golden ratio: keeps 0 from mapping to 0
    return mix(mix(mix(key + kGolden) + stream + kGolden) + counter + kGolden);
}

// The top 53 bits as a number in [0, 1).
constexpr double counterUniform(uint64_t key, uint64_t stream, uint64_t counter) {
    return static_cast<double>(counterRandom(key, stream, counter) >> 11) * 0x1p-53;
}

}  // namespace kvlab
