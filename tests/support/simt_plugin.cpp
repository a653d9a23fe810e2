// SPDX-License-Identifier: MIT
// The CUDA plugin's table over host memory and simt kernels: a MODULE that the engine loads in the
// real plugin's place, so that its side of the boundary runs on a machine without a GPU. Streams do
// what they are given as late as they may: when somebody waits, and then all other streams run
// first, as far as no event holds them. So a missing wait, or a host array that is changed too
// early, gives wrong numbers here as it might on a GPU. "Device" memory is filled with 0xff when it
// is allocated, as nothing promises zeros.
//
// KVLAB_SIMT_PLUGIN_FAIL=ENTRY:CODE[:AFTER] makes an entry (its name in the table, or "operation"
// for any of them) return a code (a CudaCode, in digits) when it has worked AFTER times (0), and
// ever after. "version" and "devices" as ENTRY: another version, no device; "lost_wait": streams
// wait for no event; "little_memory": 512 KiB are free, it says.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
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

using Work = std::function<void()>;
using Graph = std::vector<Work>;

struct Stream {
    std::deque<Work> queue;
    int64_t num_queued = 0;  // ever
    int64_t num_done = 0;
    Graph* recording = nullptr;

    void runTo(int64_t end) {
        while (num_done < end && !queue.empty()) {
            const Work work = std::move(queue.front());
            queue.pop_front();
            ++num_done;
            work();
        }
    }
};

// What a stream had been given when the event was recorded; null: nothing to wait for.
struct Event {
    std::shared_ptr<Stream> stream;
    int64_t end = 0;
};

std::map<void*, std::shared_ptr<Stream>> streams;
std::map<const char*, size_t> pinned;  // begin, bytes

bool isPinned(const void* memory) {
    const char* const address = static_cast<const char*>(memory);
    const auto after = pinned.upper_bound(address);
    if (after == pinned.begin()) return false;
    const auto& [begin, num_bytes] = *std::prev(after);
    return address < begin + num_bytes;
}

// All others first: the worst order that the events allow.
void drain(void* stream) {
    for (const auto& [handle, other] : streams) {
        if (handle != stream) other->runTo(other->num_queued);
    }
    if (const auto found = streams.find(stream); found != streams.end()) {
        found->second->runTo(found->second->num_queued);
    }
}

int num_alive = 0;  // streams, events, graphs and memory that were not given back

template <typename Function>
int32_t guarded(const char* entry,
                CudaFailure* failure,
                const Function& work,
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

// When the stream gets there, or whenever the graph is replayed.
void enqueue(void* stream, Work work) {
    Stream& queue = *streams.at(stream);
    if (queue.recording != nullptr) {
        queue.recording->push_back(std::move(work));
    } else {
        queue.queue.push_back(std::move(work));
        ++queue.num_queued;
    }
}

template <auto kOperation, typename Params>
int32_t operation(const Params* params, const ExecutionContext* context, CudaFailure* failure) {
    return guarded(
        "operation", failure,
        [&] {
            // A launch reads what lies on the host at once.
            std::vector<int32_t> rows;
            if constexpr (std::is_same_v<Params, PagedAttentionParams>) {
                if (params->host_row_to_seq != nullptr) {
                    rows.assign(params->host_row_to_seq,
                                params->host_row_to_seq + params->num_rows);
                }
            }
            enqueue(context->stream, [given = *params, there = *context, rows]() mutable {
                if constexpr (std::is_same_v<Params, PagedAttentionParams>) {
                    given.host_row_to_seq = rows.empty() ? nullptr : rows.data();
                }
                kOperation(given, there);
            });
        },
        true);
}

int32_t open(CudaFailure* failure) {
    return guarded("open", failure, [] {});
}

int32_t memoryInfo(int64_t* free_bytes, int64_t* total_bytes, CudaFailure* failure) {
    return guarded("memory_info", failure, [&] {
        *free_bytes = injection().entry == "little_memory" ? 512 << 10 : int64_t{1} << 30;
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
    return guarded("allocate_host", failure, [&] {
        *memory = filled(num_bytes);
        pinned[static_cast<const char*>(*memory)] = static_cast<size_t>(num_bytes);
    });
}
int32_t release(void* memory, CudaFailure* failure) {
    return guarded("release", failure, [&] {
        drain(nullptr);  // as CUDA does
        std::free(memory);
        --num_alive;
    });
}
int32_t releaseHost(void* memory, CudaFailure* failure) {
    return guarded("release_host", failure, [&] {
        drain(nullptr);
        pinned.erase(static_cast<const char*>(memory));
        std::free(memory);
        --num_alive;
    });
}

int32_t createStream(void** stream, CudaFailure* failure) {
    return guarded("create_stream", failure, [&] {
        const auto created = std::make_shared<Stream>();
        streams[created.get()] = created;
        *stream = created.get();
        ++num_alive;
    });
}
int32_t destroyStream(void* stream, CudaFailure* failure) {
    return guarded("destroy_stream", failure, [&] {
        streams.erase(stream);
        --num_alive;
    });
}
int32_t synchronise(void* stream, CudaFailure* failure) {
    return guarded("synchronise", failure, [&] { drain(stream); });
}

int32_t createEvent(void** event, CudaFailure* failure) {
    return guarded("create_event", failure, [&] {
        *event = new Event;
        ++num_alive;
    });
}
int32_t destroyEvent(void* event, CudaFailure* failure) {
    return guarded("destroy_event", failure, [&] {
        delete static_cast<Event*>(event);
        --num_alive;
    });
}
int32_t recordEvent(void* event, void* stream, CudaFailure* failure) {
    return guarded("record_event", failure, [&] {
        const std::shared_ptr<Stream>& recorded = streams.at(stream);
        *static_cast<Event*>(event) = {recorded, recorded->num_queued};
    });
}
int32_t waitEvent(void* event, void* stream, CudaFailure* failure) {
    return guarded("wait_event", failure, [&] {
        if (injection().entry == "lost_wait") return;
        enqueue(stream, [until = *static_cast<Event*>(event)] {
            if (until.stream) until.stream->runTo(until.end);
        });
    });
}
int32_t elapsedMs(void*, void*, float* ms, CudaFailure* failure) {
    return guarded("elapsed_ms", failure, [&] { *ms = 1.f; });
}

int32_t copy(void* target,
             const void* source,
             int64_t num_bytes,
             int32_t direction,
             void* stream,
             CudaFailure* failure) {
    return guarded("copy", failure, [&] {
        enqueue(stream, [=] { std::memcpy(target, source, static_cast<size_t>(num_bytes)); });
        const void* const on_host = direction == kCudaToHost ? target : source;
        if (direction != kCudaWithin && !isPinned(on_host)) drain(stream);
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
    return guarded("copy_rows", failure, [&] {
        if (row_bytes > target_pitch || row_bytes > source_pitch) {
            throw std::invalid_argument("rows overlap");
        }
        enqueue(stream, [=] {
            for (int64_t row = 0; row < num_rows; ++row) {
                std::memcpy(static_cast<char*>(target) + row * target_pitch,
                            static_cast<const char*>(source) + row * source_pitch,
                            static_cast<size_t>(row_bytes));
            }
        });
        if (!isPinned(direction == kCudaToHost ? target : source)) drain(stream);
    });
}
int32_t fill(void* memory, int32_t byte, int64_t num_bytes, void* stream, CudaFailure* failure) {
    return guarded("fill", failure, [&] {
        enqueue(stream, [=] { std::memset(memory, byte, static_cast<size_t>(num_bytes)); });
    });
}

int32_t beginCapture(void* stream, CudaFailure* failure) {
    return guarded("begin_capture", failure, [&] {
        streams.at(stream)->recording = new Graph;
        ++num_alive;
    });
}
int32_t endCapture(void* stream, void** graph, CudaFailure* failure) {
    Stream& queue = *streams.at(stream);
    Graph* const recorded = std::exchange(queue.recording, nullptr);  // ended in any case
    *graph = nullptr;
    const int32_t code = guarded("end_capture", failure, [&] { *graph = recorded; });
    if (code != kCudaOk) {
        delete recorded;
        --num_alive;
    }
    return code;
}
int32_t launchGraph(void* graph, void* stream, CudaFailure* failure) {
    return guarded("launch_graph", failure, [&] {
        enqueue(stream, [recorded = *static_cast<Graph*>(graph)] {
            for (const Work& work : recorded) work();
        });
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
    .copy_rows = copyRows,
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
