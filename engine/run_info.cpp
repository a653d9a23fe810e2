// SPDX-License-Identifier: MIT
#include "engine/run_info.h"

#include "engine/engine.h"
#include "engine/model/weights.h"
#include "engine/text_format.h"

namespace kvlab {

RunInfo runInfoOf(const Engine& engine,
                  const ModelWeights* weights,
                  const SamplingParams& sampling,
                  const std::string& title) {
    RunInfo info;
    info.model = engine.model();
    info.model.name = oneLine(info.model.name);
    if (weights != nullptr) info.model_sha256 = weights->sha256();
    info.cache = engine.config().cache;
    info.sampling = sampling;
    info.backend = engine.config().backend;
    info.device = oneLine(engine.deviceName());
    info.build = KVLAB_VERSION;
    info.title = oneLine(title);
    return info;
}

}  // namespace kvlab
