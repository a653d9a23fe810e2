// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace kvlab {

// The value below which `percent` of the values lie, with a straight line between the two nearest
// of them: at rank percent / 100 · (n - 1), counted from 0 in sorted order (Hyndman and Fan,
// "Sample Quantiles in Statistical Packages", The American Statistician 50 (4), 1996, type 7;
// NumPy's and R's default). `percent` is 0 … 100. Reorders `values`, which must not be empty nor
// hold NaN.
double percentileOf(std::vector<double>& values, double percent);

// What a column of times is summed up in.
struct Percentiles {
    int64_t count = 0;  // values
    double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};
// Empty for no values: nothing was measured.
std::optional<Percentiles> percentilesOf(std::vector<double> values);

}  // namespace kvlab
