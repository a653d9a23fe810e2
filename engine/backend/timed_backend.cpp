// SPDX-License-Identifier: MIT
#include "engine/backend/timed_backend.h"

#include <chrono>

namespace kvlab {

// Operations get an ExecutionContext; ours is one that also knows the wrapped table.
struct TimedBackend::Context : ExecutionContext {
    const Ops* inner = nullptr;
    ExecutionContext* inner_context = nullptr;
    OperationTimes times;

    template <auto kOperation, auto kTime, class Params>
    static void run(const Params& params, ExecutionContext& context) {
        using SteadyClock = std::chrono::steady_clock;
        Context& self = static_cast<Context&>(context);
        const SteadyClock::time_point start = SteadyClock::now();
        (self.inner->*kOperation)(params, *self.inner_context);
        self.times.*kTime +=
            std::chrono::duration<double, std::milli>(SteadyClock::now() - start).count();
    }
};

TimedBackend::TimedBackend(std::unique_ptr<Backend> inner)
    : inner_(std::move(inner)), context_(std::make_unique<Context>()) {
    using T = OperationTimes;
    static_cast<ExecutionContext&>(*context_) = inner_->context();
    context_->inner = &inner_->ops();
    context_->inner_context = &inner_->context();
    ops_.embedding = Context::run<&Ops::embedding, &T::other_ms, EmbeddingParams>;
    ops_.rms_norm = Context::run<&Ops::rms_norm, &T::other_ms, RmsNormParams>;
    ops_.matmul = Context::run<&Ops::matmul, &T::matmul_ms, MatmulParams>;
    ops_.matmul_group = Context::run<&Ops::matmul_group, &T::matmul_ms, MatmulGroupParams>;
    ops_.rope = Context::run<&Ops::rope, &T::other_ms, RopeParams>;
    ops_.kv_cache_write = Context::run<&Ops::kv_cache_write, &T::other_ms, KvCacheWriteParams>;
    ops_.paged_attention =
        Context::run<&Ops::paged_attention, &T::attention_ms, PagedAttentionParams>;
    ops_.silu_mul = Context::run<&Ops::silu_mul, &T::other_ms, SiluMulParams>;
    ops_.copy_blocks = Context::run<&Ops::copy_blocks, &T::copy_ms, CopyBlocksParams>;
}

TimedBackend::~TimedBackend() = default;

ExecutionContext& TimedBackend::context() { return *context_; }

void TimedBackend::beginStep() {
    context_->times = {};
    inner_->beginStep();
}

void TimedBackend::copyBlocks(const CopyBlocksParams& params) {
    using SteadyClock = std::chrono::steady_clock;
    const SteadyClock::time_point start = SteadyClock::now();
    inner_->copyBlocks(params);
    context_->times.copy_ms +=
        std::chrono::duration<double, std::milli>(SteadyClock::now() - start).count();
}

const OperationTimes& TimedBackend::times() const { return context_->times; }

}  // namespace kvlab
