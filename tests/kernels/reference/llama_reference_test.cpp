// SPDX-License-Identifier: MIT
#include "kernels/reference/llama_reference.h"

#include <cmath>
#include <stdexcept>
#include <vector>

#include <QtTest>

#include "kernels/half.h"

using namespace kvlab;

namespace {

// One layer, dim 2, one head of 2, all matrices the identity or zero, so that every step can be
// followed by hand. Vocabulary: e0 = (3, 4), e1 = (4, -3).
struct TinyModel {
    std::vector<float> embedding = {3, 4, 4, -3};
    std::vector<float> identity = {1, 0, 0, 1};
    std::vector<float> zero = {0, 0, 0, 0};
    std::vector<float> ones = {1, 1};
    LlamaReferenceModel model;

    TinyModel() {
        model.vocab_size = 2;
        model.dim = 2;
        model.num_heads = 1;
        model.num_kv_heads = 1;
        model.head_dim = 2;
        model.feed_forward_dim = 2;
        model.rope_dim = 2;
        model.norm_epsilon = 0;
        model.embedding = {embedding.data()};
        model.output_norm = {ones.data()};
        model.head = model.embedding;
        LlamaReferenceLayer layer;
        layer.attention_norm = layer.feed_forward_norm = {ones.data()};
        layer.query = layer.key = layer.value = layer.output = {zero.data()};
        layer.gate = layer.up = layer.down = {zero.data()};
        model.layers = {layer};
    }
    TinyModel(const TinyModel&) = delete;
};

// Norm by hand: |(a, b)|² / 2 under the root.
std::vector<double> normed(double a, double b) {
    const double rms = std::sqrt((a * a + b * b) / 2);
    return {a / rms, b / rms};
}

void verifyNear(const std::vector<double>& actual, const std::vector<double>& expected) {
    QCOMPARE(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
        QVERIFY2(std::abs(actual[i] - expected[i]) < 1e-12,
                 qPrintable(QString("%1: %2, not %3").arg(i).arg(actual[i]).arg(expected[i])));
    }
}

}  // namespace

class LlamaReferenceTest : public QObject {
    Q_OBJECT

  private slots:
    void residualNormAndTiedHead() {
        TinyModel tiny;
        const double root = std::sqrt(12.5);
        // x = e0 all the way; logits = e · x / rms(x), rms(3, 4) = sqrt(12.5)
        verifyNear(llamaReference(tiny.model, {0}), {25 / root, 0});
        verifyNear(llamaReference(tiny.model, {0, 1}), {25 / root, 0, 0, 25 / root});
        verifyNear(llamaReference(tiny.model, {0, 1}, true), {0, 25 / root});
        QVERIFY(llamaReference(tiny.model, {}).empty());
    }

    void untiedHead() {
        TinyModel tiny;
        tiny.model.head = {tiny.identity.data()};
        verifyNear(llamaReference(tiny.model, {1}), normed(4, -3));
    }

    // gate = up = down = identity: x + silu(m) m
    void feedForward() {
        TinyModel tiny;
        tiny.model.head = {tiny.identity.data()};
        LlamaReferenceLayer& layer = tiny.model.layers[0];
        layer.gate = layer.up = layer.down = {tiny.identity.data()};
        const std::vector<double> m = normed(3, 4);
        const auto silu = [](double v) { return v / (1 + std::exp(-v)); };
        verifyNear(llamaReference(tiny.model, {0}),
                   normed(3 + silu(m[0]) * m[0], 4 + silu(m[1]) * m[1]));
    }

    // Position 0 is not turned; at position 1 the pair turns by 1 radian (base^0). e1 is e0 turned
    // by -90°, so with q = k = n: q1·k1 = 2, q1·k0 = 2 cos(-90° + 1 rad) = 2 sin 1.
    void ropeAndCausalAttention() {
        TinyModel tiny;
        tiny.model.head = {tiny.identity.data()};
        LlamaReferenceLayer& layer = tiny.model.layers[0];
        layer.query = layer.key = layer.value = layer.output = {tiny.identity.data()};
        const std::vector<double> n0 = normed(3, 4);
        const std::vector<double> n1 = normed(4, -3);
        const double s0 = 2 * std::sin(1.) / std::sqrt(2.);
        const double s1 = 2 / std::sqrt(2.);
        const double w0 = std::exp(s0) / (std::exp(s0) + std::exp(s1));
        const double w1 = 1 - w0;
        std::vector<double> expected = normed(3 + n0[0], 4 + n0[1]);
        for (const double value :
             normed(4 + w0 * n0[0] + w1 * n1[0], -3 + w0 * n0[1] + w1 * n1[1])) {
            expected.push_back(value);
        }
        verifyNear(llamaReference(tiny.model, {0, 1}), expected);
    }

    void storedTypesAndKvRounding() {
        TinyModel tiny;
        std::vector<uint16_t> halves;
        for (const float value : tiny.embedding) halves.push_back(floatToHalf(value));
        const std::vector<double> from_f32 = llamaReference(tiny.model, {1, 0});
        tiny.model.embedding = tiny.model.head = {halves.data(), TensorType::kF16};
        verifyNear(llamaReference(tiny.model, {1, 0}), from_f32);

        LlamaReferenceLayer& layer = tiny.model.layers[0];
        layer.value = layer.output = {tiny.identity.data()};
        tiny.model.head = {tiny.identity.data()};
        const std::vector<double> n = normed(3, 4);
        const auto rounded = [](double v) {
            return static_cast<double>(halfToFloat(floatToHalf(static_cast<float>(v))));
        };
        verifyNear(llamaReference(tiny.model, {0}, true, DataType::kF16),
                   normed(3 + rounded(n[0]), 4 + rounded(n[1])));
        // n is (3, 4) · √2 / 5: the larger value is 127 scales, the smaller 95.25 of them.
        const float scale = static_cast<float>(n[1]) / 127.f;
        verifyNear(llamaReference(tiny.model, {0}, true, DataType::kInt8),
                   normed(3 + 95. * scale, 4 + 127. * scale));
    }

    void attentionReadsTheSubstitute() {
        TinyModel tiny;
        LlamaReferenceLayer& layer = tiny.model.layers[0];
        layer.value = layer.output = {tiny.identity.data()};
        tiny.model.head = {tiny.identity.data()};
        const std::vector<double> n = normed(3, 4);
        std::vector<double> seen;
        verifyNear(
            llamaReference(tiny.model, {0}, true,
                           [&](int index, std::vector<double>&, std::vector<double>& values) {
                               QCOMPARE(index, 0);
                               seen = values;
                               values = {5, -7};
                           }),
            normed(3 + 5, 4 - 7));
        verifyNear(seen, n);  // exact, not rounded to any type
        QVERIFY_THROWS_EXCEPTION(
            std::invalid_argument,
            (void)llamaReference(
                tiny.model, {0}, true,
                [](int, std::vector<double>& keys, std::vector<double>&) { keys.pop_back(); }));
    }

    void impossibleModelsAreRefused() {
        TinyModel tiny;
        QVERIFY_THROWS_EXCEPTION(std::invalid_argument, (void)llamaReference(tiny.model, {2}));
        QVERIFY_THROWS_EXCEPTION(std::invalid_argument, (void)llamaReference(tiny.model, {-1}));
        tiny.model.rope_dim = 4;
        QVERIFY_THROWS_EXCEPTION(std::invalid_argument, (void)llamaReference(tiny.model, {0}));
        tiny.model.rope_dim = 2;
        tiny.model.layers[0].down = {};
        QVERIFY_THROWS_EXCEPTION(std::invalid_argument, (void)llamaReference(tiny.model, {0}));
    }
};

QTEST_GUILESS_MAIN(LlamaReferenceTest)
#include "llama_reference_test.moc"
