// SPDX-License-Identifier: MIT
#include "kernels/rms_norm/rms_norm.h"

#include <stdexcept>

#include "tests/support/kernel_test.h"

using namespace kvlab;

class RmsNormTest : public QObject {
    Q_OBJECT

  private slots:
    void agreesWithDoubles_data() {
        QTest::addColumn<int>("rows");
        QTest::addColumn<int>("dim");
        QTest::addColumn<int>("offset");  // bytes from 16-byte alignment
        for (const int dim : {1, 3, 4, 31, 37, 64, 128, 250, 516, 2050, 4096}) {
            for (const int rows : {1, 5}) {
                QTest::addRow("%d x %d", rows, dim) << rows << dim << 0;
            }
        }
        QTest::addRow("3 x 64, not aligned") << 3 << 64 << 4;
    }

    void agreesWithDoubles() {
        QFETCH(int, rows);
        QFETCH(int, dim);
        QFETCH(int, offset);
        const auto values = normalValues(int64_t{rows} * dim, 1);
        Fenced<float> input(values, static_cast<size_t>(offset));
        Fenced<float> weight(normalValues(dim, 2));
        std::vector<double> expected;
        for (int r = 0; r < rows; ++r) {
            double sum = 0;
            for (int i = 0; i < dim; ++i) {
                sum += std::pow(static_cast<double>(values[static_cast<size_t>(r * dim + i)]), 2);
            }
            for (int i = 0; i < dim; ++i) {
                expected.push_back(static_cast<double>(values[static_cast<size_t>(r * dim + i)]) *
                                   static_cast<double>(weight[static_cast<size_t>(i)]) /
                                   std::sqrt(sum / dim + 1e-3));
            }
        }
        RmsNormParams p;
        p.weight = weight.data();
        p.num_rows = rows;
        p.dim = dim;
        p.epsilon = 1e-3f;
        for (const Way way : kAllWays) {
            Fenced<float> output(values.size());
            p.input = input.data();
            p.output = output.data();
            runOperation(way, p, rmsNormCpu, rmsNormSimt);
            QVERIFY2(relativeError(output.values(), expected) <= 1e-6, wayName(way));
            QVERIFY2(output.fenceIsWhole(), wayName(way));

            Fenced<float> in_place(values, static_cast<size_t>(offset));
            p.input = p.output = in_place.data();
            runOperation(way, p, rmsNormCpu, rmsNormSimt);
            QVERIFY2(relativeError(in_place.values(), expected) <= 1e-6, wayName(way));
            QVERIFY2(in_place.fenceIsWhole(), wayName(way));
        }
    }

    // What the header promises on CUDA too: a row's bits do not depend on the rows around it.
    void aRowIsTheSameAlone() {
        const int dim = 96;
        Fenced<float> input(normalValues(7 * dim, 3));
        Fenced<float> weight(normalValues(dim, 4));
        Fenced<float> all(size_t{7} * dim);
        Fenced<float> alone(static_cast<size_t>(dim));
        RmsNormParams p;
        p.input = input.data();
        p.weight = weight.data();
        p.output = all.data();
        p.num_rows = 7;
        p.dim = dim;
        runOperation(Way::kForward, p, rmsNormCpu, rmsNormSimt);
        p.input += 5 * dim;
        p.output = alone.data();
        p.num_rows = 1;
        runOperation(Way::kForward, p, rmsNormCpu, rmsNormSimt);
        QCOMPARE(std::memcmp(alone.data(), all.data() + 5 * dim, size_t{4} * dim), 0);
    }

    void refusesWhatCannotBe() {
        ExecutionContext context;
        RmsNormParams p;
        rmsNormSimt(p, context);  // no rows: nothing to do
        p.num_rows = 1;
        p.dim = 4;
        QVERIFY_THROWS_EXCEPTION(std::invalid_argument, rmsNormSimt(p, context));
        float value = 1.f;
        p.input = p.weight = p.output = &value;
        p.dim = 0;
        QVERIFY_THROWS_EXCEPTION(std::invalid_argument, rmsNormSimt(p, context));
    }
};

QTEST_GUILESS_MAIN(RmsNormTest)
#include "rms_norm_test.moc"
