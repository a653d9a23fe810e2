// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <stdexcept>

#include <QFile>
#include <QTest>

#include "engine/engine.h"
#include "engine/error.h"
#include "engine/model/model_loader.h"
#include "engine/model/weights.h"
#include "engine/trace/run_log.h"
#include "tests/support/tiny_model.h"

using namespace kvlab;

namespace {

// Fewer than 10,000 parameters. `windows`: one a layer, or none.
std::shared_ptr<const ModelWeights> smallest(const std::vector<int>& windows = {}) {
    static std::map<std::vector<int>, std::shared_ptr<const ModelWeights>> made;
    std::shared_ptr<const ModelWeights>& model = made[windows];
    if (!model) {
        ModelConfig config = tinyConfig(2, 2, 1, 4);
        config.layer_windows = windows;
        model = ModelWeights::random(config, 3, true, DataType::kF32);
    }
    return model;
}

EngineRequest requestOf(
    int prompt_len, int num_samples, int max_tokens, uint64_t seed, int vocab_size = 61) {
    std::mt19937_64 random(seed);
    EngineRequest request;
    for (int i = 0; i < prompt_len; ++i) {
        request.prompt.push_back(
            TokenId(static_cast<int64_t>(random() % static_cast<uint64_t>(vocab_size))));
    }
    request.num_samples = num_samples;
    request.max_tokens = max_tokens;
    request.sampling.temperature = 1.f;
    request.sampling.seed = seed;
    return request;
}

// What came of a request. Rows of logits are named by the tokens that they continue, so that it
// does not matter which of two beams was the copy.
struct Outcome {
    std::vector<std::vector<TokenId>> texts;  // samples in order; beams sorted
    std::map<std::vector<TokenId>, std::vector<std::vector<float>>> rows;
    bool cancelled = false;
};

struct Played {
    std::map<int, Outcome> outcomes;  // by request
    int64_t preemptions = 0, swapped_out = 0, recomputed = 0, left_window = 0;
    std::string wrong;  // "" or the first broken rule
};

// A mix: what runs, when it comes and goes, and on what.
struct Mix {
    std::shared_ptr<const ModelWeights> model;
    EngineConfig config;
    std::vector<EngineRequest> requests;
    std::vector<int> arrivals;                 // request i is submitted before this step; empty: 0
    std::vector<std::pair<int, int>> cancels;  // before step, request
};

// A table whose tokens all are in the pool holds no more than its window's blocks.
bool holdsOnlyItsWindow(const CacheState& state, const CacheConfig& cache) {
    if (cache.window == 0 || cache.layout == CacheLayout::kSlab) return true;
    const int seen_before = std::max(cache.window, 2) - 1;
    const int most = (seen_before + cache.block_size - 1) / cache.block_size + 1;
    return std::all_of(
        state.sequences.begin(), state.sequences.end(), [&](const SequenceState& sequence) {
            return static_cast<int>(sequence.table.size()) - sequence.num_left <= most;
        });
}

// Runs everything; folds the log beside the engine and checks all books after each step.
Played play(const Mix& mix) {
    Played played;
    Engine engine(mix.model, nullptr, mix.config);
    std::map<int, std::map<int, std::vector<float>>> logits;  // by sequence, by position
    engine.setLogitsObserver(
        [&](SequenceId sequence, int position, const float* row, int vocab_size) {
            auto& rows = logits[sequence.value];
            if (rows.count(position) != 0) played.wrong = "a token was chosen twice";
            rows[position].assign(row, row + vocab_size);
        });
    CacheState folded = initialState(engine.config().cache);
    size_t submitted = 0;
    for (int step = 0; step < 20'000; ++step) {
        while (submitted < mix.requests.size() &&
               (mix.arrivals.empty() || mix.arrivals[submitted] <= step)) {
            engine.submit(mix.requests[submitted++]);
        }
        for (const auto& [when, request] : mix.cancels) {
            if (when == step) engine.cancel(RequestId(request));
        }
        const std::shared_ptr<const StepTrace> trace = engine.step();
        if (!trace) {
            if (submitted == mix.requests.size()) break;
            continue;
        }
        played.recomputed += trace->stats.num_recomputed_tokens;
        for (const Event& event : trace->events) {
            const int count = numEntries(event);
            if (std::holds_alternative<BlocksLeftWindow>(event)) played.left_window += count;
            for (int entry = 0; entry < count; ++entry) {
                applyEntry(folded, event, entry);
                const std::string broken = checkInvariants(folded);
                if (!broken.empty()) {
                    played.wrong = broken;
                    return played;
                }
                if (describeEntry(event, entry).empty()) played.wrong = "an event has no words";
            }
        }
        if (!(folded == engine.state())) {
            played.wrong = "the folded log differs from the engine's state";
            return played;
        }
        if (!holdsOnlyItsWindow(folded, engine.config().cache)) {
            played.wrong = "a sequence holds blocks that no token to come sees";
            return played;
        }
    }
    if (engine.hasWork()) played.wrong = "the run does not end";
    if (const auto last = engine.releaseFinished()) {
        for (const Event& event : last->events) apply(folded, event);
    }
    const PoolAccount account = accountOf(folded);
    if (account.free_blocks != account.total_blocks ||
        account.host_free_blocks != account.host_total_blocks) {
        played.wrong = "blocks are still held when all have left";
    }
    std::map<int, std::map<int, std::vector<TokenId>>> samples;  // by request, by sample
    for (const SequenceState& sequence : folded.sequences) {
        Outcome& outcome = played.outcomes[sequence.request.value];
        samples[sequence.request.value][sequence.sample_idx] = sequence.tokens;
        outcome.cancelled |= sequence.finish == FinishReason::kCancelled;
        for (const auto& [position, row] : logits[sequence.id.value]) {
            const std::vector<TokenId> context(sequence.tokens.begin(),
                                               sequence.tokens.begin() + position + 1);
            outcome.rows[context].push_back(row);
        }
    }
    for (auto& [request, outcome] : played.outcomes) {
        // Samples that waited for a slab leave no trace when they are cancelled.
        outcome.cancelled |=
            engine.timings()[static_cast<size_t>(request)].finish == FinishReason::kCancelled;
        for (const auto& [idx, tokens] : samples[request]) outcome.texts.push_back(tokens);
        if (mix.requests[static_cast<size_t>(request)].num_beams > 1) {
            std::sort(outcome.texts.begin(), outcome.texts.end());
        }
    }
    played.preemptions = account.preemptions;
    played.swapped_out = account.swapped_out;
    return played;
}

EngineConfig roomy(DataType kv_dtype = DataType::kF32) {
    EngineConfig config;
    config.cache.block_size = 16;
    config.cache.num_blocks = 100;
    config.cache.kv_dtype = kv_dtype;
    config.num_threads = 1;
    return config;
}

// The request alone, on one thread, with room for everything. In a slab, which gives nothing back
// before its end, wherever a slab can: beams need tables.
Outcome alone(const Mix& mix, int request) {
    Mix single;
    single.model = mix.model;
    single.config = roomy(mix.config.cache.kv_dtype);
    single.requests = {mix.requests[static_cast<size_t>(request)]};
    if (single.requests[0].num_beams == 1) {
        single.config.cache.layout = CacheLayout::kSlab;
        single.config.cache.max_len =
            static_cast<int>(single.requests[0].prompt.size()) + single.requests[0].max_tokens;
        single.config.cache.num_blocks =
            static_cast<int>(Engine::worstCaseBlocks(single.requests[0], single.config.cache));
    }
    Played played = play(single);
    if (!played.wrong.empty()) throw std::runtime_error("alone: " + played.wrong);
    return played.outcomes[0];
}

// Each request has the tokens and, bit for bit, the logits that it has alone; a cancelled one as
// far as it came. "" or what differs.
std::string difference(const Mix& mix, const Played& played) {
    if (!played.wrong.empty()) return played.wrong;
    for (int request = 0; request < static_cast<int>(mix.requests.size()); ++request) {
        const auto found = played.outcomes.find(request);
        if (found == played.outcomes.end()) continue;  // cancelled before it started
        const Outcome single = alone(mix, request);
        const Outcome& here = found->second;
        const std::string whose = " of request " + std::to_string(request);
        if (!here.cancelled && here.texts != single.texts) return "tokens differ" + whose;
        if (!here.cancelled && here.rows.size() != single.rows.size()) {
            return "another number of rows" + whose;
        }
        for (const auto& [context, rows] : here.rows) {
            const auto other = single.rows.find(context);
            if (other == single.rows.end()) return "other tokens were continued" + whose;
            for (const std::vector<float>& row : rows) {
                if (std::memcmp(row.data(), other->second[0].data(), row.size() * sizeof(float)) !=
                    0) {
                    return "logits differ after " + std::to_string(context.size()) + " tokens" +
                           whose;
                }
            }
        }
    }
    return "";
}

// What a round of mixes is drawn from.
struct Limits {
    int vocab_size = 61;
    int longest_prompt = 20, longest_text = 9;  // tokens
    int fewest_requests = 1;
};

// Random requests, arrivals, cancels, priorities, samples, beams, layouts, block sizes, KV types,
// chunk sizes, thread counts, pools down to the smallest that holds one request, host pools, kinds
// of preemption.
Mix mixOf(std::shared_ptr<const ModelWeights> model, uint64_t seed, const Limits& limits) {
    std::mt19937_64 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
    Mix mix;
    mix.model = std::move(model);
    mix.config = roomy();
    CacheConfig& cache = mix.config.cache;
    const bool slab = below(3) == 0;
    const int num_requests = limits.fewest_requests + below(4);
    int arrival = 0;
    for (int i = 0; i < num_requests; ++i) {
        EngineRequest request =
            requestOf(1 + below(limits.longest_prompt), 1 + (below(3) == 0 ? below(3) : 0),
                      1 + below(limits.longest_text), random(), limits.vocab_size);
        if (!slab && below(5) == 0) {
            request.num_samples = 1;
            request.num_beams = 2 + below(2);
        }
        request.priority = below(3) == 0 ? below(3) : 0;
        mix.requests.push_back(std::move(request));
        mix.arrivals.push_back(arrival);
        for (int times = below(6) == 0 ? 1 + below(2) : 0; times > 0; --times) {
            mix.cancels.emplace_back(arrival + below(below(2) == 0 ? 6 : 60), i);
        }
        arrival += below(3) == 0 ? below(4) : 0;
    }
    const int block_sizes[] = {1, 2, 3, 4, 7, 16};
    cache.block_size = block_sizes[below(6)];
    const DataType types[] = {DataType::kF32, DataType::kF16, DataType::kBF16, DataType::kInt8};
    cache.kv_dtype = types[below(4)];
    cache.window = mix.model->config.uniformWindow();
    int64_t least = 1;
    if (slab) {
        cache.layout = CacheLayout::kSlab;
        cache.max_len = limits.longest_prompt + limits.longest_text + below(8);
        cache.slab_per_request = below(2) == 0;
    }
    for (const EngineRequest& request : mix.requests) {
        least = std::max(least, Engine::fewestBlocks(request, cache));
    }
    cache.num_blocks =
        static_cast<int>(least) + (below(2) == 0 ? 0 : below(static_cast<int>(least) + 2));
    cache.num_host_blocks = below(4) == 0 ? 0 : below(60);
    mix.config.preempt = below(5) < 3 ? PreemptionKind::kSwap : PreemptionKind::kRecompute;
    mix.config.token_budget = below(2) == 0 ? 1 + below(6) : 64;
    mix.config.watermark = below(3) == 0 ? 0.2 : 0.01;
    mix.config.num_threads = 1 + below(4);
    return mix;
}

int soakFactor() { return std::max(1, qEnvironmentVariableIntValue("KVLAB_SOAK")); }

}  // namespace

class PreemptionTest : public QObject {
    Q_OBJECT

  private slots:
    // On generated models: without a window, with one that all layers share (blocks are given
    // back), with one in some layers (it only masks). KVLAB_SOAK multiplies the rounds.
    void noMixChangesABit() {
        int64_t preemptions = 0, swapped_out = 0, recomputed = 0, left_window = 0;
        int64_t cancelled = 0, slabs = 0, beams = 0;
        std::map<int, int> of_threads, of_type;
        for (int round = 0; round < 2000 * soakFactor(); ++round) {
            const int window = 1 + round / 4 % 9;
            std::vector<int> windows;
            if (round % 4 == 2) windows = {window, window};
            if (round % 4 == 3) windows = {window, 0};
            const Mix mix = mixOf(smallest(windows), static_cast<uint64_t>(round) + 1, Limits());
            const Played played = play(mix);
            const std::string wrong = difference(mix, played);
            QVERIFY2(
                wrong.empty(),
                qPrintable(QString("round %1: %2").arg(round).arg(QString::fromStdString(wrong))));
            preemptions += played.preemptions;
            swapped_out += played.swapped_out;
            recomputed += played.recomputed;
            left_window += played.left_window;
            for (const auto& [request, outcome] : played.outcomes) cancelled += outcome.cancelled;
            slabs += mix.config.cache.layout == CacheLayout::kSlab;
            for (const EngineRequest& request : mix.requests) beams += request.num_beams > 1;
            ++of_threads[mix.config.num_threads];
            ++of_type[static_cast<int>(mix.config.cache.kv_dtype)];
        }
        qInfo(
            "%lld preemptions, %lld blocks swapped out, %lld tokens computed again, %lld blocks "
            "left a window, %lld cancelled, %lld beam searches, %lld slab mixes",
            static_cast<long long>(preemptions), static_cast<long long>(swapped_out),
            static_cast<long long>(recomputed), static_cast<long long>(left_window),
            static_cast<long long>(cancelled), static_cast<long long>(beams),
            static_cast<long long>(slabs));
        QVERIFY(preemptions > 500 && swapped_out > 500 && recomputed > 500 && cancelled > 50);
        QVERIFY(left_window > 500 && beams > 200 && slabs > 400);
        for (const int count : {1, 2, 3, 4}) QVERIFY(of_threads[count] > 300);
        QCOMPARE(of_type.size(), size_t{4});
        for (const auto& [type, count] : of_type) QVERIFY(count > 300);
    }

    // The same on the bundled model. KVLAB_SOAK multiplies the rounds.
    void noMixChangesABitOfTheBundledModel() {
        const QString bundled = QStringLiteral(KVLAB_SOURCE_DIR "/assets/model/village.gguf");
        if (!QFile::exists(bundled)) QSKIP("assets/model/village.gguf is not there");
        const auto model = loadModel(bundled.toStdString()).weights;
        Limits limits;
        limits.vocab_size = model->config.vocab_size;
        limits.longest_prompt = 40;
        limits.longest_text = 32;
        limits.fewest_requests = 3;
        int64_t preemptions = 0;
        for (int round = 0; round < 50 * soakFactor(); ++round) {
            const Mix mix = mixOf(model, static_cast<uint64_t>(round) + 77'000, limits);
            const Played played = play(mix);
            const std::string wrong = difference(mix, played);
            QVERIFY2(
                wrong.empty(),
                qPrintable(QString("round %1: %2").arg(round).arg(QString::fromStdString(wrong))));
            preemptions += played.preemptions;
        }
        qInfo("%lld preemptions", static_cast<long long>(preemptions));
        QVERIFY(preemptions > 20);
    }

    // 90 tokens through a window of 6 in the smallest pool: 3 blocks of 4, however long the text,
    // where everything would need 23; and no other block size asks for more than its arithmetic.
    void aWindowBoundsWhatALongTextHolds() {
        Mix mix;
        mix.model = smallest({6, 6});
        mix.requests = {requestOf(60, 1, 31, 5)};
        for (const int block_size : {1, 3, 4, 16}) {
            mix.config = roomy();
            mix.config.cache.block_size = block_size;
            mix.config.cache.window = 6;
            const int most = (5 + block_size - 1) / block_size + 1;
            QCOMPARE(Engine::fewestBlocks(mix.requests[0], mix.config.cache), int64_t{most});
            mix.config.cache.num_blocks = most;
            const Played played = play(mix);
            const std::string wrong = difference(mix, played);
            QVERIFY2(wrong.empty(), wrong.c_str());
            QCOMPARE(played.preemptions, int64_t{0});
            // Position 90 has no K/V; it would see from 85 on.
            QCOMPARE(played.left_window, int64_t{(90 + 1 - 6) / block_size});
        }
        mix.config.cache.block_size = 4;
        mix.config.cache.num_blocks = 3;
        mix.model = smallest({6, 0});  // the second layer sees everything: nothing can be freed
        QVERIFY_THROWS_EXCEPTION(EngineError, play(mix));
    }

    // Samples of one request are in each other's way; with room on the host they come back from
    // there, and nothing is computed twice.
    void samplesSwapWhileTheirSiblingsRun() {
        EngineConfig config;
        config.cache.block_size = 4;
        config.cache.num_blocks = 16;
        config.cache.num_host_blocks = 64;
        config.cache.kv_dtype = DataType::kF32;
        config.preempt = PreemptionKind::kSwap;
        config.num_threads = 1;
        Engine engine(smallest(), nullptr, config);
        engine.submit(requestOf(6, 5, 30, 1));
        int64_t recomputed = 0;
        while (const auto step = engine.step()) {
            for (const Event& event : step->events) {
                if (const auto* given_way = std::get_if<SequencesPreempted>(&event)) {
                    recomputed += std::count(given_way->kind.begin(), given_way->kind.end(),
                                             PreemptionKind::kRecompute);
                }
            }
        }
        const PoolAccount account = accountOf(engine.state());
        QVERIFY(account.swapped_out > 0);
        QCOMPARE(account.swapped_in, account.swapped_out);
        QCOMPARE(recomputed, 0);
    }
};

QTEST_GUILESS_MAIN(PreemptionTest)
#include "preemption_test.moc"
