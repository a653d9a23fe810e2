// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/ids.h"
#include "engine/trace/event.h"
#include "engine/trace/state.h"

namespace kvlab {

struct ModelWeights;
class Tokenizer;

// One request as the engine takes it: tokens, not text.
struct EngineRequest {
    std::vector<TokenId> prompt;  // at least one token
    int num_samples = 1;
    int max_tokens = 64;  // sampled per sequence, at least 1
    bool ignore_eos = false;
    SamplingParams sampling;
    // Teacher forcing: when not empty, sampled token i is forced[i] (and max_tokens its length).
    std::vector<TokenId> forced;
};

// Logits of one row, [vocab_size], after the token at `position` of the sequence; valid during the
// call.
using LogitsObserver =
    std::function<void(SequenceId sequence, int position, const float* logits, int vocab_size)>;

// The engine behind every front end: submit, step, cancel. One step is one forward pass over the
// decode rows of all running sequences and as many prompt tokens as the token budget leaves. Not
// thread-safe; Session gives it a thread.
//
// Requests enter in order when their worst case fits: ceil-blocks of prompt and max_tokens for all
// samples, so a running request never finds the pool empty (preemption comes with the scheduler's
// own issue).
class Engine {
  public:
    // `tokenizer` may be null (generated weights): steps then name no pieces and end-of-text is
    // unknown.
    Engine(std::shared_ptr<const ModelWeights> weights,
           std::shared_ptr<const Tokenizer> tokenizer,
           const EngineConfig& config);
    ~Engine();

    // Throws kBadArgument: empty prompt, a token outside the vocabulary, or a request that can
    // never fit, with its arithmetic.
    RequestId submit(EngineRequest request);
    // Runs one step; null when no request is waiting or running. Sequences that finished in the
    // step before are released at its start.
    std::shared_ptr<const StepTrace> step();
    // Releases what finished in the last step, as a step of its own; null when nothing is held.
    std::shared_ptr<const StepTrace> releaseFinished();
    // All its sequences finish with kCancelled at the start of the next step.
    void cancel(RequestId request);
    bool hasWork() const;

    void setLogitsObserver(LogitsObserver observer);

    // The engine's own bookkeeping, built from pool and tables (not from the log). Equal to the
    // folded log after every step; debug builds and tests compare.
    CacheState state() const;
    PoolAccount account() const;
    int64_t blocksPeak() const;  // most active blocks after any step
    int64_t poolBytes() const;

    const ModelConfig& model() const;
    const EngineConfig& config() const;  // with num_threads and backend resolved
    std::string deviceName() const;

    // Blocks that a request needs in the worst case: shared full prompt blocks once, then each
    // sample's own.
    static int64_t worstCaseBlocks(const EngineRequest& request, int block_size);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace kvlab
