// SPDX-License-Identifier: MIT
#include "kernels/tensor_type.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <QTest>

#include "kernels/cpu/vector_paths.h"
#include "kernels/half.h"
#include "kernels/quantise.h"
#include "kernels/reference/dequantise_reference.h"

namespace kvlab {
#if defined(__x86_64__)
extern const VectorPaths kVectorPaths_baseline;
extern const VectorPaths kVectorPaths_avx2;
extern const VectorPaths kVectorPaths_avx512;
#endif
}  // namespace kvlab

using namespace kvlab;

namespace {

// Every path that this machine can run.
std::vector<const VectorPaths*> runnablePaths() {
    std::vector<const VectorPaths*> paths{&vectorPaths()};
#if defined(__x86_64__)
    paths.push_back(&kVectorPaths_baseline);
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (has_avx2) paths.push_back(&kVectorPaths_avx2);
    if (has_avx2 && __builtin_cpu_supports("avx512f")) paths.push_back(&kVectorPaths_avx512);
#endif
    return paths;
}

// Both the reference and every fast path must read `bytes` as `expected`.
void verifyReads(TensorType type,
                 const std::vector<uint8_t>& bytes,
                 const std::vector<double>& expected) {
    QCOMPARE(static_cast<int>(bytes.size()), tensorBlockBytes(type));
    QCOMPARE(static_cast<int>(expected.size()), tensorBlockValues(type));
    QCOMPARE(dequantiseReference(type, bytes.data(), static_cast<int64_t>(expected.size())),
             expected);
    for (const VectorPaths* paths : runnablePaths()) {
        std::vector<float> values(expected.size());
        paths->dequantise(bytes.data(), type, static_cast<int64_t>(values.size()), values.data());
        for (size_t i = 0; i < values.size(); ++i) {
            QVERIFY2(values[i] == static_cast<float>(expected[i]),
                     qPrintable(QString("%1, value %2: %3, not %4")
                                    .arg(paths->name)
                                    .arg(i)
                                    .arg(values[i])
                                    .arg(expected[i])));
        }
    }
}

}  // namespace

class TensorTypeTest : public QObject {
    Q_OBJECT

  private slots:
    // Bytes laid by hand from the description in tensor_type.h; 0x3400, 0x3800 and 0x4000 are 0.25,
    // 0.5 and 2 as f16.
    void q8_0ByHand() {
        std::vector<uint8_t> bytes{0x00, 0x38};
        std::vector<double> expected;
        for (int i = 0; i < 32; ++i) {
            const int q = i == 31 ? -128 : 8 * i - 120;
            bytes.push_back(static_cast<uint8_t>(q));
            expected.push_back(0.5 * q);
        }
        verifyReads(TensorType::kQ8_0, bytes, expected);
    }

    void q4_0ByHand() {
        std::vector<uint8_t> bytes{0x00, 0x40};
        std::vector<double> expected(32);
        for (int j = 0; j < 16; ++j) {
            bytes.push_back(static_cast<uint8_t>(j | (15 - j) << 4));
            expected[static_cast<size_t>(j)] = 2. * (j - 8);
            expected[static_cast<size_t>(j + 16)] = 2. * (7 - j);
        }
        verifyReads(TensorType::kQ4_0, bytes, expected);
    }

    void q4_KByHand() {
        // Scales 1 2 3 63 17 33 49 62, minima 0 1 2 63 5 20 40 63.
        std::vector<uint8_t> bytes{0x00, 0x34, 0x00, 0x38, 0x41, 0x82, 0xc3, 0xff,
                                   0x00, 0x41, 0x82, 0xff, 0x51, 0x41, 0x81, 0xfe};
        const int scales[] = {1, 2, 3, 63, 17, 33, 49, 62};
        const int minima[] = {0, 1, 2, 63, 5, 20, 40, 63};
        for (int i = 0; i < 128; ++i) {
            bytes.push_back(static_cast<uint8_t>(i % 16 | (15 - (i + i / 16) % 16) << 4));
        }
        std::vector<double> expected;
        for (int group = 0; group < 8; ++group) {
            for (int l = 0; l < 32; ++l) {
                const int i = 32 * (group / 2) + l;
                const int q = group % 2 == 0 ? i % 16 : 15 - (i + i / 16) % 16;
                expected.push_back(0.25 * scales[group] * q - 0.5 * minima[group]);
            }
        }
        verifyReads(TensorType::kQ4_K, bytes, expected);
    }

    void q6_KByHand() {
        std::vector<uint8_t> bytes;
        for (int i = 0; i < 128; ++i) {
            bytes.push_back(static_cast<uint8_t>(i % 16 | (15 - (i + i / 16) % 16) << 4));
        }
        // High bits of the four quarters: 0 1 2 3 in even bytes, 3 2 1 0 in odd ones.
        for (int i = 0; i < 64; ++i) bytes.push_back(i % 2 == 0 ? 0xe4 : 0x1b);
        for (int group = 0; group < 16; ++group) {
            bytes.push_back(static_cast<uint8_t>(16 * group - 128));
        }
        bytes.push_back(0x00);
        bytes.push_back(0x38);
        std::vector<double> expected;
        for (int i = 0; i < 256; ++i) {
            const int quarter = i / 32 % 4;
            const int at = i / 128 * 64 + i % 64;  // byte of the low bits
            const int low = quarter < 2 ? at % 16 : 15 - (at + at / 16) % 16;
            const int high = i % 2 == 0 ? quarter : 3 - quarter;
            expected.push_back(0.5 * (16 * (i / 16) - 128) * (low + 16 * high - 32));
        }
        verifyReads(TensorType::kQ6_K, bytes, expected);
    }

    // Any bytes that a file may hold, NaN and infinite scales included: all paths agree bit for bit
    // with one another and with the double-precision reference.
    void everyPathReadsAnyBytesLikeTheReference() {
        std::mt19937 random(5);
        for (const TensorType type : kAllTensorTypes) {
            const int64_t num_values = 100 * std::max(tensorBlockValues(type), 16);
            std::vector<uint8_t> bytes(static_cast<size_t>(tensorBytes(type, num_values)));
            for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
            const auto expected = dequantiseReference(type, bytes.data(), num_values);
            for (const VectorPaths* paths : runnablePaths()) {
                std::vector<float> values(static_cast<size_t>(num_values));
                paths->dequantise(bytes.data(), type, num_values, values.data());
                for (size_t i = 0; i < values.size(); ++i) {
                    const auto wanted = static_cast<float>(expected[i]);
                    QVERIFY2(values[i] == wanted || (std::isnan(values[i]) && std::isnan(wanted)),
                             qPrintable(QString("%1 %2, value %3: %4, not %5")
                                            .arg(paths->name, tensorTypeName(type))
                                            .arg(i)
                                            .arg(values[i])
                                            .arg(expected[i])));
                }
            }
        }
    }

    void rowsOfPlainTypesEndAnywhere() {
        for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16}) {
            for (const int num_values : {1, 15, 17, 37}) {
                std::vector<float> values;
                for (int i = 0; i < num_values; ++i) values.push_back(static_cast<float>(i - 7));
                const auto stored = quantise(type, values.data(), num_values);
                for (const VectorPaths* paths : runnablePaths()) {
                    std::vector<float> wide(values.size() + 1, -99.f);
                    paths->dequantise(stored.data(), type, num_values, wide.data());
                    QCOMPARE(wide.back(), -99.f);
                    wide.pop_back();
                    QCOMPARE(wide, values);
                }
            }
        }
    }

    // The quantisers write what the reader reads: the error is that of the type's bits. The bounds
    // are about a third above what normal values give.
    void quantisersComeNear_data() {
        QTest::addColumn<int>("type");
        QTest::addColumn<double>("bound");  // root mean square of the error over that of the values
        const auto row = [](TensorType type, double bound) {
            QTest::newRow(tensorTypeName(type)) << static_cast<int>(type) << bound;
        };
        row(TensorType::kF32, 0);
        row(TensorType::kF16, 3e-4);
        row(TensorType::kBF16, 3e-3);
        row(TensorType::kQ8_0, 0.008);
        row(TensorType::kQ4_0, 0.12);
        row(TensorType::kQ4_K, 0.11);
        row(TensorType::kQ6_K, 0.03);
    }
    void quantisersComeNear() {
        QFETCH(int, type);
        QFETCH(double, bound);
        std::mt19937_64 random(9);
        std::normal_distribution<float> normal;
        // Weights of a layer 4096 wide, and of one that is all positive.
        for (const float shift : {0.f, 0.05f}) {
            std::vector<float> values(256 * 40);
            for (float& value : values) value = normal(random) / 64.f;
            if (shift > 0) {
                for (float& value : values) value = std::abs(value) + shift;
            }
            const auto count = static_cast<int64_t>(values.size());
            const auto stored = quantise(static_cast<TensorType>(type), values.data(), count);
            const auto read =
                dequantiseReference(static_cast<TensorType>(type), stored.data(), count);
            double error = 0, power = 0;
            for (size_t i = 0; i < values.size(); ++i) {
                error += std::pow(read[i] - double{values[i]}, 2);
                power += std::pow(double{values[i]}, 2);
            }
            QVERIFY2(std::sqrt(error / power) <= bound,
                     qPrintable(QString::number(std::sqrt(error / power))));
        }
    }

    void quantisersKeepZeros() {
        const std::vector<float> zeros(256, 0.f);
        for (const TensorType type : kAllTensorTypes) {
            const auto stored = quantise(type, zeros.data(), 256);
            QCOMPARE(dequantiseReference(type, stored.data(), 256), std::vector<double>(256, 0.));
        }
    }
};

QTEST_GUILESS_MAIN(TensorTypeTest)
#include "tensor_type_test.moc"
