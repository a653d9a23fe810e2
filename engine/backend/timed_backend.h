// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "engine/backend/backend.h"

namespace kvlab {

// Time spent in the operations of a step, in ms.
struct OperationTimes {
    double attention_ms = 0;
    double matmul_ms = 0;
    double copy_ms = 0;   // copy_blocks
    double other_ms = 0;  // norms, rotations, activations, writing K and V
};

// A backend that takes the time of each operation of another one. The forward pass knows nothing of
// it: the table it runs on is wrapped, not changed. Meaningful where operations have ended when
// they return (the CPU).
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
    void beginStep() override;  // times count from here
    void endStep() override { inner_->endStep(); }

    const OperationTimes& times() const;

  private:
    struct Context;
    std::unique_ptr<Backend> inner_;
    std::unique_ptr<Context> context_;
    Ops ops_;
};

}  // namespace kvlab
