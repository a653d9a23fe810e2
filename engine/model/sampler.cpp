// SPDX-License-Identifier: MIT
#include "engine/model/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "engine/error.h"
#include "engine/model/counter_random.h"

namespace kvlab {
namespace {

// Ids of the tokens that top_k and top_p leave, ascending. `weights` [vocab_size]: probability of
// each token, times one common factor.
std::vector<int> keptTokens(const float* logits,
                            const std::vector<double>& weights,
                            int top_k,
                            float top_p) {
    std::vector<int> ids(weights.size());
    std::iota(ids.begin(), ids.end(), 0);
    const bool cuts_count = top_k > 0 && static_cast<size_t>(top_k) < ids.size();
    if (!cuts_count && top_p >= 1.f) return ids;

    const auto isBetter = [logits](int a, int b) {
        return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    };
    if (cuts_count) {
        std::nth_element(ids.begin(), ids.begin() + top_k, ids.end(), isBetter);
        ids.resize(static_cast<size_t>(top_k));
    }
    if (top_p < 1.f) {
        std::sort(ids.begin(), ids.end(), isBetter);
        double total = 0.0;
        for (const int id : ids) total += weights[static_cast<size_t>(id)];
        const double wanted = total * double{top_p};
        double sum = 0.0;
        size_t num_kept = 0;
        while (num_kept < ids.size() && (num_kept == 0 || sum < wanted)) {
            sum += weights[static_cast<size_t>(ids[num_kept++])];
        }
        ids.resize(num_kept);
    }
    std::sort(ids.begin(), ids.end());
    return ids;
}

[[noreturn]] void refuseLogit(int id, int position) {
    throw EngineError(ErrorKind::kBadFile,
                      "the model gave token " + std::to_string(id) + " at position " +
                          std::to_string(position) +
                          " a logit that is no number, so its weights are damaged; fetch or "
                          "export its file again");
}

}  // namespace

void checkSamplingParams(const SamplingParams& params) {
    const auto fail = [](const std::string& what) {
        throw EngineError(ErrorKind::kBadArgument, what);
    };
    if (!(params.temperature >= 0.f) || !std::isfinite(params.temperature)) {
        fail("the temperature is " + std::to_string(params.temperature) +
             ", but must be a number of at least 0");
    }
    if (params.top_k < 0) {
        fail("top-k is " + std::to_string(params.top_k) +
             ", but must be at least 0 (0: all tokens)");
    }
    if (!(params.top_p > 0.f && params.top_p <= 1.f)) {
        fail("top-p is " + std::to_string(params.top_p) + ", but must be above 0 and at most 1");
    }
}

void checkLogits(const float* logits, int vocab_size, int position) {
    for (int id = 0; id < vocab_size; ++id) {
        if (!std::isfinite(logits[id])) refuseLogit(id, position);
    }
}

SampledToken sampleToken(const float* logits,
                         int vocab_size,
                         const SamplingParams& params,
                         int sample_idx,
                         int position) {
    checkSamplingParams(params);
    if (logits == nullptr || vocab_size < 1 || sample_idx < 0 || position < 0) {
        throw EngineError(ErrorKind::kBadArgument,
                          "sampling needs logits and a sample and position of at least 0");
    }
    int best = 0;
    for (int id = 0; id < vocab_size; ++id) {
        if (!std::isfinite(logits[id])) refuseLogit(id, position);
        if (logits[id] > logits[best]) best = id;
    }
    const double max_logit = logits[best];

    int chosen = best;
    if (params.temperature > 0.f) {
        std::vector<double> weights(static_cast<size_t>(vocab_size));
        for (int id = 0; id < vocab_size; ++id) {
            weights[static_cast<size_t>(id)] =
                std::exp((logits[id] - max_logit) / double{params.temperature});
        }
        // Walking by id, not by rank: two backends whose logits differ in the last bit order
        // near-equal tokens differently, but still land on the same one.
        const std::vector<int> kept = keptTokens(logits, weights, params.top_k, params.top_p);
        double kept_total = 0.0;
        for (const int id : kept) kept_total += weights[static_cast<size_t>(id)];
        const double target =
            kept_total * counterUniform(params.seed, static_cast<uint64_t>(sample_idx),
                                        static_cast<uint64_t>(position));
        double sum = 0.0;
        for (const int id : kept) {
            const double weight = weights[static_cast<size_t>(id)];
            if (weight == 0.0) continue;  // underflowed: never to be chosen
            chosen = id;  // the last one also catches a target that rounding left above the sum
            sum += weight;
            if (target < sum) break;
        }
    }
    return {TokenId(chosen), logProbability(logits, vocab_size, TokenId(chosen))};
}

float logProbability(const float* logits, int vocab_size, TokenId token) {
    if (logits == nullptr || !token.valid() || token.value >= vocab_size) {
        throw EngineError(ErrorKind::kBadArgument,
                          "a token outside the vocabulary has no probability");
    }
    const double max_logit = *std::max_element(logits, logits + vocab_size);
    double total = 0.0;  // of the softmax at temperature 1, relative to the largest logit
    for (int id = 0; id < vocab_size; ++id) total += std::exp(logits[id] - max_logit);
    return static_cast<float>(logits[token.value] - max_logit - std::log(total));
}

}  // namespace kvlab
