// SPDX-License-Identifier: MIT
#include "kernels/matmul/matmul.h"

#include <memory>
#include <stdexcept>

#include "kernels/half.h"
#include "kernels/matmul/matmul_kernel.cuh"
#include "kernels/matmul/matmul_split_kernel.cuh"
#include "kernels/quantise.h"
#include "kernels/reference/dequantise_reference.h"
#include "tests/support/kernel_test.h"

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

    // The two kernels around cuBLAS: high + low is the row, to 22 or 16 bits of its largest value,
    // whatever its magnitude; and the products of the parts, by a reference, finish as the product.
    void partsMakeTheRow_data() {
        QTest::addColumn<int>("type");
        QTest::addColumn<int>("inputs");
        for (const TensorType type : {TensorType::kF16, TensorType::kBF16}) {
            for (const int inputs : {1, 37, 256, 300}) {
                QTest::addRow("%s %d", tensorTypeName(type), inputs)
                    << static_cast<int>(type) << inputs;
            }
        }
    }

    void partsMakeTheRow() {
        QFETCH(int, type);
        QFETCH(int, inputs);
        const auto stored_type = static_cast<TensorType>(type);
        const bool is_half = stored_type == TensorType::kF16;
        const double precision = is_half ? 0x1p-22 : 0x1p-16;
        const auto toDouble = [&](uint16_t bits) {
            return static_cast<double>(is_half ? halfToFloat(bits) : bfloat16ToFloat(bits));
        };
        const std::vector<float> magnitudes{1.f, 3e38f, 1e-38f, 0.f, 70000.f, 1e-6f, INFINITY, NAN};
        const int rows = static_cast<int>(magnitudes.size());
        auto values = normalValues(int64_t{rows} * inputs, 1);
        for (int r = 0; r < rows; ++r) {
            float* const row = values.data() + r * inputs;
            float largest = 0;
            for (int i = 0; i < inputs; ++i) largest = std::max(largest, std::abs(row[i]));
            for (int i = 0; i < inputs; ++i) {
                if (std::isfinite(magnitudes[static_cast<size_t>(r)])) {
                    row[i] = row[i] / largest * magnitudes[static_cast<size_t>(r)];
                }
            }
            if (!std::isfinite(magnitudes[static_cast<size_t>(r)])) {
                row[inputs / 2] = magnitudes[static_cast<size_t>(r)];
            }
        }
        Fenced<float> input(values);
        Fenced<uint16_t> high(values.size());
        Fenced<uint16_t> low(values.size());
        Fenced<float> scales(magnitudes.size());
        MatmulSplitParams parts;
        parts.input = input.data();
        parts.high = high.data();
        parts.low = low.data();
        parts.scales = scales.data();
        parts.num_rows = rows;
        parts.num_inputs = inputs;
        for (const simt::LaneOrder order : {simt::LaneOrder::kForward, simt::LaneOrder::kRandom}) {
            const simt::ScopedSettings settings({order, 3});
            launchMatmulSplit(parts, stored_type, nullptr);
            QVERIFY(high.fenceIsWhole() && low.fenceIsWhole() && scales.fenceIsWhole());
            for (int r = 0; r < rows; ++r) {
                const auto scale = static_cast<double>(scales[static_cast<size_t>(r)]);
                int exponent = 0;
                QCOMPARE(std::frexp(scale, &exponent), 0.5);  // a power of two
                double largest = 0;
                for (int i = 0; i < inputs; ++i) {
                    const double value = values[static_cast<size_t>(r * inputs + i)];
                    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
                }
                for (int i = 0; i < inputs; ++i) {
                    const auto at = static_cast<size_t>(r * inputs + i);
                    const double back = scale * (toDouble(high[at]) + toDouble(low[at]));
                    // What is infinite or NaN stays so, and its neighbours lose nothing.
                    if (std::isfinite(values[at])) {
                        QVERIFY(std::abs(back - values[at]) <= precision * largest);
                    } else if (std::isinf(values[at])) {
                        QCOMPARE(back, static_cast<double>(values[at]));
                    } else {
                        QVERIFY(std::isnan(back));
                    }
                }
            }
        }
    }

    // Through the split as in f32: an infinity times finite weights is infinite, of either sign,
    // and NaN only where f32 has it; other rows do not notice.
    void infinitiesGoThroughTheSplit_data() {
        QTest::addColumn<int>("type");
        QTest::newRow("F16") << static_cast<int>(TensorType::kF16);
        QTest::newRow("BF16") << static_cast<int>(TensorType::kBF16);
    }

    void infinitiesGoThroughTheSplit() {
        QFETCH(int, type);
        const auto stored_type = static_cast<TensorType>(type);
        const std::vector<float> input = {INFINITY, 3.f, 1e5f, -INFINITY, 1.f, 2.f, 1.f, INFINITY,
                                          INFINITY, NAN, 1.f,  2.f,       5.f, 6.f, 7.f};
        // Rows of the weight: for each of the 3 inputs.
        const std::vector<float> weight = {1.f, 2.f, 4.f, -1.f, 1.f, -2.f, 0.f, 1.f, 1.f};
        const std::vector<std::byte> stored = quantise(stored_type, weight.data(), 9);
        std::vector<float> output(15, 0.f);
        MatmulParams p;
        p.input = input.data();
        p.weight = stored.data();
        p.type = stored_type;
        p.output = output.data();
        p.num_rows = 5;
        p.num_inputs = 3;
        p.num_outputs = 3;
        ExecutionContext context;
        matmulSplitSimt(p, context);
        const float wanted[] = {INFINITY,  -INFINITY, NAN,  // infinity times 0
                                -INFINITY, INFINITY,  NAN, INFINITY,
                                NAN,       INFINITY,  // infinities of both signs in the second
                                NAN,       NAN,       NAN, 45.f,
                                -13.f,     13.f};
        for (size_t i = 0; i < output.size(); ++i) {
            const bool agrees = std::isnan(wanted[i])   ? std::isnan(output[i])
                                : std::isinf(wanted[i]) ? output[i] == wanted[i]
                                                        : std::abs(output[i] - wanted[i]) < 1e-3f;
            QVERIFY2(agrees, qPrintable(QString("%1: %2").arg(i).arg(double{output[i]})));
        }
    }

    void sumsAreFinished() {
        Product product(TensorType::kF16, 3, 32, 1100, 0);
        std::vector<float> sums;
        const std::vector<float> scales{1.f, 0.25f, 8.f};
        for (size_t i = 0; i < product.expected.size(); ++i) {
            sums.push_back(static_cast<float>(product.expected[i]) / scales[i / 1100]);
        }
        const auto finish = [&](const MatmulParams& params, const std::vector<float>& from,
                                const float* by) {
            Fenced<float> fenced(from);
            launchMatmulFinish(params, fenced.data(), by, nullptr);
        };
        for (const bool accumulate : {false, true}) {
            for (const bool with_bias : {false, true}) {
                Fenced<float> output(sums.size());
                output.fill(3.f);
                product.params.output = output.data();
                product.params.bias = with_bias ? product.bias.data() : nullptr;
                product.params.accumulate = accumulate;
                finish(product.params, sums, scales.data());
                std::vector<double> added = product.expected;
                for (size_t i = 0; i < added.size(); ++i) {
                    if (with_bias) added[i] += product.bias[i % 1100];
                    if (accumulate) added[i] += 3;
                }
                QVERIFY(relativeError(output.values(), added) <= 1e-6);
                QVERIFY(output.fenceIsWhole());
            }
        }
        // Without scales all are 1.
        Fenced<float> output(sums.size());
        product.params.output = output.data();
        product.params.bias = nullptr;
        product.params.accumulate = false;
        finish(product.params, sums, nullptr);
        QCOMPARE(output.values(), sums);
    }

    // A group gives each part the bits that it has alone, on the CPU and in the kernel for few
    // rows; what a part is alone, the tests above compare with doubles.
    void groups_data() {
        QTest::addColumn<QList<int>>("types");
        QTest::addColumn<QList<int>>("outputs");
        QTest::addColumn<int>("rows");
        QTest::addColumn<int>("inputs");
        QTest::addColumn<bool>("silu_mul");
        const auto name = [](TensorType type) { return static_cast<int>(type); };
        const int f16 = name(TensorType::kF16);
        const int q4 = name(TensorType::kQ4_K);
        const int q6 = name(TensorType::kQ6_K);
        for (const int rows : {1, 2, 3, 8, 13, 32, 33, 70}) {
            QTest::addRow("q, k, v, %d rows", rows)
                << QList<int>{f16, f16, f16} << QList<int>{9, 4, 5} << rows << 48 << false;
            QTest::addRow("gate, up, %d rows", rows)
                << QList<int>{f16, f16} << QList<int>{7, 7} << rows << 48 << true;
        }
        for (const TensorType type : kAllTensorTypes) {
            for (const int rows : {1, 5}) {
                const int t = name(type);
                QTest::addRow("q, k, v in %s, %d rows", tensorTypeName(type), rows)
                    << QList<int>{t, t, t} << QList<int>{3, 1, 6} << rows << 256 << false;
                QTest::addRow("gate, up in %s, %d rows", tensorTypeName(type), rows)
                    << QList<int>{t, t} << QList<int>{5, 5} << rows << 256 << true;
            }
        }
        QTest::newRow("other inner sizes")
            << QList<int>{f16, f16} << QList<int>{4, 4} << 3 << 37 << true;
        QTest::newRow("v apart") << QList<int>{q4, q4, q6} << QList<int>{6, 3, 3} << 2 << 512
                                 << false;
        QTest::newRow("k apart") << QList<int>{q4, q6, q4} << QList<int>{6, 3, 3} << 1 << 512
                                 << false;
        QTest::newRow("gate apart") << QList<int>{q4, f16} << QList<int>{6, 6} << 3 << 256 << true;
        QTest::newRow("one") << QList<int>{f16} << QList<int>{6} << 3 << 256 << false;
    }

    void groups() {
        QFETCH(QList<int>, types);
        QFETCH(QList<int>, outputs);
        QFETCH(int, rows);
        QFETCH(int, inputs);
        QFETCH(bool, silu_mul);
        std::vector<std::unique_ptr<Product>> products;
        MatmulGroupParams group;
        group.num_parts = static_cast<int>(types.size());
        group.num_rows = rows;
        group.num_inputs = inputs;
        group.silu_mul = silu_mul;
        for (int i = 0; i < group.num_parts; ++i) {
            products.push_back(std::make_unique<Product>(static_cast<TensorType>(types[i]), rows,
                                                         inputs, outputs[i], 0));
            Product& product = *products.back();
            // `stored` draws the same weights: other ones in each part.
            const auto weights =
                normalValues(int64_t{inputs} * outputs[i], static_cast<uint64_t>(20 + i));
            const auto stored =
                quantise(product.params.type, weights.data(), int64_t{inputs} * outputs[i]);
            std::copy(stored.begin(), stored.end(), product.weight.data());
            if (!silu_mul && i != 1) product.params.bias = product.bias.data();
            group.parts[i] = {product.params.weight, product.params.type, product.params.bias,
                              nullptr, product.params.num_outputs};
        }
        group.input = products[0]->input.data();
        for (const Way way : kAllWays) {
            std::vector<std::vector<float>> expected;
            for (int i = 0; i < group.num_parts; ++i) {
                Fenced<float> alone(static_cast<size_t>(rows * outputs[i]));
                MatmulParams part = matmulOfPart(group, i);
                part.output = alone.data();
                runOperation(way, part, matmulCpu, matmulSimt);
                expected.push_back(alone.values());
            }
            if (silu_mul) {
                SiluMulParams silu;
                silu.gate = expected[0].data();
                silu.up = expected[1].data();
                silu.output = expected[0].data();
                silu.num_values = rows * outputs[0];
                runOperation(way, silu, siluMulCpu, siluMulSimt);
            }
            std::vector<std::unique_ptr<Fenced<float>>> actual;
            for (int i = 0; i < group.num_parts; ++i) {
                actual.push_back(
                    std::make_unique<Fenced<float>>(static_cast<size_t>(rows * outputs[i])));
                group.parts[i].output = actual.back()->data();
            }
            runOperation(way, group, matmulGroupCpu, matmulGroupSimt);
            for (size_t i = 0; i < actual.size(); ++i) {
                QVERIFY(actual[i]->fenceIsWhole());
                if (silu_mul && i == 1) continue;  // scratch memory
                QCOMPARE(actual[i]->values(), expected[i]);
            }
        }
    }

    // A group of normalised rows against doubles: one row, where the product normalises, and
    // others, where a launch before it does.
    void normalisedGroups_data() {
        QTest::addColumn<int>("type");
        QTest::addColumn<int>("rows");
        QTest::addColumn<int>("inputs");
        QTest::addColumn<size_t>("offset");  // of the rows, in bytes from 16-byte alignment
        QTest::addColumn<bool>("silu_mul");
        for (const bool silu_mul : {false, true}) {
            const char* const what = silu_mul ? "gate and up" : "q and k";
            for (const TensorType type : kAllTensorTypes) {
                for (const int inputs : {256, 1280, 4352}) {
                    QTest::addRow("%s, %s of %d", what, tensorTypeName(type), inputs)
                        << static_cast<int>(type) << 1 << inputs << size_t{0} << silu_mul;
                }
            }
            for (const int rows : {2, 33}) {
                QTest::addRow("%s, %d rows", what, rows)
                    << static_cast<int>(TensorType::kF16) << rows << 48 << size_t{0} << silu_mul;
            }
            QTest::addRow("%s, not in pieces", what)
                << static_cast<int>(TensorType::kF16) << 1 << 37 << size_t{0} << silu_mul;
            QTest::addRow("%s, not aligned", what)
                << static_cast<int>(TensorType::kBF16) << 1 << 64 << size_t{4} << silu_mul;
        }
    }

    void normalisedGroups() {
        QFETCH(int, type);
        QFETCH(int, rows);
        QFETCH(int, inputs);
        QFETCH(size_t, offset);
        QFETCH(bool, silu_mul);
        constexpr int kOutputs = 5;
        const auto stored_type = static_cast<TensorType>(type);
        const auto count = [](int a, int b) {
            return static_cast<size_t>(a) * static_cast<size_t>(b);
        };
        Fenced<float> input(normalValues(int64_t{rows} * inputs, 1), offset);
        Fenced<float> norm(normalValues(inputs, 2));
        Fenced<float> normed(count(rows, inputs));
        Fenced<float> bias(normalValues(kOutputs, 3));
        std::vector<std::byte> weights[2];
        std::vector<double> expected[2];
        for (size_t part = 0; part < 2; ++part) {
            weights[part] =
                quantise(stored_type, normalValues(int64_t{inputs} * kOutputs, 4 + part).data(),
                         int64_t{inputs} * kOutputs);
            const auto values =
                dequantiseReference(stored_type, weights[part].data(), int64_t{inputs} * kOutputs);
            for (int r = 0; r < rows; ++r) {
                double squares = 0;
                const auto at = [&](int k) {
                    return static_cast<double>(input[count(r, inputs) + static_cast<size_t>(k)]);
                };
                for (int k = 0; k < inputs; ++k) squares += at(k) * at(k);
                for (int o = 0; o < kOutputs; ++o) {
                    double sum = 0;
                    for (int k = 0; k < inputs; ++k) {
                        sum += at(k) * static_cast<double>(norm[static_cast<size_t>(k)]) *
                               values[count(o, inputs) + static_cast<size_t>(k)];
                    }
                    sum /= std::sqrt(squares / inputs + 1e-3);
                    if (!silu_mul) sum += static_cast<double>(bias[static_cast<size_t>(o)]);
                    expected[part].push_back(sum);
                }
            }
        }
        if (silu_mul) {
            for (size_t i = 0; i < expected[0].size(); ++i) {
                expected[0][i] *= expected[1][i] / (1 + std::exp(-expected[0][i]));
            }
        }
        Fenced<std::byte> stored[] = {Fenced<std::byte>(weights[0]), Fenced<std::byte>(weights[1])};
        for (const Way way : kAllWays) {
            Fenced<float> outputs[] = {Fenced<float>(count(rows, kOutputs)),
                                       Fenced<float>(count(rows, kOutputs))};
            MatmulGroupParams p;
            p.input = input.data();
            p.norm_weight = norm.data();
            p.norm_epsilon = 1e-3f;
            p.normed = normed.data();
            for (int i = 0; i < 2; ++i) {
                p.parts[i] = {stored[i].data(), stored_type, silu_mul ? nullptr : bias.data(),
                              outputs[i].data(), kOutputs};
            }
            p.num_parts = 2;
            p.num_rows = rows;
            p.num_inputs = inputs;
            p.silu_mul = silu_mul;
            runOperation(way, p, matmulGroupCpu, matmulGroupSimt);
            for (size_t i = 0; i < (silu_mul ? 1 : 2); ++i) {
                QVERIFY2(relativeError(outputs[i].values(), expected[i]) <= kTolerance,
                         wayName(way));
                QVERIFY(outputs[i].fenceIsWhole() && normed.fenceIsWhole());
            }
        }
    }

    // As many launches as there are types that follow each other; none of silu_mul.
    void aGroupIsOneLaunch() {
        Product product(TensorType::kF16, 3, 64, 8, 0);
        Fenced<float> output(3 * 8);
        MatmulGroupParams group;
        group.input = product.params.input;
        for (MatmulPart& part : group.parts) {
            part = {product.params.weight, TensorType::kF16, nullptr, output.data(), 8};
        }
        group.num_parts = 2;
        group.num_rows = 3;
        group.num_inputs = 64;
        QVERIFY(launchMatmulGroup(group, nullptr));
        group.silu_mul = true;
        QVERIFY(launchMatmulGroup(group, nullptr));
        group.parts[1].type = TensorType::kBF16;
        QVERIFY(!launchMatmulGroup(group, nullptr));
        group.parts[1].type = TensorType::kF16;
        group.num_rows = 33;
        QVERIFY(!launchMatmulGroup(group, nullptr));
    }

    void refusesGroupsThatCannotBe() {
        ExecutionContext context;
        Product product(TensorType::kF16, 1, 64, 8, 0);
        Fenced<float> output(8);
        MatmulGroupParams good;
        good.input = product.params.input;
        for (MatmulPart& part : good.parts) {
            part = {product.params.weight, TensorType::kF16, nullptr, output.data(), 8};
        }
        good.num_parts = 2;
        good.num_inputs = 64;
        matmulGroupSimt(good, context);  // no rows: nothing to do
        good.num_rows = 1;
        const auto refused = [&](const auto& change) {
            MatmulGroupParams bad = good;
            change(bad);
            QVERIFY_THROWS_EXCEPTION(std::invalid_argument, matmulGroupSimt(bad, context));
        };
        refused([](MatmulGroupParams& p) { p.num_parts = 0; });
        refused([](MatmulGroupParams& p) { p.num_parts = 4; });
        refused([](MatmulGroupParams& p) { p.parts[1].output = nullptr; });
        refused([](MatmulGroupParams& p) { p.norm_weight = p.input; });  // no room for the rows
        good.silu_mul = true;
        matmulGroupSimt(good, context);
        refused([](MatmulGroupParams& p) { p.num_parts = 3; });
        refused([](MatmulGroupParams& p) { p.parts[1].num_outputs = 7; });
        refused([&](MatmulGroupParams& p) { p.parts[0].bias = output.data(); });
    }

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
