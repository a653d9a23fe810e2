// SPDX-License-Identifier: MIT
#pragma once

#include "engine/config.h"
#include "engine/ids.h"

namespace kvlab {

struct SampledToken {
    TokenId token;
    // Natural logarithm of the token's probability under the model itself: temperature 1, nothing
    // cut off. So greedy, sampled and beam runs can be compared by it.
    float log_probability = 0.f;
};

// Throws EngineError kBadFile for a logit of [vocab_size] that is no finite number (damaged
// weights); `position` is that of the token to come.
void checkLogits(const float* logits, int vocab_size, int position);

// Chooses the next token from `logits` [vocab_size]. Temperature 0: the largest logit, the lowest
// id among equals. Otherwise temperature, then top_k (ties at the edge: lower ids stay), then top_p
// over what top_k left; at least one token stays. The random number depends on (params.seed,
// sample_idx, position) alone, never on which step or batch asked, so a preempted or replayed
// sequence repeats its tokens. `position` is the place the new token takes in its sequence. Throws
// EngineError kBadArgument for impossible parameters, kBadFile for a logit that is no finite number
// (damaged weights).
SampledToken sampleToken(const float* logits,
                         int vocab_size,
                         const SamplingParams& params,
                         int sample_idx,
                         int position);

// Natural logarithm of the probability of `token` under the model itself (temperature 1). Throws as
// sampleToken().
float logProbability(const float* logits, int vocab_size, TokenId token);

// Throws EngineError kBadArgument, naming the parameter, when `params` cannot be used.
void checkSamplingParams(const SamplingParams& params);

}  // namespace kvlab
