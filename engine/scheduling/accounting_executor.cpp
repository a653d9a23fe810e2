// SPDX-License-Identifier: MIT
#include "engine/scheduling/step_executor.h"

namespace kvlab {

namespace {

class AccountingExecutor : public StepExecutor {
  public:
    AccountingExecutor(const ModelConfig& model, const EngineConfig& config)
        : model_(model), config_(config) {
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

    void run(const StepPlan&, const KvCacheManager&, StepStats&) override {}
    const float* logits(int) const override { return nullptr; }

  private:
    ModelConfig model_;
    EngineConfig config_;
};

}  // namespace

std::unique_ptr<StepExecutor> makeAccountingExecutor(const ModelConfig& model,
                                                     const EngineConfig& config) {
    return std::make_unique<AccountingExecutor>(model, config);
}

}  // namespace kvlab
