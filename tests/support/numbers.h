// SPDX-License-Identifier: MIT
#pragma once

// Random numbers and errors, as the tests of kernels and models share them. No Qt.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace kvlab {

inline std::vector<float> normalValues(size_t count, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    return values;
}

// max |a - b| / max |b|; infinite when a NaN is among them or the lengths differ.
template <typename T>
double relativeError(const std::vector<float>& actual, const std::vector<T>& expected) {
    if (actual.size() != expected.size()) return INFINITY;
    double worst = 0;
    double largest = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
        const double wanted = expected[i];
        const double error = std::abs(static_cast<double>(actual[i]) - wanted);
        if (!(error <= worst)) worst = std::isnan(error) ? INFINITY : error;
        largest = std::max(largest, std::abs(wanted));
    }
    return worst == 0 ? 0 : worst / largest;
}

}  // namespace kvlab
