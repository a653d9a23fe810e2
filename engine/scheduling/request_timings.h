// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <vector>

#include "engine/ids.h"
#include "engine/trace/event.h"

namespace kvlab {

// When things happened to a request, in ms of the engine's clock.
struct RequestTimings {
    RequestId request;
    int priority = 0;
    int prompt_len = 0;   // tokens
    int num_sampled = 0;  // tokens, all samples together
    int num_preemptions = 0;
    bool refused = false;  // it can never fit
    double arrived_ms = 0;
    std::optional<double> admitted_ms;          // its first sequence started
    std::optional<double> first_token_ms;       // sampled
    std::optional<double> last_token_ms;        // of its first sequence
    std::optional<double> finished_ms;          // its last sequence finished
    FinishReason finish = FinishReason::kNone;  // of the sequence that finished last
    int num_gaps = 0;                           // between tokens of its first sequence
    double longest_gap_ms = 0;
    std::vector<float> token_gaps_ms;  // of its first sequence; only with keep_history

    std::optional<double> queueMs() const { return since(admitted_ms); }
    std::optional<double> timeToFirstTokenMs() const { return since(first_token_ms); }
    std::optional<double> endToEndMs() const { return since(finished_ms); }
    // Mean gap between tokens of the first sequence.
    std::optional<double> timePerTokenMs() const {
        if (num_gaps == 0) return std::nullopt;
        return (*last_token_ms - *first_token_ms) / num_gaps;
    }

  private:
    std::optional<double> since(const std::optional<double>& moment) const {
        return moment ? std::optional<double>(*moment - arrived_ms) : std::nullopt;
    }
};

}  // namespace kvlab
