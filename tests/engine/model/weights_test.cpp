// SPDX-License-Identifier: MIT
#include "engine/model/weights.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include <QFile>
#include <QFileInfo>
#include <QTemporaryDir>
#include <QTest>

#include "engine/error.h"
#include "engine/model/gguf_writer.h"
#include "engine/model/tokenizer.h"
#include "kernels/reference/dequantise_reference.h"
#include "tests/support/expect_error.h"

namespace kvlab {
namespace {

ModelConfig smallConfig() {
    ModelConfig config;
    config.name = "small";
    config.architecture = "llama";
    config.num_layers = 2;
    config.num_heads = 4;
    config.num_kv_heads = 2;
    config.head_dim = 6;
    config.rope_dim = 4;
    config.embedding_dim = 10;
    config.feed_forward_dim = 14;
    config.vocab_size = 270;
    config.context_len = 128;
    config.rope_base = 50000.f;
    config.rms_epsilon = 1e-6f;
    return config;
}

bool sameMatrix(const WeightMatrix& a, const WeightMatrix& b) {
    const auto num_bytes =
        static_cast<size_t>(tensorBytes(a.type, int64_t{a.num_rows} * a.num_cols));
    return a.type == b.type && a.num_rows == b.num_rows && a.num_cols == b.num_cols &&
           std::memcmp(a.data, b.data, num_bytes) == 0;
}

float valueAt(const WeightMatrix& matrix, size_t i) {
    return static_cast<float>(dequantisedAt(matrix.type, matrix.data, static_cast<int64_t>(i)));
}

}  // namespace

class WeightsTest : public QObject {
    Q_OBJECT

  private:
    QTemporaryDir dir_;
    std::string path() const { return dir_.filePath("model.gguf").toStdString(); }

    // A complete model file whose keys and tensors a test may change before it is written.
    struct Draft {
        std::map<std::string, uint32_t> ints;
        std::map<std::string, float> floats;
        std::map<std::string, std::string> strings;
        std::map<std::string, std::vector<int64_t>> shapes;
        std::map<std::string, TensorType> types;
        float divisor = 1.f;  // in rope_freqs.weight, which has one value at rope_dim 2
        std::map<std::string, std::vector<bool>> patterns;
    };
    static Draft draft() {
        Draft d;
        d.strings = {{"general.architecture", "llama"}, {"general.name", "draft"}};
        d.ints = {{"llama.block_count", 1},          {"llama.context_length", 64},
                  {"llama.embedding_length", 8},     {"llama.feed_forward_length", 6},
                  {"llama.attention.head_count", 4}, {"llama.attention.head_count_kv", 2}};
        d.floats = {{"llama.attention.layer_norm_rms_epsilon", 1e-6f}};
        d.shapes = {{"token_embd.weight", {5, 8}},   {"blk.0.attn_norm.weight", {8}},
                    {"blk.0.attn_q.weight", {8, 8}}, {"blk.0.attn_k.weight", {4, 8}},
                    {"blk.0.attn_v.weight", {4, 8}}, {"blk.0.attn_output.weight", {8, 8}},
                    {"blk.0.ffn_norm.weight", {8}},  {"blk.0.ffn_gate.weight", {6, 8}},
                    {"blk.0.ffn_up.weight", {6, 8}}, {"blk.0.ffn_down.weight", {8, 6}},
                    {"output_norm.weight", {8}}};
        return d;
    }
    std::shared_ptr<const ModelWeights> load(const Draft& d) const {
        static const std::vector<float> kZeros(4096, 0.f);
        GgufWriter writer;
        for (const auto& [key, value] : d.strings) writer.setString(key, value);
        for (const auto& [key, value] : d.ints) writer.setUint32(key, value);
        for (const auto& [key, value] : d.floats) writer.setFloat32(key, value);
        for (const auto& [key, value] : d.patterns) writer.setBools(key, value);
        for (const auto& [name, shape] : d.shapes) {
            const auto type = d.types.find(name);
            const bool is_divisor = name == "rope_freqs.weight";
            writer.addTensor(name, shape, type == d.types.end() ? TensorType::kF32 : type->second,
                             is_divisor ? &d.divisor : kZeros.data());
        }
        writer.write(path());
        return ModelWeights::fromGguf(GgufFile::open(path()));
    }

  private slots:
    void roundTripsThroughAFile_data() {
        QTest::addColumn<int>("type");
        QTest::addColumn<bool>("tied");
        for (const TensorType type : kAllTensorTypes) {
            for (const bool tied : {false, true}) {
                QTest::newRow(qPrintable(QString("%1 %2").arg(tensorTypeName(type)).arg(tied)))
                    << static_cast<int>(type) << tied;
            }
        }
    }
    void roundTripsThroughAFile() {
        QFETCH(int, type);
        QFETCH(bool, tied);
        ModelConfig config = smallConfig();
        if (isQuantised(static_cast<TensorType>(type))) {
            // Rows are whole blocks.
            config.embedding_dim = 256;
            config.feed_forward_dim = 512;
            config.head_dim = 64;
        }
        const auto made = ModelWeights::random(config, 7, tied, static_cast<TensorType>(type));
        writeModelGguf(*made, path());
        const auto file = GgufFile::open(path());
        const auto read = ModelWeights::fromGguf(file);
        QCOMPARE(read->config.name, config.name);
        QCOMPARE(read->config.architecture, config.architecture);
        QCOMPARE(read->config.num_layers, config.num_layers);
        QCOMPARE(read->config.num_heads, config.num_heads);
        QCOMPARE(read->config.num_kv_heads, config.num_kv_heads);
        QCOMPARE(read->config.head_dim, config.head_dim);
        QCOMPARE(read->config.rope_dim, config.rope_dim);
        QCOMPARE(read->config.embedding_dim, config.embedding_dim);
        QCOMPARE(read->config.feed_forward_dim, config.feed_forward_dim);
        QCOMPARE(read->config.vocab_size, config.vocab_size);
        QCOMPARE(read->config.context_len, config.context_len);
        QCOMPARE(read->config.rope_base, config.rope_base);
        QCOMPARE(read->config.rms_epsilon, config.rms_epsilon);
        QCOMPARE(read->config.tied_output, tied);
        QCOMPARE(read->config.rope_style, RopeStyle::kInterleaved);
        QVERIFY(!read->config.has_attention_bias && read->config.rope_divisors.empty() &&
                read->config.layer_windows.empty() && read->config.rope_scale == 1.f);
        QCOMPARE(read->sha256(), file->sha256());
        QVERIFY(made->sha256().empty());
        QVERIFY(sameMatrix(read->token_embedding, made->token_embedding));
        QVERIFY(sameMatrix(read->output_norm, made->output_norm));
        QVERIFY(sameMatrix(read->output, made->output));
        QCOMPARE(read->output.data == read->token_embedding.data, tied);
        for (size_t i = 0; i < made->layers.size(); ++i) {
            const LayerWeights& a = read->layers[i];
            const LayerWeights& b = made->layers[i];
            QVERIFY(sameMatrix(a.attention_norm, b.attention_norm));
            QVERIFY(sameMatrix(a.query, b.query));
            QVERIFY(sameMatrix(a.key, b.key));
            QVERIFY(sameMatrix(a.value, b.value));
            QVERIFY(sameMatrix(a.output, b.output));
            QVERIFY(sameMatrix(a.ffn_norm, b.ffn_norm));
            QVERIFY(sameMatrix(a.gate, b.gate));
            QVERIFY(sameMatrix(a.up, b.up));
            QVERIFY(sameMatrix(a.down, b.down));
        }
        const Tokenizer tokenizer = Tokenizer::fromGguf(*file);
        QCOMPARE(tokenizer.vocabSize(), config.vocab_size);
        const std::string text = "any text: ж\xff\n";
        QCOMPARE(tokenizer.decode(tokenizer.encode(text, true)), text);
    }

    void keepsTheFileAlive() {
        writeModelGguf(*ModelWeights::random(smallConfig(), 1, true, DataType::kF32), path());
        std::shared_ptr<const ModelWeights> weights;
        {
            auto file = GgufFile::open(path());
            weights = ModelWeights::fromGguf(std::move(file));
        }
        QVERIFY(QFile::remove(QString::fromStdString(path())));
        QVERIFY(std::isfinite(valueAt(weights->token_embedding, 3)));
    }

    // Golden: the generator must give the same model on every machine and for ever.
    void generatesTheSameNumbersEverywhere() {
        const auto weights = ModelWeights::random(smallConfig(), 42, false, DataType::kF32);
        const auto again = ModelWeights::random(smallConfig(), 42, false, DataType::kF32);
        QVERIFY(sameMatrix(weights->token_embedding, again->token_embedding));
        QVERIFY(sameMatrix(weights->output, again->output));
        const auto other = ModelWeights::random(smallConfig(), 43, false, DataType::kF32);
        QVERIFY(!sameMatrix(weights->token_embedding, other->token_embedding));
        QVERIFY(!sameMatrix(weights->layers[0].key, weights->layers[1].key));
        QVERIFY(valueAt(weights->token_embedding, 0) == kGolden0);
        QVERIFY(valueAt(weights->layers[1].down, 17) == kGolden1);
        QVERIFY(valueAt(weights->output_norm, 9) == kGolden2);
    }

    void generatesUnitVarianceByFanIn() {
        ModelConfig config = smallConfig();
        config.embedding_dim = 64;
        config.vocab_size = 1000;
        const auto weights = ModelWeights::random(config, 5, true, DataType::kF32);
        double sum = 0.0;
        double sum_of_squares = 0.0;
        const size_t num_elements = 64 * 1000;
        for (size_t i = 0; i < num_elements; ++i) {
            const double value = valueAt(weights->token_embedding, i);
            sum += value;
            sum_of_squares += value * value;
        }
        QVERIFY(std::abs(sum / num_elements) < 0.002);
        QVERIFY(std::abs(sum_of_squares / num_elements * 64 - 1.0) < 0.02);
    }

    void refusesImpossibleShapes() {
        const auto expect = [](const char* part, const std::function<void(ModelConfig&)>& change) {
            ModelConfig config = smallConfig();
            change(config);
            expectError(ErrorKind::kBadArgument, part,
                        [&] { ModelWeights::random(config, 1, true, DataType::kF32); });
        };
        expect("layers", [](ModelConfig& c) { c.num_layers = 0; });
        expect("divisor", [](ModelConfig& c) { c.num_kv_heads = 3; });
        expect("head size", [](ModelConfig& c) { c.head_dim = -4; });
        expect("rotated", [](ModelConfig& c) { c.rope_dim = 3; });
        expect("rotated", [](ModelConfig& c) { c.rope_dim = 8; });
        expect("width", [](ModelConfig& c) {
            c.num_heads = 1 << 20;
            c.num_kv_heads = 1;
            c.head_dim = 1 << 20;
        });
        expect("RoPE base", [](ModelConfig& c) { c.rope_base = std::nanf(""); });
        expect("epsilon", [](ModelConfig& c) { c.rms_epsilon = -1.f; });
    }

    void fillsInDefaults() {
        const auto weights = load(draft());
        QCOMPARE(weights->config.head_dim, 2);
        QCOMPARE(weights->config.rope_dim, 2);
        QCOMPARE(weights->config.rope_base, 10000.f);
        QCOMPARE(weights->config.vocab_size, 5);
        Draft no_kv_count = draft();
        no_kv_count.ints.erase("llama.attention.head_count_kv");
        no_kv_count.shapes["blk.0.attn_k.weight"] = {8, 8};
        no_kv_count.shapes["blk.0.attn_v.weight"] = {8, 8};
        QCOMPARE(load(no_kv_count)->config.num_kv_heads, 4);
    }

    void widensNormsToF32() {
        Draft d = draft();
        d.types = {{"output_norm.weight", TensorType::kF16},
                   {"blk.0.attn_norm.weight", TensorType::kBF16},
                   {"blk.0.attn_q.weight", TensorType::kBF16}};
        const auto weights = load(d);
        QCOMPARE(weights->output_norm.type, TensorType::kF32);
        QCOMPARE(weights->layers[0].attention_norm.type, TensorType::kF32);
        QCOMPARE(weights->layers[0].query.type, TensorType::kBF16);
        QCOMPARE(valueAt(weights->output_norm, 7), 0.f);
    }

    void namesWhatContradicts() {
        const auto expect = [this](ErrorKind kind, const std::string& part,
                                   const std::function<void(Draft&)>& change) {
            Draft d = draft();
            change(d);
            expectError(kind, part, [&] { load(d); });
        };
        const ErrorKind bad = ErrorKind::kBadFile;
        const ErrorKind unsupported = ErrorKind::kUnsupported;
        expect(bad, "names no architecture",
               [](Draft& d) { d.strings.erase("general.architecture"); });
        expect(unsupported, "\"gemma2\", and only llama, mistral and qwen2",
               [](Draft& d) { d.strings["general.architecture"] = "gemma2"; });
        // Its keys start with its own name.
        expect(bad, "qwen2.block_count is missing",
               [](Draft& d) { d.strings["general.architecture"] = "qwen2"; });
        for (const auto& [key, value] : draft().ints) {
            if (key == "llama.attention.head_count_kv") continue;
            const std::string name = key;
            expect(bad, name + " is missing", [&](Draft& d) { d.ints.erase(name); });
        }
        for (const auto& [tensor, shape] : draft().shapes) {
            const std::string name = tensor;
            expect(bad, name + " is missing", [&](Draft& d) { d.shapes.erase(name); });
        }
        expect(bad, "attn_k.weight has the shape [3, 8] where the configuration needs [4, 8]",
               [](Draft& d) {
                   d.shapes["blk.0.attn_k.weight"] = {3, 8};
               });
        expect(bad, "output_norm.weight has the shape [1, 8] where the configuration needs [8]",
               [](Draft& d) {
                   d.shapes["output_norm.weight"] = {1, 8};
               });
        expect(bad, "attn_q", [](Draft& d) {
            d.ints["llama.attention.key_length"] = 4;
            d.ints["llama.attention.value_length"] = 4;
        });
        expect(bad, "layers", [](Draft& d) { d.ints["llama.block_count"] = 1u << 29; });
        expect(bad, "llama.block_count is", [](Draft& d) { d.ints["llama.block_count"] = ~0u; });
        expect(bad, "heads is 0", [](Draft& d) { d.ints["llama.attention.head_count"] = 0; });
        expect(bad, "divisor", [](Draft& d) { d.ints["llama.attention.head_count_kv"] = 3; });
        expect(bad, "divisor", [](Draft& d) { d.ints["llama.attention.head_count"] = 3; });
        expect(bad, "rotated", [](Draft& d) { d.ints["llama.rope.dimension_count"] = 4; });
        expect(bad, "RoPE base", [](Draft& d) { d.floats["llama.rope.freq_base"] = -1.f; });
        expect(bad, "vocab_size", [](Draft& d) { d.ints["llama.vocab_size"] = 6; });
        expect(unsupported, "length", [](Draft& d) { d.ints["llama.attention.value_length"] = 4; });
        expect(unsupported, "expert_count", [](Draft& d) { d.ints["llama.expert_count"] = 8; });
        expect(unsupported, "scales RoPE",
               [](Draft& d) { d.strings["llama.rope.scaling.type"] = "yarn"; });
        expect(unsupported, "\"yarn\"", [](Draft& d) {
            d.strings["llama.rope.scaling.type"] = "yarn";
            d.floats["llama.rope.scaling.factor"] = 1.f;
        });
        expect(unsupported, "\"longrope\"",
               [](Draft& d) { d.strings["llama.rope.scaling.type"] = "longrope"; });
        expect(bad, "no positive number",
               [](Draft& d) { d.floats["llama.rope.scaling.factor"] = -8.f; });
        expect(bad, "original_context_length is missing",
               [](Draft& d) { d.strings["llama.rope.scaling.type"] = "llama3"; });
        expect(bad, "llama3 RoPE scaling", [](Draft& d) {
            d.strings["llama.rope.scaling.type"] = "llama3";
            d.ints["llama.rope.scaling.original_context_length"] = 8192;
            d.floats["llama.rope.scaling.low_freq_factor"] = 4.f;
        });
        expect(unsupported, "attn_q.bias", [](Draft& d) { d.shapes["blk.0.attn_q.bias"] = {8}; });
        expect(bad, "rope_freqs.weight has the shape [2]",
               [](Draft& d) { d.shapes["rope_freqs.weight"] = {2}; });
        for (const float divisor : {0.f, -1.f, std::nanf(""), INFINITY}) {
            expect(bad, "RoPE divisor", [divisor](Draft& d) {
                d.shapes["rope_freqs.weight"] = {1};
                d.divisor = divisor;
            });
        }
        expect(bad, "has 2 entries for 1 layers", [](Draft& d) {
            d.ints["llama.attention.sliding_window"] = 16;
            d.patterns["llama.attention.sliding_window_pattern"] = {true, false};
        });
        expect(bad, "attention.sliding_window is",
               [](Draft& d) { d.ints["llama.attention.sliding_window"] = ~0u; });
        expect(unsupported, "blk.1.attn_q.weight", [](Draft& d) {
            d.shapes["blk.1.attn_q.weight"] = {8, 8};
        });
    }

    void readsMistralAsLlama() {
        Draft d = draft();
        d.strings["general.architecture"] = "mistral";
        std::map<std::string, uint32_t> ints;
        for (const auto& [key, value] : d.ints) ints["mistral" + key.substr(5)] = value;
        d.ints = ints;
        d.ints["mistral.attention.sliding_window"] = 40;
        const auto weights = load(d);
        QCOMPARE(weights->config.rope_style, RopeStyle::kInterleaved);
        QCOMPARE(weights->config.layer_windows, std::vector<int>{40});
    }

    void readsRopeScaling() {
        Draft d = draft();
        d.floats["llama.rope.scaling.factor"] = 8.f;  // no type: linear
        QCOMPARE(load(d)->config.rope_scale, 0.125f);
        d.strings["llama.rope.scaling.type"] = "none";
        QCOMPARE(load(d)->config.rope_scale, 1.f);
        d = draft();
        d.floats["llama.rope.scale_linear"] = 4.f;  // its old name
        QCOMPARE(load(d)->config.rope_scale, 0.25f);
        d = draft();
        d.shapes["rope_freqs.weight"] = {1};
        d.divisor = 3.5f;
        QCOMPARE(load(d)->config.rope_divisors, std::vector<float>{3.5f});
        // A whole model of one pair: its wave of 2 pi tokens is short, so it stays.
        d = draft();
        d.strings["llama.rope.scaling.type"] = "llama3";
        d.floats["llama.rope.scaling.factor"] = 8.f;
        d.ints["llama.rope.scaling.original_context_length"] = 8192;
        QCOMPARE(load(d)->config.rope_divisors, std::vector<float>{1.f});
        d.ints["llama.rope.scaling.original_context_length"] = 4;
        QCOMPARE(load(d)->config.rope_divisors, std::vector<float>{8.f});
    }

    // Llama 3.1: base 500000, 128 values, factor 8, 1 and 4, 8192 tokens. A wave of pair i has
    // 2 pi 500000^(i / 64) tokens: 28 have less than 2048 (the last 1956), 35 and on more than 8192
    // (10 076 at 36, 8208 at 35).
    void llama3DivisorsFollowTheRule() {
        const std::vector<float> divisors = llama3RopeDivisors(500000.f, 128, 8, 1, 4, 8192);
        QCOMPARE(divisors.size(), size_t{64});
        for (size_t i = 0; i <= 28; ++i) QCOMPARE(divisors[i], 1.f);
        for (size_t i = 35; i < 64; ++i) QCOMPARE(divisors[i], 8.f);
        for (size_t i = 29; i < 35; ++i) {
            const double wave = 2 * M_PI * std::exp(std::log(5e5) * static_cast<double>(i) / 64);
            const double share = (8192 / wave - 1) / 3;  // of the unscaled frequency
            QVERIFY(std::abs(1 / double{divisors[i]} - (share + (1 - share) / 8)) < 1e-6);
            QVERIFY(divisors[i] > divisors[i - 1]);
        }
    }

    void readsWindows() {
        ModelConfig config = smallConfig();
        config.num_layers = 4;
        config.layer_windows = {16, 16, 0, 16};
        writeModelGguf(*ModelWeights::random(config, 1, true, DataType::kF32), path());
        QCOMPARE(ModelWeights::configOf(GgufFile::open(path())).layer_windows,
                 config.layer_windows);
        config.layer_windows = {8, 8, 8, 8};
        writeModelGguf(*ModelWeights::random(config, 1, true, DataType::kF32), path());
        QCOMPARE(ModelWeights::configOf(GgufFile::open(path())).layer_windows,
                 config.layer_windows);
        config.layer_windows = {8, 8, 16, 8};
        const auto mixed = ModelWeights::random(config, 1, true, DataType::kF32);
        expectError(ErrorKind::kBadArgument, "one size", [&] { writeModelGguf(*mixed, path()); });
        // A period: every second layer sees everything. One layer is the first of its period.
        Draft d = draft();
        d.ints["llama.attention.sliding_window"] = 16;
        d.ints["llama.attention.sliding_window_pattern"] = 2;
        QCOMPARE(load(d)->config.layer_windows, std::vector<int>{16});
        d.ints["llama.attention.sliding_window_pattern"] = 1;
        QCOMPARE(load(d)->config.layer_windows, std::vector<int>{0});
    }

    void roundTripsQwen2() {
        ModelConfig config = smallConfig();
        config.architecture = "qwen2";
        config.has_attention_bias = true;
        config.rope_style = RopeStyle::kHalfSplit;
        config.rope_scale = 0.25f;
        config.rope_divisors = {1.f, 2.5f};
        const auto made = ModelWeights::random(config, 5, true, DataType::kF16);
        writeModelGguf(*made, path());
        const auto read = ModelWeights::fromGguf(GgufFile::open(path()));
        QCOMPARE(read->config.architecture, std::string("qwen2"));
        QVERIFY(read->config.has_attention_bias);
        QCOMPARE(read->config.rope_style, RopeStyle::kHalfSplit);
        QCOMPARE(read->config.rope_scale, 0.25f);
        QCOMPARE(read->config.rope_divisors, config.rope_divisors);
        for (size_t i = 0; i < made->layers.size(); ++i) {
            QVERIFY(sameMatrix(read->layers[i].query_bias, made->layers[i].query_bias));
            QVERIFY(sameMatrix(read->layers[i].key_bias, made->layers[i].key_bias));
            QVERIFY(sameMatrix(read->layers[i].value_bias, made->layers[i].value_bias));
        }
        QCOMPARE(made->layers[0].query_bias.num_cols, 24);
        QVERIFY(std::abs(valueAt(made->layers[0].key_bias, 3)) < 1.f);  // around 0, norms around 1
        config.has_attention_bias = false;
        writeModelGguf(*ModelWeights::random(config, 5, true, DataType::kF16), path());
        expectError(ErrorKind::kBadFile, "attn_q.bias is missing",
                    [&] { ModelWeights::fromGguf(GgufFile::open(path())); });
    }

    void refusesRowsThatAreNoWholeBlocks() {
        expectError(ErrorKind::kBadArgument, "Q8_0 stores blocks of 32",
                    [] { ModelWeights::random(smallConfig(), 1, true, TensorType::kQ8_0); });
    }

    void refusesAVocabularyOfAnotherSize() {
        const auto weights = ModelWeights::random(smallConfig(), 1, true, DataType::kF32);
        expectError(ErrorKind::kBadArgument, "270",
                    [&] { writeModelGguf(*weights, path(), GgufVocabulary::bytes(271)); });
    }

    // Whatever a damaged header says, loading ends in a model or in a sentence.
    void survivesBitFlipsInTheHeader() {
        ModelConfig config = smallConfig();
        config.num_layers = 1;
        config.vocab_size = 262;
        writeModelGguf(*ModelWeights::random(config, 3, true, DataType::kF16), path());
        QFile file(QString::fromStdString(path()));
        QVERIFY(file.open(QIODevice::ReadWrite));
        const QByteArray bytes = file.readAll();
        const auto header_bytes = static_cast<unsigned>(bytes.indexOf("output_norm") + 64);
        const std::string damaged_path = dir_.filePath("damaged.gguf").toStdString();
        QFile damaged(QString::fromStdString(damaged_path));
        QVERIFY(damaged.open(QIODevice::ReadWrite));
        std::mt19937 random(11);
        int num_refused = 0;
        for (int i = 0; i < 4000; ++i) {
            QByteArray copy = bytes;
            for (unsigned flip = 0; flip < 1 + random() % 2; ++flip) {
                const auto at = static_cast<qsizetype>(random() % header_bytes);
                copy[at] = static_cast<char>(copy[at] ^ (1 << (random() % 8)));
            }
            damaged.seek(0);
            damaged.write(copy);
            damaged.flush();
            try {
                const auto opened = GgufFile::open(damaged_path);
                const Tokenizer tokenizer = Tokenizer::fromGguf(*opened);
                tokenizer.decode(tokenizer.encode("some text \xff\n", true));
                const auto weights = ModelWeights::fromGguf(opened);
                QVERIFY(valueAt(weights->output_norm, 0) < 2.f);
            } catch (const EngineError& error) {
                QVERIFY2(error.kind() != ErrorKind::kInternal, error.what());
                ++num_refused;
            }
        }
        QVERIFY(num_refused > 500);
    }

    // The bundled model and the siblings that differ from it in their K/V heads alone.
    void loadsTheBundledModels_data() {
        QTest::addColumn<QString>("name");
        QTest::addColumn<int>("num_kv_heads");
        QTest::newRow("GQA") << "village" << 2;
        QTest::newRow("MHA") << "village-mha" << 4;
        QTest::newRow("MQA") << "village-mqa" << 1;
    }
    void loadsTheBundledModels() {
        QFETCH(QString, name);
        QFETCH(int, num_kv_heads);
        const auto path = [](const QString& model) {
            return QString(KVLAB_SOURCE_DIR "/assets/model/%1.gguf").arg(model);
        };
        QVERIFY(QFileInfo(path(name)).size() <= 4 * 1024 * 1024);
        const auto file = GgufFile::open(path(name).toStdString());
        const auto weights = ModelWeights::fromGguf(file);
        QCOMPARE(weights->config.architecture, std::string("llama"));
        QCOMPARE(weights->config.vocab_size, Tokenizer::fromGguf(*file).vocabSize());
        QVERIFY(file->metadata().count("general.name") == 1);

        const auto main_file = GgufFile::open(path("village").toStdString());
        const ModelConfig main_config = ModelWeights::configOf(main_file);
        const ModelConfig& config = weights->config;
        QCOMPARE(config.num_kv_heads, num_kv_heads);
        QCOMPARE(config.num_layers, main_config.num_layers);
        QCOMPARE(config.num_heads, main_config.num_heads);
        QCOMPARE(config.head_dim, main_config.head_dim);
        QCOMPARE(config.embedding_dim, main_config.embedding_dim);
        QCOMPARE(config.feed_forward_dim, main_config.feed_forward_dim);
        QCOMPARE(config.context_len, main_config.context_len);
        const std::string text = "A day in the village.\nMira keeps the code 742. Zo\u00eb?";
        QVERIFY(Tokenizer::fromGguf(*file).encode(text, true) ==
                Tokenizer::fromGguf(*main_file).encode(text, true));
    }

  private:
    // Exact, hence compared with == and not with QCOMPARE, which is fuzzy for floats.
    static constexpr float kGolden0 = 0x1.0b8758p-2f;
    static constexpr float kGolden1 = 0x1.5a9f02p-4f;
    static constexpr float kGolden2 = 0x1.40d72p+0f;
};

}  // namespace kvlab

using kvlab::WeightsTest;
QTEST_GUILESS_MAIN(WeightsTest)
#include "weights_test.moc"
