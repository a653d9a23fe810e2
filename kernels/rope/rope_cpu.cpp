// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cpu/thread_pool.h"
#include "kernels/rope/rope.h"

namespace kvlab {

namespace {

// Cosine and sine of every (token, pair). Queries and keys of all layers turn by the same angles,
// and these cost more than the turning: the caller's last ones are kept.
struct Turns {
    float base = 0;
    float scale = 0;
    int num_pairs = 0;
    std::vector<float> divisors;
    std::vector<int32_t> positions;
    std::vector<float> values;  // [num_tokens, num_pairs, 2]

    // Angles in double: at position 2,000 a float angle is already wrong in its fourth digit.
    void make(const RopeParams& p) {
        const int wanted_pairs = p.rope_dim / 2;
        const auto same = [](const auto& kept, const auto* wanted, int count) {
            return kept.size() == static_cast<size_t>(count) &&
                   std::equal(kept.begin(), kept.end(), wanted);
        };
        if (base == p.base && scale == p.scale && num_pairs == wanted_pairs &&
            same(divisors, p.divisors, p.divisors == nullptr ? 0 : wanted_pairs) &&
            same(positions, p.positions, p.num_tokens)) {
            return;
        }
        base = p.base;
        scale = p.scale;
        num_pairs = wanted_pairs;
        divisors.assign(p.divisors, p.divisors + (p.divisors == nullptr ? 0 : num_pairs));
        positions.assign(p.positions, p.positions + p.num_tokens);
        std::vector<double> frequency(static_cast<size_t>(num_pairs));
        for (int i = 0; i < num_pairs; ++i) {
            frequency[static_cast<size_t>(i)] =
                std::pow(static_cast<double>(p.base), -2.0 * i / p.rope_dim) * p.scale /
                (p.divisors == nullptr ? 1. : p.divisors[i]);
        }
        values.clear();
        for (int token = 0; token < p.num_tokens; ++token) {
            for (const double turn : frequency) {
                const double angle = p.positions[token] * turn;
                values.push_back(static_cast<float>(std::cos(angle)));
                values.push_back(static_cast<float>(std::sin(angle)));
            }
        }
    }
};

}  // namespace

void ropeCpu(const RopeParams& p, ExecutionContext& context) {
    thread_local Turns turns;
    turns.make(p);
    const float* values = turns.values.data();  // the threads have turns of their own
    const int num_pairs = p.rope_dim / 2;
    const bool half_split = p.style == RopeStyle::kHalfSplit;
    const int step = half_split ? 1 : 2;             // from one pair to the next
    const int partner = half_split ? num_pairs : 1;  // from one value of a pair to the other
    const auto turnHeads = [&](float* data, int num_heads, int64_t token) {
        const float* turn = values + token * num_pairs * 2;
        for (int head = 0; head < num_heads; ++head) {
            float* pair = data + (token * num_heads + head) * p.head_dim;
            for (int i = 0; i < num_pairs; ++i, pair += step) {
                const float cosine = turn[2 * i];
                const float sine = turn[2 * i + 1];
                const float x = pair[0];
                const float y = pair[partner];
                pair[0] = x * cosine - y * sine;
                pair[partner] = x * sine + y * cosine;
            }
        }
    };
    context.threads->parallelFor(p.num_tokens, 4, [&](int64_t begin, int64_t end) {
        for (int64_t token = begin; token < end; ++token) {
            turnHeads(p.data, p.num_heads, token);
            turnHeads(p.more_data, p.num_more_heads, token);
        }
    });
}

}  // namespace kvlab
