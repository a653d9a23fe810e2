// SPDX-License-Identifier: MIT
#include <cstdlib>
#include <fstream>
#include <sys/resource.h>
#include <system_error>
#include <unistd.h>

#include "engine/backend/host_backend.h"
#include "engine/error.h"
#include "engine/text_format.h"
#include "kernels/cpu/thread_pool.h"

namespace kvlab {

std::string processorName() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        // x86 says "model name", several ARM kernels "Model".
        if (!line.starts_with("model name") && !line.starts_with("Model")) continue;
        const size_t colon = line.find(':');
        if (colon == std::string::npos) continue;
        const size_t begin = line.find_first_not_of(" \t", colon + 1);
        if (begin != std::string::npos) return line.substr(begin);
    }
    return "unknown processor";
}

Backend::Memory HostBackend::allocate(int64_t num_bytes, const char* purpose) {
    // Linux hands out memory that it does not have; the machine's size is the honest limit.
    const int64_t machine_bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) *
                                  static_cast<int64_t>(sysconf(_SC_PAGE_SIZE));
    void* memory = num_bytes > 0 && num_bytes <= machine_bytes
                       ? std::calloc(static_cast<size_t>(num_bytes), 1)
                       : nullptr;
    if (memory == nullptr) {
        const std::string needs = formatNeed(purpose, num_bytes);
        rlimit limit{};
        const bool is_limited =
            getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
        if (num_bytes > machine_bytes || num_bytes < 1) {
            throw EngineError(
                ErrorKind::kOutOfMemory,
                needs + ", this machine has " + formatBytes(machine_bytes) + "; ask for less");
        }
        // It would fit into the machine: this process may not have as much.
        throw EngineError(ErrorKind::kOutOfMemory,
                          needs + ", which this process was not given" +
                              (is_limited ? ": its limit (ulimit -v) is " +
                                                formatBytes(static_cast<int64_t>(limit.rlim_cur)) +
                                                " in all; raise it or ask for less"
                                          : "; close other programs, raise a limit on its memory "
                                            "if there is one, or ask for less"));
    }
    return {static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); }};
}

namespace {

Ops cpuOps() {
    Ops ops;
    ops.embedding = embeddingCpu;
    ops.rms_norm = rmsNormCpu;
    ops.matmul = matmulCpu;
    ops.matmul_group = matmulGroupCpu;
    ops.rope = ropeCpu;
    ops.kv_cache_write = kvCacheWriteCpu;
    ops.paged_attention = pagedAttentionCpu;
    ops.silu_mul = siluMulCpu;
    ops.copy_blocks = copyBlocksCpu;
    return ops;
}

class CpuBackend : public HostBackend {
  public:
    explicit CpuBackend(int num_threads) : HostBackend("cpu", cpuOps()), threads_(num_threads) {
        context_.threads = &threads_;
    }
    int numThreads() const override { return threads_.numThreads(); }

  private:
    ThreadPool threads_;
};

}  // namespace

std::unique_ptr<Backend> makeCpuBackend(int num_threads) {
    try {
        return std::make_unique<CpuBackend>(num_threads);
    } catch (const std::system_error& error) {
        throw EngineError(ErrorKind::kUnsupported,
                          std::string("the system does not grant the CPU's threads (") +
                              error.what() +
                              "); ask for fewer, or raise the limits on this process (ulimit)");
    }
}

}  // namespace kvlab
