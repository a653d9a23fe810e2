// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

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

// What passes between the program and libkvlab_cuda.so, which is loaded at run time so that neither
// the program nor its start depends on a driver or toolkit. Plain C types only, and no exception
// crosses: what fails returns a code and a text. tests/support/simt_plugin.cpp fills the same table
// with host memory and simt kernels, so that all of the engine's side runs without a GPU.

struct CudaDevice {
    char name[256];
    int64_t memory_bytes;
    int32_t compute_capability;  // 10 * major + minor
    int32_t num_multiprocessors;
    int32_t driver_version;  // 1000 * major + 10 * minor, of the CUDA that the driver is for
};

struct CudaProbe {
    static constexpr int32_t kMaxDevices = 16;
    int32_t num_devices;  // 0: `reason` says why
    CudaDevice devices[kMaxDevices];
    char reason[256];
};

enum CudaCode : int32_t {
    kCudaOk = 0,
    kCudaOutOfMemory = 1,
    kCudaLost = 2,     // a fault in a kernel, a reset, a removed device: nothing works after it
    kCudaRefused = 3,  // arguments that the operation cannot take: a bug of ours
    kCudaFailed = 4,   // everything else
};

// Filled when a function returns another code than kCudaOk.
struct CudaFailure {
    char what[384];  // "allocate: out of memory"
};

enum CudaDirection : int32_t { kCudaToDevice = 0, kCudaToHost = 1, kCudaWithin = 2 };

// All functions run on device 0 of those that the driver shows, return a CudaCode, and may be
// called from any thread. `stream`, `event` and `graph` are handles of the plugin's own.
struct CudaTable {
    int32_t (*open)(CudaFailure*);  // before all others; once is enough, more do no harm
    int32_t (*memory_info)(int64_t* free_bytes, int64_t* total_bytes, CudaFailure*);
    int32_t (*allocate)(int64_t num_bytes, void** memory, CudaFailure*);
    int32_t (*release)(void* memory, CudaFailure*);
    int32_t (*allocate_host)(int64_t num_bytes, void** memory, CudaFailure*);  // pinned
    int32_t (*release_host)(void* memory, CudaFailure*);

    int32_t (*create_stream)(void** stream, CudaFailure*);
    int32_t (*destroy_stream)(void* stream, CudaFailure*);
    int32_t (*synchronise)(void* stream, CudaFailure*);  // also reports what failed in kernels
    int32_t (*create_event)(void** event, CudaFailure*);
    int32_t (*destroy_event)(void* event, CudaFailure*);
    int32_t (*record_event)(void* event, void* stream, CudaFailure*);
    int32_t (*wait_event)(void* event, void* stream, CudaFailure*);          // the stream waits
    int32_t (*elapsed_ms)(void* begin, void* end, float* ms, CudaFailure*);  // both have happened

    // Queued on the stream. The host side is pinned memory, or the call waits.
    int32_t (*copy)(void* target,
                    const void* source,
                    int64_t num_bytes,
                    int32_t direction,
                    void* stream,
                    CudaFailure*);
    // As num_rows copies of row_bytes each, whose beginnings lie a pitch (in bytes) apart.
    int32_t (*copy_rows)(void* target,
                         int64_t target_pitch,
                         const void* source,
                         int64_t source_pitch,
                         int64_t row_bytes,
                         int64_t num_rows,
                         int32_t direction,
                         void* stream,
                         CudaFailure*);
    int32_t (*fill)(void* memory, int32_t byte, int64_t num_bytes, void* stream, CudaFailure*);

    // What is queued on the stream in between is recorded, not run. end_capture also ends a capture
    // that went wrong; then it fails and gives no graph.
    int32_t (*begin_capture)(void* stream, CudaFailure*);
    int32_t (*end_capture)(void* stream, void** graph, CudaFailure*);
    int32_t (*launch_graph)(void* graph, void* stream, CudaFailure*);
    int32_t (*destroy_graph)(void* graph, CudaFailure*);

    // The operations; all pointers are device memory.
    int32_t (*embedding)(const EmbeddingParams*, const ExecutionContext*, CudaFailure*);
    int32_t (*rms_norm)(const RmsNormParams*, const ExecutionContext*, CudaFailure*);
    int32_t (*matmul)(const MatmulParams*, const ExecutionContext*, CudaFailure*);
    int32_t (*matmul_group)(const MatmulGroupParams*, const ExecutionContext*, CudaFailure*);
    int32_t (*rope)(const RopeParams*, const ExecutionContext*, CudaFailure*);
    int32_t (*kv_cache_write)(const KvCacheWriteParams*, const ExecutionContext*, CudaFailure*);
    int32_t (*paged_attention)(const PagedAttentionParams*, const ExecutionContext*, CudaFailure*);
    int32_t (*silu_mul)(const SiluMulParams*, const ExecutionContext*, CudaFailure*);
    int32_t (*copy_blocks)(const CopyBlocksParams*, const ExecutionContext*, CudaFailure*);
    // For the bench: paged_attention over K and V in one piece.
    int32_t (*contiguous_attention)(const ContiguousAttentionParams*,
                                    const ExecutionContext*,
                                    CudaFailure*);
};

// A plugin of another build is refused instead of misread: the first number goes up with every
// change of meaning, and the sizes change by themselves with most changes of shape.
constexpr int32_t kCudaPluginVersion =
    3 * 1'000'000 +
    static_cast<int32_t>(sizeof(CudaProbe) + sizeof(CudaTable) + sizeof(ExecutionContext) +
                         3 * sizeof(EmbeddingParams) + 5 * sizeof(RmsNormParams) +
                         7 * sizeof(MatmulParams) + 11 * sizeof(RopeParams) +
                         13 * sizeof(KvCacheWriteParams) + 17 * sizeof(PagedAttentionParams) +
                         19 * sizeof(SiluMulParams) + 23 * sizeof(CopyBlocksParams) +
                         29 * sizeof(ContiguousAttentionParams) + 31 * sizeof(MatmulGroupParams));

// extern "C" in the plugin, under these names. The first fills `probe` if the caller's version is
// the plugin's own and returns the plugin's version; it never fails, without a driver or device it
// says so. The second returns null for another version than its own.
using CudaProbeFunction = int32_t(int32_t version, CudaProbe* probe);
using CudaTableFunction = const CudaTable*(int32_t version);
constexpr const char* kCudaProbeName = "kvlabCudaProbe";
constexpr const char* kCudaTableName = "kvlabCudaTable";

}  // namespace kvlab
