// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <vector>

#include "engine/trace/run_log.h"

namespace kvlab {

// A scripted run, written as the engine would log it, with no model: for tests of everything that
// reads logs. The defaults are best-of-8: 2,000 prompt tokens in chunks of 512, 8 samples, 100
// decode steps, blocks of 16, so the last state holds 181 blocks (125 of them shared), 2,800
// tokens, 96 unused slots.
struct LogScript {
    int prompt_len = 2000;  // tokens; 2001 gives 7 copies on write
    int num_samples = 8;
    int num_decode_steps = 100;
    int block_size = 16;
    int num_blocks = 286;
    int prefill_chunk = 512;  // tokens
    bool release = false;     // a last step finishes and frees every sequence
};

std::vector<std::shared_ptr<const StepTrace>> scriptedSteps(const LogScript& script);
RunInfo scriptedInfo(const LogScript& script);
std::shared_ptr<RunLog> scriptedLog(const LogScript& script = {});

// Two samples of 100 prompt tokens and 40 sampled ones over blocks of 16, through a sliding window
// of 40 in every layer: at the end 139 tokens have K/V, those from 100 on are seen, and the first 6
// entries of both tables name no block any more. An accounting run of the engine.
std::shared_ptr<RunLog> windowedLog();

}  // namespace kvlab
