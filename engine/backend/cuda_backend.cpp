// SPDX-License-Identifier: MIT
#include "engine/backend/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "engine/backend/cuda_plugin.h"
#include "engine/error.h"
#include "engine/text_format.h"

namespace kvlab {

namespace {

constexpr const char* kWayOut = "use --backend cpu";
// For partial results of attention that is split along the context.
constexpr int64_t kWorkspaceBytes = int64_t{64} << 20;
// Arrays of one upload begin at multiples of this, in values.
constexpr size_t kArrayAlignment = 4;

[[noreturn]] void fail(int32_t code, const CudaFailure& failure) {
    const std::string what(failure.what, strnlen(failure.what, sizeof failure.what));
    switch (code) {
        case kCudaOutOfMemory:
            throw EngineError(ErrorKind::kOutOfMemory, "the GPU has no memory left (" + what +
                                                           "); ask for fewer blocks or rows, or " +
                                                           kWayOut);
        case kCudaLost:
            throw EngineError(ErrorKind::kDevice, "the GPU stopped answering (" + what +
                                                      "); start again, or " + kWayOut);
        case kCudaRefused:
            throw EngineError(ErrorKind::kInternal,
                              "a CUDA operation refuses its arguments (" + what +
                                  "); that is a bug of KV Lab: report it and " + kWayOut);
        default:
            throw EngineError(ErrorKind::kDevice,
                              "the GPU's driver failed (" + what + "); start again, or " + kWayOut);
    }
}

// Calls an entry of the table with its arguments and throws what it reports.
template <class... Parameters, class... Arguments>
void call(int32_t (*entry)(Parameters...), Arguments... arguments) {
    CudaFailure failure{};
    if (const int32_t code = entry(arguments..., &failure); code != kCudaOk) fail(code, failure);
}

// For destructors: after a failure nothing can be done about another one.
template <class Entry>
void release(Entry entry, void* handle) {
    CudaFailure failure{};
    if (handle != nullptr) entry(handle, &failure);
}

class CudaBackend : public Backend {
  public:
    CudaBackend(const CudaTable& table, const CudaDevice& device, const CudaOptions& options)
        : table_(table), device_name_(device.name), options_(options) {
        context_.table = &table_;
        copy_context_.table = &table_;
        context_.num_multiprocessors = device.num_multiprocessors;
        ops_.embedding = run<&CudaTable::embedding, EmbeddingParams>;
        ops_.rms_norm = run<&CudaTable::rms_norm, RmsNormParams>;
        ops_.matmul = run<&CudaTable::matmul, MatmulParams>;
        ops_.matmul_group = run<&CudaTable::matmul_group, MatmulGroupParams>;
        ops_.rope = run<&CudaTable::rope, RopeParams>;
        ops_.kv_cache_write = run<&CudaTable::kv_cache_write, KvCacheWriteParams>;
        ops_.paged_attention = run<&CudaTable::paged_attention, PagedAttentionParams>;
        ops_.silu_mul = run<&CudaTable::silu_mul, SiluMulParams>;
        ops_.copy_blocks = run<&CudaTable::copy_blocks, CopyBlocksParams>;
        ops_.contiguous_attention =
            run<&CudaTable::contiguous_attention, ContiguousAttentionParams>;
        call(table_.open);
        try {
            call(table_.create_stream, &context_.stream);
            call(table_.create_stream, &copy_context_.stream);
            call(table_.create_event, &copies_done_);
            workspace_ = allocateRaw(kWorkspaceBytes, "attention's workspace");
        } catch (...) {
            releaseHandles();
            throw;
        }
        context_.workspace = workspace_.get();
        context_.workspace_bytes = kWorkspaceBytes;
    }

    ~CudaBackend() override {
        // What is still queued may use the memory below.
        release(table_.synchronise, copy_context_.stream);
        release(table_.synchronise, context_.stream);
        dropGraphs();
        releaseHandles();
    }

    const char* name() const override { return "cuda"; }
    std::string deviceName() const override { return device_name_; }
    int numThreads() const override { return 0; }
    const Ops& ops() const override { return ops_; }
    ExecutionContext& context() override { return context_; }
    bool hasOwnMemory() const override { return true; }

    Memory allocate(int64_t num_bytes, const char* purpose) override {
        Memory memory = allocateRaw(num_bytes, purpose);
        call(table_.fill, memory.get(), 0, num_bytes, context_.stream);
        // Other streams and the host may use it at once.
        call(table_.synchronise, context_.stream);
        return memory;
    }

    Memory allocateHost(int64_t num_bytes, const char* purpose) override {
        void* memory = nullptr;
        CudaFailure failure{};
        const int32_t code =
            num_bytes > 0 ? table_.allocate_host(num_bytes, &memory, &failure) : kCudaOutOfMemory;
        if (code == kCudaOutOfMemory) {
            throw EngineError(ErrorKind::kOutOfMemory,
                              formatNeed(purpose, num_bytes) +
                                  " of pinned memory, which this machine does not give; ask for "
                                  "less, or " +
                                  kWayOut);
        }
        if (code != kCudaOk) fail(code, failure);
        std::memset(memory, 0, static_cast<size_t>(num_bytes));
        return {static_cast<std::byte*>(memory),
                [table = &table_](std::byte* p) { release(table->release_host, p); }};
    }

    Memory resident(const void* data, int64_t num_bytes, const char* purpose) override {
        Memory memory = allocateRaw(num_bytes, purpose);
        call(table_.copy, memory.get(), data, num_bytes, int32_t{kCudaToDevice}, context_.stream);
        call(table_.synchronise, context_.stream);
        return memory;
    }

    void download(const std::byte* source, int64_t num_bytes, void* target) override {
        call(table_.copy, target, source, num_bytes, int32_t{kCudaToHost}, context_.stream);
        call(table_.synchronise, context_.stream);
    }

    void beginStep() override {
        step_arrays_.used = 0;
        copy_arrays_.used = 0;
    }

    void endStep() override {
        call(table_.synchronise, copy_context_.stream);
        call(table_.synchronise, context_.stream);
        copies_pending_ = false;
        // Copies of a step read these until now.
        step_arrays_.outgrown.clear();
        copy_arrays_.outgrown.clear();
    }

    void upload(std::span<const std::span<const int32_t>> arrays,
                std::span<const int32_t*> places) override {
        uploadTo(step_arrays_, context_.stream, arrays, places);
    }

    void runRepeatable(std::span<const int64_t> key, const std::function<void()>& work) override {
        waitForCopies();
        if (!options_.graphs) {
            work();
            return;
        }
        const auto [found, is_new] = graphs_.try_emplace({key.begin(), key.end()});
        found->second.last_use = ++num_repeatable_;
        if (is_new) {
            // A shape that comes once is not worth a record. The plain run also loads the kernels,
            // which must not happen while recording.
            if (graphs_.size() > options_.max_graphs) dropOldestGraph();
            work();
            return;
        }
        void*& graph = found->second.graph;
        if (graph == nullptr && has_room_for_graphs_) {
            graph = record(work);
            has_room_for_graphs_ = graph != nullptr;
        }
        if (graph == nullptr) {
            work();
        } else {
            call(table_.launch_graph, graph, context_.stream);
        }
    }

    const float* toHost(const float* data, int64_t num_values) override {
        if (num_values == 0) return nullptr;
        if (num_values > results_size_) {
            results_size_ = 0;
            results_ = allocateHost(num_values * int64_t{sizeof(float)}, "a step");
            results_size_ = num_values;
        }
        call(table_.copy, results_.get(), data, num_values * int64_t{sizeof(float)},
             int32_t{kCudaToHost}, context_.stream);
        return reinterpret_cast<const float*>(results_.get());
    }

    void copyBlocks(const CopyBlocksParams& params) override {
        const size_t num_pairs = static_cast<size_t>(params.num_pairs);
        const std::span<const int32_t> arrays[] = {
            {params.source, num_pairs}, {params.target, num_pairs}, {params.num_slots, num_pairs}};
        const int32_t* places[3] = {};
        uploadTo(copy_arrays_, copy_context_.stream, arrays, places);
        CopyBlocksParams there = params;
        there.source = places[0];
        there.target = places[1];
        there.num_slots = places[2];
        copies_pending_ = true;
        ops_.copy_blocks(there, copy_context_);
    }

    void swapOut(std::span<const BlockSwap> swaps,
                 const PagedKvView& device,
                 const PagedKvView& host) override {
        swapAll(swaps, device, host, kCudaToHost);
    }
    void swapIn(std::span<const BlockSwap> swaps,
                const PagedKvView& device,
                const PagedKvView& host) override {
        swapAll(swaps, device, host, kCudaToDevice);
    }

  private:
    struct Context : ExecutionContext {
        const CudaTable* table = nullptr;
    };

    // Pinned memory that a step's arrays are written to, and where they go. Filled from 0 in each
    // step, so that the same arrays lie at the same place again.
    struct Arena {
        Memory host;
        Memory device;
        size_t capacity = 0;  // values
        size_t used = 0;
        std::vector<Memory> outgrown;  // may still be read in this step
    };

    struct RecordedStep {
        void* graph = nullptr;  // null: seen once, not recorded
        int64_t last_use = 0;   // the how manieth call
    };

    template <auto kEntry, class Params>
    static void run(const Params& params, ExecutionContext& context) {
        const Context& self = static_cast<Context&>(context);
        call(self.table->*kEntry, &params, static_cast<const ExecutionContext*>(&self));
    }

    Memory allocateRaw(int64_t num_bytes, const char* purpose) {
        void* memory = nullptr;
        CudaFailure failure{};
        const int32_t code =
            num_bytes > 0 ? table_.allocate(num_bytes, &memory, &failure) : kCudaOutOfMemory;
        if (code == kCudaOutOfMemory) {
            int64_t free_bytes = 0;
            int64_t total_bytes = 0;
            call(table_.memory_info, &free_bytes, &total_bytes);
            throw EngineError(ErrorKind::kOutOfMemory,
                              formatNeed(purpose, num_bytes) + ", the GPU has " +
                                  formatBytes(free_bytes) + " free of " + formatBytes(total_bytes) +
                                  "; ask for less, or " + kWayOut);
        }
        if (code != kCudaOk) fail(code, failure);
        return {static_cast<std::byte*>(memory),
                [table = &table_](std::byte* p) { release(table->release, p); }};
    }

    void uploadTo(Arena& arena,
                  void* stream,
                  std::span<const std::span<const int32_t>> arrays,
                  std::span<const int32_t*> places) {
        size_t num_values = 0;
        for (const std::span<const int32_t> array : arrays) num_values += aligned(array.size());
        if (num_values == 0) {
            std::fill(places.begin(), places.end(), nullptr);
            return;
        }
        if (arena.used + num_values > arena.capacity) {
            const size_t capacity = std::max(2 * arena.capacity, num_values);
            const int64_t num_bytes = static_cast<int64_t>(capacity * sizeof(int32_t));
            Memory host = allocateHost(num_bytes, "a step");
            Memory device = allocateRaw(num_bytes, "a step");
            if (arena.host) {
                arena.outgrown.push_back(std::move(arena.host));
                arena.outgrown.push_back(std::move(arena.device));
            }
            arena.host = std::move(host);
            arena.device = std::move(device);
            arena.capacity = capacity;
            arena.used = 0;
        }
        int32_t* const from = reinterpret_cast<int32_t*>(arena.host.get()) + arena.used;
        int32_t* const to = reinterpret_cast<int32_t*>(arena.device.get()) + arena.used;
        size_t at = 0;
        for (size_t i = 0; i < arrays.size(); ++i) {
            std::copy(arrays[i].begin(), arrays[i].end(), from + at);
            places[i] = to + at;
            at += aligned(arrays[i].size());
        }
        arena.used += num_values;
        call(table_.copy, to, from, static_cast<int64_t>(num_values * sizeof(int32_t)),
             int32_t{kCudaToDevice}, stream);
    }

    static size_t aligned(size_t num_values) {
        return (num_values + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
    }

    // A run of whole blocks that lie side by side in both pools is one copy, as is a single block
    // that is partly filled: as many rows as there are layers' Ks and Vs, which lie equally far
    // apart. In int8 the scales are another one.
    void swapAll(std::span<const BlockSwap> swaps,
                 const PagedKvView& device,
                 const PagedKvView& host,
                 CudaDirection direction) {
        copies_pending_ = true;
        for (size_t begin = 0; begin < swaps.size();) {
            size_t end = begin + 1;
            int64_t num_slots = swaps[begin].num_slots;
            while (end < swaps.size() && swaps[end - 1].num_slots == device.block_size &&
                   swaps[end].device_block == swaps[end - 1].device_block + 1 &&
                   swaps[end].host_block == swaps[end - 1].host_block + 1) {
                num_slots += swaps[end].num_slots;
                ++end;
            }
            swapRun(swaps[begin], num_slots, device, host, direction);
            begin = end;
        }
    }

    void swapRun(const BlockSwap& first,
                 int64_t num_slots,
                 const PagedKvView& device,
                 const PagedKvView& host,
                 CudaDirection direction) {
        const int64_t num_planes = 2 * int64_t{device.num_layers};
        // Rows of `row_bytes` for each slot's head.
        const auto move = [&](std::byte* on_device, std::byte* on_host, int64_t row_bytes) {
            const auto pitch = [&](const PagedKvView& kv) {
                return int64_t{kv.num_blocks} * kv.block_size * kv.num_kv_heads * row_bytes;
            };
            const bool out = direction == kCudaToHost;
            call(table_.copy_rows, out ? on_host : on_device, pitch(out ? host : device),
                 out ? on_device : on_host, pitch(out ? device : host),
                 num_slots * device.num_kv_heads * row_bytes, num_planes, int32_t{direction},
                 copy_context_.stream);
        };
        const int64_t device_slot = int64_t{first.device_block} * device.block_size;
        const int64_t host_slot = int64_t{first.host_block} * host.block_size;
        const int64_t value_bytes = dataTypeBytes(device.dtype);
        move(device.data + device.offset(0, PagedKvView::kKey, device_slot, 0) * value_bytes,
             host.data + host.offset(0, PagedKvView::kKey, host_slot, 0) * value_bytes,
             device.head_dim * value_bytes);
        if (device.dtype != DataType::kInt8) return;
        move(reinterpret_cast<std::byte*>(device.scales() +
                                          device.rowIndex(0, PagedKvView::kKey, device_slot, 0)),
             reinterpret_cast<std::byte*>(host.scales() +
                                          host.rowIndex(0, PagedKvView::kKey, host_slot, 0)),
             int64_t{sizeof(float)});
    }

    // The rows read and overwrite what the copies move.
    void waitForCopies() {
        if (!copies_pending_) return;
        call(table_.record_event, copies_done_, copy_context_.stream);
        call(table_.wait_event, copies_done_, context_.stream);
    }

    // Null where the GPU has no memory for one more graph: nothing of `work` has run then, and a
    // plain step needs none.
    void* record(const std::function<void()>& work) {
        void* graph = nullptr;
        call(table_.begin_capture, context_.stream);
        try {
            work();
        } catch (...) {
            // The stream must leave recording; what broke it is the better message.
            CudaFailure ignored{};
            if (table_.end_capture(context_.stream, &graph, &ignored) == kCudaOk) {
                release(table_.destroy_graph, graph);
            }
            throw;
        }
        CudaFailure failure{};
        const int32_t code = table_.end_capture(context_.stream, &graph, &failure);
        if (code == kCudaOutOfMemory) return nullptr;
        if (code != kCudaOk) fail(code, failure);
        return graph;
    }

    void dropGraphs() {
        for (const auto& [key, recorded] : graphs_) release(table_.destroy_graph, recorded.graph);
        graphs_.clear();
    }

    // Not the shape of now, which is the last one used. What was launched of it has ended with its
    // step.
    void dropOldestGraph() {
        const auto oldest = std::min_element(
            graphs_.begin(), graphs_.end(),
            [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; });
        release(table_.destroy_graph, oldest->second.graph);
        graphs_.erase(oldest);
    }

    void releaseHandles() {
        release(table_.destroy_event, copies_done_);
        release(table_.destroy_stream, copy_context_.stream);
        release(table_.destroy_stream, context_.stream);
    }

    const CudaTable& table_;  // the plugin stays loaded
    std::string device_name_;
    CudaOptions options_;
    Ops ops_;
    Context context_;       // the forward pass
    Context copy_context_;  // copies and swaps
    void* copies_done_ = nullptr;
    bool copies_pending_ = false;
    Memory workspace_;
    Arena step_arrays_;
    Arena copy_arrays_;
    Memory results_;
    int64_t results_size_ = 0;
    std::map<std::vector<int64_t>, RecordedStep> graphs_;
    int64_t num_repeatable_ = 0;
    bool has_room_for_graphs_ = true;  // until one did not fit
};

}  // namespace

bool cudaDeviceIsThere() {
    const CudaPlugin plugin = loadCudaPlugin();
    return plugin.table != nullptr && plugin.probe.num_devices > 0 &&
           cudaDeviceProblem(plugin.probe.devices[0]).empty();
}

std::unique_ptr<Backend> makeCudaBackend(const CudaOptions& options) {
    const CudaPlugin plugin = loadCudaPlugin();
    std::string problem = plugin.reason;
    if (plugin.table != nullptr && plugin.probe.num_devices > 0) {
        problem = cudaDeviceProblem(plugin.probe.devices[0]);
        if (!problem.empty()) problem = std::string(plugin.probe.devices[0].name) + ": " + problem;
    }
    if (!problem.empty()) {
        throw EngineError(ErrorKind::kUnsupported,
                          "backend cuda cannot run here: " + problem + "; " + kWayOut);
    }
    return std::make_unique<CudaBackend>(*plugin.table, plugin.probe.devices[0], options);
}

}  // namespace kvlab
