// SPDX-License-Identifier: MIT
#include "kernels/silu_mul/silu_mul.h"

#include <stdexcept>

#include "tests/support/kernel_test.h"

using namespace kvlab;

class SiluMulTest : public QObject {
    Q_OBJECT

  private slots:
    void agreesWithDoubles() {
        for (const int count : {1, 3, 4, 127, 1024, 5003}) {
            for (const size_t offset : {0, 4}) {
                auto gates = normalValues(count, 1);
                const auto ups = normalValues(count, 2);
                for (size_t i = 0; i < gates.size(); i += 3) gates[i] *= 60.f;  // exp beyond f32
                std::vector<double> expected;
                for (size_t i = 0; i < gates.size(); ++i) {
                    expected.push_back(gates[i] / (1 + std::exp(-static_cast<double>(gates[i]))) *
                                       ups[i]);
                }
                for (const Way way : kAllWays) {
                    Fenced<float> gate(gates, offset);
                    Fenced<float> up(ups, offset);
                    Fenced<float> output(gates.size(), offset);
                    SiluMulParams p;
                    p.gate = gate.data();
                    p.up = up.data();
                    p.output = output.data();
                    p.num_values = count;
                    runOperation(way, p, siluMulCpu, siluMulSimt);
                    QVERIFY2(relativeError(output.values(), expected) <= 1e-6, wayName(way));
                    QVERIFY(output.fenceIsWhole());

                    p.output = gate.data();
                    runOperation(way, p, siluMulCpu, siluMulSimt);
                    QCOMPARE(gate.values(), output.values());
                    QVERIFY(gate.fenceIsWhole());
                }
            }
        }
    }

    // More values than the largest grid takes at once.
    void stridesOverTheGrid() {
        const int64_t count = 132 * 16 * 256 + 77;
        Fenced<float> gate(normalValues(count, 3), 4);
        Fenced<float> up(static_cast<size_t>(count), 4);
        up.fill(1.f);
        Fenced<float> output(static_cast<size_t>(count), 4);
        SiluMulParams p;
        p.gate = gate.data();
        p.up = up.data();
        p.output = output.data();
        p.num_values = count;
        runOperation(Way::kForward, p, siluMulCpu, siluMulSimt);
        std::vector<double> expected;
        for (const float value : gate.values()) {
            expected.push_back(value / (1 + std::exp(-static_cast<double>(value))));
        }
        QVERIFY(relativeError(output.values(), expected) <= 1e-6);
        QVERIFY(output.fenceIsWhole());
    }

    void refusesWhatCannotBe() {
        ExecutionContext context;
        SiluMulParams p;
        siluMulSimt(p, context);  // no values: nothing to do
        p.num_values = 1;
        QVERIFY_THROWS_EXCEPTION(std::invalid_argument, siluMulSimt(p, context));
    }
};

QTEST_GUILESS_MAIN(SiluMulTest)
#include "silu_mul_test.moc"
