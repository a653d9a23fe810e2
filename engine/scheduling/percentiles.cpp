// SPDX-License-Identifier: MIT
#include "engine/scheduling/percentiles.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/error.h"

namespace kvlab {

double percentileOf(std::vector<double>& values, double percent) {
    KVLAB_CHECK(!values.empty() && percent >= 0 && percent <= 100,
                "a percentile of no values, or outside 0 to 100, was asked for");
    const double rank = percent / 100 * static_cast<double>(values.size() - 1);
    const double below = std::floor(rank);
    const auto place = values.begin() + static_cast<int64_t>(below);
    std::nth_element(values.begin(), place, values.end());
    if (rank == below) return *place;
    // What follows `place` is not smaller; the smallest of it is the next in sorted order.
    const double next = *std::min_element(place + 1, values.end());
    return *place + (next - *place) * (rank - below);
}

std::optional<Percentiles> percentilesOf(std::vector<double> values) {
    if (values.empty()) return std::nullopt;
    Percentiles result;
    result.count = static_cast<int64_t>(values.size());
    result.mean =
        std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
    result.max = *std::max_element(values.begin(), values.end());
    result.p50 = percentileOf(values, 50);
    result.p90 = percentileOf(values, 90);
    result.p99 = percentileOf(values, 99);
    return result;
}

}  // namespace kvlab
