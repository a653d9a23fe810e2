// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "engine/trace/event.h"

namespace kvlab {

class Engine;
struct ModelWeights;

// What a run's first record says of the engine that runs it; the lengths and the number of samples
// are the caller's. `weights` not null: the model file's hash, too, for which the whole file is
// read.
RunInfo runInfoOf(const Engine& engine,
                  const ModelWeights* weights,
                  const SamplingParams& sampling,
                  const std::string& title);

}  // namespace kvlab
