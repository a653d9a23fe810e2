// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include <QTest>

#include "engine/engine.h"
#include "engine/error.h"
#include "engine/model/weights.h"
#include "engine/trace/run_log.h"
#include "tests/support/tiny_model.h"

using namespace kvlab;

namespace {

std::shared_ptr<const ModelWeights> smallest() {
    static const auto model = ModelWeights::random(tinyConfig(2, 2, 1, 4), 3, true, DataType::kF32);
    return model;
}

EngineRequest requestOf(int prompt_len, int num_samples, int max_tokens, uint64_t seed) {
    std::mt19937_64 random(seed);
    EngineRequest request;
    for (int i = 0; i < prompt_len; ++i) {
        request.prompt.push_back(TokenId(static_cast<int>(random() % 61)));
    }
    request.num_samples = num_samples;
    request.max_tokens = max_tokens;
    request.sampling.temperature = 1.f;
    request.sampling.seed = seed;
    return request;
}

// By (request, sample): tokens, and logits by position.
struct Sample {
    std::vector<TokenId> tokens;
    std::map<int, std::vector<float>> logits;
    bool cancelled = false;
};
using Samples = std::map<std::pair<int, int>, Sample>;

struct Played {
    Samples samples;
    int64_t preemptions = 0, swapped_out = 0, recomputed = 0;
    std::string wrong;  // "" or the first broken rule
};

// Runs everything, submitting request i before step arrivals[i] and cancelling it before step
// cancels[i] (< 0: never); folds the log beside the engine and checks all books after each step.
Played play(const EngineConfig& config,
            const std::vector<EngineRequest>& requests,
            const std::vector<int>& arrivals = {},
            const std::vector<int>& cancels = {}) {
    Played played;
    Engine engine(smallest(), nullptr, config);
    std::map<int, std::map<int, std::vector<float>>> logits;  // by sequence
    engine.setLogitsObserver(
        [&](SequenceId sequence, int position, const float* row, int vocab_size) {
            auto& rows = logits[sequence.value];
            if (rows.count(position) != 0) played.wrong = "a token was chosen twice";
            rows[position].assign(row, row + vocab_size);
        });
    CacheState folded = initialState(engine.config().cache);
    size_t submitted = 0;
    for (int step = 0; step < 20'000; ++step) {
        while (submitted < requests.size() && (arrivals.empty() || arrivals[submitted] <= step)) {
            engine.submit(requests[submitted++]);
        }
        for (size_t i = 0; i < cancels.size() && i < submitted; ++i) {
            if (cancels[i] == step) engine.cancel(RequestId(static_cast<int64_t>(i)));
        }
        const std::shared_ptr<const StepTrace> trace = engine.step();
        if (!trace) {
            if (submitted == requests.size()) break;
            continue;
        }
        played.recomputed += trace->stats.num_recomputed_tokens;
        for (const Event& event : trace->events) {
            const int count = numEntries(event);
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
    for (const SequenceState& sequence : folded.sequences) {
        Sample& sample = played.samples[{sequence.request.value, sequence.sample_idx}];
        sample.tokens = sequence.tokens;
        sample.logits = logits[sequence.id.value];
        sample.cancelled = sequence.finish == FinishReason::kCancelled;
    }
    played.preemptions = account.preemptions;
    played.swapped_out = account.swapped_out;
    return played;
}

EngineConfig roomy() {
    EngineConfig config;
    config.cache.block_size = 16;
    config.cache.num_blocks = 100;
    config.cache.kv_dtype = DataType::kF32;
    config.num_threads = 1;
    return config;
}

// Each sample has the tokens and, bit for bit, the logits it has when its request runs alone; "" or
// what differs.
std::string difference(const Played& mix,
                       const std::vector<EngineRequest>& requests,
                       std::map<int, Samples>& alone) {
    if (!mix.wrong.empty()) return mix.wrong;
    for (int request = 0; request < static_cast<int>(requests.size()); ++request) {
        if (alone.count(request) == 0) {
            alone[request] = play(roomy(), {requests[static_cast<size_t>(request)]}).samples;
        }
        const EngineRequest& wanted = requests[static_cast<size_t>(request)];
        for (int idx = 0; idx < wanted.num_samples; ++idx) {
            const Sample& single = alone[request].at({0, idx});
            const auto found = mix.samples.find({request, idx});
            if (found == mix.samples.end() || found->second.cancelled) continue;
            const Sample& here = found->second;
            if (here.tokens != single.tokens) return "tokens differ";
            for (const auto& [position, row] : single.logits) {
                const auto other = here.logits.find(position);
                if (other == here.logits.end() || std::memcmp(other->second.data(), row.data(),
                                                              row.size() * sizeof(float)) != 0) {
                    return "logits differ at position " + std::to_string(position);
                }
            }
        }
    }
    return "";
}

}  // namespace

class PreemptionTest : public QObject {
    Q_OBJECT

  private slots:
    // Random mixes of requests, arrivals, cancels, priorities, layouts, block sizes, chunk sizes,
    // pools down to the smallest that holds one sequence, host pools, kinds of preemption.
    // KVLAB_SOAK multiplies them.
    void noMixChangesABit() {
        const int factor = std::max(1, qEnvironmentVariableIntValue("KVLAB_SOAK"));
        int64_t preemptions = 0, swapped_out = 0, recomputed = 0, cancelled = 0, slabs = 0;
        for (int round = 0; round < 2000 * factor; ++round) {
            std::mt19937_64 random(static_cast<uint64_t>(round) + 1);
            const auto below = [&](int n) {
                return static_cast<int>(random() % static_cast<uint64_t>(n));
            };
            std::vector<EngineRequest> requests;
            std::vector<int> arrivals, cancels;
            const int num_requests = 1 + below(4);
            int arrival = 0;
            for (int i = 0; i < num_requests; ++i) {
                requests.push_back(requestOf(1 + below(20), 1 + (below(3) == 0 ? below(3) : 0),
                                             1 + below(9), random()));
                requests.back().priority = below(3) == 0 ? below(3) : 0;
                arrivals.push_back(arrival);
                cancels.push_back(below(8) == 0 ? arrival + below(12) : -1);
                arrival += below(3) == 0 ? below(4) : 0;
            }
            EngineConfig config = roomy();
            const int block_sizes[] = {1, 2, 3, 4, 7, 16};
            config.cache.block_size = block_sizes[below(6)];
            int64_t least = 1;
            if (below(3) == 0) {
                config.cache.layout = CacheLayout::kSlab;
                config.cache.max_len = 29 + below(8);
                least = config.cache.runBlocks();
                ++slabs;
            }
            for (const EngineRequest& request : requests) {
                least = std::max(least, Engine::fewestBlocks(request, config.cache));
            }
            config.cache.num_blocks =
                static_cast<int>(least) + (below(2) == 0 ? 0 : below(static_cast<int>(least) + 2));
            config.cache.num_host_blocks = below(3) == 0 ? 0 : below(40);
            config.preempt = below(2) == 0 ? PreemptionKind::kSwap : PreemptionKind::kRecompute;
            config.token_budget = below(2) == 0 ? 1 + below(6) : 64;
            config.watermark = below(3) == 0 ? 0.2 : 0.01;
            config.num_threads = 1 + (round % 50 == 0 ? below(3) : 0);
            std::map<int, Samples> alone;
            const Played mix = play(config, requests, arrivals, cancels);
            const std::string wrong = difference(mix, requests, alone);
            QVERIFY2(
                wrong.empty(),
                qPrintable(QString("round %1: %2").arg(round).arg(QString::fromStdString(wrong))));
            preemptions += mix.preemptions;
            swapped_out += mix.swapped_out;
            recomputed += mix.recomputed;
            for (const auto& [key, sample] : mix.samples) cancelled += sample.cancelled;
        }
        qInfo(
            "%lld preemptions, %lld blocks swapped out, %lld tokens computed again, %lld "
            "cancelled, %lld slab mixes",
            static_cast<long long>(preemptions), static_cast<long long>(swapped_out),
            static_cast<long long>(recomputed), static_cast<long long>(cancelled),
            static_cast<long long>(slabs));
        QVERIFY(preemptions > 500 && swapped_out > 500 && recomputed > 500 && cancelled > 50);
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
