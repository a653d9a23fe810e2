// SPDX-License-Identifier: MIT
#include "kernels/matmul/matmul.h"

#include <stdexcept>

#include "kernels/matmul/matmul_kernel.cuh"
#include "kernels/quantise.h"
#include "kernels/reference/dequantise_reference.h"
#include "tests/kernels/kernel_test.h"

using namespace kvlab;

namespace {

// max |a - b| / max |b|
constexpr double kTolerance = 1e-5;

// A product, its inputs in fenced memory, and the same product in double precision.
struct Product {
    MatmulParams params;
    Fenced<float> input;
    Fenced<std::byte> weight;
    Fenced<float> bias;
    std::vector<double> expected;  // without bias

    Product(TensorType type, int rows, int inputs, int outputs, size_t offset)
        : input(normalValues(int64_t{rows} * inputs, 1), isQuantised(type) ? 0 : offset),
          weight(stored(type, inputs, outputs), offset),
          bias(normalValues(outputs, 3)) {
        const auto weights = dequantiseReference(type, weight.data(), int64_t{inputs} * outputs);
        for (int r = 0; r < rows; ++r) {
            for (int o = 0; o < outputs; ++o) {
                double sum = 0;
                for (int k = 0; k < inputs; ++k) {
                    sum += static_cast<double>(input[static_cast<size_t>(r * inputs + k)]) *
                           weights[static_cast<size_t>(o * inputs + k)];
                }
                expected.push_back(sum);
            }
        }
        params.input = input.data();
        params.weight = weight.data();
        params.type = type;
        params.num_rows = rows;
        params.num_inputs = inputs;
        params.num_outputs = outputs;
    }

    static std::vector<std::byte> stored(TensorType type, int inputs, int outputs) {
        return quantise(type, normalValues(int64_t{inputs} * outputs, 2).data(),
                        int64_t{inputs} * outputs);
    }

    double errorOf(Way way,
                   bool with_bias,
                   bool accumulate,
                   void (*simt)(const MatmulParams&, ExecutionContext&)) {
        Fenced<float> output(expected.size());
        if (accumulate) output.fill(3.f);
        params.output = output.data();
        params.bias = with_bias ? bias.data() : nullptr;
        params.accumulate = accumulate;
        runOperation(way, params, matmulCpu, simt);
        std::vector<double> added = expected;
        for (size_t i = 0; i < added.size(); ++i) {
            if (with_bias) added[i] += bias[i % static_cast<size_t>(params.num_outputs)];
            if (accumulate) added[i] += 3;
        }
        return output.fenceIsWhole() ? relativeError(output.values(), added) : INFINITY;
    }
};

// The tiled kernel, whatever the launcher would choose.
void tiledSimt(const MatmulParams& params, ExecutionContext& context) {
    using namespace matmul_detail;
    switch (params.type) {
        case TensorType::kF32:
            return launchTiledOfType<TensorType::kF32>(params, context.stream);
        case TensorType::kF16:
            return launchTiledOfType<TensorType::kF16>(params, context.stream);
        case TensorType::kBF16:
            return launchTiledOfType<TensorType::kBF16>(params, context.stream);
        case TensorType::kQ8_0:
            return launchTiledOfType<TensorType::kQ8_0>(params, context.stream);
        case TensorType::kQ4_0:
            return launchTiledOfType<TensorType::kQ4_0>(params, context.stream);
        case TensorType::kQ4_K:
            return launchTiledOfType<TensorType::kQ4_K>(params, context.stream);
        case TensorType::kQ6_K:
            return launchTiledOfType<TensorType::kQ6_K>(params, context.stream);
    }
}

void addRows(const std::vector<std::array<int, 3>>& sizes, const std::vector<int>& offsets) {
    QTest::addColumn<int>("type");
    QTest::addColumn<int>("rows");
    QTest::addColumn<int>("inputs");
    QTest::addColumn<int>("outputs");
    QTest::addColumn<int>("offset");  // bytes from 16-byte alignment
    for (const TensorType type : kAllTensorTypes) {
        for (const auto& [rows, inputs, outputs] : sizes) {
            for (const int offset : offsets) {
                if (inputs % tensorBlockValues(type) != 0) continue;
                QTest::addRow("%s %d x %d to %d, %d bytes off", tensorTypeName(type), rows, inputs,
                              outputs, offset)
                    << static_cast<int>(type) << rows << inputs << outputs << offset;
            }
        }
    }
}

void check(void (*simt)(const MatmulParams&, ExecutionContext&)) {
    QFETCH(int, type);
    QFETCH(int, rows);
    QFETCH(int, inputs);
    QFETCH(int, outputs);
    QFETCH(int, offset);
    Product product(static_cast<TensorType>(type), rows, inputs, outputs,
                    static_cast<size_t>(offset));
    for (const Way way : {Way::kForward, Way::kReverse, Way::kRandom}) {
        const double error = product.errorOf(way, false, false, simt);
        QVERIFY2(error <= kTolerance, qPrintable(QString("%1: %2").arg(wayName(way)).arg(error)));
    }
    QVERIFY(product.errorOf(Way::kForward, true, false, simt) <= kTolerance);
    QVERIFY(product.errorOf(Way::kForward, true, true, simt) <= kTolerance);
    QVERIFY(product.errorOf(Way::kForward, false, true, simt) <= kTolerance);
}

}  // namespace

class MatmulTest : public QObject {
    Q_OBJECT

  private slots:
    void fewRows_data() {
        addRows({{1, 1, 1},
                 {1, 37, 19},
                 {3, 8, 5},
                 {1, 32, 2},
                 {2, 64, 7},
                 {3, 96, 6},
                 {4, 256, 5},
                 {5, 512, 3},
                 {8, 256, 9},
                 {9, 256, 2},
                 {1, 1280, 4},
                 {2, 4352, 3},
                 {1, 8448, 2}},
                {0});
    }
    void fewRows() { check(matmulSimt); }

    void fewRowsNotAligned_data() { addRows({{3, 37, 5}, {1, 256, 5}, {6, 512, 3}}, {8}); }
    void fewRowsNotAligned() { check(matmulSimt); }

    void tiles_data() {
        addRows({{33, 1, 1}, {3, 8, 5}, {65, 37, 66}, {64, 32, 64}, {70, 96, 130}, {66, 512, 65}},
                {0});
    }
    void tiles() { check(tiledSimt); }

    void tilesNotAligned_data() { addRows({{65, 37, 3}, {40, 256, 70}}, {8}); }
    void tilesNotAligned() { check(tiledSimt); }

    // Few tiles would leave most of a GPU waiting.
    void theLauncherChooses() {
        MatmulParams p;
        p.num_inputs = 64;
        const auto takesTiles = [&](int rows, int outputs) {
            p.num_rows = rows;
            p.num_outputs = outputs;
            return matmul_detail::takesTiles(p);
        };
        QVERIFY(!takesTiles(1, 128000));
        QVERIFY(!takesTiles(32, 128000));
        QVERIFY(takesTiles(33, 128000));
        QVERIFY(!takesTiles(64, 4096));
        QVERIFY(takesTiles(128, 4096));
        // And what it chooses runs: 96 tiles of one step.
        Product product(TensorType::kF16, 33, 8, 96 * 64, 0);
        QVERIFY(matmul_detail::takesTiles(product.params));
        QVERIFY(product.errorOf(Way::kForward, false, false, matmulSimt) <= kTolerance);
        Product few(TensorType::kF16, 33, 8, 64, 0);
        QVERIFY(few.errorOf(Way::kForward, false, false, matmulSimt) <= kTolerance);
    }

    // What the header promises on CUDA: the same call gives the same bits.
    void theSameCallGivesTheSameBits() {
        Product product(TensorType::kF16, 3, 520, 5, 0);
        std::vector<std::vector<float>> results;
        for (const Way way : {Way::kForward, Way::kReverse, Way::kRandom}) {
            Fenced<float> output(product.expected.size());
            product.params.output = output.data();
            runOperation(way, product.params, matmulCpu, matmulSimt);
            results.push_back(output.values());
        }
        QCOMPARE(results[1], results[0]);
        QCOMPARE(results[2], results[0]);
    }

    void refusesWhatCannotBe() {
        ExecutionContext context;
        MatmulParams p;
        matmulSimt(p, context);  // no rows: nothing to do
        p.num_rows = 1;
        p.num_outputs = 1;
        p.num_inputs = 32;
        QVERIFY_THROWS_EXCEPTION(std::invalid_argument, matmulSimt(p, context));
        Fenced<float> input(64);
        Fenced<std::byte> weight(128);
        float output = 0;
        p.input = input.data();
        p.weight = weight.data();
        p.output = &output;
        p.type = TensorType::kQ4_K;  // of whole blocks of 256
        QVERIFY_THROWS_EXCEPTION(std::invalid_argument, matmulSimt(p, context));
        p.type = TensorType::kQ8_0;
        p.input = input.data() + 1;  // not on 16 bytes
        QVERIFY_THROWS_EXCEPTION(std::invalid_argument, matmulSimt(p, context));
        p.input = input.data();
        p.weight = weight.data() + 1;  // not on 2 bytes
        QVERIFY_THROWS_EXCEPTION(std::invalid_argument, matmulSimt(p, context));
    }
};

QTEST_GUILESS_MAIN(MatmulTest)
#include "matmul_test.moc"
