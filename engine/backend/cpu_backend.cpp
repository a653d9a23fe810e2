// SPDX-License-Identifier: MIT
#include <cstdlib>
#include <fstream>
#include <unistd.h>

#include "engine/backend/backend.h"
#include "engine/error.h"
#include "engine/text_format.h"
#include "kernels/cpu/thread_pool.h"

namespace kvlab {

namespace {

std::string processorName() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        const size_t colon = line.find(": ");
        if (line.rfind("model name", 0) == 0 && colon != std::string::npos)
            return line.substr(colon + 2);
    }
    return "unknown processor";
}

class CpuBackend : public Backend {
  public:
    explicit CpuBackend(int num_threads) : threads_(num_threads) {
        context_.threads = &threads_;
        ops_.embedding = embeddingCpu;
        ops_.rms_norm = rmsNormCpu;
        ops_.matmul = matmulCpu;
        ops_.rope = ropeCpu;
        ops_.kv_cache_write = kvCacheWriteCpu;
        ops_.paged_attention = pagedAttentionCpu;
        ops_.silu_mul = siluMulCpu;
        ops_.copy_blocks = copyBlocksCpu;
    }

    const char* name() const override { return "cpu"; }
    std::string deviceName() const override { return processorName(); }
    int numThreads() const override { return threads_.numThreads(); }
    const Ops& ops() const override { return ops_; }
    ExecutionContext& context() override { return context_; }

    Memory allocate(int64_t num_bytes, const char* purpose) override {
        // Linux hands out memory that it does not have; the machine's size is the honest limit.
        const int64_t machine_bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) *
                                      static_cast<int64_t>(sysconf(_SC_PAGE_SIZE));
        void* memory = num_bytes > 0 && num_bytes <= machine_bytes
                           ? std::calloc(static_cast<size_t>(num_bytes), 1)
                           : nullptr;
        if (memory == nullptr) {
            throw EngineError(ErrorKind::kOutOfMemory,
                              std::string(purpose) + " needs " + formatBytes(num_bytes) +
                                  ", this machine has " + formatBytes(machine_bytes) +
                                  "; ask for less");
        }
        return {static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); }};
    }

    void beginStep() override {}
    void endStep() override {}

  private:
    ThreadPool threads_;
    ExecutionContext context_;
    Ops ops_;
};

}  // namespace

std::unique_ptr<Backend> makeCpuBackend(int num_threads) {
    return std::make_unique<CpuBackend>(num_threads);
}

std::unique_ptr<Backend> makeBackend(const std::string& name, int num_threads) {
    if (name == "auto" || name == "cpu") return makeCpuBackend(num_threads);
    if (name == "cuda" || name == "simt") {
        throw EngineError(ErrorKind::kUnsupported,
                          "backend " + name + " cannot decode yet; use --backend cpu");
    }
    throw EngineError(ErrorKind::kBadArgument,
                      "there is no backend \"" + name + "\"; use auto or cpu");
}

}  // namespace kvlab
