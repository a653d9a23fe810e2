// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/cache/kv_cache_manager.h"
#include "engine/clock.h"
#include "engine/model/sampler.h"
#include "engine/scheduling/scheduler.h"

namespace kvlab {

struct ModelWeights;

// What carries out a planned step: a model, or nothing but the accounts.
class StepExecutor {
  public:
    virtual ~StepExecutor() = default;
    virtual const ModelConfig& model() const = 0;
    virtual const EngineConfig& config() const = 0;  // with num_threads and backend resolved
    virtual std::string deviceName() const = 0;
    virtual int64_t poolBytes() const = 0;  // of the device pool
    virtual bool isSimulated() const = 0;   // times are a cost model's

    // Does the copies in their order, then the rows; the K/V of all rows are written afterwards.
    // Fills the times of `stats`; its tokens and attention bytes are known already.
    virtual void run(const StepPlan& plan, const KvCacheManager& cache, StepStats& stats) = 0;
    // Logits of the idx-th row that wants them, [vocab_size], until the next run(); null without a
    // model.
    virtual const float* logits(int idx) const = 0;

    // fn(i) for all i < count, in any order or at the same time. What they throw: the lowest i's.
    virtual void forEach(int count, const std::function<void(int)>& fn) {
        for (int i = 0; i < count; ++i) fn(i);
    }
};

// The forward pass of engine/model over a backend. Throws kOutOfMemory for a pool that does not
// fit.
std::unique_ptr<StepExecutor> makeModelExecutor(std::shared_ptr<const ModelWeights> weights,
                                                const EngineConfig& config);

// The CPU takes over from a GPU that cannot be used or fails: the user agreed.
bool fallsBackToCpu(const EngineConfig& config);

// No weights, no K/V: a step takes the time that options.step_ms says, and the clock goes on by it.
std::unique_ptr<StepExecutor> makeAccountingExecutor(const ModelConfig& model,
                                                     const EngineConfig& config);

}  // namespace kvlab
