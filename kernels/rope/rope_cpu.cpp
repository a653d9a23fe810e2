// SPDX-License-Identifier: MIT
#include <cmath>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/rope/rope.h"

namespace kvlab {

// Angles in double: at position 2,000 a float angle is already wrong in its fourth digit.
void ropeCpu(const RopeParams& p, ExecutionContext& context) {
    const int num_pairs = p.rope_dim / 2;
    std::vector<double> frequency(static_cast<size_t>(num_pairs));
    for (int i = 0; i < num_pairs; ++i) {
        frequency[static_cast<size_t>(i)] =
            std::pow(static_cast<double>(p.base), -2.0 * i / p.rope_dim) * p.scale /
            (p.divisors == nullptr ? 1. : p.divisors[i]);
    }
    const bool half_split = p.style == RopeStyle::kHalfSplit;
    const int step = half_split ? 1 : 2;             // from one pair to the next
    const int partner = half_split ? num_pairs : 1;  // from one value of a pair to the other
    context.threads->parallelFor(p.num_tokens, 16, [&](int64_t begin, int64_t end) {
        thread_local std::vector<float> turn;  // [num_pairs, 2]: cosine, sine
        turn.resize(static_cast<size_t>(num_pairs) * 2);
        for (int64_t token = begin; token < end; ++token) {
            for (int i = 0; i < num_pairs; ++i) {
                const double angle = p.positions[token] * frequency[static_cast<size_t>(i)];
                turn[static_cast<size_t>(2 * i)] = static_cast<float>(std::cos(angle));
                turn[static_cast<size_t>(2 * i + 1)] = static_cast<float>(std::sin(angle));
            }
            for (int head = 0; head < p.num_heads; ++head) {
                float* pair = p.data + (token * p.num_heads + head) * p.head_dim;
                for (int i = 0; i < num_pairs; ++i, pair += step) {
                    const float cosine = turn[static_cast<size_t>(2 * i)];
                    const float sine = turn[static_cast<size_t>(2 * i + 1)];
                    const float x = pair[0];
                    const float y = pair[partner];
                    pair[0] = x * cosine - y * sine;
                    pair[partner] = x * sine + y * cosine;
                }
            }
        }
    });
}

}  // namespace kvlab
