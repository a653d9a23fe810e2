// SPDX-License-Identifier: MIT
#include "engine/scheduling/beam_search.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "engine/model/sampler.h"

namespace kvlab {

std::vector<BeamCandidate> bestContinuations(const std::vector<BeamRow>& rows,
                                             int vocab_size,
                                             int count) {
    std::vector<BeamCandidate> candidates;
    std::vector<int> ids(static_cast<size_t>(vocab_size));
    const size_t kept = static_cast<size_t>(std::min(count, vocab_size));
    for (size_t beam = 0; beam < rows.size(); ++beam) {
        const float* logits = rows[beam].logits;
        std::iota(ids.begin(), ids.end(), 0);
        std::partial_sort(
            ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(kept), ids.end(),
            [&](int a, int b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
        for (size_t i = 0; i < kept; ++i) {
            const TokenId token(ids[i]);
            const float own = logProbability(logits, vocab_size, token);
            candidates.push_back(
                {static_cast<int>(beam), token, own, rows[beam].log_probability + double{own}});
        }
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const BeamCandidate& a, const BeamCandidate& b) {
                         return a.log_probability > b.log_probability;
                     });
    if (candidates.size() > static_cast<size_t>(count)) {
        candidates.resize(static_cast<size_t>(count));
    }
    return candidates;
}

BeamStep chooseBeams(const std::vector<BeamCandidate>& candidates,
                     int width,
                     const std::function<bool(TokenId)>& ends,
                     std::vector<double>& finished_sums) {
    BeamStep step;
    const size_t most = static_cast<size_t>(width);
    for (size_t rank = 0; rank < candidates.size() && step.live.size() < most; ++rank) {
        const BeamCandidate& candidate = candidates[rank];
        if (ends(candidate.token)) {
            if (rank < most) {
                step.finished.push_back(candidate);
                finished_sums.push_back(candidate.log_probability);
            }
        } else {
            step.live.push_back(candidate);
        }
    }
    std::sort(finished_sums.begin(), finished_sums.end(), std::greater<>());
    if (finished_sums.size() >= most) {
        const double last = finished_sums[most - 1];
        std::erase_if(step.live, [&](const BeamCandidate& c) { return c.log_probability <= last; });
    }
    return step;
}

}  // namespace kvlab
