// SPDX-License-Identifier: MIT
#include "engine/workload/replay.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <thread>
#include <unordered_map>

#include "engine/cache/block_pool.h"
#include "engine/error.h"
#include "engine/model/tokenizer.h"
#include "engine/model/weights.h"
#include "engine/run_info.h"
#include "engine/text_format.h"
#include "engine/trace/trace_io.h"
#include "engine/workload/corpus_prompt.h"

namespace kvlab {

namespace {

[[noreturn]] void refuse(const std::string& message) {
    throw EngineError(ErrorKind::kBadArgument, message);
}

// The engine's clock, and the way over idle time.
class RunTime {
  public:
    virtual ~RunTime() = default;
    virtual std::shared_ptr<const Clock> clock() const = 0;
    // Nothing happens before `ms`.
    virtual void goOnTo(double ms) = 0;
};

class VirtualTime : public RunTime {
  public:
    std::shared_ptr<const Clock> clock() const override { return clock_; }
    void goOnTo(double ms) override { clock_->set(std::max(ms, clock_->nowMs())); }
    const std::shared_ptr<ManualClock>& manual() const { return clock_; }

  private:
    std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
};

// The machine's time since the start, and the idle time that was skipped.
class SkippingClock : public Clock {
  public:
    double nowMs() const override { return steady_.nowMs() - start_ms_ + skipped_ms_; }
    void skip(double ms) { skipped_ms_ += ms; }

  private:
    SteadyClock steady_;
    double start_ms_ = steady_.nowMs();
    double skipped_ms_ = 0;
};

class RealTime : public RunTime {
  public:
    explicit RealTime(bool waits) : waits_(waits) {}
    std::shared_ptr<const Clock> clock() const override { return clock_; }
    void goOnTo(double ms) override {
        const double left = ms - clock_->nowMs();
        if (left <= 0) return;
        if (waits_) {
            std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(left));
        } else {
            clock_->skip(left);
        }
    }

  private:
    bool waits_;
    std::shared_ptr<SkippingClock> clock_ = std::make_shared<SkippingClock>();
};

std::string requestName(size_t index) {
    return "request " + formatCount(static_cast<int64_t>(index));
}

// Each continuation keeps its tokens, the prompt's included: 64 MiB.
constexpr int64_t kMostPromptCopies = 16'777'216;

void checkBounds(const std::vector<TraceRequest>& requests, int64_t most_tokens) {
    if (requests.empty()) refuse("there is no request to replay; give at least one");
    if (static_cast<int64_t>(requests.size()) > kMaxTraceRequests) {
        refuse("a replay takes at most " + formatCount(kMaxTraceRequests) +
               " requests; give fewer");
    }
    int64_t to_sample = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
        const TraceRequest& request = requests[i];
        const int64_t prompt_len = request.prompt_tokens
                                       ? static_cast<int64_t>(request.prompt_tokens->size())
                                       : request.prompt_num_tokens.value_or(0);
        if (prompt_len * request.num_samples > kMostPromptCopies) {
            refuse(requestName(i) + " asks for " + formatCount(request.num_samples) +
                   " continuations of " + formatCount(prompt_len) + " tokens, " +
                   formatCount(prompt_len * request.num_samples) + " in all; ask for at most " +
                   formatCount(kMostPromptCopies));
        }
        to_sample += int64_t{request.num_samples} * request.max_tokens;
    }
    if (to_sample > most_tokens) {
        refuse("the requests ask for " + formatCount(to_sample) +
               " tokens to sample; ask for at most " + formatCount(most_tokens));
    }
}

// `tokenizer` null: no text and no corpus; accounting runs need neither.
EngineRequest engineRequest(const TraceRequest& request,
                            size_t index,
                            const Tokenizer* tokenizer,
                            bool has_weights,
                            const ReplayOptions& options) {
    EngineRequest made;
    made.sampling = options.sampling;
    made.sampling.seed += index;
    made.max_tokens = request.max_tokens;
    made.num_samples = request.num_samples;
    made.ignore_eos = options.ignore_eos;
    made.priority = request.priority;
    made.arrived_ms = request.arrival_ms;
    if (request.prompt_tokens && has_weights) {
        made.prompt = *request.prompt_tokens;
    } else if (request.prompt_tokens) {
        made.any_prompt_len = static_cast<int>(request.prompt_tokens->size());
    } else if (request.prompt_num_tokens && !has_weights) {
        made.any_prompt_len = *request.prompt_num_tokens;
    } else if (tokenizer == nullptr) {
        refuse(requestName(index) + (request.prompt_text ? " has a text" : " asks for a text") +
               ", but this run has no tokenizer; give its tokens with prompt_tokens");
    } else if (request.prompt_text) {
        made.prompt = tokenizer->encode(*request.prompt_text, true);
    } else if (const int64_t slots =
                   int64_t{options.engine.cache.num_blocks} * options.engine.cache.block_size;
               slots > 0 && request.prompt_num_tokens.value_or(0) > slots) {
        // It will be refused with its arithmetic, whatever it says: a million words take seconds.
        made.prompt.assign(static_cast<size_t>(*request.prompt_num_tokens), TokenId(0));
    } else {
        made.prompt =
            corpusPrompt(*tokenizer, made.sampling.seed, request.prompt_num_tokens.value_or(0));
    }
    return made;
}

// Fills in what the options leave to us; see ReplayOptions::engine.
EngineConfig sized(EngineConfig config,
                   const std::vector<EngineRequest>& requests,
                   const ModelConfig& model) {
    config.keep_history = false;
    CacheConfig& cache = config.cache;
    BlockPool::checkBlockSize(cache.block_size);
    int64_t longest = 1;
    for (const EngineRequest& request : requests) {
        longest = std::max(longest, request.promptLen() + request.max_tokens);
    }
    const int64_t block_bytes = model.kvBytesPerToken(cache.kv_dtype) * cache.block_size;
    const int64_t most_blocks = std::clamp<int64_t>(
        kMostPoolBytes / std::max<int64_t>(1, block_bytes), 1, INT32_MAX / cache.block_size);
    if (cache.slabsHaveOneLength() && cache.max_len == 0) {
        const int64_t pool = cache.num_blocks > 0 ? cache.num_blocks : most_blocks;
        cache.max_len = static_cast<int>(std::min(longest, pool * cache.block_size));
    }
    if (cache.num_blocks == 0) {
        int64_t needed = 0;
        for (const EngineRequest& request : requests) {
            needed += Engine::worstCaseBlocks(request, cache);
        }
        cache.num_blocks = static_cast<int>(std::min(needed, most_blocks));
    }
    return config;
}

// One entry in the words of every other view of the log.
std::string sentenceOf(Decision decision) {
    decision.sequence = SequenceId();  // the request's number names it
    DecisionsMade event;
    event.kind = {decision.kind};
    event.reason = {decision.reason};
    event.request = {decision.request};
    event.sequence = {decision.sequence};
    event.blocks_needed = {decision.blocks_needed};
    event.blocks_free = {decision.blocks_free};
    event.watermark = {decision.watermark};
    event.priority = {decision.priority};
    event.tokens_needed = {decision.tokens_needed};
    event.tokens_free = {decision.tokens_free};
    event.head = {decision.head};
    return describeEntry(event, 0);
}

class Replayer {
  public:
    Replayer(Engine& engine,
             RunTime& time,
             const std::vector<TraceRequest>& trace,
             std::vector<EngineRequest> requests,
             const ReplayOptions& options,
             bool keeps_tokens)
        : engine_(engine),
          time_(time),
          clock_(time.clock()),
          trace_(trace),
          waiting_(std::move(requests)),
          options_(options),
          keeps_tokens_(keeps_tokens),
          ids_(trace.size()) {
        result_.requests.resize(trace.size());
        order_.resize(trace.size());
        std::iota(order_.begin(), order_.end(), size_t{0});
        std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
            return trace_[a].arrival_ms < trace_[b].arrival_ms;
        });
        keeps_sequences_ =
            keeps_tokens || std::any_of(trace.begin(), trace.end(),
                                        [](const TraceRequest& r) { return r.num_samples > 1; });
        for (size_t i = 0; i < trace.size(); ++i) {
            if (trace[i].cancel_ms) cancels_.push_back(i);
        }
        std::stable_sort(cancels_.begin(), cancels_.end(), [&](size_t a, size_t b) {
            return *trace_[a].cancel_ms < *trace_[b].cancel_ms;
        });
    }

    ReplayResult run(TraceWriter* trace) {
        for (;;) {
            const double now_ms = clock_->nowMs();
            submitUntil(now_ms);
            cancelUntil(now_ms);
            if (!engine_.hasWork()) {
                if (next_ == order_.size()) break;
                time_.goOnTo(trace_[order_[next_]].arrival_ms);
                continue;
            }
            const auto step = engine_.step();
            if (trace != nullptr) trace->append(*step);
            result_.steps.add(step->stats);
            for (const Event& event : step->events) read(event, step->step, now_ms);
            if (options_.on_progress) {
                options_.on_progress(num_ended_, static_cast<int64_t>(trace_.size()));
            }
        }
        // What a slab never used is known when its sequence has left.
        if (const auto last = engine_.releaseFinished()) {
            if (trace != nullptr) trace->append(*last);
            for (const Event& event : last->events) read(event, last->step, clock_->nowMs());
        }
        return finish();
    }

  private:
    void submitUntil(double now_ms) {
        for (; next_ < order_.size(); ++next_) {
            const size_t index = order_[next_];
            if (trace_[index].arrival_ms > now_ms) return;
            ReplayedRequest& replayed = result_.requests[index];
            replayed.max_tokens = waiting_[index].max_tokens;
            replayed.num_samples = waiting_[index].num_samples;
            replayed.seed = waiting_[index].sampling.seed;
            const auto prompt_len = static_cast<int>(waiting_[index].promptLen());
            const size_t num_known = engine_.timings().size();
            try {
                ids_[index] = engine_.submit(std::move(waiting_[index]));
            } catch (const EngineError& error) {
                if (error.kind() != ErrorKind::kBadArgument) throw;
                replayed.status = ReplayStatus::kRefused;
                replayed.refusal = error.what();
                ++num_ended_;
            }
            waiting_[index] = EngineRequest();
            // A refusal takes an id only when the request is sound.
            if (engine_.timings().size() > num_known) {
                index_of_.push_back(index);
            } else {
                replayed.timings.prompt_len = prompt_len;
                replayed.timings.priority = trace_[index].priority;
                replayed.timings.arrived_ms = trace_[index].arrival_ms;
                replayed.timings.refused = true;
            }
        }
    }

    void cancelUntil(double now_ms) {
        for (; next_cancel_ < cancels_.size(); ++next_cancel_) {
            const size_t index = cancels_[next_cancel_];
            if (*trace_[index].cancel_ms > now_ms) return;
            if (ids_[index].valid()) engine_.cancel(ids_[index]);
        }
    }

    void read(const Event& event, int64_t step, double now_ms) {
        if (const auto* decisions = std::get_if<DecisionsMade>(&event)) {
            readDecisions(*decisions, step, now_ms);
        } else if (const auto* finished = std::get_if<SequencesFinished>(&event)) {
            // A request counts once, with its first sample.
            for (const SequenceId sequence : finished->sequence) {
                num_ended_ += !keeps_sequences_ || running_.at(sequence).sample == 0;
            }
        } else if (const auto* withdrawn = std::get_if<RequestsWithdrawn>(&event)) {
            num_ended_ += static_cast<int64_t>(withdrawn->request.size());
        }
        if (!keeps_sequences_) return;
        if (const auto* started = std::get_if<SequenceStarted>(&event)) {
            running_[started->sequence] = {indexOf(started->request), started->sample_idx};
        } else if (const auto* forked = std::get_if<SequencesForked>(&event)) {
            for (size_t i = 0; i < forked->child.size(); ++i) {
                const size_t index = running_.at(forked->parent[i]).index;
                running_[forked->child[i]] = {index, forked->sample_idx[i]};
            }
        } else if (const auto* sampled = std::get_if<TokensSampled>(&event)) {
            for (size_t i = 0; keeps_tokens_ && i < sampled->sequence.size(); ++i) {
                textOf(running_.at(sampled->sequence[i])).push_back(sampled->token[i]);
            }
        } else if (const auto* removed = std::get_if<SequencesRemoved>(&event)) {
            for (const SequenceId sequence : removed->sequence) running_.erase(sequence);
        }
    }

    struct Running {
        size_t index = 0;  // of its request
        int sample = 0;
    };
    std::vector<TokenId>& textOf(const Running& sequence) {
        ReplayedRequest& request = result_.requests[sequence.index];
        if (sequence.sample == 0) return request.token_ids;
        const auto more = static_cast<size_t>(sequence.sample);
        if (request.more_samples.size() < more) request.more_samples.resize(more);
        return request.more_samples[more - 1];
    }

    void readDecisions(const DecisionsMade& made, int64_t step, double now_ms) {
        for (size_t i = 0; i < made.kind.size(); ++i) {
            ++result_.num_decisions[static_cast<size_t>(made.kind[i])];
            if (static_cast<int64_t>(result_.why.size()) >= options_.max_why) continue;
            WhyEntry entry;
            // A step tells what was refused before it, too.
            entry.time_ms = made.kind[i] == DecisionKind::kRefused
                                ? trace_[indexOf(made.request[i])].arrival_ms
                                : now_ms;
            entry.step = step;
            entry.decision = {made.kind[i],
                              made.reason[i],
                              inTrace(made.request[i]),
                              made.sequence[i],
                              made.blocks_needed[i],
                              made.blocks_free[i],
                              made.watermark[i],
                              made.priority[i],
                              made.tokens_needed[i],
                              made.tokens_free[i],
                              made.head[i].valid() ? inTrace(made.head[i]) : RequestId()};
            entry.sentence = sentenceOf(entry.decision);
            result_.why.push_back(std::move(entry));
        }
    }

    RequestId inTrace(RequestId request) const {
        return RequestId(static_cast<int64_t>(indexOf(request)));
    }

    size_t indexOf(RequestId request) const {
        return index_of_[static_cast<size_t>(request.value)];
    }

    ReplayResult finish() {
        std::vector<double> queue, first, gap, whole;
        const auto note = [](std::vector<double>& values, const std::optional<double>& value) {
            if (value) values.push_back(*value);
        };
        for (size_t id = 0; id < index_of_.size(); ++id) {
            ReplayedRequest& replayed = result_.requests[index_of_[id]];
            replayed.timings = engine_.timings()[id];
        }
        result_.first_arrival_ms = trace_[order_.front()].arrival_ms;
        for (size_t index = 0; index < trace_.size(); ++index) {
            ReplayedRequest& replayed = result_.requests[index];
            RequestTimings& times = replayed.timings;
            times.request = RequestId(static_cast<int64_t>(index));
            if (times.finish == FinishReason::kCancelled) {
                replayed.status = ReplayStatus::kCancelled;
            }
            ++(replayed.status == ReplayStatus::kRefused     ? result_.num_refused
               : replayed.status == ReplayStatus::kCancelled ? result_.num_cancelled
                                                             : result_.num_finished);
            result_.sampled_tokens += times.num_sampled;
            result_.ended_ms = std::max(result_.ended_ms, times.finished_ms.value_or(0));
            note(queue, times.queueMs());
            note(first, times.timeToFirstTokenMs());
            note(gap, times.timePerTokenMs());
            if (replayed.status == ReplayStatus::kFinished) note(whole, times.endToEndMs());
        }
        result_.queue_ms = percentilesOf(std::move(queue));
        result_.time_to_first_token_ms = percentilesOf(std::move(first));
        result_.time_per_token_ms = percentilesOf(std::move(gap));
        result_.end_to_end_ms = percentilesOf(std::move(whole));
        result_.waste = engine_.waste();
        result_.blocks_peak = engine_.blocksPeak();
        result_.num_preemptions = engine_.numPreemptions();
        result_.bytes_moved = engine_.bytesMoved();
        result_.model = engine_.model();
        result_.engine = engine_.config();
        result_.device = engine_.deviceName();
        result_.pool_bytes = engine_.poolBytes();
        return std::move(result_);
    }

    Engine& engine_;
    RunTime& time_;
    std::shared_ptr<const Clock> clock_;
    const std::vector<TraceRequest>& trace_;
    std::vector<EngineRequest> waiting_;  // by index; empty once submitted
    const ReplayOptions& options_;
    bool keeps_tokens_;
    ReplayResult result_;
    std::vector<size_t> order_;    // indices by arrival
    size_t next_ = 0;              // in order_: the first that has not arrived
    std::vector<size_t> cancels_;  // indices by cancel_ms
    size_t next_cancel_ = 0;
    std::vector<RequestId> ids_;    // by index; not valid: refused
    std::vector<size_t> index_of_;  // by request id
    bool keeps_sequences_ = false;  // what follows is only needed for tokens and samples
    std::unordered_map<SequenceId, Running> running_;
    int64_t num_ended_ = 0;
};

// `weights` null: an accounting run.
ReplayResult runAll(Engine& engine,
                    RunTime& time,
                    const std::vector<TraceRequest>& trace,
                    std::vector<EngineRequest> requests,
                    const ReplayOptions& options,
                    const ModelWeights* weights) {
    const bool has_weights = weights != nullptr;
    std::unique_ptr<TraceWriter> writer;
    if (!options.trace_path.empty()) {
        RunInfo info = runInfoOf(engine, weights, options.sampling, options.title);
        for (const EngineRequest& request : requests) {
            info.max_tokens = std::max(info.max_tokens, request.max_tokens);
            info.num_samples = std::max(info.num_samples, request.num_samples);
        }
        writer = std::make_unique<TraceWriter>(options.trace_path, info);
    }
    Replayer replayer(engine, time, trace, std::move(requests), options, has_weights);
    ReplayResult result = replayer.run(writer.get());
    if (writer) writer->finish();
    result.has_weights = has_weights;
    result.time = has_weights ? options.time : ReplayTime::kVirtual;
    return result;
}

// The cost model as the engine takes it; the parts are summed up in `sum`, which outlives it.
AccountingOptions virtualTime(const VirtualTime& time,
                              const AssumedMachine& machine,
                              const ModelWork& work,
                              StepCost& sum) {
    AccountingOptions options;
    options.clock = time.manual();
    options.step_ms = [machine, work, &sum](const StepShape& shape) {
        const StepCost cost = stepCost(machine, work, shape);
        sum.add(cost);
        return cost.total();
    };
    return options;
}

std::vector<EngineRequest> engineRequests(const std::vector<TraceRequest>& trace,
                                          const Tokenizer* tokenizer,
                                          bool has_weights,
                                          const ReplayOptions& options) {
    std::vector<EngineRequest> requests;
    requests.reserve(trace.size());
    for (size_t i = 0; i < trace.size(); ++i) {
        requests.push_back(engineRequest(trace[i], i, tokenizer, has_weights, options));
    }
    return requests;
}

}  // namespace

const char* replayTimeName(ReplayTime time) {
    static constexpr const char* kNames[] = {"real", "wait", "virtual"};
    return kNames[static_cast<size_t>(time)];
}

const char* replayStatusName(ReplayStatus status) {
    static constexpr const char* kNames[] = {"finished", "cancelled", "refused"};
    return kNames[static_cast<size_t>(status)];
}

int64_t ReplayResult::numDecisions() const {
    return std::accumulate(num_decisions.begin(), num_decisions.end(), int64_t{0});
}

std::optional<double> ReplayResult::tokensPerSecond() const {
    const double lasted_ms = ended_ms - first_arrival_ms;
    if (sampled_tokens == 0 || lasted_ms <= 0) return std::nullopt;
    return static_cast<double>(sampled_tokens) * 1000 / lasted_ms;
}

ReplayResult replay(const std::vector<TraceRequest>& trace,
                    const LoadedModel& model,
                    const ReplayOptions& options) {
    checkBounds(trace, kMostReplayedTokens);
    const auto last = std::max_element(
        trace.begin(), trace.end(),
        [](const TraceRequest& a, const TraceRequest& b) { return a.arrival_ms < b.arrival_ms; });
    if (options.time == ReplayTime::kWait && last->arrival_ms > kLongestWaitMs) {
        refuse("the last request arrives after " +
               formatCount(static_cast<int64_t>(last->arrival_ms / 60'000)) +
               " minutes, longer than a replay waits (60); let idle time be skipped");
    }
    // Texts become tokens before the clock starts.
    std::vector<EngineRequest> requests =
        engineRequests(trace, model.tokenizer.get(), true, options);
    Engine engine(model.weights, model.tokenizer,
                  sized(options.engine, requests, model.weights->config));
    // The trace's header has the sum of the model's file: not while requests wait.
    if (!options.trace_path.empty()) model.weights->sha256();
    if (options.time != ReplayTime::kVirtual) {
        RealTime time(options.time == ReplayTime::kWait);
        engine.setClock(time.clock());
        return runAll(engine, time, trace, std::move(requests), options, model.weights.get());
    }
    VirtualTime time;
    StepCost cost;
    engine.setVirtualTime(virtualTime(time, options.machine, modelWork(*model.weights), cost));
    ReplayResult result =
        runAll(engine, time, trace, std::move(requests), options, model.weights.get());
    result.cost = cost;
    return result;
}

ReplayResult replayAccounts(const std::vector<TraceRequest>& trace,
                            const ModelConfig& model,
                            const ModelWork& work,
                            const ReplayOptions& options) {
    checkBounds(trace, kMostAccountedTokens);
    if (options.engine.cache.num_blocks < 1) {
        refuse("an accounting run needs the number of blocks that its pool has; give it");
    }
    std::vector<EngineRequest> requests = engineRequests(trace, nullptr, false, options);
    VirtualTime time;
    StepCost cost;
    Engine engine(model, sized(options.engine, requests, model),
                  virtualTime(time, options.machine, work, cost));
    ReplayResult result = runAll(engine, time, trace, std::move(requests), options, nullptr);
    result.cost = cost;
    return result;
}

}  // namespace kvlab
