// SPDX-License-Identifier: MIT
#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>

#include "engine/backend/backend.h"
#include "engine/cache/kv_cache_manager.h"
#include "engine/error.h"
#include "engine/model/sampler.h"
#include "engine/model/tokenizer.h"
#include "engine/model/transformer.h"
#include "engine/scheduling/scheduler.h"
#include "engine/sizing/kv_size.h"
#include "engine/text_format.h"
#include "engine/trace/trace_recorder.h"

namespace kvlab {

namespace {

using Clock = std::chrono::steady_clock;

double millisecondsSince(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

EngineConfig resolved(EngineConfig config, const Backend& backend) {
    config.backend = backend.name();
    config.num_threads = backend.numThreads();
    return config;
}

PagedKvView poolView(const ModelConfig& model, const CacheConfig& cache) {
    PagedKvView kv;
    kv.dtype = cache.kv_dtype;
    kv.num_layers = model.num_layers;
    kv.num_blocks = cache.num_blocks;
    kv.block_size = cache.block_size;
    kv.num_kv_heads = model.num_kv_heads;
    kv.head_dim = model.head_dim;
    return kv;
}

void checkConfig(const EngineConfig& config) {
    BlockPool::checkSize(config.cache.num_blocks, config.cache.block_size);
    if (config.token_budget < 1) {
        throw EngineError(ErrorKind::kBadArgument, "a token budget of " +
                                                       std::to_string(config.token_budget) +
                                                       " lets nothing run; give it at least 1");
    }
}

}  // namespace

struct Engine::Impl {
    std::shared_ptr<const ModelWeights> weights;
    std::shared_ptr<const Tokenizer> tokenizer;
    std::unique_ptr<Backend> backend;
    EngineConfig config;
    Transformer transformer;
    TraceRecorder recorder;
    // Before the bookkeeping: a pool that does not fit is refused before its blocks are counted one
    // by one.
    PagedKvView kv;
    Backend::Memory pool_memory;
    KvCacheManager cache;
    Scheduler scheduler;
    LogitsObserver observer;
    std::set<RequestId> to_cancel;
    int32_t next_request = 0;
    int64_t blocks_peak = 0;
    std::vector<SequenceState> past;   // by sequence id: what state() needs of sequences that left
    std::optional<CacheState> folded;  // the fold of our own log, where seal() compares

    Impl(std::shared_ptr<const ModelWeights> model,
         std::shared_ptr<const Tokenizer> words,
         const EngineConfig& wanted,
         std::unique_ptr<Backend> made)
        : weights(std::move(model)),
          tokenizer(std::move(words)),
          backend(std::move(made)),
          config(resolved(wanted, *backend)),
          transformer(weights, *backend),
          kv(poolView(weights->config, config.cache)),
          pool_memory(backend->allocate(kv.numBytes(), "the pool")),
          cache(config.cache.num_blocks, config.cache.block_size, recorder),
          scheduler(config.cache.num_blocks, config.token_budget) {
        kv.data = pool_memory.get();
        if (tokenizer) {
            recorder.setPieceSource(
                [words_ptr = tokenizer](TokenId token) { return words_ptr->piece(token); });
        }
    }

    bool isEndOfText(TokenId token) const { return tokenizer && tokenizer->endsText(token); }

    void finish(Sequence& sequence, FinishReason reason) {
        sequence.phase = Phase::kFinished;
        sequence.finish = reason;
        recorder.sequenceFinished(sequence.id, reason);
    }

    SequenceState stateOf(const Sequence& sequence) const {
        SequenceState state;
        state.id = sequence.id;
        state.request = sequence.request_id;
        state.sample_idx = sequence.sample_idx;
        state.tokens = sequence.tokens;
        state.prompt_len = static_cast<int>(sequence.request->prompt.size());
        state.finish = sequence.finish;
        if (cache.contains(sequence.id)) {
            state.kv_len = cache.table(sequence.id).kv_len;
            state.table = cache.table(sequence.id).blocks;
        }
        return state;
    }

    void releaseFinished() {
        std::vector<SequenceId> finished;
        for (const auto& sequence : scheduler.running()) {
            if (sequence->phase == Phase::kFinished) finished.push_back(sequence->id);
        }
        for (const SequenceId id : finished) cache.release(id);
        for (const SequenceId id : finished) {
            recorder.sequenceRemoved(id);
            for (const auto& sequence : scheduler.running()) {
                if (sequence->id != id) continue;
                SequenceState gone = stateOf(*sequence);
                gone.removed = true;
                if (past.size() <= static_cast<size_t>(id.value))
                    past.resize(static_cast<size_t>(id.value) + 1);
                past[static_cast<size_t>(id.value)] = std::move(gone);
            }
            scheduler.remove(id);
        }
    }

    void applyCancels() {
        for (const RequestId request : to_cancel) {
            if (scheduler.cancelWaiting(request)) continue;
            for (const auto& sequence : scheduler.running()) {
                if (sequence->request_id == request && sequence->phase != Phase::kFinished) {
                    finish(*sequence, FinishReason::kCancelled);
                }
            }
        }
        to_cancel.clear();
    }

    StepBatch makeBatch(const std::vector<ScheduledRows>& plan) {
        StepBatch batch;
        batch.num_seqs = static_cast<int>(plan.size());
        for (const ScheduledRows& rows : plan) {
            batch.max_blocks_per_seq =
                std::max(batch.max_blocks_per_seq,
                         static_cast<int>(cache.table(rows.sequence->id).blocks.size()));
        }
        batch.block_tables.assign(static_cast<size_t>(batch.num_seqs) * batch.max_blocks_per_seq,
                                  0);
        for (int seq_idx = 0; seq_idx < batch.num_seqs; ++seq_idx) {
            const ScheduledRows& rows = plan[static_cast<size_t>(seq_idx)];
            const BlockTable& table = cache.table(rows.sequence->id);
            for (size_t i = 0; i < table.blocks.size(); ++i) {
                batch.block_tables[static_cast<size_t>(seq_idx) * batch.max_blocks_per_seq + i] =
                    table.blocks[i].value;
            }
            for (int i = 0; i < rows.num_tokens; ++i) {
                const int position = table.kv_len + i;
                batch.token_ids.push_back(
                    rows.sequence->tokens[static_cast<size_t>(position)].value);
                batch.positions.push_back(position);
                batch.slot_mapping.push_back(table.slotOf(position, config.cache.block_size).value);
                batch.row_to_seq.push_back(seq_idx);
                batch.context_lens.push_back(position + 1);
            }
            if (rows.wants_logits) batch.logit_rows.push_back(batch.numTokens() - 1);
        }
        return batch;
    }

    void copyBlocks(const std::vector<BlockCopy>& copies) {
        if (copies.empty()) return;
        std::vector<int32_t> source, target, num_slots;
        for (const BlockCopy& copy : copies) {
            source.push_back(copy.source.value);
            target.push_back(copy.target.value);
            num_slots.push_back(copy.num_slots);
        }
        CopyBlocksParams params;
        params.source = source.data();
        params.target = target.data();
        params.num_slots = num_slots.data();
        params.num_pairs = static_cast<int>(copies.size());
        params.kv = kv;
        backend->ops().copy_blocks(params, backend->context());
    }

    // Draws the next token of a sequence from its row of logits.
    void sampleInto(Sequence& sequence, const float* logits) {
        const EngineRequest& request = *sequence.request;
        const int vocab_size = weights->config.vocab_size;
        const int position = static_cast<int>(sequence.tokens.size());
        SampledToken sampled =
            sampleToken(logits, vocab_size, request.sampling, sequence.sample_idx, position);
        if (!request.forced.empty()) {
            const TokenId forced = request.forced[static_cast<size_t>(sequence.num_sampled)];
            sampled = {forced, logProbability(logits, vocab_size, forced)};
        }
        sequence.tokens.push_back(sampled.token);
        ++sequence.num_sampled;
        sequence.phase = Phase::kDecode;
        recorder.tokenSampled(sequence.id, sampled.token, sampled.log_probability);
    }

    static int maxTokens(const EngineRequest& request) {
        return request.forced.empty() ? request.max_tokens
                                      : static_cast<int>(request.forced.size());
    }

    void finishIfDone(Sequence& sequence) {
        const EngineRequest& request = *sequence.request;
        if (request.forced.empty() && !request.ignore_eos && isEndOfText(sequence.tokens.back())) {
            finish(sequence, FinishReason::kEndOfText);
        } else if (sequence.num_sampled >= maxTokens(request)) {
            finish(sequence, FinishReason::kLength);
        }
    }

    std::shared_ptr<const StepTrace> seal(const StepStats& stats) {
        blocks_peak = std::max<int64_t>(blocks_peak, cache.pool().numActive());
        std::shared_ptr<const StepTrace> step = recorder.seal(stats);
#if !defined(NDEBUG) || defined(KVLAB_CHECK_STATE)
        if (!folded) folded = initialState(config.cache);
        for (const Event& event : step->events) apply(*folded, event);
        const CacheState own = state();
        KVLAB_CHECK(own == *folded, "the folded log differs from the engine's state");
        const std::string broken = checkInvariants(own);
        KVLAB_CHECK(broken.empty(), broken.c_str());
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
        state.sequences = past;
        for (const auto& sequence : scheduler.running()) {
            const size_t index = static_cast<size_t>(sequence->id.value);
            if (state.sequences.size() <= index) state.sequences.resize(index + 1);
            state.sequences[index] = stateOf(*sequence);
        }
        state.num_copy_on_write = cache.numCopyOnWrite();
        return state;
    }

    std::shared_ptr<const StepTrace> step() {
        const Clock::time_point start = Clock::now();
        releaseFinished();
        applyCancels();
        for (Sequence* sequence : scheduler.admit()) {
            cache.add(sequence->id);
            recorder.sequenceStarted(sequence->id, sequence->request_id, 0, sequence->tokens);
        }
        std::vector<int> kv_lens;
        for (const auto& sequence : scheduler.running()) {
            kv_lens.push_back(cache.table(sequence->id).kv_len);
        }
        const std::vector<ScheduledRows> plan = scheduler.plan(kv_lens);

        StepStats stats;
        std::vector<BlockCopy> copies;
        for (const ScheduledRows& rows : plan) {
            cache.prepareAppend(rows.sequence->id, rows.num_tokens, copies);
            if (rows.sequence->phase == Phase::kDecode) {
                ++stats.num_decode_tokens;
            } else {
                stats.num_prefill_tokens += rows.num_tokens;
            }
        }
        const StepBatch batch = makeBatch(plan);
        const float* logits = nullptr;
        const Clock::time_point forward_start = Clock::now();
        if (batch.numTokens() > 0) {
            backend->beginStep();
            copyBlocks(copies);
            logits = transformer.forward(batch, kv);
            backend->endStep();
        }
        stats.forward_ms = millisecondsSince(forward_start);
        for (const ScheduledRows& rows : plan)
            cache.commitAppend(rows.sequence->id, rows.num_tokens);

        const Clock::time_point sample_start = Clock::now();
        chooseTokens(plan, logits);
        stats.sample_ms = millisecondsSince(sample_start);
        stats.total_ms = millisecondsSince(start);
        return seal(stats);
    }

    void chooseTokens(const std::vector<ScheduledRows>& plan, const float* logits) {
        struct Draw {
            Sequence* sequence;
            const float* logits;
        };
        std::vector<Draw> draws;
        const int vocab_size = weights->config.vocab_size;
        for (const ScheduledRows& rows : plan) {
            if (!rows.wants_logits) continue;
            Sequence& sequence = *rows.sequence;
            if (observer) {
                observer(sequence.id, static_cast<int>(sequence.tokens.size()) - 1, logits,
                         vocab_size);
            }
            draws.push_back({&sequence, logits});
            if (sequence.phase == Phase::kPrefill) {
                const std::vector<Sequence*> children = scheduler.fork(sequence);
                std::vector<SequenceId> ids;
                std::vector<int> sample_idx;
                for (Sequence* child : children) {
                    ids.push_back(child->id);
                    sample_idx.push_back(child->sample_idx);
                    draws.push_back({child, logits});
                }
                cache.fork(sequence.id, ids, sample_idx);
            }
            logits += vocab_size;
        }
        for (const Draw& draw : draws) sampleInto(*draw.sequence, draw.logits);
        for (const Draw& draw : draws) finishIfDone(*draw.sequence);
    }
};

Engine::Engine(std::shared_ptr<const ModelWeights> weights,
               std::shared_ptr<const Tokenizer> tokenizer,
               const EngineConfig& config) {
    checkConfig(config);
    auto backend = makeBackend(config.backend, config.num_threads);
    impl_ = std::make_unique<Impl>(std::move(weights), std::move(tokenizer), config,
                                   std::move(backend));
}

Engine::~Engine() = default;

int64_t Engine::worstCaseBlocks(const EngineRequest& request, int block_size) {
    return samplesOfOnePrompt(static_cast<int64_t>(request.prompt.size()),
                              Impl::maxTokens(request) - 1, request.num_samples, block_size)
        .blocks_held.value;
}

RequestId Engine::submit(EngineRequest request) {
    const int vocab_size = impl_->weights->config.vocab_size;
    const auto refuse = [](const std::string& message) {
        throw EngineError(ErrorKind::kBadArgument, message);
    };
    if (request.prompt.empty()) refuse("the prompt is empty; give at least one token");
    if (request.num_samples < 1) refuse("at least one sample must be drawn");
    if (Impl::maxTokens(request) < 1) refuse("at least one token must be generated");
    for (const std::vector<TokenId>* tokens : {&request.prompt, &request.forced}) {
        for (const TokenId token : *tokens) {
            if (!token.valid() || token.value >= vocab_size) {
                refuse("token " + std::to_string(token.value) + " is not in the vocabulary of " +
                       formatCount(vocab_size) + " tokens");
            }
        }
    }
    checkSamplingParams(request.sampling);
    const int64_t longest = static_cast<int64_t>(request.prompt.size()) + Impl::maxTokens(request);
    if (longest > INT32_MAX) refuse("the request is longer than a position counts");
    const int64_t needed = worstCaseBlocks(request, impl_->config.cache.block_size);
    if (needed > impl_->config.cache.num_blocks) {
        refuse("the request needs " + formatCount(needed) + " blocks of " +
               std::to_string(impl_->config.cache.block_size) + " tokens, the pool has " +
               formatCount(impl_->config.cache.num_blocks) +
               "; give it more blocks or ask for fewer tokens");
    }
    const RequestId id(impl_->next_request++);
    impl_->scheduler.enqueue(id, std::make_shared<const EngineRequest>(std::move(request)), needed);
    return id;
}

bool Engine::hasWork() const {
    if (impl_->scheduler.hasWaiting()) return true;
    const auto& running = impl_->scheduler.running();
    return std::any_of(running.begin(), running.end(),
                       [](const auto& sequence) { return sequence->phase != Phase::kFinished; });
}

std::shared_ptr<const StepTrace> Engine::step() { return hasWork() ? impl_->step() : nullptr; }

std::shared_ptr<const StepTrace> Engine::releaseFinished() {
    const auto& running = impl_->scheduler.running();
    const bool any = std::any_of(running.begin(), running.end(), [](const auto& sequence) {
        return sequence->phase == Phase::kFinished;
    });
    if (!any) return nullptr;
    impl_->releaseFinished();
    return impl_->seal(StepStats{});
}

void Engine::cancel(RequestId request) { impl_->to_cancel.insert(request); }

void Engine::setLogitsObserver(LogitsObserver observer) { impl_->observer = std::move(observer); }

CacheState Engine::state() const { return impl_->state(); }
PoolAccount Engine::account() const { return accountOf(impl_->state()); }
int64_t Engine::blocksPeak() const { return impl_->blocks_peak; }
int64_t Engine::poolBytes() const { return impl_->kv.numBytes(); }
const ModelConfig& Engine::model() const { return impl_->weights->config; }
const EngineConfig& Engine::config() const { return impl_->config; }
std::string Engine::deviceName() const { return impl_->backend->deviceName(); }

}  // namespace kvlab
