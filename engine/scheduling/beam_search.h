// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <vector>

#include "engine/ids.h"

namespace kvlab {

// A beam before its next token.
struct BeamRow {
    const float* logits = nullptr;  // [vocab_size]
    double log_probability = 0;     // sum over its sampled tokens
};

// One continuation of one beam.
struct BeamCandidate {
    int beam = 0;  // index of its row
    TokenId token;
    float token_log_probability = 0;  // natural logarithm
    double log_probability = 0;       // sum, this token included
};

// The `count` most probable continuations of all beams together, best first; equals go by beam,
// then by token, so the same logits always give the same beams.
std::vector<BeamCandidate> bestContinuations(const std::vector<BeamRow>& rows,
                                             int vocab_size,
                                             int count);

// What becomes of the candidates (taken best first): the best `width` that go on, and those among
// the best `width` that end their text. Scores are plain sums, so a sum never grows: with `width`
// finished texts, none of the live ones worse than the last of them can enter any more.
struct BeamStep {
    std::vector<BeamCandidate> live;
    std::vector<BeamCandidate> finished;
};
// `ends`: the token ends its text. `finished_sums`: of the request so far; the new ones are added.
BeamStep chooseBeams(const std::vector<BeamCandidate>& candidates,
                     int width,
                     const std::function<bool(TokenId)>& ends,
                     std::vector<double>& finished_sums);

}  // namespace kvlab
