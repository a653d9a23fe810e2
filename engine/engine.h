// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/clock.h"
#include "engine/config.h"
#include "engine/ids.h"
#include "engine/scheduling/request_timings.h"
#include "engine/scheduling/waste_account.h"
#include "engine/trace/event.h"
#include "engine/trace/state.h"

namespace kvlab {

struct ModelWeights;
class Tokenizer;

// One request as the engine takes it: tokens, not text.
struct EngineRequest {
    std::vector<TokenId> prompt;  // at least one token
    // Accounting runs: a prompt of so many tokens, whichever they are, when `prompt` is empty; a
    // long queue then costs no memory.
    int any_prompt_len = 0;
    int num_samples = 1;
    // Above 1: beam search with so many beams (num_samples is 1 then); sampling is not used.
    int num_beams = 1;
    int max_tokens = 64;  // sampled per sequence, at least 1
    bool ignore_eos = false;
    SamplingParams sampling;
    // Teacher forcing: when not empty, sampled token i is forced[i] (and max_tokens its length).
    std::vector<TokenId> forced;
    int priority = 0;                  // higher goes first, and may take the blocks of lower ones
    std::optional<double> arrived_ms;  // on the engine's clock; empty: when it is submitted

    int64_t promptLen() const {
        return prompt.empty() ? any_prompt_len : static_cast<int64_t>(prompt.size());
    }
    int maxTokens() const { return forced.empty() ? max_tokens : static_cast<int>(forced.size()); }
    // Tokens of the longest text that it may become; the last one never gets K/V.
    int64_t longestLen() const { return promptLen() + maxTokens(); }
};

// What a step does, for the caller's cost model.
struct StepShape {
    int num_prefill_tokens = 0;
    int num_decode_tokens = 0;
    int64_t attention_bytes = 0;  // as StepStats counts them
    int64_t copied_bytes = 0;     // within the device
    int64_t swapped_bytes = 0;    // between device and host
};
struct AccountingOptions {
    std::shared_ptr<ManualClock> clock;  // moved on by each step; empty: time stands still
    std::function<double(const StepShape&)> step_ms;
};

// Logits of one row, [vocab_size], after the token at `position` of the sequence; valid during the
// call.
using LogitsObserver =
    std::function<void(SequenceId sequence, int position, const float* logits, int vocab_size)>;

// The engine behind every front end: submit, step, cancel. One step is one forward pass over the
// decode rows of all running sequences and as many prompt tokens as the token budget leaves. Not
// thread-safe; Session gives it a thread.
//
// Requests enter by priority, then in order, when the blocks of their prompt fit; a running
// sequence that finds the pool empty preempts the last in line (scheduling/scheduler.h). None of it
// changes a token on the CPU: what is computed again has the same bits.
//
// A GPU that fails in the middle of a step costs the K/V, not a token, where the CPU may take over
// (EngineConfig::backend, cpu_fallback): that step runs nothing, every sequence joins the queue to
// be computed again, config().backend and deviceName() say what goes on, on_fallback is told why.
class Engine {
  public:
    // `tokenizer` may be null (generated weights): steps then name no pieces and end-of-text is
    // unknown.
    Engine(std::shared_ptr<const ModelWeights> weights,
           std::shared_ptr<const Tokenizer> tokenizer,
           const EngineConfig& config);
    // An accounting run: the same queue, tables and events with no weights and no K/V. Prompts may
    // hold any tokens, token 0 is "sampled" max_tokens times.
    Engine(const ModelConfig& model, const EngineConfig& config, const AccountingOptions& options);
    ~Engine();

    // Throws kBadArgument: empty prompt, a token outside the vocabulary, or a request that can
    // never fit, with its arithmetic; such a refusal takes a request id and is told in the log.
    RequestId submit(EngineRequest request);
    // Runs one step; null when no request is waiting or running. Sequences that finished in the
    // step before are released at its start.
    std::shared_ptr<const StepTrace> step();
    // Releases what finished in the last step, as a step of its own, with what was refused since;
    // null when there is neither.
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
    int64_t numPreemptions() const;  // of running sequences
    int64_t bytesMoved() const;      // between device and host, both ways

    // Before the first request; a steady clock otherwise (accounting: the one in its options).
    void setClock(std::shared_ptr<const Clock> clock);
    // A run with a model whose requests are dated by a cost model, as in an accounting run: what
    // runs together then depends on no machine. Step times are still measured.
    void setVirtualTime(const AccountingOptions& options);
    const std::vector<RequestTimings>& timings() const;  // by request id
    // Sums over all steps; sequences that have not left yet have no slab waste.
    const WasteAccount& waste() const;

    const ModelConfig& model() const;
    const EngineConfig& config() const;  // with num_threads and backend resolved
    std::string deviceName() const;

    // Blocks with which a request runs without preemption. Paged: shared full prompt blocks once,
    // then each sample's own; beams as if they shared nothing. Slab: a run for each sample.
    static int64_t worstCaseBlocks(const EngineRequest& request, const CacheConfig& cache);
    static int64_t worstCaseBlocks(const EngineRequest& request, int block_size);  // paged
    // Blocks without which it can never finish: those of one sequence, as samples can take turns;
    // all beams', as they cannot.
    static int64_t fewestBlocks(const EngineRequest& request, const CacheConfig& cache);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace kvlab
