// SPDX-License-Identifier: MIT
#include "engine/scheduling/beam_search.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <QTest>

#include "engine/engine.h"
#include "engine/model/weights.h"
#include "tests/support/tiny_model.h"

using namespace kvlab;

namespace {

constexpr int kVocab = 61;

std::shared_ptr<const ModelWeights> smallest() {
    static const auto model = ModelWeights::random(tinyConfig(2, 2, 1, 4), 3, true, DataType::kF32);
    return model;
}

EngineConfig configOf(int block_size, int num_blocks) {
    EngineConfig config;
    config.cache.block_size = block_size;
    config.cache.num_blocks = num_blocks;
    config.cache.kv_dtype = DataType::kF32;
    config.num_threads = 1;
    return config;
}

EngineRequest requestOf(int prompt_len, int num_beams, int max_tokens, int seed) {
    EngineRequest request;
    for (int i = 0; i < prompt_len; ++i) request.prompt.push_back(TokenId((i * 7 + seed) % kVocab));
    request.num_beams = num_beams;
    request.max_tokens = max_tokens;
    return request;
}

// Natural log-probabilities after `tokens`, in double, from the logits of a run of its own.
std::vector<double> logProbabilitiesAfter(const std::vector<TokenId>& tokens) {
    Engine engine(smallest(), nullptr, configOf(16, 20));
    std::vector<double> values;
    engine.setLogitsObserver(
        [&](SequenceId, int, const float* row, int size) { values.assign(row, row + size); });
    EngineRequest request;
    request.prompt = tokens;
    request.max_tokens = 1;
    engine.submit(request);
    engine.step();
    double sum = 0;
    for (const double value : values) sum += std::exp(value);
    for (double& value : values) value -= std::log(sum);
    return values;
}

struct Text {
    std::vector<TokenId> tokens;
    double sum = 0;
};

// Beam search as the textbook has it: all continuations of all beams, sorted.
std::vector<Text> naiveBeams(const EngineRequest& request) {
    std::vector<Text> beams{{request.prompt, 0}};
    for (int step = 0; step < request.max_tokens; ++step) {
        std::vector<Text> all;
        for (const Text& beam : beams) {
            const std::vector<double> values = logProbabilitiesAfter(beam.tokens);
            for (int token = 0; token < kVocab; ++token) {
                all.push_back(beam);
                all.back().tokens.push_back(TokenId(token));
                all.back().sum += values[static_cast<size_t>(token)];
            }
        }
        std::sort(all.begin(), all.end(),
                  [](const Text& a, const Text& b) { return a.sum > b.sum; });
        all.resize(static_cast<size_t>(request.num_beams));
        beams = std::move(all);
    }
    return beams;
}

// Finished texts of a request, best first.
std::vector<Text> beamsOf(const CacheState& state, int request) {
    std::vector<Text> texts;
    for (const SequenceState& sequence : state.sequences) {
        if (sequence.request == RequestId(request) && sequence.finish == FinishReason::kLength) {
            texts.push_back({sequence.tokens, sequence.log_probability});
        }
    }
    std::sort(texts.begin(), texts.end(),
              [](const Text& a, const Text& b) { return a.sum > b.sum; });
    return texts;
}

CacheState play(const EngineConfig& config,
                const std::vector<EngineRequest>& requests,
                int64_t* preemptions = nullptr) {
    Engine engine(smallest(), nullptr, config);
    for (const EngineRequest& request : requests) engine.submit(request);
    CacheState folded = initialState(config.cache);
    while (const auto step = engine.step()) {
        for (const Event& event : step->events) apply(folded, event);
        if (!(folded == engine.state())) qFatal("the folded log differs from the engine's state");
        const std::string broken = checkInvariants(folded);
        if (!broken.empty()) qFatal("%s", broken.c_str());
    }
    if (preemptions) *preemptions += engine.numPreemptions();
    return folded;
}

}  // namespace

class BeamSearchTest : public QObject {
    Q_OBJECT

  private slots:
    void theBestOfAllContinuationsAreFound() {
        std::mt19937_64 random(2);
        std::vector<std::vector<float>> logits(3, std::vector<float>(kVocab));
        std::vector<BeamRow> rows;
        std::vector<std::tuple<double, int, int>> all;
        for (size_t beam = 0; beam < logits.size(); ++beam) {
            double sum = 0;
            for (float& value : logits[beam]) {
                value = static_cast<float>(random() % 1000) / 100.f;
                sum += std::exp(double{value});
            }
            rows.push_back({logits[beam].data(), -1.5 * static_cast<double>(beam)});
            for (int token = 0; token < kVocab; ++token) {
                all.emplace_back(-(rows[beam].log_probability +
                                   logits[beam][static_cast<size_t>(token)] - std::log(sum)),
                                 static_cast<int>(beam), token);
            }
        }
        std::sort(all.begin(), all.end());
        const auto best = bestContinuations(rows, kVocab, 8);
        QCOMPARE(best.size(), size_t{8});
        for (size_t i = 0; i < best.size(); ++i) {
            QVERIFY(std::abs(best[i].log_probability + std::get<0>(all[i])) < 1e-5);
        }
    }

    void endedTextsHoldAgainstLiveOnes() {
        const auto end = [](TokenId token) { return token == TokenId(2); };
        const auto at = [](int beam, int token, double sum) {
            return BeamCandidate{beam, TokenId(token), 0, sum};
        };
        std::vector<double> finished;
        BeamStep step =
            chooseBeams({at(0, 2, -1), at(1, 5, -2), at(0, 4, -3), at(1, 2, -4)}, 2, end, finished);
        QCOMPARE(step.finished.size(), size_t{1});  // the last one is not among the best two
        QCOMPARE(step.live.size(), size_t{2});
        QCOMPARE(step.live[0].token, TokenId(5));
        // A second ended text at -3: of the live ones only what is better can still win.
        step = chooseBeams({at(0, 5, -2.5), at(1, 2, -3), at(1, 7, -3.5), at(0, 9, -9)}, 2, end,
                           finished);
        QCOMPARE(step.finished.size(), size_t{1});
        QCOMPARE(step.live.size(), size_t{1});
        QCOMPARE(step.live[0].token, TokenId(5));
        // Without an end token everything goes on.
        finished.clear();
        step = chooseBeams(
            {at(0, 2, -1), at(1, 5, -2)}, 2, [](TokenId) { return false; }, finished);
        QVERIFY(step.finished.empty() && step.live.size() == 2);
    }

    void theEnginesBeamsAreTheTextbooks() {
        const EngineRequest request = requestOf(9, 4, 6, 1);
        const std::vector<Text> expected = naiveBeams(request);
        const std::vector<Text> found = beamsOf(play(configOf(4, 40), {request}), 0);
        QCOMPARE(found.size(), expected.size());
        for (size_t i = 0; i < found.size(); ++i) {
            QCOMPARE(found[i].tokens, expected[i].tokens);
            QVERIFY(std::abs(found[i].sum - expected[i].sum) < 1e-4);
        }
    }

    // Beams are preempted together, swapped or computed again, and nothing changes.
    void preemptionChangesNoBeam() {
        const std::vector<EngineRequest> requests{requestOf(9, 3, 8, 1), requestOf(5, 2, 9, 2),
                                                  requestOf(12, 4, 6, 3), requestOf(7, 1, 9, 4)};
        std::vector<std::vector<Text>> alone;
        for (const EngineRequest& request : requests) {
            alone.push_back(beamsOf(play(configOf(16, 60), {request}), 0));
        }
        int64_t preemptions = 0;
        for (int round = 0; round < 120; ++round) {
            EngineConfig config = configOf(1 + round % 5, 0);
            int64_t least = 0;
            for (const EngineRequest& request : requests) {
                least = std::max(least, Engine::fewestBlocks(request, config.cache));
            }
            config.cache.num_blocks = static_cast<int>(least) + round % 4;
            config.cache.num_host_blocks = round % 3 == 0 ? 0 : 10 * (round % 7);
            config.preempt = round % 2 == 0 ? PreemptionKind::kSwap : PreemptionKind::kRecompute;
            config.token_budget = 1 + round % 30;
            const CacheState state = play(config, requests, &preemptions);
            for (size_t i = 0; i < requests.size(); ++i) {
                const std::vector<Text> here = beamsOf(state, static_cast<int>(i));
                QCOMPARE(here.size(), alone[i].size());
                for (size_t beam = 0; beam < here.size(); ++beam) {
                    QCOMPARE(here[beam].tokens, alone[i][beam].tokens);
                    QCOMPARE(here[beam].sum, alone[i][beam].sum);
                }
            }
        }
        QVERIFY(preemptions > 50);
    }
};

QTEST_GUILESS_MAIN(BeamSearchTest)
#include "beam_search_test.moc"
