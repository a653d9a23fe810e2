// SPDX-License-Identifier: MIT
#include "engine/scheduling/percentiles.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <QTest>

using namespace kvlab;

namespace {

// The definition, word for word: sort, and take the point at rank p (n - 1) on the broken line.
double byDefinition(std::vector<double> values, double percent) {
    std::sort(values.begin(), values.end());
    const double rank = percent * static_cast<double>(values.size() - 1) / 100;
    const size_t low = static_cast<size_t>(rank);
    const size_t high = std::min(low + 1, values.size() - 1);
    const double share = rank - static_cast<double>(low);
    return values[low] * (1 - share) + values[high] * share;
}

}  // namespace

class PercentilesTest : public QObject {
    Q_OBJECT

  private slots:
    // Published values: numpy.percentile of 1 … 4 and the worked example of five numbers in
    // Wikipedia's "Percentile" (linear interpolation, C = 1).
    void goldenValues() {
        const auto of = [](std::vector<double> values, double percent) {
            return percentileOf(values, percent);
        };
        const std::vector<double> five = {15, 20, 35, 40, 50};
        QCOMPARE(of(five, 5), 16.0);
        QCOMPARE(of(five, 30), 23.0);
        QCOMPARE(of(five, 40), 29.0);
        QCOMPARE(of(five, 95), 48.0);
        QCOMPARE(of({4, 1, 3, 2}, 50), 2.5);
        QCOMPARE(of({4, 1, 3, 2}, 0), 1.0);
        QCOMPARE(of({4, 1, 3, 2}, 100), 4.0);
        QCOMPARE(of({7}, 99), 7.0);
    }

    void agreesWithItsDefinition() {
        std::mt19937_64 random(5);
        for (int round = 0; round < 2000; ++round) {
            std::vector<double> values(1 + random() % 60);
            // Few different values, so that many are equal.
            for (double& value : values) {
                value = round % 2 == 0 ? static_cast<double>(random() % 5)
                                       : std::ldexp(static_cast<double>(random() % 100000), -7);
            }
            const double percent = static_cast<double>(random() % 1001) / 10;
            std::vector<double> work = values;
            const double got = percentileOf(work, percent);
            QVERIFY2(std::abs(got - byDefinition(values, percent)) <= 1e-9 * (1 + std::abs(got)),
                     qPrintable(QString::number(percent)));
            std::sort(work.begin(), work.end());
            std::sort(values.begin(), values.end());
            QVERIFY(work == values);  // reordered, not changed
        }
    }

    void columnsAreSummedUp() {
        QVERIFY(!percentilesOf({}));
        std::vector<double> values;
        for (int i = 100; i >= 0; --i) values.push_back(i);
        const Percentiles sum = *percentilesOf(values);
        QCOMPARE(sum.count, int64_t{101});
        QCOMPARE(sum.mean, 50.0);
        QCOMPARE(sum.p50, 50.0);
        QCOMPARE(sum.p90, 90.0);
        QCOMPARE(sum.p99, 99.0);
        QCOMPARE(sum.max, 100.0);
    }
};

QTEST_GUILESS_MAIN(PercentilesTest)
#include "percentiles_test.moc"
