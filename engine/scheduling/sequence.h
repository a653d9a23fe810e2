// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/ids.h"
#include "engine/trace/event.h"

namespace kvlab {

enum class Phase { kPrefill, kDecode, kFinished };

// One running sample of a request.
struct Sequence {
    SequenceId id;
    RequestId request_id;
    std::shared_ptr<const EngineRequest> request;
    int sample_idx = 0;
    Phase phase = Phase::kPrefill;
    std::vector<TokenId> tokens;  // prompt, then sampled
    int num_sampled = 0;          // tokens
    FinishReason finish = FinishReason::kNone;
};

}  // namespace kvlab
