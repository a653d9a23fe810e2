// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "engine/backend/backend.h"

namespace kvlab {

// Time spent in the operations of a step, in ms.
struct OperationTimes {
    double attention_ms = 0;
    double matmul_ms = 0;  // with the norms and what is made of gate and up in the same call
    double copy_ms = 0;    // copy_blocks
    double other_ms = 0;   // embeddings, rotations, writing K and V
};

// A backend that takes the time of each operation of another one. The forward pass knows nothing of
// it: the table it runs on is wrapped, not changed. Meaningful where operations have ended when
// they return (host memory; a device only queues them).
class TimedBackend : public Backend {
  public:
    explicit TimedBackend(std::unique_ptr<Backend> inner);
    ~TimedBackend() override;

    const char* name() const override { return inner_->name(); }
    std::string deviceName() const override { return inner_->deviceName(); }
    int numThreads() const override { return inner_->numThreads(); }
    const Ops& ops() const override { return ops_; }
    ExecutionContext& context() override;
    Memory allocate(int64_t num_bytes, const char* purpose) override {
        return inner_->allocate(num_bytes, purpose);
    }
    bool hasOwnMemory() const override { return inner_->hasOwnMemory(); }
    Memory allocateHost(int64_t num_bytes, const char* purpose) override {
        return inner_->allocateHost(num_bytes, purpose);
    }
    Memory resident(const void* data, int64_t num_bytes, const char* purpose) override {
        return inner_->resident(data, num_bytes, purpose);
    }
    void download(const std::byte* source, int64_t num_bytes, void* target) override {
        inner_->download(source, num_bytes, target);
    }
    void beginStep() override;  // times count from here
    void endStep() override { inner_->endStep(); }
    void upload(std::span<const std::span<const int32_t>> arrays,
                std::span<const int32_t*> places) override {
        inner_->upload(arrays, places);
    }
    void runRepeatable(std::span<const int64_t> key, const std::function<void()>& work) override {
        inner_->runRepeatable(key, work);
    }
    const float* toHost(const float* data, int64_t num_values) override {
        return inner_->toHost(data, num_values);
    }
    void copyBlocks(const CopyBlocksParams& params) override;  // its time counts
    void swapOut(std::span<const BlockSwap> swaps,
                 const PagedKvView& device,
                 const PagedKvView& host) override {
        inner_->swapOut(swaps, device, host);
    }
    void swapIn(std::span<const BlockSwap> swaps,
                const PagedKvView& device,
                const PagedKvView& host) override {
        inner_->swapIn(swaps, device, host);
    }

    const OperationTimes& times() const;

  private:
    struct Context;
    std::unique_ptr<Backend> inner_;
    std::unique_ptr<Context> context_;
    Ops ops_;
};

}  // namespace kvlab
