// SPDX-License-Identifier: MIT
#include "kernels/online_softmax.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <QtTest>

using kvlab::OnlineSoftmax;

namespace {

// State and weighted sum of `values` over scores [begin, end), in tiles.
struct Partial {
    OnlineSoftmax state;
    float output = 0.f;

    void add(const std::vector<float>& scores,
             const std::vector<float>& values,
             size_t begin,
             size_t end,
             size_t tile) {
        for (size_t i = begin; i < end; i += tile) {
            const size_t stop = std::min(i + tile, end);
            output *= state.raise(*std::max_element(scores.begin() + static_cast<long>(i),
                                                    scores.begin() + static_cast<long>(stop)));
            for (size_t j = i; j < stop; ++j) {
                const float weight = state.weight(scores[j]);
                state.sum += weight;
                output += weight * values[j];
            }
        }
    }

    void merge(const Partial& other) {
        const OnlineSoftmax::MergeFactors factors = state.merge(other.state);
        output = output * factors.own + other.output * factors.theirs;
    }

    float result() const { return output * state.inverseSum(); }
};

const std::vector<float> kScores = {-3.f, 90.f, 88.5f, -200.f, 91.f, 0.f, 90.25f};
const std::vector<float> kValues = {1.f, 2.f, 3.f, 4.f, 5.f, 6.f, 7.f};

float expected() {
    double sum = 0;
    double output = 0;
    for (size_t i = 0; i < kScores.size(); ++i) {
        const double weight = std::exp(static_cast<double>(kScores[i]) - 91.);
        sum += weight;
        output += weight * kValues[i];
    }
    return static_cast<float>(output / sum);
}

}  // namespace

class OnlineSoftmaxTest : public QObject {
    Q_OBJECT

  private slots:
    void tilesOfAnySizeGiveTheSoftmax() {
        for (const size_t tile : {1, 2, 3, 7}) {
            Partial all;
            all.add(kScores, kValues, 0, 7, tile);
            QCOMPARE(all.state.max, 91.f);
            QVERIFY(std::abs(all.result() - expected()) < 1e-6f);
        }
    }

    void partsMerge() {
        for (size_t cut = 0; cut <= 7; ++cut) {
            Partial first;
            first.add(kScores, kValues, 0, cut, 2);
            Partial second;
            second.add(kScores, kValues, cut, 7, 2);
            Partial other_way = second;
            other_way.merge(first);
            first.merge(second);
            QVERIFY(std::abs(first.result() - expected()) < 1e-6f);
            QVERIFY(std::abs(other_way.result() - expected()) < 1e-6f);
        }
    }

    void theEmptyStateChangesNothing() {
        OnlineSoftmax empty;
        QVERIFY(empty.empty());
        QCOMPARE(empty.inverseSum(), 0.f);
        QCOMPARE(empty.raise(-INFINITY), 1.f);  // a tile with every score masked
        QCOMPARE(empty.weight(-INFINITY), 0.f);
        OnlineSoftmax another;
        const OnlineSoftmax::MergeFactors factors = empty.merge(another);
        QCOMPARE(factors.own, 1.f);
        QCOMPARE(factors.theirs, 1.f);
        QVERIFY(empty.empty());
        QCOMPARE(empty.sum, 0.f);

        Partial full;
        full.add(kScores, kValues, 0, 7, 7);
        const float before = full.result();
        full.merge(Partial{});
        QCOMPARE(full.result(), before);
        QCOMPARE(full.state.raise(-INFINITY), 1.f);
        QCOMPARE(full.state.weight(-INFINITY), 0.f);
    }
};

QTEST_GUILESS_MAIN(OnlineSoftmaxTest)
#include "online_softmax_test.moc"
