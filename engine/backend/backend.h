// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "kernels/copy_blocks/copy_blocks.h"
#include "kernels/embedding/embedding.h"
#include "kernels/kv_cache_write/kv_cache_write.h"
#include "kernels/matmul/matmul.h"
#include "kernels/paged_attention/paged_attention.h"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rope/rope.h"
#include "kernels/silu_mul/silu_mul.h"

namespace kvlab {

// The operations of one forward pass. Transformer::forward is written once against this table; a
// backend fills it with its own functions, so a new backend is a new table, not a new forward pass.
struct Ops {
    void (*embedding)(const EmbeddingParams&, ExecutionContext&) = nullptr;
    void (*rms_norm)(const RmsNormParams&, ExecutionContext&) = nullptr;
    void (*matmul)(const MatmulParams&, ExecutionContext&) = nullptr;
    void (*rope)(const RopeParams&, ExecutionContext&) = nullptr;
    void (*kv_cache_write)(const KvCacheWriteParams&, ExecutionContext&) = nullptr;
    void (*paged_attention)(const PagedAttentionParams&, ExecutionContext&) = nullptr;
    void (*silu_mul)(const SiluMulParams&, ExecutionContext&) = nullptr;
    void (*copy_blocks)(const CopyBlocksParams&, ExecutionContext&) = nullptr;
};

// An allocator, its operations, and the brackets around a step.
class Backend {
  public:
    virtual ~Backend() = default;
    virtual const char* name() const = 0;        // "cpu"
    virtual std::string deviceName() const = 0;  // the processor's own name
    virtual int numThreads() const = 0;          // 0 where that means nothing
    virtual const Ops& ops() const = 0;
    virtual ExecutionContext& context() = 0;

    // Zeroed memory that the operations can reach. Throws EngineError(kOutOfMemory) with the sizes.
    using Memory = std::unique_ptr<std::byte[], void (*)(std::byte*)>;
    virtual Memory allocate(int64_t num_bytes, const char* purpose) = 0;

    virtual void beginStep() = 0;
    virtual void endStep() = 0;  // results are visible to the host afterwards
};

// num_threads 0: one per core.
std::unique_ptr<Backend> makeCpuBackend(int num_threads);
// "auto" and "cpu"; other names throw kUnsupported (built later) or kBadArgument (unknown).
std::unique_ptr<Backend> makeBackend(const std::string& name, int num_threads);

}  // namespace kvlab
