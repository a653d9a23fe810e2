// SPDX-License-Identifier: MIT
#include "kernels/rope/rope.h"

#include <complex>
#include <stdexcept>

#include "tests/support/kernel_test.h"

using namespace kvlab;

class RopeTest : public QObject {
    Q_OBJECT

  private slots:
    void agreesWithComplexNumbers_data() {
        QTest::addColumn<int>("tokens");
        QTest::addColumn<int>("heads");
        QTest::addColumn<int>("head_dim");
        QTest::addColumn<int>("rope_dim");
        QTest::addColumn<double>("scale");
        QTest::addColumn<bool>("divisors");
        QTest::addRow("one pair") << 1 << 1 << 2 << 2 << 1. << false;
        QTest::addRow("odd head") << 3 << 3 << 7 << 4 << 1. << true;
        QTest::addRow("64") << 5 << 4 << 64 << 64 << 1. << false;
        QTest::addRow("128, part of a head, scaled") << 2 << 5 << 128 << 96 << 0.25 << false;
        QTest::addRow("128, divisors") << 4 << 8 << 128 << 128 << 1. << true;
        QTest::addRow("256") << 2 << 3 << 256 << 256 << 0.5 << true;
    }

    // Each pair is a complex number times exp(i angle), the angle in long double.
    void agreesWithComplexNumbers() {
        QFETCH(int, tokens);
        QFETCH(int, heads);
        QFETCH(int, head_dim);
        QFETCH(int, rope_dim);
        QFETCH(double, scale);
        QFETCH(bool, divisors);
        const int num_pairs = rope_dim / 2;
        const auto values = normalValues(int64_t{tokens} * heads * head_dim, 1);
        std::vector<int32_t> positions;
        for (int t = 0; t < tokens; ++t) positions.push_back(t == 0 ? 0 : 131071 / t);
        std::vector<float> factors;
        for (int i = 0; i < num_pairs; ++i) {
            factors.push_back(1.f + 7.f * static_cast<float>(i) / static_cast<float>(num_pairs));
        }
        Fenced<int32_t> fenced_positions(positions);
        Fenced<float> fenced_factors(factors);
        for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalfSplit}) {
            std::vector<double> expected(values.begin(), values.end());
            for (int t = 0; t < tokens; ++t) {
                for (int h = 0; h < heads; ++h) {
                    double* const head = expected.data() + (t * heads + h) * head_dim;
                    for (int i = 0; i < num_pairs; ++i) {
                        const bool halves = style == RopeStyle::kHalfSplit;
                        double& x = head[halves ? i : 2 * i];
                        double& y = head[halves ? i + num_pairs : 2 * i + 1];
                        const long double angle =
                            positions[static_cast<size_t>(t)] * static_cast<long double>(scale) *
                            std::pow(500000.l, -2.l * i / rope_dim) /
                            (divisors ? factors[static_cast<size_t>(i)] : 1.l);
                        const auto turned = std::complex<double>(x, y) *
                                            std::complex<double>(std::polar(1.l, angle));
                        x = turned.real();
                        y = turned.imag();
                    }
                }
            }
            for (const Way way : kAllWays) {
                Fenced<float> data(values);
                RopeParams p;
                p.data = data.data();
                p.positions = fenced_positions.data();
                p.num_tokens = tokens;
                p.num_heads = heads;
                p.head_dim = head_dim;
                p.rope_dim = rope_dim;
                p.base = 500000.f;
                p.scale = static_cast<float>(scale);
                p.divisors = divisors ? fenced_factors.data() : nullptr;
                p.style = style;
                runOperation(way, p, ropeCpu, ropeSimt);
                QVERIFY2(relativeError(data.values(), expected) <= 1e-6, wayName(way));
                QVERIFY2(data.fenceIsWhole(), wayName(way));
                for (int i = 0; i < tokens * heads; ++i) {
                    for (int d = rope_dim; d < head_dim; ++d) {
                        const auto at = static_cast<size_t>(i * head_dim + d);
                        QCOMPARE(data[at], values[at]);
                    }
                }
            }
        }
    }

    // Two arrays in one call turn as each does alone, to the bit.
    void moreHeadsTurnAlike() {
        for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalfSplit}) {
            for (const Way way : kAllWays) {
                const auto queries = normalValues(3 * 9 * 40, 1);
                const auto keys = normalValues(3 * 2 * 40, 2);
                const std::vector<int32_t> positions{5, 0, 70000};
                RopeParams p;
                p.positions = positions.data();
                p.num_tokens = 3;
                p.head_dim = 40;
                p.rope_dim = 32;
                p.style = style;
                const auto alone = [&](const std::vector<float>& values, int num_heads) {
                    Fenced<float> data(values);
                    p.data = data.data();
                    p.num_heads = num_heads;
                    runOperation(way, p, ropeCpu, ropeSimt);
                    return data.values();
                };
                const auto turned_queries = alone(queries, 9);
                const auto turned_keys = alone(keys, 2);
                Fenced<float> query_data(queries);
                Fenced<float> key_data(keys);
                p.data = query_data.data();
                p.num_heads = 9;
                p.more_data = key_data.data();
                p.num_more_heads = 2;
                runOperation(way, p, ropeCpu, ropeSimt);
                QCOMPARE(query_data.values(), turned_queries);
                QCOMPARE(key_data.values(), turned_keys);
                QVERIFY(query_data.fenceIsWhole() && key_data.fenceIsWhole());
            }
        }
    }

    void refusesWhatCannotBe() {
        ExecutionContext context;
        float data[8] = {};
        const int32_t position = 0;
        RopeParams p;
        ropeSimt(p, context);  // no tokens: nothing to do
        p.num_tokens = 1;
        p.num_heads = 1;
        p.head_dim = 8;
        p.rope_dim = 8;
        QVERIFY_THROWS_EXCEPTION(std::invalid_argument, ropeSimt(p, context));
        p.data = data;
        p.positions = &position;
        ropeSimt(p, context);
        p.num_more_heads = 1;  // whose data is missing
        QVERIFY_THROWS_EXCEPTION(std::invalid_argument, ropeSimt(p, context));
        p.num_more_heads = 0;
        for (const int rope_dim : {3, 10, -2}) {
            p.rope_dim = rope_dim;
            QVERIFY_THROWS_EXCEPTION(std::invalid_argument, ropeSimt(p, context));
        }
        p.rope_dim = p.head_dim = 258;
        QVERIFY_THROWS_EXCEPTION(std::invalid_argument, ropeSimt(p, context));
    }
};

QTEST_GUILESS_MAIN(RopeTest)
#include "rope_test.moc"
