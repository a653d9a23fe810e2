// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <tuple>
#include <vector>

#include "engine/engine.h"
#include "engine/ids.h"
#include "engine/trace/event.h"

namespace kvlab {

enum class Phase { kPrefill, kDecode, kFinished };

// One sample or beam of a request: waiting, running, or preempted and waiting again.
struct Sequence {
    SequenceId id;  // not valid() before it starts
    RequestId request_id;
    std::shared_ptr<const EngineRequest> request;
    int sample_idx = 0;
    Phase phase = Phase::kPrefill;
    std::vector<TokenId> tokens;  // prompt, then sampled; empty before it starts
    int num_sampled = 0;          // tokens
    double log_probability = 0;   // sum over the sampled tokens
    bool forked = false;          // its request's other samples exist
    FinishReason finish = FinishReason::kNone;
    PreemptionKind preempted = PreemptionKind::kNone;
    int recompute_len = 0;    // tokens whose K/V a preemption dropped
    uint32_t told_waits = 0;  // since it joined the queue: bits by DecisionReason

    // Slab waste, known when the last length is: sums over the steps in which it held its run.
    int64_t num_steps_held = 0;
    int64_t unused_slot_steps = 0;

    bool isBeam() const { return request->num_beams > 1; }

    // Who goes first: priority, then arrival, then sample. The queue, the order of rows in a step
    // and (from the other end) the choice of a victim all go by it.
    using Key = std::tuple<int, RequestId, int, SequenceId>;
    Key key() const { return {-request->priority, request_id, sample_idx, id}; }
};

}  // namespace kvlab
