// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "engine/backend/backend.h"

namespace kvlab {

// The processor's own name.
std::string processorName();

// A backend whose operations run on the CPU when they are called, over host memory.
class HostBackend : public Backend {
  public:
    HostBackend(const char* name, const Ops& ops) : name_(name), ops_(ops) {}

    const char* name() const override { return name_; }
    std::string deviceName() const override { return processorName(); }
    int numThreads() const override { return 0; }
    const Ops& ops() const override { return ops_; }
    ExecutionContext& context() override { return context_; }
    Memory allocate(int64_t num_bytes, const char* purpose) override;
    void beginStep() override {}
    void endStep() override {}

  protected:
    ExecutionContext context_;

  private:
    const char* name_;
    Ops ops_;
};

}  // namespace kvlab
