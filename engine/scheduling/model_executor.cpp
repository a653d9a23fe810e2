// SPDX-License-Identifier: MIT
#include <algorithm>
#include <exception>
#include <unordered_set>

#include "engine/backend/cuda_backend.h"
#include "engine/backend/cuda_plugin.h"
#include "engine/backend/timed_backend.h"
#include "engine/error.h"
#include "engine/kernel_walk.h"
#include "engine/model/transformer.h"
#include "engine/scheduling/step_executor.h"
#include "kernels/cpu/thread_pool.h"

namespace kvlab {

namespace {

EngineConfig resolved(EngineConfig config, const Backend& backend) {
    config.backend = backend.name();
    config.num_threads = backend.numThreads();
    return config;
}

PagedKvView poolView(const ModelConfig& model, const CacheConfig& cache, int num_blocks) {
    PagedKvView kv;
    kv.dtype = cache.kv_dtype;
    kv.num_layers = model.num_layers;
    kv.num_blocks = num_blocks;
    kv.block_size = cache.block_size;
    kv.num_kv_heads = model.num_kv_heads;
    kv.head_dim = model.head_dim;
    return kv;
}

class ModelExecutor : public StepExecutor {
  public:
    ModelExecutor(std::shared_ptr<const ModelWeights> weights,
                  const EngineConfig& wanted,
                  std::unique_ptr<Backend> backend)
        : weights_(std::move(weights)),
          walks_(wanted.kernel_walks),
          backend_(listenedTo(std::move(backend))),
          config_(resolved(wanted, backend_)),
          transformer_(weights_, backend_) {
        const CacheConfig& cache = config_.cache;
        // In host memory both pools are one allocation: host block h is block num_blocks + h, so
        // that a swap is a block copy like any other, whatever the KV type stores. The tables keep
        // them apart.
        const bool apart = backend_.hasOwnMemory();
        kv_ = poolView(weights_->config, cache,
                       apart ? cache.num_blocks : cache.num_blocks + cache.num_host_blocks);
        memory_ = backend_.allocate(kv_.numBytes(), "the pool");
        kv_.data = memory_.get();
        if (!apart || cache.num_host_blocks == 0) return;
        host_kv_ = poolView(weights_->config, cache, cache.num_host_blocks);
        host_memory_ = backend_.allocateHost(host_kv_.numBytes(), "the host pool");
        host_kv_.data = host_memory_.get();
    }

    const ModelConfig& model() const override { return weights_->config; }
    const EngineConfig& config() const override { return config_; }
    std::string deviceName() const override { return backend_.deviceName(); }
    bool isSimulated() const override { return false; }
    int64_t poolBytes() const override {
        return model().kvBytesPerToken(config_.cache.kv_dtype) * config_.cache.num_blocks *
               config_.cache.block_size;
    }

    void run(const StepPlan& plan, const KvCacheManager& cache, StepStats& stats) override {
        const StepBatch batch = makeBatch(plan.rows, cache);
        logits_ = nullptr;
        if (batch.numTokens() == 0 && plan.transfers.empty()) return;
        const double start_ms = clock_.nowMs();
        backend_.beginStep();
        copyAll(plan.transfers);
        if (batch.numTokens() > 0) logits_ = transformer_.forward(batch, kv_);
        backend_.endStep();
        stats.forward_ms = clock_.nowMs() - start_ms;
        if (walks_.isActive()) tellWalks(plan);
        if (backend_.hasOwnMemory()) return;  // there, operations are only queued when they return
        const OperationTimes& times = backend_.times();
        stats.attention_ms = times.attention_ms;
        stats.matmul_ms = times.matmul_ms;
        stats.copy_ms = times.copy_ms;
    }

    const float* logits(int idx) const override {
        return logits_ + int64_t{idx} * weights_->config.vocab_size;
    }

    void forEach(int count, const std::function<void(int)>& fn) override {
        ThreadPool* threads = backend_.context().threads;
        if (threads == nullptr) return StepExecutor::forEach(count, fn);
        std::vector<std::exception_ptr> failures(static_cast<size_t>(count));
        threads->parallelFor(count, 1, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                try {
                    fn(static_cast<int>(i));
                } catch (...) {
                    failures[static_cast<size_t>(i)] = std::current_exception();
                }
            }
        });
        for (const std::exception_ptr& failure : failures) {
            if (failure) std::rethrow_exception(failure);
        }
    }

  private:
    // Before it is wrapped: the operations get this context.
    std::unique_ptr<Backend> listenedTo(std::unique_ptr<Backend> backend) {
        backend->context().attention_tap = walks_.tapFor(backend->name());
        return backend;
    }

    void tellWalks(const StepPlan& plan) {
        std::vector<SequenceId> sequences;
        for (const ScheduledRows& rows : plan.rows) sequences.push_back(rows.sequence->id);
        walks_.tell(sequences);
    }

    StepBatch makeBatch(const std::vector<ScheduledRows>& plan, const KvCacheManager& cache) const {
        StepBatch batch;
        batch.num_seqs = static_cast<int>(plan.size());
        for (const ScheduledRows& rows : plan) {
            batch.max_blocks_per_seq =
                std::max(batch.max_blocks_per_seq,
                         static_cast<int>(cache.table(rows.sequence->id).blocks.size()));
        }
        // Recorded steps are replayed for equal shapes: let tables grow by sixteens, not by ones.
        if (backend_.hasOwnMemory()) {
            batch.max_blocks_per_seq = (batch.max_blocks_per_seq + 15) / 16 * 16;
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
                batch.slot_mapping.push_back(
                    table.slotOf(position, config_.cache.block_size).value);
                batch.row_to_seq.push_back(seq_idx);
                batch.context_lens.push_back(position + 1);
            }
            if (rows.wants_logits) batch.logit_rows.push_back(batch.numTokens() - 1);
        }
        return batch;
    }

    // In their order, as many to a call as do not depend on each other.
    void copyAll(const std::vector<BlockTransfer>& transfers) {
        using Kind = BlockTransfer::Kind;
        const bool apart = backend_.hasOwnMemory();
        Kind kind = Kind::kCopy;  // of what is collected; where pools are one, all are copies
        std::vector<int32_t> sources, targets, num_slots;
        std::vector<BlockSwap> swaps;
        std::unordered_set<int64_t> touched;
        const auto flush = [&] {
            if (!sources.empty()) {
                CopyBlocksParams params;
                params.source = sources.data();
                params.target = targets.data();
                params.num_slots = num_slots.data();
                params.num_pairs = static_cast<int>(sources.size());
                params.kv = kv_;
                backend_.copyBlocks(params);
            }
            if (!swaps.empty() && kind == Kind::kSwapOut) backend_.swapOut(swaps, kv_, host_kv_);
            if (!swaps.empty() && kind == Kind::kSwapIn) backend_.swapIn(swaps, kv_, host_kv_);
            sources.clear();
            targets.clear();
            num_slots.clear();
            swaps.clear();
            touched.clear();
        };
        // Numbers of host blocks follow those of the device.
        const auto hostSlot = [&](HostBlockId block) {
            return config_.cache.num_blocks + block.value;
        };
        for (const BlockTransfer& transfer : transfers) {
            const bool from_host = transfer.kind == Kind::kSwapIn;
            const bool to_host = transfer.kind == Kind::kSwapOut;
            const int32_t source = from_host ? hostSlot(transfer.host) : transfer.source.value;
            const int32_t target = to_host ? hostSlot(transfer.host) : transfer.target.value;
            if (transfer.num_slots == 0) continue;
            if (touched.count(source) != 0 || touched.count(target) != 0 ||
                (apart && transfer.kind != kind)) {
                flush();
            }
            kind = transfer.kind;
            touched.insert(source);
            touched.insert(target);
            if (apart && kind != Kind::kCopy) {
                swaps.push_back(
                    {from_host ? target : source, transfer.host.value, transfer.num_slots});
                continue;
            }
            sources.push_back(source);
            targets.push_back(target);
            num_slots.push_back(transfer.num_slots);
        }
        flush();
    }

    std::shared_ptr<const ModelWeights> weights_;
    KernelWalkCollector walks_;
    TimedBackend backend_;
    EngineConfig config_;
    Transformer transformer_;
    PagedKvView kv_;
    Backend::Memory memory_;
    PagedKvView host_kv_;  // of a backend with memory of its own
    Backend::Memory host_memory_;
    const float* logits_ = nullptr;
    SteadyClock clock_;
};

// Something is there: a GPU, if only an old one, or a plugin that does not load; or the user names
// a plugin, and wants to know why it is not used.
bool cudaMayBeTried() {
    const CudaPlugin plugin = loadCudaPlugin();
    return (plugin.exists || plugin.is_named) &&
           (plugin.table == nullptr || plugin.probe.num_devices > 0);
}

}  // namespace

bool fallsBackToCpu(const EngineConfig& config) {
    return config.backend == "auto" || (config.backend == "cuda" && config.cpu_fallback);
}

std::unique_ptr<StepExecutor> makeModelExecutor(std::shared_ptr<const ModelWeights> weights,
                                                const EngineConfig& config) {
    if (!fallsBackToCpu(config)) {
        return std::make_unique<ModelExecutor>(std::move(weights), config,
                                               makeBackend(config.backend, config.num_threads));
    }
    // A GPU if there is one; why one that is there cannot be used is told and not an error. No GPU,
    // or no plugin, is told to who asked for it by name.
    std::string why;
    if (config.backend == "cuda" || cudaMayBeTried()) {
        try {
            return std::make_unique<ModelExecutor>(weights, config, makeCudaBackend({}));
        } catch (const EngineError& error) {
            why = withoutAdvice(error.what());  // which is to take the CPU
        }
    }
    try {
        auto executor = std::make_unique<ModelExecutor>(std::move(weights), config,
                                                        makeCpuBackend(config.num_threads));
        if (!why.empty() && config.on_fallback) config.on_fallback(why);
        return executor;
    } catch (const EngineError& error) {
        if (why.empty()) throw;
        throw EngineError(error.kind(), why + ", and the CPU cannot take over: " + error.what());
    }
}

}  // namespace kvlab
