// SPDX-License-Identifier: MIT
#include "engine/scheduling/step_executor.h"

namespace kvlab {

namespace {

class AccountingExecutor : public StepExecutor {
  public:
    AccountingExecutor(const ModelConfig& model,
                       const EngineConfig& config,
                       const AccountingOptions& options)
        : model_(model), config_(config), options_(options) {
        config_.backend = "accounting";
        config_.num_threads = 0;
    }

    const ModelConfig& model() const override { return model_; }
    const EngineConfig& config() const override { return config_; }
    std::string deviceName() const override { return "no device: accounts only"; }
    bool isSimulated() const override { return true; }
    int64_t poolBytes() const override {
        return model_.kvBytesPerToken(config_.cache.kv_dtype) * config_.cache.num_blocks *
               config_.cache.block_size;
    }

    void run(const StepPlan& plan, const KvCacheManager&, StepStats& stats) override {
        const StepShape shape = shapeOf(plan, stats, *this, config_.cache.kv_dtype);
        const double ms = options_.step_ms ? options_.step_ms(shape) : 0;
        if (options_.clock) options_.clock->advance(ms);
        stats.forward_ms = ms;
    }

    const float* logits(int) const override { return nullptr; }

  private:
    ModelConfig model_;
    EngineConfig config_;
    AccountingOptions options_;
};

}  // namespace

StepShape shapeOf(const StepPlan& plan,
                  const StepStats& stats,
                  const StepExecutor& executor,
                  DataType kv_dtype) {
    StepShape shape;
    shape.num_prefill_tokens = plan.num_prefill_tokens;
    shape.num_decode_tokens = plan.num_decode_tokens;
    shape.attention_bytes = stats.attention_bytes;
    const int64_t bytes_per_token = executor.model().kvBytesPerToken(kv_dtype);
    for (const BlockTransfer& transfer : plan.transfers) {
        const int64_t bytes = transfer.num_slots * bytes_per_token;
        (transfer.kind == BlockTransfer::Kind::kCopy ? shape.copied_bytes : shape.swapped_bytes) +=
            bytes;
    }
    return shape;
}

std::unique_ptr<StepExecutor> makeAccountingExecutor(const ModelConfig& model,
                                                     const EngineConfig& config,
                                                     const AccountingOptions& options) {
    return std::make_unique<AccountingExecutor>(model, config, options);
}

}  // namespace kvlab
