// SPDX-License-Identifier: MIT
#include "kernels/simt/mma.h"

#include <random>
#include <vector>

#include <QtTest>

using namespace kvlab;

namespace {

struct Matrices {
    const float* a;        // [16, 16]
    const float* b;        // [16, 8]
    float* c;              // [16, 8]
    uint16_t* square;      // [8, 8]
    uint16_t* transposed;  // [8, 8]
};

// The layout table of mma.h, written out.
template <typename T>
__global__ void mmaTestKernel(Matrices m) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    const int t = static_cast<int>(threadIdx.x) % 4;
    const auto pairOf = [](const float* matrix, int stride, int row, int column, int row_step,
                           int column_step) {
        return packPair(fromFloat<T>(matrix[row * stride + column]),
                        fromFloat<T>(matrix[(row + row_step) * stride + column + column_step]));
    };
    uint32_t a[4];
    a[0] = pairOf(m.a, 16, g, 2 * t, 0, 1);
    a[1] = pairOf(m.a, 16, g + 8, 2 * t, 0, 1);
    a[2] = pairOf(m.a, 16, g, 2 * t + 8, 0, 1);
    a[3] = pairOf(m.a, 16, g + 8, 2 * t + 8, 0, 1);
    uint32_t b[2];
    b[0] = pairOf(m.b, 8, 2 * t, g, 1, 0);
    b[1] = pairOf(m.b, 8, 2 * t + 8, g, 1, 0);
    float c[4] = {m.c[g * 8 + 2 * t], m.c[g * 8 + 2 * t + 1], m.c[(g + 8) * 8 + 2 * t],
                  m.c[(g + 8) * 8 + 2 * t + 1]};
    mma16x8x16<T>(c, a, b);
    a[0] = b[1] = 0;  // what a lane gave is its own again
    m.c[g * 8 + 2 * t] = c[0];
    m.c[g * 8 + 2 * t + 1] = c[1];
    m.c[(g + 8) * 8 + 2 * t] = c[2];
    m.c[(g + 8) * 8 + 2 * t + 1] = c[3];

    const uint32_t word = transpose8x8(m.square[g * 8 + 2 * t] |
                                       static_cast<uint32_t>(m.square[g * 8 + 2 * t + 1]) << 16);
    m.transposed[g * 8 + 2 * t] = static_cast<uint16_t>(word);
    m.transposed[g * 8 + 2 * t + 1] = static_cast<uint16_t>(word >> 16);
}

}  // namespace

class MmaTest : public QObject {
    Q_OBJECT

  private slots:
    // Whole numbers, so that every order of summing gives the same.
    void agreesWithPlainLoops() {
        std::mt19937 random(5);
        const auto draw = [&](size_t count) {
            std::vector<float> values;
            for (size_t i = 0; i < count; ++i) {
                values.push_back(static_cast<float>(random() % 255u) - 127.f);
            }
            return values;
        };
        for (const bool use_half : {true, false}) {
            for (const simt::Settings& settings :
                 {simt::Settings{}, simt::Settings{simt::LaneOrder::kReverse, 0},
                  simt::Settings{simt::LaneOrder::kRandom, 1},
                  simt::Settings{simt::LaneOrder::kRandom, 2}}) {
                const simt::ScopedSettings scoped(settings);
                const std::vector<float> a = draw(16 * 16), b = draw(16 * 8);
                std::vector<float> c = draw(16 * 8);
                std::vector<float> expected = c;
                for (size_t row = 0; row < 16; ++row) {
                    for (size_t column = 0; column < 8; ++column) {
                        for (size_t k = 0; k < 16; ++k) {
                            expected[row * 8 + column] += a[row * 16 + k] * b[k * 8 + column];
                        }
                    }
                }
                std::vector<uint16_t> square, transposed(64);
                for (uint16_t i = 0; i < 64; ++i) square.push_back(i);
                const Matrices matrices{a.data(), b.data(), c.data(), square.data(),
                                        transposed.data()};
                if (use_half) {
                    KVLAB_LAUNCH((mmaTestKernel<Half>), 1, 32, 0, nullptr, matrices);
                } else {
                    KVLAB_LAUNCH((mmaTestKernel<Bfloat16>), 1, 32, 0, nullptr, matrices);
                }
                QCOMPARE(c, expected);
                for (size_t row = 0; row < 8; ++row) {
                    for (size_t column = 0; column < 8; ++column) {
                        QCOMPARE(transposed[row * 8 + column], square[column * 8 + row]);
                    }
                }
            }
        }
    }

    // 1 + 1.5 · 2^-24 and 1 - 1.5 · 2^-24 lie between two f32: the one nearer to 0 comes, as from
    // the hardware.
    void sumsAreCutOffTowardsZero() {
        std::vector<float> a(16 * 16, 0.f), b(16 * 8, 0.f), c(16 * 8, 1.f);
        for (size_t row = 0; row < 16; ++row) a[row * 16] = row % 2 == 0 ? 1.f : -1.f;
        for (size_t column = 0; column < 8; ++column) b[column] = 0x1.8p-24f;
        for (size_t i = 8 * 8; i < 16 * 8; ++i) c[i] = -1.f;
        std::vector<uint16_t> square(64), transposed(64);
        const Matrices matrices{a.data(), b.data(), c.data(), square.data(), transposed.data()};
        KVLAB_LAUNCH((mmaTestKernel<Bfloat16>), 1, 32, 0, nullptr, matrices);
        for (size_t row = 0; row < 16; ++row) {
            const float one = row < 8 ? 1.f : -1.f;
            const bool grows = (row % 2 == 0) == (row < 8);
            const float expected = grows ? one : one * (1.f - 0x1p-23f);
            for (size_t column = 0; column < 8; ++column) {
                QCOMPARE(c[row * 8 + column], expected);
            }
        }
    }
};

QTEST_GUILESS_MAIN(MmaTest)
#include "mma_test.moc"
