// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>

#include "kernels/paged_kv_view.h"

namespace kvlab {

// The running softmax of one (row, head): what must be kept of the scores seen so far so that a
// weighted sum over them can go on without seeing them again (Milakov & Gimelshein 2018;
// FlashAttention, Dao et al. 2022).
//
//   max = max_i s_i        sum = sum_i exp(s_i - max)        output = sum_i exp(s_i - max) V_i
//
// The output belongs to the caller (it may be spread over lanes); whoever changes `max` multiplies
// it by the factor that raise() or merge() returns. Divided by `sum` at the very end.
//
// Empty state: max = -infinity, sum = 0, output = 0. exp(-inf - -inf) would be NaN, so a factor
// whose old and new maximum are both -infinity is 1 and a weight under that maximum is 0: adding a
// tile with every score masked (-infinity), or merging an empty state, changes nothing; merging two
// empty states stays empty; inverseSum() of an empty state is 0, so its output is 0 and not NaN.
//
// A tile of scores joins so:
//   const float factor = state.raise(tile_max);              then output *= factor
//   for each score: w = state.weight(score);                 then tile_sum += w, output += w * V
//   state.sum += tile_sum;
struct OnlineSoftmax {
    float max = -INFINITY;
    float sum = 0.f;

    KVLAB_HOST_DEVICE bool empty() const { return max == -INFINITY; }

    // exp(from - to) for two maxima, from <= to.
    KVLAB_HOST_DEVICE static float factor(float from, float to) {
        return from == to ? 1.f : expf(from - to);
    }

    // Makes room for scores up to `tile_max`; returns what the output so far is to be multiplied
    // by.
    KVLAB_HOST_DEVICE float raise(float tile_max) {
        const float new_max = tile_max > max ? tile_max : max;
        const float scale = factor(max, new_max);
        sum *= scale;
        max = new_max;
        return scale;
    }

    // Weight of a score that is not above `max`; the caller adds it to `sum`.
    KVLAB_HOST_DEVICE float weight(float score) const {
        return score == -INFINITY ? 0.f : expf(score - max);
    }

    // Joins the state of other positions. The outputs follow as: output * own + other_output *
    // theirs.
    struct MergeFactors {
        float own;
        float theirs;
    };
    KVLAB_HOST_DEVICE MergeFactors merge(const OnlineSoftmax& other) {
        const float new_max = other.max > max ? other.max : max;
        const MergeFactors factors{factor(max, new_max), factor(other.max, new_max)};
        sum = sum * factors.own + other.sum * factors.theirs;
        max = new_max;
        return factors;
    }

    KVLAB_HOST_DEVICE float inverseSum() const { return sum > 0.f ? 1.f / sum : 0.f; }
};

}  // namespace kvlab
