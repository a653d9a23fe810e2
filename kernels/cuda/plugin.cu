// SPDX-License-Identifier: MIT
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>
#include <stdexcept>
#include <type_traits>

#include <cuda_runtime.h>

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/plugin.h"

namespace kvlab {
namespace {

void explain(cudaError_t code, CudaProbe* probe) {
    int driver = 0;
    int runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (code == cudaErrorInsufficientDriver && driver == 0) {
        std::snprintf(probe->reason, sizeof probe->reason, "no NVIDIA driver is installed");
    } else if (code == cudaErrorInsufficientDriver) {
        std::snprintf(probe->reason, sizeof probe->reason,
                      "the NVIDIA driver is for CUDA %d.%d and must be for CUDA %d.%d at least",
                      driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    } else if (code == cudaErrorNoDevice || code == cudaSuccess) {
        std::snprintf(probe->reason, sizeof probe->reason, "the NVIDIA driver finds no GPU");
    } else {
        std::snprintf(probe->reason, sizeof probe->reason, "CUDA does not start: %s",
                      cudaGetErrorString(code));
    }
}

int32_t failureCode(cudaError_t code) {
    switch (code) {
        case cudaErrorMemoryAllocation:
            return kCudaOutOfMemory;
        // After these the context is gone; CUDA repeats them for every later call.
        case cudaErrorIllegalAddress:
        case cudaErrorIllegalInstruction:
        case cudaErrorInvalidAddressSpace:
        case cudaErrorInvalidPc:
        case cudaErrorMisalignedAddress:
        case cudaErrorHardwareStackError:
        case cudaErrorLaunchFailure:
        case cudaErrorLaunchTimeout:
        case cudaErrorAssert:
        case cudaErrorECCUncorrectable:
        case cudaErrorNvlinkUncorrectable:
        case cudaErrorDevicesUnavailable:
        case cudaErrorNoDevice:
        case cudaErrorContextIsDestroyed:
            return kCudaLost;
        case cudaErrorInvalidValue:
        case cudaErrorInvalidConfiguration:
            return kCudaRefused;
        default:
            return kCudaFailed;
    }
}

// No exception leaves the plugin. cudaSetDevice: the current device belongs to the calling thread.
template <typename Work>
int32_t guarded(CudaFailure* failure, const Work& work) noexcept {
    const auto failed = [failure](int32_t code, const char* what) {
        std::snprintf(failure->what, sizeof failure->what, "%s", what);
        return code;
    };
    try {
        checkCuda(cudaSetDevice(0), "choosing the GPU");
        work();
        return kCudaOk;
    } catch (const CudaError& error) {
        cudaGetLastError();  // so that the next check does not find this one again
        return failed(failureCode(error.code()), error.what());
    } catch (const std::bad_alloc&) {
        return failed(kCudaOutOfMemory, "host memory");
    } catch (const std::invalid_argument& error) {
        return failed(kCudaRefused, error.what());
    } catch (const std::exception& error) {
        return failed(kCudaFailed, error.what());
    } catch (...) {
        return failed(kCudaFailed, "an unknown exception");
    }
}

cudaStream_t streamOf(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t eventOf(void* event) { return static_cast<cudaEvent_t>(event); }

template <auto kOperation, typename Params>
int32_t operation(const Params* params, const ExecutionContext* context, CudaFailure* failure) {
    return guarded(failure, [&] {
        ExecutionContext here = *context;
        kOperation(*params, here);
    });
}

// Where cudaMallocAsync takes a product's scratch memory from. Null: this GPU has no such pools.
cudaMemPool_t scratchPool() {
    cudaMemPool_t pool = nullptr;
    if (cudaDeviceGetDefaultMemPool(&pool, 0) == cudaSuccess) return pool;
    cudaGetLastError();
    return nullptr;
}

int32_t open(CudaFailure* failure) {
    return guarded(failure, [] {
        // The first call that needs the context makes it.
        checkCuda(cudaFree(nullptr), "starting CUDA");
        // Else each wait for the GPU gives the pool's memory back, and the next step asks again.
        if (const cudaMemPool_t pool = scratchPool()) {
            uint64_t keep = UINT64_MAX;
            if (cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep) !=
                cudaSuccess) {
                cudaGetLastError();  // that costs time and nothing else
            }
        }
    });
}

int32_t memoryInfo(int64_t* free_bytes, int64_t* total_bytes, CudaFailure* failure) {
    return guarded(failure, [&] {
        size_t free = 0;
        size_t total = 0;
        checkCuda(cudaMemGetInfo(&free, &total), "asking for free memory");
        *free_bytes = static_cast<int64_t>(free);
        *total_bytes = static_cast<int64_t>(total);
    });
}

int32_t allocate(int64_t num_bytes, void** memory, CudaFailure* failure) {
    return guarded(failure, [&] {
        const auto size = static_cast<size_t>(num_bytes);
        cudaError_t code = cudaMalloc(memory, size);
        if (const cudaMemPool_t pool = scratchPool();
            code == cudaErrorMemoryAllocation && pool != nullptr) {
            // What is kept for scratch and not in use may be what is missing.
            cudaGetLastError();
            checkCuda(cudaMemPoolTrimTo(pool, 0), "giving scratch memory back");
            code = cudaMalloc(memory, size);
        }
        checkCuda(code, "device memory");
    });
}

int32_t release(void* memory, CudaFailure* failure) {
    return guarded(failure, [&] { checkCuda(cudaFree(memory), "freeing device memory"); });
}

int32_t allocateHost(int64_t num_bytes, void** memory, CudaFailure* failure) {
    return guarded(failure, [&] {
        checkCuda(cudaMallocHost(memory, static_cast<size_t>(num_bytes)), "pinned memory");
    });
}

int32_t releaseHost(void* memory, CudaFailure* failure) {
    return guarded(failure, [&] { checkCuda(cudaFreeHost(memory), "freeing pinned memory"); });
}

int32_t createStream(void** stream, CudaFailure* failure) {
    return guarded(failure, [&] {
        cudaStream_t created = nullptr;
        // Not the legacy stream's partner: the copies are to run beside the rows.
        checkCuda(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking), "a stream");
        *stream = created;
    });
}

int32_t destroyStream(void* stream, CudaFailure* failure) {
    return guarded(failure,
                   [&] { checkCuda(cudaStreamDestroy(streamOf(stream)), "closing a stream"); });
}

int32_t synchronise(void* stream, CudaFailure* failure) {
    return guarded(failure, [&] {
        checkCuda(cudaStreamSynchronize(streamOf(stream)), "waiting for the GPU");
    });
}

int32_t createEvent(void** event, CudaFailure* failure) {
    return guarded(failure, [&] {
        cudaEvent_t created = nullptr;
        checkCuda(cudaEventCreate(&created), "an event");
        *event = created;
    });
}

int32_t destroyEvent(void* event, CudaFailure* failure) {
    return guarded(failure,
                   [&] { checkCuda(cudaEventDestroy(eventOf(event)), "closing an event"); });
}

int32_t recordEvent(void* event, void* stream, CudaFailure* failure) {
    return guarded(failure, [&] {
        checkCuda(cudaEventRecord(eventOf(event), streamOf(stream)), "recording an event");
    });
}

int32_t waitEvent(void* event, void* stream, CudaFailure* failure) {
    return guarded(failure, [&] {
        checkCuda(cudaStreamWaitEvent(streamOf(stream), eventOf(event)), "waiting for an event");
    });
}

int32_t elapsedMs(void* begin, void* end, float* ms, CudaFailure* failure) {
    return guarded(failure, [&] {
        checkCuda(cudaEventElapsedTime(ms, eventOf(begin), eventOf(end)), "timing");
    });
}

cudaMemcpyKind kindOf(int32_t direction) {
    return direction == kCudaToDevice ? cudaMemcpyHostToDevice
           : direction == kCudaToHost ? cudaMemcpyDeviceToHost
                                      : cudaMemcpyDeviceToDevice;
}

int32_t copy(void* target,
             const void* source,
             int64_t num_bytes,
             int32_t direction,
             void* stream,
             CudaFailure* failure) {
    return guarded(failure, [&] {
        checkCuda(cudaMemcpyAsync(target, source, static_cast<size_t>(num_bytes), kindOf(direction),
                                  streamOf(stream)),
                  "copying");
    });
}

int32_t copyRows(void* target,
                 int64_t target_pitch,
                 const void* source,
                 int64_t source_pitch,
                 int64_t row_bytes,
                 int64_t num_rows,
                 int32_t direction,
                 void* stream,
                 CudaFailure* failure) {
    return guarded(failure, [&] {
        // Larger pitches are refused (CUDA Runtime API, cudaMemcpy2DAsync); 2 GiB on GPUs so far.
        static const int most = [] {
            int pitch = 0;
            checkCuda(cudaDeviceGetAttribute(&pitch, cudaDevAttrMaxPitch, 0), "the largest pitch");
            return pitch;
        }();
        const cudaMemcpyKind kind = kindOf(direction);
        if (target_pitch <= most && source_pitch <= most) {
            checkCuda(
                cudaMemcpy2DAsync(target, static_cast<size_t>(target_pitch), source,
                                  static_cast<size_t>(source_pitch), static_cast<size_t>(row_bytes),
                                  static_cast<size_t>(num_rows), kind, streamOf(stream)),
                "copying rows");
            return;
        }
        for (int64_t row = 0; row < num_rows; ++row) {
            checkCuda(cudaMemcpyAsync(static_cast<std::byte*>(target) + row * target_pitch,
                                      static_cast<const std::byte*>(source) + row * source_pitch,
                                      static_cast<size_t>(row_bytes), kind, streamOf(stream)),
                      "copying rows");
        }
    });
}

int32_t fill(void* memory, int32_t byte, int64_t num_bytes, void* stream, CudaFailure* failure) {
    return guarded(failure, [&] {
        checkCuda(cudaMemsetAsync(memory, byte, static_cast<size_t>(num_bytes), streamOf(stream)),
                  "filling memory");
    });
}

int32_t beginCapture(void* stream, CudaFailure* failure) {
    return guarded(failure, [&] {
        checkCuda(cudaStreamBeginCapture(streamOf(stream), cudaStreamCaptureModeThreadLocal),
                  "recording a step");
    });
}

int32_t endCapture(void* stream, void** graph, CudaFailure* failure) {
    *graph = nullptr;
    return guarded(failure, [&] {
        cudaGraph_t recorded = nullptr;
        checkCuda(cudaStreamEndCapture(streamOf(stream), &recorded), "recording a step");
        cudaGraphExec_t executable = nullptr;
        const cudaError_t code = cudaGraphInstantiate(&executable, recorded, 0);
        const cudaError_t destroyed = cudaGraphDestroy(recorded);
        checkCuda(code, "preparing a recorded step");
        if (destroyed != cudaSuccess) cudaGraphExecDestroy(executable);
        checkCuda(destroyed, "dropping what was recorded");
        *graph = executable;
    });
}

int32_t launchGraph(void* graph, void* stream, CudaFailure* failure) {
    return guarded(failure, [&] {
        checkCuda(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), streamOf(stream)),
                  "replaying a step");
    });
}

int32_t destroyGraph(void* graph, CudaFailure* failure) {
    return guarded(failure, [&] {
        checkCuda(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)),
                  "dropping a recorded step");
    });
}

constexpr CudaTable kTable = {
    .open = open,
    .memory_info = memoryInfo,
    .allocate = allocate,
    .release = release,
    .allocate_host = allocateHost,
    .release_host = releaseHost,
    .create_stream = createStream,
    .destroy_stream = destroyStream,
    .synchronise = synchronise,
    .create_event = createEvent,
    .destroy_event = destroyEvent,
    .record_event = recordEvent,
    .wait_event = waitEvent,
    .elapsed_ms = elapsedMs,
    .copy = copy,
    .copy_rows = copyRows,
    .fill = fill,
    .begin_capture = beginCapture,
    .end_capture = endCapture,
    .launch_graph = launchGraph,
    .destroy_graph = destroyGraph,
    .embedding = operation<embeddingCuda, EmbeddingParams>,
    .rms_norm = operation<rmsNormCuda, RmsNormParams>,
    .matmul = operation<matmulCuda, MatmulParams>,
    .matmul_group = operation<matmulGroupCuda, MatmulGroupParams>,
    .rope = operation<ropeCuda, RopeParams>,
    .kv_cache_write = operation<kvCacheWriteCuda, KvCacheWriteParams>,
    .paged_attention = operation<pagedAttentionCuda, PagedAttentionParams>,
    .silu_mul = operation<siluMulCuda, SiluMulParams>,
    .copy_blocks = operation<copyBlocksCuda, CopyBlocksParams>,
    .contiguous_attention = operation<contiguousAttentionCuda, ContiguousAttentionParams>,
};

}  // namespace
}  // namespace kvlab

extern "C" int32_t kvlabCudaProbe(int32_t version, kvlab::CudaProbe* probe) {
    using namespace kvlab;
    if (version != kCudaPluginVersion) return kCudaPluginVersion;
    *probe = {};
    int num_devices = 0;
    const cudaError_t code = cudaGetDeviceCount(&num_devices);
    if (code != cudaSuccess || num_devices == 0) {
        explain(code, probe);
        return kCudaPluginVersion;
    }
    int driver_version = 0;
    cudaDriverGetVersion(&driver_version);
    for (int i = 0; i < num_devices && i < CudaProbe::kMaxDevices; ++i) {
        cudaDeviceProp properties;
        const cudaError_t device_code = cudaGetDeviceProperties(&properties, i);
        if (device_code != cudaSuccess) {
            explain(device_code, probe);
            // The backend runs on device 0: with that one broken, none is listed in its place.
            if (i == 0) break;
            continue;
        }
        CudaDevice& device = probe->devices[probe->num_devices++];
        std::snprintf(device.name, sizeof device.name, "%s", properties.name);
        device.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
        device.compute_capability = 10 * properties.major + properties.minor;
        device.num_multiprocessors = properties.multiProcessorCount;
        device.driver_version = driver_version;
    }
    return kCudaPluginVersion;
}

extern "C" const kvlab::CudaTable* kvlabCudaTable(int32_t version) {
    return version == kvlab::kCudaPluginVersion ? &kvlab::kTable : nullptr;
}

static_assert(std::is_same_v<decltype(kvlabCudaProbe), kvlab::CudaProbeFunction>);
static_assert(std::is_same_v<decltype(kvlabCudaTable), kvlab::CudaTableFunction>);
