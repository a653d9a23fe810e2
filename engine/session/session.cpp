// SPDX-License-Identifier: MIT
#include "engine/session/session.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "engine/cache/block_pool.h"
#include "engine/engine.h"
#include "engine/error.h"
#include "engine/model/model_loader.h"
#include "engine/model/tokenizer.h"
#include "engine/model/weights.h"
#include "engine/run_info.h"
#include "engine/text_format.h"
#include "engine/trace/trace_io.h"
#include "engine/workload/corpus_prompt.h"

namespace kvlab {

namespace {

// Pause and cancel, asked for by another thread, obeyed between steps.
struct Control {
    std::mutex mutex;
    std::condition_variable changed;
    bool paused = false;
    bool cancelled = false;

    // Waits while paused; true when the run should end.
    bool shouldStop() {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return !paused || cancelled; });
        return cancelled;
    }
};

void report(const SessionCallbacks& callbacks,
            SessionPhase phase,
            double fraction,
            const std::string& text) {
    if (callbacks.on_progress) callbacks.on_progress(phase, fraction, text);
}

std::vector<TokenId> promptTokens(const GenerationRequest& request, const Tokenizer& tokenizer) {
    const int given = request.prompt_text.has_value() + request.prompt_num_tokens.has_value() +
                      request.prompt_tokens.has_value();
    if (given != 1) {
        throw EngineError(
            ErrorKind::kBadArgument,
            "a request needs exactly one prompt: a text, a number of tokens, or token ids");
    }
    if (request.prompt_tokens) return *request.prompt_tokens;
    if (request.prompt_text) return tokenizer.encode(*request.prompt_text, true);

    return corpusPrompt(tokenizer, request.corpus_seed, *request.prompt_num_tokens);
}

struct Prepared {
    std::unique_ptr<Engine> engine;
    std::vector<EngineRequest> requests;
    std::vector<RequestId> ids;
};

// `on_fallback` as the engine is to call it.
Prepared prepare(const RunConfig& config,
                 const LoadedModel& model,
                 std::function<void(const std::string&)> on_fallback) {
    if (config.requests.empty()) {
        throw EngineError(ErrorKind::kBadArgument, "the run has no request; give it a prompt");
    }
    Prepared prepared;
    EngineConfig engine_config = config.engine;
    engine_config.on_fallback = std::move(on_fallback);
    BlockPool::checkSize(std::max(1, engine_config.cache.num_blocks),
                         engine_config.cache.block_size);
    int64_t longest = 0;
    for (const GenerationRequest& request : config.requests) {
        EngineRequest tokens;
        tokens.prompt = promptTokens(request, *model.tokenizer);
        tokens.num_samples = request.num_samples;
        tokens.max_tokens = request.max_tokens;
        tokens.ignore_eos = request.ignore_eos;
        tokens.sampling = request.sampling;
        tokens.num_beams = request.num_beams;
        tokens.priority = request.priority;
        if (tokens.num_samples < 1 || tokens.num_beams < 1 || tokens.max_tokens < 1) {
            throw EngineError(ErrorKind::kBadArgument,
                              "a request needs at least 1 sample or beam and 1 token");
        }
        longest = std::max(longest, static_cast<int64_t>(tokens.prompt.size()) + tokens.max_tokens);
        prepared.requests.push_back(std::move(tokens));
    }
    CacheConfig& cache = engine_config.cache;
    if (cache.slabsHaveOneLength() && cache.max_len == 0) {
        cache.max_len = static_cast<int>(std::min<int64_t>(longest, INT32_MAX));
    }
    cache.window = model.weights->config.uniformWindow();
    int64_t needed = 0;
    for (const EngineRequest& request : prepared.requests) {
        needed += Engine::worstCaseBlocks(request, cache);
    }
    if (engine_config.cache.num_blocks == 0) {
        if (needed > INT32_MAX) {
            throw EngineError(ErrorKind::kBadArgument, "the requests need " + formatCount(needed) +
                                                           " blocks; ask for fewer tokens");
        }
        engine_config.cache.num_blocks = static_cast<int>(needed);
    }
    prepared.engine = std::make_unique<Engine>(model.weights, model.tokenizer, engine_config);
    for (const EngineRequest& request : prepared.requests) {
        prepared.ids.push_back(prepared.engine->submit(request));
    }
    return prepared;
}

RunInfo infoOf(const RunConfig& config, const Engine& engine, const ModelWeights& weights) {
    const GenerationRequest& request = config.requests.front();
    // Only a trace keeps the file's hash.
    RunInfo info = runInfoOf(engine, config.trace_path.empty() ? nullptr : &weights,
                             request.sampling, config.title);
    info.num_samples = request.num_samples;
    info.max_tokens = request.max_tokens;
    return info;
}

// The sequences that are a request's answer, by request: its samples in order, or its best beams.
std::vector<const SequenceState*> answersOf(const CacheState& state,
                                            const std::vector<EngineRequest>& requests) {
    std::vector<const SequenceState*> answers;
    for (size_t request = 0; request < requests.size(); ++request) {
        std::vector<const SequenceState*> own;
        for (const SequenceState& sequence : state.sequences) {
            if (sequence.request == RequestId(static_cast<int64_t>(request)) &&
                sequence.finish != FinishReason::kPruned) {
                own.push_back(&sequence);
            }
        }
        const size_t num_beams = static_cast<size_t>(requests[request].num_beams);
        if (num_beams > 1) {
            std::stable_sort(own.begin(), own.end(), [](const auto* a, const auto* b) {
                return a->log_probability > b->log_probability;
            });
            own.resize(std::min(own.size(), num_beams));
        } else {
            std::stable_sort(own.begin(), own.end(), [](const auto* a, const auto* b) {
                return a->sample_idx < b->sample_idx;
            });
        }
        answers.insert(answers.end(), own.begin(), own.end());
    }
    return answers;
}

RunResult resultOf(const Engine& engine,
                   const Tokenizer& tokenizer,
                   const std::vector<EngineRequest>& requests,
                   double prefill_ms,
                   double decode_ms,
                   int64_t decode_tokens) {
    RunResult result;
    const CacheState state = engine.state();
    for (const SequenceState* sequence : answersOf(state, requests)) {
        const std::vector<TokenId> sampled(sequence->tokens.begin() + sequence->prompt_len,
                                           sequence->tokens.end());
        result.texts.push_back(tokenizer.decode(sampled, false));
        result.token_ids.push_back(sampled);
        result.mean_log_probability.push_back(
            sampled.empty() ? 0 : sequence->log_probability / static_cast<double>(sampled.size()));
    }
    const auto& means = result.mean_log_probability;
    if (requests.front().num_beams == 1 && !means.empty()) {
        result.best =
            static_cast<int>(std::max_element(means.begin(), means.end()) - means.begin());
    }
    const PoolAccount account = accountOf(state);
    RunMetrics& m = result.metrics;
    m.blocks_held = account.active_blocks;
    m.tokens_held = account.tokens_held;
    m.slots_allocated = account.slots_allocated;
    m.slots_unused = account.slots_unused;
    m.blocks_unshared = account.blocks_unshared;
    m.tokens_unshared = account.tokens_unshared;
    m.copy_on_write = account.copy_on_write;
    m.blocks_peak = engine.blocksPeak();
    m.device_bytes = engine.poolBytes();
    m.bytes_moved = engine.bytesMoved();
    m.preemptions = engine.numPreemptions();
    m.sharing_saved = engine.waste().sharingSaved();
    for (const EngineRequest& request : requests) {
        m.prompt_tokens += static_cast<int64_t>(request.prompt.size());
    }
    m.decode_tokens = decode_tokens;
    if (prefill_ms > 0) m.prefill_ms = prefill_ms;
    if (decode_tokens > 0 && decode_ms > 0) {
        m.decode_ms = decode_ms;
        m.tokens_per_s = static_cast<double>(decode_tokens) * 1000.0 / decode_ms;
    }
    return result;
}

RunResult run(const RunConfig& config, const SessionCallbacks& callbacks, Control& control) {
    report(callbacks, SessionPhase::kLoadingModel, 0, "loading the model");
    const LoadedModel model = loadModel(config.model_path);
    std::vector<std::string> messages;
    Prepared prepared = prepare(config, model, [&](const std::string& why) {
        messages.push_back("running on the CPU: " + why);
        if (config.engine.on_fallback) config.engine.on_fallback(why);
        if (callbacks.on_message) callbacks.on_message(messages.back());
    });
    Engine& engine = *prepared.engine;
    report(callbacks, SessionPhase::kLoadingModel, 1, "model loaded");

    const auto info = std::make_shared<const RunInfo>(infoOf(config, engine, *model.weights));
    std::unique_ptr<TraceWriter> trace;
    if (!config.trace_path.empty()) trace = std::make_unique<TraceWriter>(config.trace_path, *info);
    if (callbacks.on_started) callbacks.on_started(info);

    int64_t prompt_total = 0;
    int64_t sampled_total = 0;
    for (const EngineRequest& request : prepared.requests) {
        prompt_total += static_cast<int64_t>(request.prompt.size());
        sampled_total += int64_t{request.num_samples} * request.num_beams * request.max_tokens;
    }
    int64_t prompt_done = 0;
    int64_t decode_done = 0;
    double prefill_ms = 0;
    double decode_ms = 0;
    StepTotals totals;
    bool cancelled = false;
    while (engine.hasWork()) {
        if (!cancelled && control.shouldStop()) {
            // One more step, so that the log says how the run ended.
            cancelled = true;
            for (const RequestId request : prepared.ids) engine.cancel(request);
        }
        const std::shared_ptr<const StepTrace> step = engine.step();
        if (trace) trace->append(*step);
        // What a preemption dropped is computed again, and not counted as progress.
        prompt_done += step->stats.num_prefill_tokens - step->stats.num_recomputed_tokens;
        totals.add(step->stats);
        decode_done += step->stats.num_decode_tokens;
        // A mixed step counts as prefill: its time is mostly the prompt's.
        (step->stats.num_prefill_tokens > 0 ? prefill_ms : decode_ms) += step->stats.total_ms;
        if (callbacks.on_step) callbacks.on_step(step);
        if (step->stats.num_prefill_tokens > 0) {
            report(
                callbacks, SessionPhase::kPrefill,
                std::min(1.0, static_cast<double>(prompt_done) / static_cast<double>(prompt_total)),
                "prompt " + formatCount(prompt_done) + " of " + formatCount(prompt_total) +
                    " tokens");
        } else {
            report(callbacks, SessionPhase::kDecode,
                   std::min(1.0,
                            static_cast<double>(decode_done) / static_cast<double>(sampled_total)),
                   "decoding, " + formatCount(decode_done) + " tokens");
        }
    }
    if (trace) trace->finish();
    RunResult result =
        resultOf(engine, *model.tokenizer, prepared.requests, prefill_ms, decode_ms, decode_done);
    result.steps = totals;
    // What a slab never used is known when its sequence has left.
    engine.releaseFinished();
    result.waste = engine.waste();
    result.messages = std::move(messages);
    result.cancelled = cancelled;
    return result;
}

}  // namespace

struct Session::Impl {
    SessionCallbacks callbacks;
    std::thread thread;
    std::shared_ptr<Control> control = std::make_shared<Control>();
    std::atomic<bool> running{false};

    void execute(const RunConfig& config, Control& run_control) {
        std::string failure;
        try {
            const RunResult result = run(config, callbacks, run_control);
            running = false;
            if (callbacks.on_finished) callbacks.on_finished(result);
            return;
        } catch (const std::bad_alloc&) {
            failure =
                "this machine has not enough memory for the run; ask for fewer tokens or blocks";
        } catch (const std::exception& error) {
            failure = error.what();
        }
        running = false;
        if (callbacks.on_failed) callbacks.on_failed(failure);
    }
};

Session::Session(SessionCallbacks callbacks) : impl_(std::make_unique<Impl>()) {
    impl_->callbacks = std::move(callbacks);
}

Session::~Session() {
    cancel();
    wait();
}

void Session::start(RunConfig config) {
    KVLAB_CHECK(!impl_->running, "a session was started while it ran");
    wait();
    impl_->control = std::make_shared<Control>();
    impl_->running = true;
    impl_->thread = std::thread([this, control = impl_->control, config = std::move(config)] {
        impl_->execute(config, *control);
    });
}

void Session::cancel() {
    {
        std::lock_guard lock(impl_->control->mutex);
        impl_->control->cancelled = true;
    }
    impl_->control->changed.notify_all();
}

void Session::setPaused(bool paused) {
    {
        std::lock_guard lock(impl_->control->mutex);
        impl_->control->paused = paused;
    }
    impl_->control->changed.notify_all();
}

bool Session::isRunning() const { return impl_->running; }

void Session::wait() {
    if (impl_->thread.joinable()) impl_->thread.join();
}

RunResult runToEnd(const RunConfig& config, const SessionCallbacks& callbacks) {
    Control control;
    return run(config, callbacks, control);
}

}  // namespace kvlab
