// SPDX-License-Identifier: MIT
#include "engine/model/sampler.h"

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <vector>

#include <QTest>

#include "engine/error.h"
#include "engine/model/counter_random.h"

namespace kvlab {
namespace {

// How often each token comes, over `num_draws` positions.
std::map<int, int> countTokens(const std::vector<float>& logits,
                               const SamplingParams& params,
                               int num_draws) {
    std::map<int, int> counts;
    for (int position = 0; position < num_draws; ++position) {
        const SampledToken sampled =
            sampleToken(logits.data(), static_cast<int>(logits.size()), params, 0, position);
        ++counts[sampled.token.value];
    }
    return counts;
}

}  // namespace

class SamplerTest : public QObject {
    Q_OBJECT

  private:
    static void expectError(ErrorKind kind, const char* part, const std::function<void()>& call) {
        try {
            call();
        } catch (const EngineError& error) {
            if (error.kind() != kind || std::string(error.what()).find(part) == std::string::npos) {
                QFAIL(error.what());
            }
            return;
        }
        QFAIL("no error was thrown");
    }

  private slots:
    void greedyTakesTheLowestIdAmongEquals() {
        const std::vector<float> logits = {1.f, 3.f, 3.f, 2.f};
        const SampledToken sampled = sampleToken(logits.data(), 4, {}, 0, 0);
        QCOMPARE(sampled.token, TokenId(1));
        // ln(e^3 / (e^1 + 2 e^3 + e^2))
        QCOMPARE(sampled.log_probability, -0.9175756f);
    }

    void logProbabilityIsTheModelsOwn() {
        const std::vector<float> logits = {0.f, std::log(3.f)};
        SamplingParams params;
        params.temperature = 0.25f;
        params.top_k = 1;
        const SampledToken sampled = sampleToken(logits.data(), 2, params, 0, 0);
        QCOMPARE(sampled.token, TokenId(1));
        QCOMPARE(sampled.log_probability, std::log(0.75f));
    }

    void drawsByProbability() {
        const std::vector<float> logits = {std::log(1.f), std::log(2.f), std::log(5.f), -200.f};
        SamplingParams params;
        params.temperature = 1.f;
        constexpr int kNumDraws = 40000;
        std::map<int, int> counts = countTokens(logits, params, kNumDraws);
        // Chi-square, 2 degrees of freedom: 13.8 has probability 0.001.
        double chi_square = 0.0;
        const double shares[] = {0.125, 0.25, 0.625};
        for (int id = 0; id < 3; ++id) {
            const double expected = shares[id] * kNumDraws;
            chi_square += (counts[id] - expected) * (counts[id] - expected) / expected;
        }
        QVERIFY2(chi_square < 13.8, qPrintable(QString::number(chi_square)));
        QCOMPARE(counts[3], 0);
        params.temperature = 0.5f;  // squares the odds: 1 : 4 : 25
        counts = countTokens(logits, params, kNumDraws);
        QVERIFY(std::abs(counts[2] / double{kNumDraws} - 25.0 / 30.0) < 0.01);
        QVERIFY(std::abs(counts[0] / double{kNumDraws} - 1.0 / 30.0) < 0.01);
    }

    void topKKeepsTheBestAndTheLowestIds() {
        const std::vector<float> logits = {1.f, 2.f, 1.f, 3.f, 1.f};
        SamplingParams params;
        params.temperature = 10.f;
        params.top_k = 3;
        const std::map<int, int> counts = countTokens(logits, params, 2000);
        QCOMPARE(counts.size(), size_t{3});
        QVERIFY(counts.count(0) == 1 && counts.count(1) == 1 && counts.count(3) == 1);
        params.top_k = 1;
        QCOMPARE(countTokens(logits, params, 100).begin()->first, 3);
    }

    void topPKeepsTheSmallestSetThatReachesIt() {
        // Probabilities 0.5, 0.25, 0.125, 0.125.
        const std::vector<float> logits = {std::log(4.f), std::log(2.f), 0.f, 0.f};
        SamplingParams params;
        params.temperature = 1.f;
        params.top_p = 0.5f;
        QCOMPARE(countTokens(logits, params, 500).size(), size_t{1});
        params.top_p = 0.51f;
        QCOMPARE(countTokens(logits, params, 500).size(), size_t{2});
        params.top_p = 0.76f;
        QVERIFY(countTokens(logits, params, 500).count(2) == 1);
        QVERIFY(countTokens(logits, params, 500).count(3) == 0);
        params.top_p = 1e-9f;
        QCOMPARE(countTokens(logits, params, 500).size(), size_t{1});
        // top_p counts within what top_k left: 2/3 of {0.5, 0.25} is the first alone.
        params.top_k = 2;
        params.top_p = 0.6f;
        QCOMPARE(countTokens(logits, params, 500).size(), size_t{1});
    }

    void numbersDependOnSeedSampleAndPositionOnly() {
        std::vector<float> logits(100, 0.f);
        SamplingParams params;
        params.temperature = 1.f;
        params.seed = 99;
        const auto draw = [&](int sample_idx, int position) {
            return sampleToken(logits.data(), 100, params, sample_idx, position).token.value;
        };
        std::vector<int> forwards;
        for (int i = 0; i < 50; ++i) forwards.push_back(draw(1, i));
        for (int i = 49; i >= 0; --i) QCOMPARE(draw(1, i), forwards[static_cast<size_t>(i)]);
        int same_as_other_sample = 0;
        int same_as_other_seed = 0;
        for (int i = 0; i < 50; ++i) {
            same_as_other_sample += draw(2, i) == forwards[static_cast<size_t>(i)] ? 1 : 0;
        }
        params.seed = 100;
        for (int i = 0; i < 50; ++i) {
            same_as_other_seed += draw(1, i) == forwards[static_cast<size_t>(i)] ? 1 : 0;
        }
        QVERIFY(same_as_other_sample < 8);
        QVERIFY(same_as_other_seed < 8);
        // A cut that cuts nothing changes nothing.
        params.seed = 99;
        params.top_k = 100;
        for (int i = 0; i < 50; ++i) QCOMPARE(draw(1, i), forwards[static_cast<size_t>(i)]);
    }

    // Golden: a trace made today must replay for ever.
    void counterRandomNeverChanges() {
        QCOMPARE(counterRandom(0, 0, 0), kGolden000);
        QCOMPARE(counterRandom(1, 2, 3), kGolden123);
        QCOMPARE(counterRandom(~uint64_t{0}, 1, 1), kGoldenMax);
        double sum = 0.0;
        for (uint64_t i = 0; i < 10000; ++i) {
            const double value = counterUniform(7, 1, i);
            QVERIFY(value >= 0.0 && value < 1.0);
            sum += value;
        }
        QVERIFY(std::abs(sum / 10000 - 0.5) < 0.01);
    }

    void survivesExtremes() {
        SamplingParams params;
        params.temperature = std::numeric_limits<float>::min();
        const std::vector<float> logits = {-3e38f, 3e38f, 1.f};
        QCOMPARE(sampleToken(logits.data(), 3, params, 0, 0).token, TokenId(1));
        QCOMPARE(sampleToken(logits.data(), 3, params, 0, 0).log_probability, 0.f);
        params.temperature = std::numeric_limits<float>::max();
        sampleToken(logits.data(), 3, params, 0, std::numeric_limits<int>::max());
        const float single = -7.f;
        QCOMPARE(sampleToken(&single, 1, params, 0, 0).token, TokenId(0));
    }

    void refusesBadInput() {
        const float good[] = {1.f, 2.f};
        for (const float bad :
             {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
              -std::numeric_limits<float>::infinity()}) {
            const float logits[] = {1.f, bad};
            expectError(ErrorKind::kBadFile, "token 1 at position 4",
                        [&] { sampleToken(logits, 2, {}, 0, 4); });
            expectError(ErrorKind::kBadFile, "token 1 at position 4",
                        [&] { checkLogits(logits, 2, 4); });
        }
        checkLogits(good, 2, 4);
        const auto expectParams = [&](const char* part, float temperature, int top_k, float top_p) {
            SamplingParams params;
            params.temperature = temperature;
            params.top_k = top_k;
            params.top_p = top_p;
            expectError(ErrorKind::kBadArgument, part, [&] { sampleToken(good, 2, params, 0, 0); });
        };
        expectParams("temperature", -1.f, 0, 1.f);
        expectParams("temperature", std::nanf(""), 0, 1.f);
        expectParams("temperature", INFINITY, 0, 1.f);
        expectParams("top-k", 1.f, -1, 1.f);
        expectParams("top-p", 1.f, 0, 0.f);
        expectParams("top-p", 1.f, 0, 1.5f);
        expectParams("top-p", 1.f, 0, std::nanf(""));
        expectError(ErrorKind::kBadArgument, "logits", [&] { sampleToken(good, 0, {}, 0, 0); });
        expectError(ErrorKind::kBadArgument, "position", [&] { sampleToken(good, 2, {}, 0, -1); });
    }

  private:
    static constexpr uint64_t kGolden000 = 0x238275bc38fcbe91u;
    static constexpr uint64_t kGolden123 = 0x6ae515c1c0ac7e37u;
    static constexpr uint64_t kGoldenMax = 0x439d351c3f034c15u;
};

}  // namespace kvlab

using kvlab::SamplerTest;
QTEST_GUILESS_MAIN(SamplerTest)
#include "sampler_test.moc"
