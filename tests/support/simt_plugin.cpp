// SPDX-License-Identifier: MIT
// The CUDA plugin's table over host memory and simt kernels: a MODULE that the engine loads in the
// real plugin's place, so that its side of the boundary runs on a machine without a GPU. Streams do
// at once what they are given, but for a capture, which keeps it for the replays. "Device" memory
// is filled with 0xff when it is allocated, as nothing promises zeros.
//
// KVLAB_SIMT_PLUGIN_FAIL=ENTRY:CODE[:AFTER] makes an entry (its name in the table, or "operation"
// for any of them) return a code (a CudaCode, in digits) when it has worked AFTER times (0), and
// ever after. "version" and "devices" as ENTRY: another version, no device.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/plugin.h"

namespace kvlab {
namespace {

struct Injection {
    std::string entry;
    int32_t code = 0;
    int64_t after = 0;
};

Injection injection() {
    Injection wanted;
    const char* const text = std::getenv("KVLAB_SIMT_PLUGIN_FAIL");
    if (text == nullptr) return wanted;
    char entry[64] = {};
    long code = 0;
    long after = 0;
    if (std::sscanf(text, "%63[^:]:%ld:%ld", entry, &code, &after) < 1) return wanted;
    wanted.entry = entry;
    wanted.code = static_cast<int32_t>(code);
    wanted.after = after;
    return wanted;
}

int64_t num_worked = 0;  // calls of the entry that is to fail, since it was named
std::string named;

bool mustFail(const char* entry, bool is_operation) {
    const Injection wanted = injection();
    const std::string key = wanted.entry + ":" + std::to_string(wanted.after);
    if (key != named) {
        named = key;
        num_worked = 0;
    }
    if (wanted.entry.empty()) return false;
    if (wanted.entry != entry && !(is_operation && wanted.entry == "operation")) return false;
    return num_worked++ >= wanted.after;
}

struct Stream {
    std::vector<std::function<void()>>* recording = nullptr;
};
using Graph = std::vector<std::function<void()>>;

int num_alive = 0;  // streams, events, graphs and memory that were not given back

template <typename Work>
int32_t guarded(const char* entry,
                CudaFailure* failure,
                const Work& work,
                bool is_operation = false) {
    const auto failed = [&](int32_t code, const char* what) {
        std::snprintf(failure->what, sizeof failure->what, "%s: %s", entry, what);
        return code;
    };
    if (mustFail(entry, is_operation)) return failed(injection().code, "as the test wants it");
    try {
        work();
        return kCudaOk;
    } catch (const std::bad_alloc&) {
        return failed(kCudaOutOfMemory, "out of memory");
    } catch (const std::invalid_argument& error) {
        return failed(kCudaRefused, error.what());
    } catch (const std::exception& error) {
        return failed(kCudaFailed, error.what());
    }
}

// Now, or whenever the graph is replayed.
void enqueue(void* stream, std::function<void()> work) {
    Stream& queue = *static_cast<Stream*>(stream);
    if (queue.recording != nullptr) {
        queue.recording->push_back(std::move(work));
    } else {
        work();
    }
}

template <auto kOperation, typename Params>
int32_t operation(const Params* params, const ExecutionContext* context, CudaFailure* failure) {
    return guarded(
        "operation", failure,
        [&] {
            enqueue(context->stream,
                    [given = *params, there = *context]() mutable { kOperation(given, there); });
        },
        true);
}

int32_t open(CudaFailure* failure) {
    return guarded("open", failure, [] {});
}

int32_t memoryInfo(int64_t* free_bytes, int64_t* total_bytes, CudaFailure* failure) {
    return guarded("memory_info", failure, [&] {
        *free_bytes = int64_t{1} << 30;
        *total_bytes = int64_t{2} << 30;
    });
}

void* filled(int64_t num_bytes) {
    if (num_bytes <= 0 || num_bytes > (int64_t{1} << 30)) throw std::bad_alloc();
    void* const memory =
        std::aligned_alloc(256, static_cast<size_t>((num_bytes + 255) / 256 * 256));
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, 0xff, static_cast<size_t>(num_bytes));
    ++num_alive;
    return memory;
}

int32_t allocate(int64_t num_bytes, void** memory, CudaFailure* failure) {
    return guarded("allocate", failure, [&] { *memory = filled(num_bytes); });
}
int32_t allocateHost(int64_t num_bytes, void** memory, CudaFailure* failure) {
    return guarded("allocate_host", failure, [&] { *memory = filled(num_bytes); });
}
int32_t release(void* memory, CudaFailure* failure) {
    return guarded("release", failure, [&] {
        std::free(memory);
        --num_alive;
    });
}
int32_t releaseHost(void* memory, CudaFailure* failure) {
    return guarded("release_host", failure, [&] {
        std::free(memory);
        --num_alive;
    });
}

int32_t createStream(void** stream, CudaFailure* failure) {
    return guarded("create_stream", failure, [&] {
        *stream = new Stream;
        ++num_alive;
    });
}
int32_t destroyStream(void* stream, CudaFailure* failure) {
    return guarded("destroy_stream", failure, [&] {
        delete static_cast<Stream*>(stream);
        --num_alive;
    });
}
int32_t synchronise(void*, CudaFailure* failure) {
    return guarded("synchronise", failure, [] {});
}

int32_t createEvent(void** event, CudaFailure* failure) {
    return guarded("create_event", failure, [&] {
        *event = new char;
        ++num_alive;
    });
}
int32_t destroyEvent(void* event, CudaFailure* failure) {
    return guarded("destroy_event", failure, [&] {
        delete static_cast<char*>(event);
        --num_alive;
    });
}
int32_t recordEvent(void*, void*, CudaFailure* failure) {
    return guarded("record_event", failure, [] {});
}
int32_t waitEvent(void*, void*, CudaFailure* failure) {
    return guarded("wait_event", failure, [] {});
}
int32_t elapsedMs(void*, void*, float* ms, CudaFailure* failure) {
    return guarded("elapsed_ms", failure, [&] { *ms = 1.f; });
}

int32_t copy(void* target,
             const void* source,
             int64_t num_bytes,
             int32_t,
             void* stream,
             CudaFailure* failure) {
    return guarded("copy", failure, [&] {
        enqueue(stream, [=] { std::memcpy(target, source, static_cast<size_t>(num_bytes)); });
    });
}
int32_t fill(void* memory, int32_t byte, int64_t num_bytes, void* stream, CudaFailure* failure) {
    return guarded("fill", failure, [&] {
        enqueue(stream, [=] { std::memset(memory, byte, static_cast<size_t>(num_bytes)); });
    });
}

int32_t beginCapture(void* stream, CudaFailure* failure) {
    return guarded("begin_capture", failure, [&] {
        static_cast<Stream*>(stream)->recording = new Graph;
        ++num_alive;
    });
}
int32_t endCapture(void* stream, void** graph, CudaFailure* failure) {
    Stream& queue = *static_cast<Stream*>(stream);
    Graph* const recorded = std::exchange(queue.recording, nullptr);  // ended in any case
    *graph = nullptr;
    const int32_t code = guarded("end_capture", failure, [&] { *graph = recorded; });
    if (code != kCudaOk) {
        delete recorded;
        --num_alive;
    }
    return code;
}
int32_t launchGraph(void* graph, void*, CudaFailure* failure) {
    return guarded("launch_graph", failure, [&] {
        for (const std::function<void()>& work : *static_cast<Graph*>(graph)) work();
    });
}
int32_t destroyGraph(void* graph, CudaFailure* failure) {
    return guarded("destroy_graph", failure, [&] {
        delete static_cast<Graph*>(graph);
        --num_alive;
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
    .fill = fill,
    .begin_capture = beginCapture,
    .end_capture = endCapture,
    .launch_graph = launchGraph,
    .destroy_graph = destroyGraph,
    .embedding = operation<embeddingSimt, EmbeddingParams>,
    .rms_norm = operation<rmsNormSimt, RmsNormParams>,
    .matmul = operation<matmulSimt, MatmulParams>,
    .matmul_group = operation<matmulGroupSimt, MatmulGroupParams>,
    .rope = operation<ropeSimt, RopeParams>,
    .kv_cache_write = operation<kvCacheWriteSimt, KvCacheWriteParams>,
    .paged_attention = operation<pagedAttentionSimt, PagedAttentionParams>,
    .silu_mul = operation<siluMulSimt, SiluMulParams>,
    .copy_blocks = operation<copyBlocksSimt, CopyBlocksParams>,
    .contiguous_attention = operation<contiguousAttentionSimt, ContiguousAttentionParams>,
};

}  // namespace
}  // namespace kvlab

extern "C" int32_t kvlabCudaProbe(int32_t version, kvlab::CudaProbe* probe) {
    using namespace kvlab;
    const std::string wanted = injection().entry;
    if (wanted == "version") return kCudaPluginVersion + 1;
    if (version != kCudaPluginVersion) return kCudaPluginVersion;
    *probe = {};
    if (wanted == "devices") {
        std::snprintf(probe->reason, sizeof probe->reason, "the test took the device away");
        return kCudaPluginVersion;
    }
    probe->num_devices = 1;
    CudaDevice& device = probe->devices[0];
    std::snprintf(device.name, sizeof device.name, "simt stand-in");
    device.memory_bytes = int64_t{2} << 30;
    device.compute_capability = wanted == "capability" ? 61 : 90;
    device.num_multiprocessors = 4;
    device.driver_version = 13000;
    return kCudaPluginVersion;
}

extern "C" const kvlab::CudaTable* kvlabCudaTable(int32_t version) {
    using namespace kvlab;
    static CudaTable broken;
    if (injection().entry == "hole") {
        broken = kTable;
        broken.launch_graph = nullptr;
        return &broken;
    }
    return version == kCudaPluginVersion ? &kTable : nullptr;
}

// For the test: calls of the entry that is to fail, since it was named.
extern "C" int kvlabSimtPluginWorked() { return static_cast<int>(kvlab::num_worked); }
// For the test: what was made and not given back.
extern "C" int kvlabSimtPluginAlive() { return kvlab::num_alive; }
