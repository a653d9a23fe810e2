// SPDX-License-Identifier: MIT
#include "app/cli/bench/cuda_bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>
#include <random>

#include "app/cli/bench/bench.h"
#include "app/cli/bench/bench_math.h"
#include "engine/backend/cuda_backend.h"
#include "engine/backend/cuda_plugin.h"
#include "engine/clock.h"
#include "engine/error.h"
#include "engine/model/transformer.h"
#include "engine/model/utf8.h"
#include "engine/text_format.h"

namespace kvlab {

namespace {

constexpr int kBlockSize = 16;
constexpr int kGpuRepeats = 5;
constexpr int kSwapRepeats = 7;
constexpr int kStepRepeats = 31;
constexpr double kGb = 1e9;
// Of the 150 s in tests/gpu/check.sh: from then on each case is timed once, and from then on none
// is begun.
constexpr double kOnceFromMs = 100e3;
constexpr double kEndMs = 120e3;

// Heads of one layer, as attention sees a model.
struct HeadShape {
    const char* name;
    int num_heads, num_kv_heads, head_dim;
};
constexpr HeadShape kHeadShapes[] = {{"llama-3-8b", 32, 8, 128}, {"llama-3-70b", 64, 8, 128}};

// The smallest or largest of some figures, 0 while there are none.
struct Extreme {
    double value = 0;
    void least(double other) { value = value == 0 ? other : std::min(value, other); }
    void most(double other) { value = std::max(value, other); }
};

struct CudaBench {
    bool quick;
    bool json;
    std::unique_ptr<Backend> backend = makeCudaBackend({});
    const CudaTable& table = *loadCudaPlugin().table;
    void* stream = backend->context().stream;
    int64_t memory_bytes = 0;  // free at the start
    double copy_bytes_per_s = 0;
    void* begin_event = nullptr;
    void* end_event = nullptr;
    const Clock& clock;
    double bench_start_ms = clock.nowMs();
    // As `bench` gives them on a CPU, and beside that each case with its figures.
    BenchResult now;
    Json cases = Json::array();
    Json left_out = Json::array();
    Json benches = Json::array();
    Json failures = Json::array();

    CudaBench(bool quick_, bool json_, const Clock& clock_)
        : quick(quick_), json(json_), clock(clock_) {
        int64_t total_bytes = 0;
        call(table.memory_info, &memory_bytes, &total_bytes);
        call(table.create_event, &begin_event);
        call(table.create_event, &end_event);
    }
    ~CudaBench() {
        CudaFailure ignored{};
        if (begin_event != nullptr) table.destroy_event(begin_event, &ignored);
        if (end_event != nullptr) table.destroy_event(end_event, &ignored);
    }
    CudaBench(const CudaBench&) = delete;
    CudaBench& operator=(const CudaBench&) = delete;

    template <class... Parameters, class... Arguments>
    static void call(int32_t (*entry)(Parameters...), Arguments... arguments) {
        CudaFailure failure{};
        if (entry(arguments..., &failure) == kCudaOk) return;
        throw EngineError(ErrorKind::kDevice,
                          std::string("the bench ended early: ") + failure.what);
    }

    // The median time on the GPU of one call of `work`, ms. The first calls warm up and show how
    // many make a round of about 10 ms; between two events the launches lie side by side.
    double gpuMs(const std::function<void()>& work) {
        const auto round = [&](int num_calls) {
            call(table.record_event, begin_event, stream);
            for (int i = 0; i < num_calls; ++i) work();
            call(table.record_event, end_event, stream);
            call(table.synchronise, stream);
            float ms = 0;
            call(table.elapsed_ms, begin_event, end_event, &ms);
            return double{ms} / num_calls;
        };
        if (quick || isLate()) return round(1);
        round(1);
        const double first_ms = round(2);
        const int num_calls = std::clamp(static_cast<int>(10 / std::max(first_ms, 1e-3)), 1, 200);
        std::vector<double> times;
        for (int i = 0; i < kGpuRepeats && (i == 0 || !isLate()); ++i) {
            times.push_back(round(num_calls));
        }
        return median(std::move(times));
    }

    bool isLate() const { return clock.nowMs() - bench_start_ms >= kOnceFromMs; }

    // Whether a case is begun; a line or a JSON entry says why one is not. num_bytes: what it
    // wants of the GPU's memory.
    bool begins(const std::string& place, int64_t num_bytes = 0) {
        std::string why;
        if (clock.nowMs() - bench_start_ms >= kEndMs) {
            why = "no time left: " + fixed(kEndMs / 1000, 0) + " s are over";
        } else if (num_bytes > memory_bytes / 2) {
            why = "wants " + formatBytes(num_bytes) + ", half of the GPU's free memory is " +
                  formatBytes(memory_bytes / 2);
        } else {
            return true;
        }
        line("  " + place + " left out: " + why);
        left_out.push_back({{"case", place}, {"why", why}});
        return false;
    }

    Backend::Memory filled(int64_t num_bytes) {
        Backend::Memory memory = backend->allocate(num_bytes, "the bench");
        // 0x2c2c is 0.065 as f16: numbers, and small ones.
        call(table.fill, memory.get(), 0x2c, num_bytes, stream);
        return memory;
    }

    template <class T>
    Backend::Memory there(const std::vector<T>& values) {
        return backend->resident(values.data(), static_cast<int64_t>(values.size() * sizeof(T)),
                                 "the bench");
    }

    // Beside JSON the table tells how far it is: whoever ends the run then has what was measured.
    void line(const std::string& text) const {
        std::FILE* const file = json ? stderr : stdout;
        std::fprintf(file, "%s\n", text.c_str());
        std::fflush(file);
    }

    static std::string fixed(double value, int digits) {
        char text[48];
        std::snprintf(text, sizeof text, "%.*f", digits, value);
        return text;
    }

    void ratio(const std::string& name,
               double value,
               std::optional<double> at_least = std::nullopt,
               std::optional<double> at_most = std::nullopt) {
        if (value > 0) now.ratios.push_back({name, value, at_least, at_most});
    }

    void finish() {
        Json medians = Json::object();
        Json ratios = Json::object();
        Json targets = Json::object();
        for (const auto& [name, value] : now.medians) medians[name] = value;
        for (const BenchRatio& r : now.ratios) {
            ratios[r.name] = r.value;
            if (r.at_least) targets[r.name]["at_least"] = *r.at_least;
            if (r.at_most) targets[r.name]["at_most"] = *r.at_most;
            line("  " + r.name + ": " + fixed(r.value, 3) +
                 (r.at_least ? ", wanted: at least " + fixed(*r.at_least, 2) : "") +
                 (r.at_most ? ", wanted: at most " + fixed(*r.at_most, 2) : ""));
        }
        benches.push_back({{"name", now.name},
                           {"unit", now.unit},
                           {"medians", std::move(medians)},
                           {"ratio", std::move(ratios)},
                           {"targets", std::move(targets)},
                           {"repeats", now.num_repeats},
                           {"cases", std::move(cases)},
                           {"left_out", std::move(left_out)}});
        cases = Json::array();
        left_out = Json::array();
    }

    // --- what is measured -----------------------------------------------------------------------

    void copyBandwidth() {
        if (!begins("copy")) return;
        const int64_t num_bytes =
            quick ? 1 << 20 : std::min<int64_t>(int64_t{2} << 30, memory_bytes / 4);
        const Backend::Memory from = filled(num_bytes);
        const Backend::Memory to = filled(num_bytes);
        const double ms = gpuMs([&] {
            call(table.copy, to.get(), from.get(), num_bytes, int32_t{kCudaWithin}, stream);
        });
        copy_bytes_per_s = 2.0 * static_cast<double>(num_bytes) / (ms / 1000);  // read and written
        now.medians.emplace_back("copy", ms);
        cases.push_back({{"bytes", num_bytes}, {"ms", ms}, {"gb_per_s", copy_bytes_per_s / kGb}});
        line("device copy: " + fixed(copy_bytes_per_s / kGb, 0) + " GB/s, read and written");
    }

    // A pool of one layer with `num_seqs` sequences in shuffled blocks.
    struct Pool {
        PagedKvView kv;
        Backend::Memory memory;
        std::vector<int32_t> tables;
        int max_blocks = 0;
    };

    Pool makePool(const HeadShape& shape, int num_seqs, int context_len) {
        Pool pool;
        pool.max_blocks = (context_len + kBlockSize - 1) / kBlockSize;
        pool.kv.dtype = DataType::kF16;
        pool.kv.num_layers = 1;
        pool.kv.num_blocks = num_seqs * pool.max_blocks;
        pool.kv.block_size = kBlockSize;
        pool.kv.num_kv_heads = shape.num_kv_heads;
        pool.kv.head_dim = shape.head_dim;
        pool.memory = filled(pool.kv.numBytes());
        pool.kv.data = pool.memory.get();
        pool.tables.resize(static_cast<size_t>(pool.kv.num_blocks));
        std::iota(pool.tables.begin(), pool.tables.end(), 0);
        std::shuffle(pool.tables.begin(), pool.tables.end(), std::mt19937_64(1));
        return pool;
    }

    static std::string casePlace(const HeadShape& shape, int a, int b) {
        return std::string(shape.name) + "/" + std::to_string(a) + "/" + std::to_string(b);
    }

    void decodeAttention() {
        const std::vector<int> batches =
            quick ? std::vector<int>{1, 2} : std::vector<int>{1, 8, 32, 64, 256};
        const std::vector<int> contexts =
            quick ? std::vector<int>{20} : std::vector<int>{1024, 4096, 16384, 65536, 131072};
        price_of_paging = {};
        for (Extreme& share : attention_shares) share = {};
        line(
            "\ndecode attention, f16      batch  context   paged ms  contiguous  ratio    GB/s  of "
            "copy");
        for (size_t i = 0; i < std::size(kHeadShapes); ++i) {
            const HeadShape& shape = kHeadShapes[i];
            for (const int batch : batches) {
                for (const int context : contexts) {
                    const int64_t kv_bytes =
                        int64_t{2} * batch * context * shape.num_kv_heads * shape.head_dim * 2;
                    // Paged and contiguous lie side by side.
                    if (!begins(casePlace(shape, batch, context), 2 * kv_bytes)) continue;
                    decodeAttentionAt(shape, batch, context, kv_bytes, attention_shares[i]);
                }
            }
        }
        ratio("paged_to_contiguous_from_4096", price_of_paging.value, std::nullopt, 1.03);
        // Groups of 4 and of 8.
        ratio("llama-3-8b_share_of_copy_from_batch_32", attention_shares[0].value, 0.85);
        ratio("llama-3-70b_share_of_copy_from_batch_32", attention_shares[1].value, 0.75);
    }

    void decodeAttentionAt(
        const HeadShape& shape, int batch, int context, int64_t kv_bytes, Extreme& share) {
        const Pool pool = makePool(shape, batch, context);
        const int64_t num_queries = int64_t{batch} * shape.num_heads * shape.head_dim;
        const Backend::Memory query = filled(num_queries * 4);
        const Backend::Memory output = filled(num_queries * 4);
        std::vector<int32_t> rows(static_cast<size_t>(batch));
        std::iota(rows.begin(), rows.end(), 0);
        const Backend::Memory tables = there(pool.tables);
        const Backend::Memory row_to_seq = there(rows);
        const Backend::Memory lens =
            there(std::vector<int32_t>(static_cast<size_t>(batch), context));
        PagedAttentionParams paged;
        paged.query = reinterpret_cast<const float*>(query.get());
        paged.kv = pool.kv;
        paged.block_tables = reinterpret_cast<const int32_t*>(tables.get());
        paged.max_blocks_per_seq = pool.max_blocks;
        paged.row_to_seq = reinterpret_cast<const int32_t*>(row_to_seq.get());
        paged.context_lens = reinterpret_cast<const int32_t*>(lens.get());
        paged.num_rows = batch;
        paged.num_seqs = batch;
        paged.num_heads = shape.num_heads;
        paged.scale = 1.f / std::sqrt(static_cast<float>(shape.head_dim));
        paged.output = reinterpret_cast<float*>(output.get());
        paged.host_row_to_seq = rows.data();
        paged.max_context_len = context;
        const double paged_ms =
            gpuMs([&] { backend->ops().paged_attention(paged, backend->context()); });

        const Backend::Memory key = filled(kv_bytes / 2);
        const Backend::Memory value = filled(kv_bytes / 2);
        ContiguousAttentionParams flat;
        flat.query = paged.query;
        flat.key = key.get();
        flat.value = value.get();
        flat.dtype = DataType::kF16;
        flat.context_lens = paged.context_lens;
        flat.num_seqs = batch;
        flat.max_context_len = context;
        flat.num_heads = shape.num_heads;
        flat.num_kv_heads = shape.num_kv_heads;
        flat.head_dim = shape.head_dim;
        flat.scale = paged.scale;
        flat.output = paged.output;
        const ExecutionContext here = backend->context();
        const double flat_ms = gpuMs([&] {
            call(table.contiguous_attention, static_cast<const ContiguousAttentionParams*>(&flat),
                 &here);
        });
        // K and V once, queries and outputs once.
        const double bytes = static_cast<double>(kv_bytes) + static_cast<double>(num_queries) * 8;
        const double bytes_per_s = bytes / (paged_ms / 1000);
        if (quick || context >= 4096) price_of_paging.most(paged_ms / flat_ms);
        if (quick || (batch >= 32 && context >= 4096)) share.least(bytes_per_s / copy_bytes_per_s);
        const std::string place = casePlace(shape, batch, context);
        now.medians.emplace_back(place + "/paged", paged_ms);
        now.medians.emplace_back(place + "/contiguous", flat_ms);
        cases.push_back({{"shape", shape.name},
                         {"batch", batch},
                         {"context", context},
                         {"bytes", bytes},
                         {"paged_ms", paged_ms},
                         {"contiguous_ms", flat_ms},
                         {"paged_to_contiguous", paged_ms / flat_ms},
                         {"gb_per_s", bytes_per_s / kGb},
                         {"share_of_copy", bytes_per_s / copy_bytes_per_s}});
        char text[160];
        std::snprintf(text, sizeof text, "  %-22s %7d %8d %10.4f %11.4f %6.3f %7.0f %7.0f %%",
                      shape.name, batch, context, paged_ms, flat_ms, paged_ms / flat_ms,
                      bytes_per_s / kGb, 100 * bytes_per_s / copy_bytes_per_s);
        line(text);
    }

    void prefillAttention() {
        line("\nprefill attention, f16     chunk   prefix         ms  TFLOP/s");
        for (const HeadShape& shape : kHeadShapes) {
            for (const int chunk : quick ? std::vector<int>{7} : std::vector<int>{512, 2048}) {
                for (const int prefix : quick ? std::vector<int>{9}
                                              : std::vector<int>{0, 4096, 16384, 32768, 129024}) {
                    if (!begins(casePlace(shape, chunk, prefix))) continue;
                    prefillAttentionAt(shape, chunk, prefix);
                }
            }
        }
    }

    void prefillAttentionAt(const HeadShape& shape, int chunk, int prefix) {
        const Pool pool = makePool(shape, 1, prefix + chunk);
        const int64_t num_queries = int64_t{chunk} * shape.num_heads * shape.head_dim;
        const Backend::Memory query = filled(num_queries * 4);
        const Backend::Memory output = filled(num_queries * 4);
        const std::vector<int32_t> rows(static_cast<size_t>(chunk), 0);
        std::vector<int32_t> lens_here;
        double num_pairs = 0;
        for (int i = 0; i < chunk; ++i) {
            lens_here.push_back(prefix + i + 1);
            num_pairs += prefix + i + 1;
        }
        const Backend::Memory tables = there(pool.tables);
        const Backend::Memory row_to_seq = there(rows);
        const Backend::Memory lens = there(lens_here);
        PagedAttentionParams p;
        p.query = reinterpret_cast<const float*>(query.get());
        p.kv = pool.kv;
        p.block_tables = reinterpret_cast<const int32_t*>(tables.get());
        p.max_blocks_per_seq = pool.max_blocks;
        p.row_to_seq = reinterpret_cast<const int32_t*>(row_to_seq.get());
        p.context_lens = reinterpret_cast<const int32_t*>(lens.get());
        p.num_rows = chunk;
        p.num_seqs = 1;
        p.num_heads = shape.num_heads;
        p.scale = 1.f / std::sqrt(static_cast<float>(shape.head_dim));
        p.output = reinterpret_cast<float*>(output.get());
        p.host_row_to_seq = rows.data();
        p.max_context_len = prefix + chunk;
        const double ms = gpuMs([&] { backend->ops().paged_attention(p, backend->context()); });
        // A product with K and one with V, 2 operations for each value.
        const double flops = 4.0 * shape.num_heads * shape.head_dim * num_pairs;
        now.medians.emplace_back(casePlace(shape, chunk, prefix), ms);
        cases.push_back({{"shape", shape.name},
                         {"chunk", chunk},
                         {"prefix", prefix},
                         {"ms", ms},
                         {"tflops", flops / (ms / 1000) / 1e12}});
        char text[120];
        std::snprintf(text, sizeof text, "  %-22s %7d %8d %10.4f %8.1f", shape.name, chunk, prefix,
                      ms, flops / (ms / 1000) / 1e12);
        line(text);
    }

    // Llama-3.2-1B's shape but for its vocabulary, which a generated model does not need.
    std::shared_ptr<const ModelWeights> generatedModel() const {
        ModelConfig config;
        config.name = "generated";
        config.architecture = "llama";
        config.num_layers = quick ? 2 : 16;
        config.num_heads = quick ? 4 : 32;
        config.num_kv_heads = quick ? 2 : 8;
        config.head_dim = quick ? 16 : 64;
        config.rope_dim = config.head_dim;
        config.embedding_dim = config.num_heads * config.head_dim;
        config.feed_forward_dim = 4 * config.embedding_dim;
        config.vocab_size = quick ? 64 : 32000;
        config.context_len = 4096;
        return ModelWeights::random(config, 1, true, DataType::kF16);
    }

    void modelDecode() {
        line(
            "\nwhole-model decode, f16    batch  context   graphs ms    plain ms  tokens/s  of "
            "floor");
        std::shared_ptr<const ModelWeights> weights;
        for (const int batch : quick ? std::vector<int>{1, 2} : std::vector<int>{1, 8, 32}) {
            const std::string place = "batch_" + std::to_string(batch);
            if (!begins(place)) continue;
            if (!weights) {
                weights = generatedModel();
                // That has taken its time.
                if (!begins(place)) continue;
            }
            modelDecodeAt(weights, batch, quick ? 20 : 1024);
        }
    }

    void modelDecodeAt(const std::shared_ptr<const ModelWeights>& weights, int batch, int context) {
        const double graphs_ms = decodeStepMs(weights, batch, context, true);
        const double plain_ms = decodeStepMs(weights, batch, context, false);
        const ModelConfig& c = weights->config;
        const int64_t layer_values =
            int64_t{c.embedding_dim} *
            (int64_t{2} * c.num_heads * c.head_dim + int64_t{2} * c.num_kv_heads * c.head_dim +
             int64_t{3} * c.feed_forward_dim);
        // All weights once (the head is the embedding), and each sequence's K and V.
        const double bytes = 2.0 * static_cast<double>(c.num_layers * layer_values +
                                                       int64_t{c.vocab_size} * c.embedding_dim) +
                             static_cast<double>(batch) * context *
                                 static_cast<double>(c.kvBytesPerToken(DataType::kF16));
        const double floor_ms = 1000 * bytes / copy_bytes_per_s;
        const std::string place = "batch_" + std::to_string(batch);
        now.medians.emplace_back(place + "/graphs", graphs_ms);
        now.medians.emplace_back(place + "/plain", plain_ms);
        ratio(place + "_share_of_floor", floor_ms / graphs_ms,
              batch == 1 ? std::optional(0.75) : std::nullopt);
        ratio(place + "_plain_to_graphs", plain_ms / graphs_ms);
        cases.push_back({{"batch", batch},
                         {"context", context},
                         {"bytes", bytes},
                         {"graphs_ms", graphs_ms},
                         {"plain_ms", plain_ms},
                         {"plain_to_graphs", plain_ms / graphs_ms},
                         {"tokens_per_s", batch * 1000 / graphs_ms},
                         {"floor_ms", floor_ms},
                         {"share_of_floor", floor_ms / graphs_ms}});
        char text[160];
        std::snprintf(text, sizeof text, "  %-22s %7d %8d %11.3f %11.3f %9.0f %7.0f %%",
                      "generated model", batch, context, graphs_ms, plain_ms,
                      batch * 1000 / graphs_ms, 100 * floor_ms / graphs_ms);
        line(text);
    }

    // The median of whole steps as the engine sees them, uploads and logits included.
    double decodeStepMs(const std::shared_ptr<const ModelWeights>& weights,
                        int batch,
                        int context,
                        bool graphs) const {
        const std::unique_ptr<Backend> own = makeCudaBackend({.graphs = graphs});
        const ModelConfig& c = weights->config;
        Transformer transformer(weights, *own);
        PagedKvView kv;
        kv.dtype = DataType::kF16;
        kv.num_layers = c.num_layers;
        kv.block_size = kBlockSize;
        const int max_blocks = (context + kBlockSize - 1) / kBlockSize;
        kv.num_blocks = batch * max_blocks;
        kv.num_kv_heads = c.num_kv_heads;
        kv.head_dim = c.head_dim;
        const Backend::Memory memory = own->allocate(kv.numBytes(), "the bench's pool");
        kv.data = memory.get();
        StepBatch step;
        step.num_seqs = batch;
        step.max_blocks_per_seq = max_blocks;
        step.block_tables.resize(static_cast<size_t>(kv.num_blocks));
        std::iota(step.block_tables.begin(), step.block_tables.end(), 0);
        std::shuffle(step.block_tables.begin(), step.block_tables.end(), std::mt19937_64(2));
        for (int s = 0; s < batch; ++s) {
            step.token_ids.push_back((37 * s + 1) % c.vocab_size);
            step.positions.push_back(context - 1);
            step.slot_mapping.push_back(
                step.block_tables[static_cast<size_t>(s * max_blocks + max_blocks - 1)] *
                    kBlockSize +
                (context - 1) % kBlockSize);
            step.row_to_seq.push_back(s);
            step.context_lens.push_back(context);
            step.logit_rows.push_back(s);
        }
        std::vector<double> times;
        const int num_warm = quick ? 2 : 5;
        for (int i = 0; i < num_warm + (quick ? 1 : kStepRepeats); ++i) {
            if (i > num_warm && isLate()) break;
            const double start_ms = clock.nowMs();
            own->beginStep();
            transformer.forward(step, kv);
            own->endStep();
            if (i >= num_warm) times.push_back(clock.nowMs() - start_ms);
        }
        return median(std::move(times));
    }

    // Blocks of a Llama-3-8B-shaped pool to pinned memory and back: side by side, and scattered.
    void swapBandwidth() {
        PagedKvView kv;
        kv.dtype = DataType::kF16;
        kv.num_layers = quick ? 2 : 32;
        kv.num_blocks = quick ? 8 : 512;
        kv.block_size = kBlockSize;
        kv.num_kv_heads = 8;
        kv.head_dim = 128;
        PagedKvView host = kv;
        const Backend::Memory memory = filled(kv.numBytes());
        const Backend::Memory host_memory = backend->allocateHost(host.numBytes(), "the bench");
        kv.data = memory.get();
        host.data = host_memory.get();
        std::vector<BlockSwap> run;
        for (int i = 0; i < kv.num_blocks; ++i) run.push_back({i, i, kBlockSize});
        std::vector<BlockSwap> scattered = run;
        std::shuffle(scattered.begin(), scattered.end(), std::mt19937_64(3));
        line("\nswaps                      blocks      out GB/s     in GB/s");
        for (const bool is_run : {true, false}) {
            const std::vector<BlockSwap>& swaps = is_run ? run : scattered;
            if (!begins(is_run ? "side by side" : "scattered")) continue;
            const double out_ms = swapMs([&] { backend->swapOut(swaps, kv, host); });
            const double in_ms = swapMs([&] { backend->swapIn(swaps, kv, host); });
            const double gb = static_cast<double>(kv.numBytes()) / kGb;
            const char* const name = is_run ? "side by side" : "scattered";
            now.medians.emplace_back(std::string(name) + "/out", out_ms);
            now.medians.emplace_back(std::string(name) + "/in", in_ms);
            cases.push_back({{"blocks", name},
                             {"bytes", kv.numBytes()},
                             {"out_gb_per_s", gb / (out_ms / 1000)},
                             {"in_gb_per_s", gb / (in_ms / 1000)}});
            char text[120];
            std::snprintf(text, sizeof text, "  %-22s %8d %13.1f %11.1f", name, kv.num_blocks,
                          gb / (out_ms / 1000), gb / (in_ms / 1000));
            line(text);
        }
    }

    double swapMs(const std::function<void()>& work) const {
        std::vector<double> times;
        for (int i = 0; i < (quick ? 1 : kSwapRepeats + 1); ++i) {
            const double start_ms = clock.nowMs();
            backend->beginStep();
            work();
            backend->endStep();
            // The first one finds memory and a bus that were idle.
            if (quick || i > 0) times.push_back(clock.nowMs() - start_ms);
        }
        return median(std::move(times));
    }

    Json run(const std::vector<std::string>& names) {
        line(std::string("backend cuda, ") + backend->deviceName());
        for (const auto& part : kParts) {
            const bool is_chosen =
                names.empty() || std::find(names.begin(), names.end(), part.name) != names.end();
            // Shares are of the copy's speed: it is always measured.
            if (!is_chosen && part.run != &CudaBench::copyBandwidth) continue;
            now = {};
            now.name = part.name;
            now.unit = part.unit;
            now.num_repeats = quick ? 1 : part.num_repeats;
            // What one part cannot do costs no other.
            try {
                (this->*part.run)();
            } catch (const EngineError& error) {
                line(std::string("  ") + part.name + " failed: " + error.what());
                failures.push_back({{"name", part.name}, {"why", error.what()}});
            }
            finish();
        }
        return {{"device", backend->deviceName()},
                {"backend", backend->name()},
                {"threads", backend->numThreads()},
                {"model", "generated"},
                {"quick", quick},
                {"rounds_cut", isLate()},
                {"failures", std::move(failures)},
                {"benches", std::move(benches)}};
    }

    struct Part {
        const char* name;
        const char* unit;
        int num_repeats;
        void (CudaBench::*run)();
    };
    static const Part kParts[5];

    Extreme price_of_paging;
    Extreme attention_shares[std::size(kHeadShapes)];
};

constexpr CudaBench::Part CudaBench::kParts[5] = {
    {"copy", "ms", kGpuRepeats, &CudaBench::copyBandwidth},
    {"decode_attention", "ms a layer", kGpuRepeats, &CudaBench::decodeAttention},
    {"prefill_attention", "ms a layer", kGpuRepeats, &CudaBench::prefillAttention},
    {"model_decode", "ms a step", kStepRepeats, &CudaBench::modelDecode},
    {"swap", "ms", kSwapRepeats, &CudaBench::swapBandwidth}};

}  // namespace

std::string cudaBenchNames() {
    std::string names;
    for (const CudaBench::Part& part : CudaBench::kParts) {
        names += (names.empty() ? "" : ", ") + std::string(part.name);
    }
    return names;
}

Json runCudaBench(const std::vector<std::string>& names,
                  bool quick,
                  bool json,
                  const Clock& clock) {
    const std::string known = cudaBenchNames();
    for (const std::string& name : names) {
        if (std::none_of(std::begin(CudaBench::kParts), std::end(CudaBench::kParts),
                         [&](const CudaBench::Part& part) { return name == part.name; })) {
            throw EngineError(ErrorKind::kBadArgument,
                              "there is no bench " + quotedForMessage(name) +
                                  " with --backend cuda; choose among " + known);
        }
    }
    return CudaBench(quick, json, clock).run(names);
}

}  // namespace kvlab
