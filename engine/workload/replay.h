// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/config.h"
#include "engine/engine.h"
#include "engine/model/model_loader.h"
#include "engine/scheduling/percentiles.h"
#include "engine/scheduling/step_totals.h"
#include "engine/scheduling/waste_account.h"
#include "engine/trace/trace_recorder.h"
#include "engine/workload/cost_model.h"
#include "engine/workload/request_trace.h"

namespace kvlab {

// Where the times of a replay come from. None of it changes a token; what runs together, and so
// waste, concurrency and preemptions, depends on it.
enum class ReplayTime : uint8_t {
    kReal,     // the machine's clock; while nothing runs it jumps to the next arrival
    kWait,     // the machine's clock, waiting for arrivals
    kVirtual,  // steps take what the cost model says: the same run on every machine
};
const char* replayTimeName(ReplayTime time);  // "real", "wait", "virtual"

struct ReplayOptions {
    // num_blocks 0: enough for all requests at once, but no more than kMostPoolBytes. Slab with
    // max_len 0: as long as the longest request that the pool can hold. keep_history is not used.
    EngineConfig engine;
    SamplingParams sampling;  // request i draws with seed + i, and so does its corpus document:
                              // as `generate --seed` of that number would run it alone
    bool ignore_eos = false;
    ReplayTime time = ReplayTime::kReal;  // accounting runs: always kVirtual
    AssumedMachine machine;               // of virtual time
    int64_t max_why = 1000;               // entries of the why log that are kept, the first ones
    std::string trace_path;               // "": none is written
    std::string title;                    // of the trace
    // After each step: requests that ended, and those there are. May be empty.
    std::function<void(int64_t num_ended, int64_t num_requests)> on_progress;
};
inline constexpr int64_t kMostPoolBytes = int64_t{1} << 30;

// What a replay may be asked for: more would run for hours. Tokens to sample, all requests
// together.
inline constexpr int64_t kMostReplayedTokens = 10'000'000;
inline constexpr int64_t kMostAccountedTokens = 1'000'000'000;
inline constexpr double kLongestWaitMs = 3'600'000;  // until the last arrival, ReplayTime::kWait

enum class ReplayStatus : uint8_t { kFinished, kCancelled, kRefused };
const char* replayStatusName(ReplayStatus status);  // "finished"

struct ReplayedRequest {
    ReplayStatus status = ReplayStatus::kFinished;
    // Of the trace's request with this number, which is also timings.request; in ms since the start
    // of the run.
    RequestTimings timings;
    int max_tokens = 0;
    int num_samples = 1;
    uint64_t seed = 0;               // of its draws and its corpus document
    std::string refusal;             // kRefused: the sentence with its arithmetic
    std::vector<TokenId> token_ids;  // sampled, of sample 0; empty in an accounting run
    std::vector<std::vector<TokenId>> more_samples;  // of samples 1, 2, …, as far as they started
};

// One entry of the why log; decision.request is the number of the trace's request.
struct WhyEntry {
    double time_ms = 0;  // since the start of the run
    int64_t step = 0;    // that it was decided for
    Decision decision;
    std::string sentence;  // "request 3 waits: it needs …"
};

struct ReplayResult {
    std::vector<ReplayedRequest> requests;  // in the trace's order
    int64_t num_finished = 0, num_cancelled = 0, num_refused = 0;

    // Empty where no request got so far. End to end: of requests that finished by themselves.
    std::optional<Percentiles> queue_ms, time_to_first_token_ms, time_per_token_ms, end_to_end_ms;

    WasteAccount waste;
    StepTotals steps;              // times measured; an accounting run has only total_ms, assumed
    std::optional<StepCost> cost;  // virtual time: the cost model's parts, summed over the steps
    int64_t blocks_peak = 0;
    int64_t num_preemptions = 0;
    int64_t bytes_moved = 0;     // between device and host, both ways
    int64_t sampled_tokens = 0;  // all requests together
    double first_arrival_ms = 0;
    double ended_ms = 0;  // the last request ended, refused ones left out

    std::vector<WhyEntry> why;
    std::array<int64_t, 6> num_decisions{};  // by DecisionKind, those that were not kept included
    int64_t numDecisions() const;

    // As the engine ran.
    ModelConfig model;
    EngineConfig engine;
    std::string device;
    int64_t pool_bytes = 0;
    bool has_weights = true;
    ReplayTime time = ReplayTime::kReal;

    // Sampled tokens per second between the first arrival and the last token; empty without time.
    std::optional<double> tokensPerSecond() const;
};

// Runs the requests, each submitted when its time has come. A request that can never fit, or that
// names tokens the model does not have, is refused and listed so; the others go on. Throws
// EngineError for a pool or a setting that lets nothing run, and for more than the bounds above.
ReplayResult replay(const std::vector<TraceRequest>& requests,
                    const LoadedModel& model,
                    const ReplayOptions& options);
// The same queue, tables and decisions with no weights and no K/V, in virtual time. `model`: see
// accountingModel(). Every request samples its max_tokens. engine.num_blocks must be given.
ReplayResult replayAccounts(const std::vector<TraceRequest>& requests,
                            const ModelConfig& model,
                            const ModelWork& work,
                            const ReplayOptions& options);

}  // namespace kvlab
