// SPDX-License-Identifier: MIT
#include "engine/engine.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "engine/cache/kv_cache_manager.h"
#include "engine/error.h"
#include "engine/model/sampler.h"
#include "engine/model/tokenizer.h"
#include "engine/model/weights.h"
#include "engine/scheduling/beam_search.h"
#include "engine/scheduling/scheduler.h"
#include "engine/scheduling/step_executor.h"
#include "engine/sizing/kv_size.h"
#include "engine/text_format.h"
#include "engine/trace/trace_recorder.h"

namespace kvlab {

namespace {

[[noreturn]] void refuse(const std::string& message) {
    throw EngineError(ErrorKind::kBadArgument, message);
}

// Layout, host pool and preemption.
void checkSchedule(const EngineConfig& config) {
    const CacheConfig& cache = config.cache;
    if (cache.num_host_blocks < 0)
        refuse("a host pool cannot have fewer than 0 blocks; give 0 for none");
    if ((int64_t{cache.num_blocks} + cache.num_host_blocks) * cache.block_size > INT32_MAX) {
        refuse("pool and host pool of " +
               formatCount(int64_t{cache.num_blocks} + cache.num_host_blocks) + " blocks of " +
               std::to_string(cache.block_size) +
               " slots have more slots than a slot index counts; ask for fewer blocks");
    }
    if (!(config.watermark >= 0 && config.watermark < 1)) {
        refuse("the watermark is a share of the pool; give at least 0 and less than 1");
    }
    if (config.preempt == PreemptionKind::kNone) {
        refuse("sequences must be able to give way: choose preemption by recompute or by swap");
    }
    if (!cache.slabsHaveOneLength()) return;
    if (cache.max_len < 1) refuse("a slab needs the length that it is cut for; give max_len");
    const int64_t run_blocks = cache.runBlocks(cache.max_len);
    if (run_blocks > cache.num_blocks) {
        refuse("a slab for " + formatCount(cache.max_len) + " tokens needs " +
               formatCount(run_blocks) + " blocks of " + std::to_string(cache.block_size) +
               " tokens, the pool has " + formatCount(cache.num_blocks) +
               "; give it more blocks or a shorter max_len");
    }
}

void checkConfig(const EngineConfig& config) {
    BlockPool::checkSize(config.cache.num_blocks, config.cache.block_size);
    if (config.token_budget < 1) {
        throw EngineError(ErrorKind::kBadArgument, "a token budget of " +
                                                       std::to_string(config.token_budget) +
                                                       " lets nothing run; give it at least 1");
    }
    checkSchedule(config);
}

EngineConfig withWindow(EngineConfig config, const ModelConfig& model) {
    config.cache.window = model.uniformWindow();
    return config;
}

// Of one sequence at its end: the last sampled token has no K/V.
int64_t finalLen(const EngineRequest& request) { return request.longestLen() - 1; }

}  // namespace

struct Engine::Impl {
    std::shared_ptr<const Tokenizer> tokenizer;
    std::unique_ptr<StepExecutor> executor;
    EngineConfig config;
    int vocab_size = 0;  // 0: an accounting run takes any token
    // To go on with on the CPU when the GPU fails; null: it is not wanted, or it happened.
    std::shared_ptr<const ModelWeights> spare_weights;
    EngineConfig spare_config;
    TraceRecorder recorder;
    KvCacheManager cache;
    Scheduler scheduler;
    LogitsObserver observer;
    std::shared_ptr<const Clock> clock = std::make_shared<SteadyClock>();
    std::set<RequestId> to_cancel;
    std::map<RequestId, WaitingRequest> not_started;  // what state() says of the queue
    std::vector<RequestTimings> timings;              // by request id
    std::unordered_map<RequestId, std::vector<double>> finished_beams;  // their sums
    std::vector<BlockTransfer> late_copies;  // to be done before the next step's
    AccountingOptions virtual_time;          // steps take no time of it without a cost model
    SteadyClock wall;                        // for what a step costs; `clock` dates requests
    WasteAccount waste;
    int64_t blocks_peak = 0;
    int64_t bytes_moved = 0;
    int num_idle_steps = 0;        // in a row
    std::vector<int64_t> read_in;  // by block: the step that read it last
    int64_t num_steps = 0;
    std::map<int, int> layers_of_window;  // window (0: none) → layers
    std::vector<SequenceState> past;   // by sequence id: what state() needs of sequences that left
    std::optional<CacheState> folded;  // the fold of our own log, where seal() compares

    // The executor comes first: a pool that does not fit is refused before its blocks are counted
    // one by one.
    Impl(std::unique_ptr<StepExecutor> made, std::shared_ptr<const Tokenizer> words)
        : tokenizer(std::move(words)),
          executor(std::move(made)),
          config(withWindow(executor->config(), executor->model())),
          cache(config.cache, recorder),
          scheduler(config, cache, recorder) {
        const ModelConfig& model = executor->model();
        for (int layer = 0; layer < model.num_layers; ++layer) {
            ++layers_of_window[model.window(layer)];
        }
        if (tokenizer) {
            recorder.setPieceSource(
                [words_ptr = tokenizer](TokenId token) { return words_ptr->piece(token); });
        }
    }

    RequestTimings& timingsOf(const Sequence& sequence) {
        return timings[static_cast<size_t>(sequence.request_id.value)];
    }

    bool isEndOfText(TokenId token) const { return tokenizer && tokenizer->endsText(token); }

    // Given tokens go on past an end.
    bool ends(const EngineRequest& request, TokenId token) const {
        return request.forced.empty() && !request.ignore_eos && isEndOfText(token);
    }

    void finish(Sequence& sequence, FinishReason reason) {
        scheduler.finish(sequence, reason);
        timingsOf(sequence).finished_ms = clock->nowMs();
        timingsOf(sequence).finish = reason;
    }

    SequenceState stateOf(const Sequence& sequence) const {
        SequenceState state;
        state.id = sequence.id;
        state.request = sequence.request_id;
        state.sample_idx = sequence.sample_idx;
        state.tokens = sequence.tokens;
        state.prompt_len = static_cast<int>(sequence.request->promptLen());
        state.finish = sequence.finish;
        state.preempted = sequence.preempted;
        state.log_probability = sequence.log_probability;
        if (cache.contains(sequence.id)) {
            const BlockTable& table = cache.table(sequence.id);
            state.kv_len = table.kv_len;
            state.table = table.blocks;
            state.host_table = table.host_blocks;
            state.num_on_host = table.num_on_host;
            state.num_left = table.num_left;
        }
        return state;
    }

    void releaseFinished() {
        if (cache.isSlab()) {
            for (const auto& sequence : scheduler.running()) {
                if (sequence->phase != Phase::kFinished) continue;
                const BlockTable& table = cache.table(sequence->id);
                waste.addLeft(*sequence, int64_t{table.run_blocks} * config.cache.block_size,
                              table.kv_len);
            }
        }
        for (const auto& sequence : scheduler.releaseFinished()) {
            if (!config.keep_history) continue;
            const size_t index = static_cast<size_t>(sequence->id.value);
            if (past.size() <= index) past.resize(index + 1);
            past[index] = stateOf(*sequence);
            past[index].removed = true;
        }
    }

    void applyCancels() {
        for (const RequestId request : to_cancel) {
            const Scheduler::Cancelled cancelled = scheduler.cancel(request);
            if (cancelled == Scheduler::Cancelled::kNothing) continue;
            if (cancelled == Scheduler::Cancelled::kWaiting) not_started.erase(request);
            RequestTimings& times = timings[static_cast<size_t>(request.value)];
            times.finished_ms = clock->nowMs();
            times.finish = FinishReason::kCancelled;
            finished_beams.erase(request);
        }
        to_cancel.clear();
    }

    void countMoves(const StepPlan& plan) {
        const int64_t token_bytes = executor->model().kvBytesPerToken(config.cache.kv_dtype);
        for (const BlockTransfer& transfer : plan.transfers) {
            if (transfer.kind == BlockTransfer::Kind::kCopy) continue;
            bytes_moved += transfer.num_slots * token_bytes;
        }
    }

    // The first in line always runs; if it does not, the rules above have a hole.
    void checkProgress(const StepPlan& plan) {
        const bool idle = plan.rows.empty() && plan.transfers.empty() && scheduler.hasWork();
        num_idle_steps = idle ? num_idle_steps + 1 : 0;
        KVLAB_CHECK(num_idle_steps < 4, "requests wait, but none of them can run");
    }

    // Attention's reading, see StepStats.
    void countReads(const StepPlan& plan, StepStats& stats) {
        const int64_t token_bytes = executor->model().kvBytesPerLayer(config.cache.kv_dtype);
        const int block_size = config.cache.block_size;
        const bool shares = cache.pool().numShared() > 0;
        if (shares) read_in.resize(static_cast<size_t>(cache.pool().numBlocks()), -1);
        int64_t tokens = 0, repeated = 0;  // times layers
        for (const ScheduledRows& rows : plan.rows) {
            const BlockTable& table = cache.table(rows.sequence->id);
            const int64_t context = int64_t{table.kv_len} + rows.num_tokens;
            // Tokens from `begin` on that any row sees, over all layers.
            const auto seenFrom = [&](int64_t begin, int64_t end) {
                int64_t seen = 0;
                for (const auto& [window, num_layers] : layers_of_window) {
                    const int64_t first = window > 0 ? int64_t{table.kv_len} + 1 - window : 0;
                    seen += num_layers * std::max<int64_t>(0, end - std::max(first, begin));
                }
                return seen;
            };
            tokens += seenFrom(0, context);
            for (int64_t idx = table.num_left; shares && idx * block_size < context; ++idx) {
                const BlockId block = table.blocks[static_cast<size_t>(idx)];
                // Shared blocks are the beginning of a table.
                if (cache.pool().refCount(block) == 1) break;
                int64_t& last = read_in[static_cast<size_t>(block.value)];
                if (last == num_steps) {
                    repeated +=
                        seenFrom(idx * block_size, std::min(context, (idx + 1) * block_size));
                }
                last = num_steps;
            }
        }
        stats.attention_bytes = tokens * token_bytes;
        stats.attention_bytes_repeated = repeated * token_bytes;
    }

    // Draws the next token of a sequence from its row of logits (null: an accounting run).
    SampledToken draw(const Sequence& sequence, const float* logits) const {
        if (logits == nullptr) return {TokenId(0), 0.f};
        const EngineRequest& request = *sequence.request;
        if (!request.forced.empty()) {
            const TokenId forced = request.forced[static_cast<size_t>(sequence.num_sampled)];
            return {forced, logProbability(logits, vocab_size, forced)};
        }
        return sampleToken(logits, vocab_size, request.sampling, sequence.sample_idx,
                           static_cast<int>(sequence.tokens.size()));
    }

    void addToken(Sequence& sequence, TokenId token, float log_probability, double now_ms) {
        sequence.tokens.push_back(token);
        ++sequence.num_sampled;
        sequence.log_probability += double{log_probability};
        sequence.phase = Phase::kDecode;
        recorder.tokenSampled(sequence.id, token, log_probability);
        RequestTimings& times = timingsOf(sequence);
        ++times.num_sampled;
        if (sequence.sample_idx != 0) return;
        if (!times.first_token_ms) {
            times.first_token_ms = now_ms;
        } else {
            const double gap = now_ms - *times.last_token_ms;
            ++times.num_gaps;
            times.longest_gap_ms = std::max(times.longest_gap_ms, gap);
            if (config.keep_history) times.token_gaps_ms.push_back(static_cast<float>(gap));
        }
        times.last_token_ms = now_ms;
    }

    void finishIfDone(Sequence& sequence) {
        if (ends(*sequence.request, sequence.tokens.back())) {
            finish(sequence, FinishReason::kEndOfText);
        } else if (sequence.num_sampled >= sequence.request->maxTokens()) {
            finish(sequence, FinishReason::kLength);
        }
    }

    struct Row {
        Sequence* sequence;
        const float* logits;
    };

    // Samples, greedy and forced rows.
    void drawTokens(const std::vector<Row>& rows) {
        std::vector<Row> draws;
        for (const Row& row : rows) {
            draws.push_back(row);
            Sequence& sequence = *row.sequence;
            if (sequence.forked) continue;
            for (Sequence* child : scheduler.forkSamples(sequence, late_copies)) {
                draws.push_back({child, row.logits});
            }
        }
        // Over a large vocabulary a draw takes as long as a layer, and none depends on another.
        std::vector<SampledToken> sampled(draws.size());
        executor->forEach(static_cast<int>(draws.size()), [&](int i) {
            const Row& row = draws[static_cast<size_t>(i)];
            sampled[static_cast<size_t>(i)] = draw(*row.sequence, row.logits);
        });
        const double now_ms = clock->nowMs();
        for (size_t i = 0; i < draws.size(); ++i) {
            addToken(*draws[i].sequence, sampled[i].token, sampled[i].log_probability, now_ms);
        }
        for (const Row& row : draws) finishIfDone(*row.sequence);
    }

    // One step of one request's beams: fork, go on, end.
    void stepBeams(const std::vector<Row>& beams) {
        const EngineRequest& request = *beams.front().sequence->request;
        const RequestId id = beams.front().sequence->request_id;
        std::vector<BeamRow> rows;
        int next_sample = 0;
        for (const Row& beam : beams) {
            if (beam.logits != nullptr) {
                checkLogits(beam.logits, vocab_size,
                            static_cast<int>(beam.sequence->tokens.size()));
            }
            rows.push_back({beam.logits, beam.sequence->log_probability});
        }
        for (const auto& sequence : scheduler.running()) {
            if (sequence->request_id == id) {
                next_sample = std::max(next_sample, sequence->sample_idx + 1);
            }
        }
        std::vector<BeamCandidate> candidates;
        if (beams.front().logits != nullptr) {
            candidates = bestContinuations(rows, vocab_size, 2 * request.num_beams);
        } else {
            // Accounting: the first beam splits, then each goes on by itself.
            const int copies = static_cast<int>(beams.size()) < request.num_beams
                                   ? request.num_beams - static_cast<int>(beams.size()) + 1
                                   : 1;
            for (int i = 0; i < copies; ++i) candidates.push_back({0, TokenId(i), 0.f, 0});
            for (size_t beam = 1; beam < beams.size(); ++beam) {
                candidates.push_back({static_cast<int>(beam), TokenId(0), 0.f, 0});
            }
        }
        const auto end = [&](TokenId token) { return ends(request, token); };
        const BeamStep chosen = chooseBeams(candidates, request.num_beams, end, finished_beams[id]);
        std::vector<BeamCandidate> picks = chosen.live;
        picks.insert(picks.end(), chosen.finished.begin(), chosen.finished.end());
        // Children first: they take their parent's tokens, not its new one.
        std::vector<Sequence*> sequences;
        std::vector<bool> goes_on(beams.size(), false);
        for (const BeamCandidate& pick : picks) {
            const size_t beam = static_cast<size_t>(pick.beam);
            Sequence* parent = beams[beam].sequence;
            sequences.push_back(goes_on[beam] ? scheduler.fork(*parent, next_sample++) : parent);
            goes_on[beam] = true;
        }
        const double now_ms = clock->nowMs();
        for (size_t i = 0; i < picks.size(); ++i) {
            sequences[i]->forked = true;
            addToken(*sequences[i], picks[i].token, picks[i].token_log_probability, now_ms);
        }
        for (Sequence* sequence : sequences) finishIfDone(*sequence);
        for (size_t beam = 0; beam < beams.size(); ++beam) {
            if (!goes_on[beam]) finish(*beams[beam].sequence, FinishReason::kPruned);
        }
        const bool ended = std::all_of(sequences.begin(), sequences.end(), [](const Sequence* s) {
            return s->phase == Phase::kFinished;
        });
        if (ended) finished_beams.erase(id);
    }

    void chooseTokens(const StepPlan& plan) {
        std::vector<Row> rows;
        std::vector<std::vector<Row>> beams;
        int idx = 0;
        for (const ScheduledRows& scheduled : plan.rows) {
            if (!scheduled.wants_logits) continue;
            Sequence& sequence = *scheduled.sequence;
            const float* logits = executor->logits(idx++);
            if (observer && logits != nullptr) {
                observer(sequence.id, static_cast<int>(sequence.tokens.size()) - 1, logits,
                         vocab_size);
            }
            if (!sequence.isBeam()) {
                rows.push_back({&sequence, logits});
                continue;
            }
            // Beams of a request stand side by side.
            if (beams.empty() || beams.back().front().sequence->request_id != sequence.request_id) {
                beams.emplace_back();
            }
            beams.back().push_back({&sequence, logits});
        }
        drawTokens(rows);
        for (const std::vector<Row>& group : beams) stepBeams(group);
    }

    std::shared_ptr<const StepTrace> seal(const StepStats& stats) {
        blocks_peak = std::max<int64_t>(blocks_peak, cache.pool().numActive());
        ++num_steps;
        std::shared_ptr<const StepTrace> step = recorder.seal(stats);
#if !defined(NDEBUG) || defined(KVLAB_CHECK_STATE)
        if (config.keep_history) {
            if (!folded) folded = initialState(config.cache);
            for (const Event& event : step->events) apply(*folded, event);
            const CacheState own = state();
            KVLAB_CHECK(own == *folded, "the folded log differs from the engine's state");
            const std::string broken = checkInvariants(own);
            KVLAB_CHECK(broken.empty(), broken.c_str());
        }
#endif
        return step;
    }

    CacheState state() const {
        CacheState state;
        const BlockPool& pool = cache.pool();
        state.block_size = pool.blockSize();
        state.blocks.resize(static_cast<size_t>(pool.numBlocks()));
        for (int i = 0; i < pool.numBlocks(); ++i) {
            const BlockId id(i);
            state.blocks[static_cast<size_t>(i)] = {pool.refCount(id), pool.indexCount(id),
                                                    pool.numFilled(id)};
        }
        state.free_queue = pool.freeQueue();
        const HostPool& host = cache.hostPool();
        for (int i = 0; i < host.numBlocks(); ++i) {
            const HostBlockId id(i);
            state.host_blocks.push_back({host.refCount(id), 0, host.numFilled(id)});
        }
        state.host_free_queue = host.freeQueue();
        state.waiting = not_started;
        state.sequences = past;
        const auto add = [&](const Sequence& sequence) {
            if (!sequence.id.valid()) return;
            const size_t index = static_cast<size_t>(sequence.id.value);
            if (state.sequences.size() <= index) state.sequences.resize(index + 1);
            state.sequences[index] = stateOf(sequence);
        };
        for (const auto& sequence : scheduler.running()) add(*sequence);
        for (const auto& [key, sequence] : scheduler.waiting()) add(*sequence);
        state.num_copy_on_write = cache.numCopyOnWrite();
        state.num_preemptions = scheduler.numPreemptions();
        state.num_swapped_out = cache.numSwappedOut();
        state.num_swapped_in = cache.numSwappedIn();
        state.counts = recount(state);
        return state;
    }

    // After the step has run, by the cost model.
    void passVirtualTime(const StepPlan& plan, StepStats& stats) const {
        if (!virtual_time.step_ms) return;
        StepShape shape;
        shape.num_prefill_tokens = plan.num_prefill_tokens;
        shape.num_decode_tokens = plan.num_decode_tokens;
        shape.attention_bytes = stats.attention_bytes;
        const int64_t bytes_per_token = executor->model().kvBytesPerToken(config.cache.kv_dtype);
        for (const BlockTransfer& transfer : plan.transfers) {
            (transfer.kind == BlockTransfer::Kind::kCopy ? shape.copied_bytes
                                                         : shape.swapped_bytes) +=
                transfer.num_slots * bytes_per_token;
        }
        const double ms = virtual_time.step_ms(shape);
        if (virtual_time.clock) virtual_time.clock->advance(ms);
        if (executor->isSimulated()) stats.forward_ms = ms;
    }

    // The GPU failed in the middle of a step. The K/V in its pool are lost, and what reached the
    // host pool may be half a copy; the tokens are all here, and none of this step was chosen. So
    // the CPU computes every sequence again. The step ends with that: it ran nothing. A pool that
    // does not fit here either ends the run.
    std::shared_ptr<const StepTrace> goOnOnCpu(const EngineError& failure, double start_ms) {
        const std::string what = withoutAdvice(failure.what());
        std::unique_ptr<StepExecutor> cpu;
        try {
            cpu = makeModelExecutor(spare_weights, spare_config);
        } catch (const EngineError& error) {
            throw EngineError(error.kind(),
                              what + ", and the CPU cannot take over: " + error.what());
        }
        executor = std::move(cpu);
        spare_weights.reset();
        config.backend = executor->config().backend;
        config.num_threads = executor->config().num_threads;
        const std::vector<RequestId> interrupted = scheduler.recomputeAll();
        for (const RequestId request : interrupted) {
            ++timings[static_cast<size_t>(request.value)].num_preemptions;
        }
        num_idle_steps = 0;
        if (config.on_fallback) {
            config.on_fallback(what + "; " +
                               counted(static_cast<int64_t>(interrupted.size()),
                                       "running sequence is", "running sequences are") +
                               " computed again");
        }
        StepStats stats;
        stats.num_waiting = static_cast<int>(scheduler.waiting().size());
        stats.total_ms = wall.nowMs() - start_ms;
        return seal(stats);
    }

    bool canGoOnWithout(const EngineError& failure) const {
        return spare_weights &&
               (failure.kind() == ErrorKind::kDevice || failure.kind() == ErrorKind::kOutOfMemory);
    }

    std::shared_ptr<const StepTrace> step() {
        const double start_ms = wall.nowMs();
        releaseFinished();
        applyCancels();
        StepPlan plan = scheduler.schedule();
        for (const Sequence* sequence : plan.admitted) {
            if (sequence->sample_idx != 0) continue;
            not_started.erase(sequence->request_id);
            timingsOf(*sequence).admitted_ms = clock->nowMs();
        }
        for (const RequestId request : plan.preempted) {
            ++timings[static_cast<size_t>(request.value)].num_preemptions;
        }
        // Slabs that were given to samples after the last step's rows; nothing was written since.
        plan.transfers.insert(plan.transfers.begin(), late_copies.begin(), late_copies.end());
        late_copies.clear();

        StepStats stats;
        stats.num_prefill_tokens = plan.num_prefill_tokens;
        stats.num_decode_tokens = plan.num_decode_tokens;
        stats.num_recomputed_tokens = plan.num_recomputed_tokens;
        stats.num_running = static_cast<int>(plan.rows.size());
        countReads(plan, stats);
        try {
            executor->run(plan, cache, stats);
        } catch (const EngineError& failure) {
            if (!canGoOnWithout(failure)) throw;
            return goOnOnCpu(failure, start_ms);
        }
        passVirtualTime(plan, stats);
        countMoves(plan);
        for (const ScheduledRows& rows : plan.rows) {
            cache.commitAppend(rows.sequence->id, rows.num_tokens);
        }
        const double sample_ms = wall.nowMs();
        chooseTokens(plan);
        if (executor->isSimulated()) {
            stats.total_ms = stats.forward_ms;
        } else {
            stats.sample_ms = wall.nowMs() - sample_ms;
            stats.total_ms = wall.nowMs() - start_ms;
        }
        stats.num_waiting = static_cast<int>(scheduler.waiting().size());
        waste.addStep(cache, scheduler);
        checkProgress(plan);
        return seal(stats);
    }
};

Engine::Engine(std::shared_ptr<const ModelWeights> weights,
               std::shared_ptr<const Tokenizer> tokenizer,
               const EngineConfig& config) {
    checkConfig(config);
    impl_ = std::make_unique<Impl>(makeModelExecutor(weights, config), std::move(tokenizer));
    impl_->vocab_size = weights->config.vocab_size;
    if (impl_->config.backend == "cuda" && fallsBackToCpu(config)) {
        impl_->spare_weights = std::move(weights);
        impl_->spare_config = config;
        impl_->spare_config.backend = "cpu";
    }
}

Engine::Engine(const ModelConfig& model,
               const EngineConfig& config,
               const AccountingOptions& options) {
    checkConfig(config);
    impl_ = std::make_unique<Impl>(makeAccountingExecutor(model, config), nullptr);
    impl_->virtual_time = options;
    if (options.clock) impl_->clock = options.clock;
}

Engine::~Engine() = default;

int64_t Engine::worstCaseBlocks(const EngineRequest& request, int block_size) {
    if (request.num_beams > 1) {
        return request.num_beams * blocksFor(finalLen(request), block_size);
    }
    return samplesOfOnePrompt(request.promptLen(), request.maxTokens() - 1, request.num_samples,
                              block_size)
        .blocks_held.value;
}

int64_t Engine::worstCaseBlocks(const EngineRequest& request, const CacheConfig& cache) {
    if (cache.layout == CacheLayout::kSlab) {
        return int64_t{request.num_samples} * cache.runBlocks(request.longestLen());
    }
    const int64_t all = worstCaseBlocks(request, cache.block_size);
    if (!cache.freesLeftBlocks()) return all;
    // Each sequence its window; before they split, the prompt in chunks of the usual budget.
    const int64_t num_sequences = std::max(request.num_samples, request.num_beams);
    return std::min(all,
                    std::max(cache.mostBlocks(request.promptLen(), EngineConfig().token_budget),
                             num_sequences * cache.mostBlocks(finalLen(request))));
}

int64_t Engine::fewestBlocks(const EngineRequest& request, const CacheConfig& cache) {
    if (cache.layout == CacheLayout::kSlab) return cache.runBlocks(request.longestLen());
    return std::max(1, request.num_beams) * cache.mostBlocks(finalLen(request));
}

RequestId Engine::submit(EngineRequest request) {
    const CacheConfig& cache = impl_->config.cache;
    const int vocab_size = impl_->vocab_size;
    // Only accounts can do without the tokens.
    if (vocab_size > 0 ? request.prompt.empty() : request.promptLen() < 1) {
        refuse("the prompt is empty; give at least one token");
    }
    if (request.num_samples < 1) refuse("at least one sample must be drawn; ask for 1 or more");
    if (request.num_beams < 1) refuse("at least one beam is needed; ask for 1 or more");
    if (request.maxTokens() < 1) refuse("at least one token must be generated; ask for 1 or more");
    if (request.num_beams > 1 && (request.num_samples > 1 || !request.forced.empty())) {
        refuse("beam search draws no samples and takes no given tokens; use one or the other");
    }
    if (request.num_beams > 1 && cache.layout == CacheLayout::kSlab) {
        refuse("beams share their blocks, which slabs cannot; use the paged layout");
    }
    checkSamplingParams(request.sampling);
    const int64_t prompt_len = request.promptLen();
    const int64_t longest = request.longestLen();
    if (longest > INT32_MAX)
        refuse("the request is longer than a position counts; ask for fewer tokens");

    const RequestId id(static_cast<int64_t>(impl_->timings.size()));
    RequestTimings times;
    times.request = id;
    times.priority = request.priority;
    times.prompt_len = static_cast<int>(prompt_len);
    times.arrived_ms = request.arrived_ms.value_or(impl_->clock->nowMs());
    Decision decision;
    decision.kind = DecisionKind::kRefused;
    decision.request = id;
    decision.priority = request.priority;
    const auto refuseForGood = [&](const std::string& message) {
        times.refused = true;
        impl_->timings.push_back(times);
        impl_->recorder.decided(decision);
        refuse(message);
    };
    for (const std::vector<TokenId>* tokens : {&request.prompt, &request.forced}) {
        const auto unknown = std::find_if(tokens->begin(), tokens->end(), [&](TokenId token) {
            return vocab_size > 0 && (!token.valid() || token.value >= vocab_size);
        });
        if (unknown == tokens->end()) continue;
        decision.reason = DecisionReason::kUnknownToken;
        decision.tokens_needed = std::max(unknown->value, 0);
        decision.tokens_free = vocab_size;
        refuseForGood("token " + std::to_string(unknown->value) + " is not in the vocabulary of " +
                      formatCount(vocab_size) + " tokens; give ids from 0 to " +
                      formatCount(vocab_size - 1));
    }
    const int64_t needed = fewestBlocks(request, cache);
    if (cache.slabsHaveOneLength() && longest > cache.max_len) {
        decision.reason = DecisionReason::kLongerThanRun;
        decision.blocks_needed = blocksFor(longest, cache.block_size);
        decision.blocks_free = cache.runBlocks(longest);
        refuseForGood("a prompt of " + formatCount(prompt_len) + " and " +
                      formatCount(request.maxTokens()) + " tokens to generate make " +
                      formatCount(longest) + ", a slab is cut for " + formatCount(cache.max_len) +
                      "; raise the maximum length or ask for fewer tokens");
    }
    if (needed > cache.num_blocks) {
        decision.reason = DecisionReason::kLargerThanPool;
        decision.blocks_needed = needed;
        decision.blocks_free = cache.num_blocks;
        refuseForGood("the request needs " + formatCount(needed) + " blocks of " +
                      std::to_string(cache.block_size) + " tokens, the pool has " +
                      formatCount(cache.num_blocks) +
                      "; give it more blocks or ask for fewer tokens");
    }
    impl_->timings.push_back(times);
    impl_->recorder.requestArrived(id, request.priority, times.prompt_len, request.num_samples,
                                   request.maxTokens());
    impl_->not_started[id] = {request.priority, times.prompt_len, request.num_samples,
                              request.maxTokens()};
    impl_->scheduler.enqueue(id, std::make_shared<const EngineRequest>(std::move(request)));
    return id;
}

bool Engine::hasWork() const { return impl_->scheduler.hasWork(); }

std::shared_ptr<const StepTrace> Engine::step() { return hasWork() ? impl_->step() : nullptr; }

std::shared_ptr<const StepTrace> Engine::releaseFinished() {
    const auto& running = impl_->scheduler.running();
    const bool any = std::any_of(running.begin(), running.end(), [](const auto& sequence) {
        return sequence->phase == Phase::kFinished;
    });
    if (!any && impl_->recorder.isEmpty()) return nullptr;
    impl_->releaseFinished();
    return impl_->seal(StepStats{});
}

void Engine::cancel(RequestId request) { impl_->to_cancel.insert(request); }

void Engine::setLogitsObserver(LogitsObserver observer) { impl_->observer = std::move(observer); }
void Engine::setClock(std::shared_ptr<const Clock> clock) { impl_->clock = std::move(clock); }

void Engine::setVirtualTime(const AccountingOptions& options) {
    KVLAB_CHECK(options.clock && options.step_ms && !impl_->executor->isSimulated(),
                "virtual time needs a clock, a cost model and a run with a model");
    impl_->virtual_time = options;
    impl_->clock = options.clock;
}

CacheState Engine::state() const { return impl_->state(); }
PoolAccount Engine::account() const { return accountOf(impl_->state()); }
int64_t Engine::blocksPeak() const { return impl_->blocks_peak; }
int64_t Engine::poolBytes() const { return impl_->executor->poolBytes(); }
int64_t Engine::numPreemptions() const { return impl_->scheduler.numPreemptions(); }
int64_t Engine::bytesMoved() const { return impl_->bytes_moved; }
const std::vector<RequestTimings>& Engine::timings() const { return impl_->timings; }
const WasteAccount& Engine::waste() const { return impl_->waste; }
const ModelConfig& Engine::model() const { return impl_->executor->model(); }
const EngineConfig& Engine::config() const { return impl_->config; }
std::string Engine::deviceName() const { return impl_->executor->deviceName(); }

}  // namespace kvlab
