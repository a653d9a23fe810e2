// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "kernels/contiguous_attention/contiguous_attention.h"
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
    void (*matmul_group)(const MatmulGroupParams&, ExecutionContext&) = nullptr;
    void (*rope)(const RopeParams&, ExecutionContext&) = nullptr;
    void (*kv_cache_write)(const KvCacheWriteParams&, ExecutionContext&) = nullptr;
    void (*paged_attention)(const PagedAttentionParams&, ExecutionContext&) = nullptr;
    void (*silu_mul)(const SiluMulParams&, ExecutionContext&) = nullptr;
    void (*copy_blocks)(const CopyBlocksParams&, ExecutionContext&) = nullptr;

    // For selfcheck and bench, not of the forward pass; null where the backend has no such thing.
    // The product as it goes through cuBLAS.
    void (*matmul_split)(const MatmulParams&, ExecutionContext&) = nullptr;
    // paged_attention's yardstick.
    void (*contiguous_attention)(const ContiguousAttentionParams&, ExecutionContext&) = nullptr;
};

// The first `num_slots` slots of a block of the device pool and of one of the host pool.
struct BlockSwap {
    int32_t device_block = 0;
    int32_t host_block = 0;
    int32_t num_slots = 0;
};

// An allocator, its operations, and the brackets around a step.
//
// Where the operations read host memory (cpu, simt) every transfer below is the identity and costs
// nothing. A device queues what it is given between beginStep and endStep; its errors (kDevice,
// kOutOfMemory) come from whichever call notices them first, and the backend is then of no more
// use.
class Backend {
  public:
    virtual ~Backend() = default;
    virtual const char* name() const = 0;        // "cpu"
    virtual std::string deviceName() const = 0;  // the processor's own name
    virtual int numThreads() const = 0;          // 0 where that means nothing
    virtual const Ops& ops() const = 0;
    virtual ExecutionContext& context() = 0;

    // Zeroed memory that the operations can reach; must not outlive the backend. Throws
    // EngineError(kOutOfMemory) with the sizes.
    using Memory = std::unique_ptr<std::byte[], std::function<void(std::byte*)>>;
    virtual Memory allocate(int64_t num_bytes, const char* purpose) = 0;

    // Device memory is not host memory: the host pool lies apart and swaps cross a bus.
    virtual bool hasOwnMemory() const { return false; }
    // Host memory that the device copies from and to at full speed; zeroed.
    virtual Memory allocateHost(int64_t num_bytes, const char* purpose) {
        return allocate(num_bytes, purpose);
    }

    // `data` where the operations can read it, for as long as the result lives. Where that is the
    // data itself, it must live as long.
    virtual Memory resident(const void* data, int64_t num_bytes, const char* purpose);
    // At once, outside of steps.
    virtual void download(const std::byte* source, int64_t num_bytes, void* target);

    virtual void beginStep() = 0;
    virtual void endStep() = 0;  // results are visible to the host afterwards

    // Within a step: places[i] becomes the address of arrays[i] for the operations, until endStep.
    // On a device all of them go over in one transfer. The same sizes give the same addresses as
    // long as the device's buffer need not grow.
    virtual void upload(std::span<const std::span<const int32_t>> arrays,
                        std::span<const int32_t*> places);
    // `work` calls operations, and nothing else; every argument it gives them follows from `key`.
    // A device may record it and replay the record for the same key.
    virtual void runRepeatable(std::span<const int64_t> key, const std::function<void()>& work);
    // Results of operations where the host reads them, after endStep and until the next step.
    virtual const float* toHost(const float* data, int64_t num_values);

    // Within a step, before the rows: copies within the pool (host arrays), and swaps between the
    // pool and the host pool, each in the order of the calls.
    virtual void copyBlocks(const CopyBlocksParams& params);
    virtual void swapOut(std::span<const BlockSwap> swaps,
                         const PagedKvView& device,
                         const PagedKvView& host);
    virtual void swapIn(std::span<const BlockSwap> swaps,
                        const PagedKvView& device,
                        const PagedKvView& host);
};

// num_threads 0: one per core.
std::unique_ptr<Backend> makeCpuBackend(int num_threads);
// The CUDA kernels, run on the CPU through kernels/simt: for checking and showing, not for speed.
// num_threads as above; thread blocks are spread over them.
std::unique_ptr<Backend> makeSimtBackend(int num_threads);
// "cpu", "simt", "cuda"; other names throw kBadArgument. `cuda` throws what makeCudaBackend does.
std::unique_ptr<Backend> makeBackend(const std::string& name, int num_threads);

}  // namespace kvlab
