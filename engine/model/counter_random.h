// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace kvlab {

// A bijective 64-bit mixer (xor-shift-multiply with the constants of SplitMix64: Steele, Lea and
// Flood, OOPSLA 2014).
constexpr uint64_t mixBits(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

// 64 random bits that are a pure function of (key, stream, counter): no state, no order of calls.
// One round of the mixer for each input, so inputs that differ in one bit give unrelated output.
constexpr uint64_t counterRandom(uint64_t key, uint64_t stream, uint64_t counter) {
    // 2^64 / golden ratio, because the mixer alone maps 0 to 0.
    const uint64_t offset = 0x9e3779b97f4a7c15u;
    return mixBits(mixBits(mixBits(key + offset) + stream + offset) + counter + offset);
}

// The top 53 bits as a number in [0, 1).
constexpr double counterUniform(uint64_t key, uint64_t stream, uint64_t counter) {
    return static_cast<double>(counterRandom(key, stream, counter) >> 11) * 0x1p-53;
}

}  // namespace kvlab
