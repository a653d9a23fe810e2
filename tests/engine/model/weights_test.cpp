// SPDX-License-Identifier: MIT
#include "engine/model/weights.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include <QFile>
#include <QTemporaryDir>
#include <QTest>

#include "engine/error.h"
#include "engine/model/gguf_writer.h"
#include "engine/model/tokenizer.h"
#include "kernels/half.h"

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
    const auto num_bytes = static_cast<size_t>(a.num_rows) * static_cast<size_t>(a.num_cols) *
                           static_cast<size_t>(dataTypeBytes(a.dtype));
    return a.dtype == b.dtype && a.num_rows == b.num_rows && a.num_cols == b.num_cols &&
           std::memcmp(a.data, b.data, num_bytes) == 0;
}

float valueAt(const WeightMatrix& matrix, size_t i) {
    if (matrix.dtype == DataType::kF32) return static_cast<const float*>(matrix.data)[i];
    const uint16_t stored = static_cast<const uint16_t*>(matrix.data)[i];
    return matrix.dtype == DataType::kF16 ? halfToFloat(stored) : bfloat16ToFloat(stored);
}

}  // namespace

class WeightsTest : public QObject {
    Q_OBJECT

  private:
    QTemporaryDir dir_;
    std::string path() const { return dir_.filePath("model.gguf").toStdString(); }

    static void expectError(ErrorKind kind,
                            const std::string& part,
                            const std::function<void()>& call) {
        try {
            call();
        } catch (const EngineError& error) {
            const std::string message = error.what();
            if (error.kind() != kind || message.find(part) == std::string::npos ||
                message.find('\n') != std::string::npos) {
                QFAIL(("unexpected error: " + message).c_str());
            }
            return;
        }
        QFAIL("no error was thrown");
    }

    // A complete model file whose keys and tensors a test may change before it is written.
    struct Draft {
        std::map<std::string, uint32_t> ints;
        std::map<std::string, float> floats;
        std::map<std::string, std::string> strings;
        std::map<std::string, std::vector<int64_t>> shapes;
        std::map<std::string, DataType> types;
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
        for (const auto& [name, shape] : d.shapes) {
            const auto type = d.types.find(name);
            writer.addTensor(name, shape, type == d.types.end() ? DataType::kF32 : type->second,
                             kZeros.data());
        }
        writer.write(path());
        return ModelWeights::fromGguf(GgufFile::open(path()));
    }

  private slots:
    void roundTripsThroughAFile_data() {
        QTest::addColumn<int>("dtype");
        QTest::addColumn<bool>("tied");
        for (const DataType dtype : {DataType::kF32, DataType::kF16, DataType::kBF16}) {
            for (const bool tied : {false, true}) {
                QTest::newRow(qPrintable(QString("%1 %2").arg(dataTypeName(dtype)).arg(tied)))
                    << static_cast<int>(dtype) << tied;
            }
        }
    }
    void roundTripsThroughAFile() {
        QFETCH(int, dtype);
        QFETCH(bool, tied);
        const ModelConfig config = smallConfig();
        const auto made = ModelWeights::random(config, 7, tied, static_cast<DataType>(dtype));
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
        QCOMPARE(read->sha256, file->sha256());
        QVERIFY(made->sha256.empty());
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
        d.types = {{"output_norm.weight", DataType::kF16},
                   {"blk.0.attn_norm.weight", DataType::kBF16},
                   {"blk.0.attn_q.weight", DataType::kBF16}};
        const auto weights = load(d);
        QCOMPARE(weights->output_norm.dtype, DataType::kF32);
        QCOMPARE(weights->layers[0].attention_norm.dtype, DataType::kF32);
        QCOMPARE(weights->layers[0].query.dtype, DataType::kBF16);
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
        expect(unsupported, "\"qwen2\"",
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
        expect(unsupported, "scales RoPE",
               [](Draft& d) { d.floats["llama.rope.scaling.factor"] = 8.f; });
        expect(unsupported, "attn_q.bias", [](Draft& d) { d.shapes["blk.0.attn_q.bias"] = {8}; });
        expect(unsupported, "rope_freqs.weight",
               [](Draft& d) { d.shapes["rope_freqs.weight"] = {1}; });
        expect(unsupported, "blk.1.attn_q.weight", [](Draft& d) {
            d.shapes["blk.1.attn_q.weight"] = {8, 8};
        });
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

    void loadsTheBundledModel() {
        const QString bundled = QStringLiteral(KVLAB_SOURCE_DIR "/assets/model/village.gguf");
        if (!QFile::exists(bundled)) QSKIP("assets/model/village.gguf is not there yet");
        const auto file = GgufFile::open(bundled.toStdString());
        const auto weights = ModelWeights::fromGguf(file);
        QCOMPARE(weights->config.architecture, std::string("llama"));
        QCOMPARE(weights->config.vocab_size, Tokenizer::fromGguf(*file).vocabSize());
        QVERIFY(file->metadata().count("general.name") == 1);
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
