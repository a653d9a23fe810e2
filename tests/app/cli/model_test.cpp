// SPDX-License-Identifier: MIT
#include <QJsonArray>
#include <QTemporaryDir>

#include "tests/app/cli/cli_test_support.h"

namespace kvlab {

class ModelTest : public QObject {
    Q_OBJECT

  private:
    QTemporaryDir dir_;
    QString path(const char* name) const { return dir_.filePath(name); }

    // Two layers of whole Q4_K blocks; the embedding is tied.
    static ModelConfig quantisedConfig() {
        ModelConfig config;
        config.name = "small";
        config.architecture = "qwen2";
        config.num_layers = 2;
        config.num_heads = 4;
        config.num_kv_heads = 2;
        config.head_dim = 64;
        config.rope_dim = 64;
        config.embedding_dim = 256;
        config.feed_forward_dim = 512;
        config.vocab_size = 300;
        config.context_len = 128;
        config.rope_style = RopeStyle::kHalfSplit;
        config.rope_scale = 0.5f;
        config.has_attention_bias = true;
        return config;
    }

  private slots:
    void printsWhatTheFileHolds();
    void countsWhatFits();
    void windowsStopGrowing();
    void quantisedModelsDecode();
    void theTextSaysTheSame();
    void refusalsNameTheReason();
};

void ModelTest::printsWhatTheFileHolds() {
    writeModelGguf(*ModelWeights::random(quantisedConfig(), 3, true, TensorType::kQ4_K),
                   path("q4.gguf").toStdString());
    const CliResult result = runCli({"model", path("q4.gguf"), "--json"});
    KVLAB_VERIFY_SUCCESS(result);
    const QJsonObject json = result.json();
    QCOMPARE(json["architecture"].toString(), "qwen2");
    QCOMPARE(json["layers"].toInt(), 2);
    QCOMPARE(json["heads"].toInt(), 4);
    QCOMPARE(json["kv_heads"].toInt(), 2);
    QCOMPARE(json["head_dim"].toInt(), 64);
    QCOMPARE(json["vocab_size"].toInt(), 300);
    QCOMPARE(json["context_len"].toInt(), 128);
    QCOMPARE(json["rope"].toObject()["style"].toString(), "half-split");
    QCOMPARE(json["rope"].toObject()["scaling"].toString(), "linear");
    QCOMPARE(json["rope"].toObject()["scale"].toDouble(), 0.5);
    QVERIFY(json["attention_bias"].toBool() && json["tied_output"].toBool());
    QVERIFY(json.contains("sliding_window") && json["sliding_window"].isNull());
    QCOMPARE(json["tokenizer"].toString(), "llama");
    // A layer: Q and output 256 x 256, K and V 128 x 256, three of 512 x 256, at 4.5 bits.
    const qint64 values = 300 * 256 + 2 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 512 * 256);
    const QJsonObject types = json["tensor_types"].toObject();
    QCOMPARE(types.keys(), (QStringList{"F32", "Q4_K"}));
    QCOMPARE(types["Q4_K"].toObject()["tensors"].toInt(), 1 + 2 * 7);
    QCOMPARE(types["Q4_K"].toObject()["bytes"].toInteger(), values / 256 * 144);
    QCOMPARE(types["F32"].toObject()["tensors"].toInt(), 1 + 2 * 5);
    // Norms of 256, biases of 256 and twice 128.
    QCOMPARE(types["F32"].toObject()["bytes"].toInteger(), 4 * (256 + 2 * (2 * 256 + 512)));
    QCOMPARE(json["weights_bytes"].toInteger(), values / 256 * 144 + 4 * (256 + 2 * 1024));
    const QJsonObject per_token = json["bytes_per_token"].toObject();
    QCOMPARE(per_token["f32"].toInt(), 2 * 2 * 2 * 64 * 4);
    QCOMPARE(per_token["f16"].toInt(), 2 * 2 * 2 * 64 * 2);
    QCOMPARE(per_token["bf16"].toInt(), 2 * 2 * 2 * 64 * 2);
    QCOMPARE(per_token["int8"].toInt(), 2 * 2 * 2 * (64 + 4));
}

void ModelTest::countsWhatFits() {
    writeModelGguf(*ModelWeights::random(quantisedConfig(), 3, true, TensorType::kF16),
                   path("f16.gguf").toStdString());
    const QStringList call = {"model", path("f16.gguf"), "--utilisation", "1", "--json"};
    const CliResult all = runCli(call);
    KVLAB_VERIFY_SUCCESS(all);
    QVERIFY(all.json()["memory_bytes"].toInteger() > 0);
    QVERIFY(all.json()["blocks_fit"].toInteger() > 1000);
    const qint64 weights = all.json()["weights_bytes"].toInteger();
    // 1,024 B a token: blocks of 16 take 16 KiB, sequences of 128 tokens 8 blocks.
    const qint64 memory = weights + 20 * 16'384 + 5;
    const CliResult some =
        runCli(call + QStringList{"--vram", QString::number(memory), "--dtype", "bf16"});
    KVLAB_VERIFY_SUCCESS(some);
    QCOMPARE(some.json()["blocks_fit"].toInteger(), 20);
    QCOMPARE(some.json()["sequences_fit"].toInteger(), 2);
    const CliResult none = runCli(call + QStringList{"--vram", QString::number(weights / 2)});
    KVLAB_VERIFY_SUCCESS(none);
    QCOMPARE(none.json()["blocks_fit"].toInteger(), 0);
}

void ModelTest::windowsStopGrowing() {
    ModelConfig config = quantisedConfig();
    config.layer_windows = {32, 0};
    const auto weights = ModelWeights::random(config, 3, true, TensorType::kF16);
    writeModelGguf(*weights, path("window.gguf").toStdString());
    const CliResult result = runCli({"model", path("window.gguf"), "--vram", "1GB", "--json"});
    KVLAB_VERIFY_SUCCESS(result);
    QCOMPARE(result.json()["sliding_window"].toInt(), 32);
    QCOMPARE(result.json()["windowed_layers"].toInt(), 1);
    QCOMPARE(result.json()["window_frees_blocks"].toBool(), false);
    const QByteArray mixed = runCli({"model", path("window.gguf")}).out;
    QVERIFY2(mixed.contains("frees no block") && mixed.contains("Assumed: each layer"), mixed);
    config.layer_windows = {32, 32};
    writeModelGguf(*ModelWeights::random(config, 1, true, DataType::kF32),
                   path("uniform.gguf").toStdString());
    const CliResult uniform = runCli({"model", path("uniform.gguf"), "--json"});
    QCOMPARE(uniform.json()["window_frees_blocks"].toBool(), true);

    // 32 tokens that may begin within a block of 16: 3 blocks, and the engine runs with no fewer.
    const qint64 block_bytes = uniform.json()["bytes_per_token"].toObject()["f16"].toInteger() * 16;
    QVERIFY(writeBytes(path("one.jsonl"),
                       "{\"arrival_ms\":0,\"prompt_tokens\":[5,6,7],\"max_tokens\":90}\n"));
    for (const int num_blocks : {2, 3, 5, 6}) {
        const qint64 memory =
            uniform.json()["weights_bytes"].toInteger() + num_blocks * block_bytes;
        const CliResult fits = runCli({"model", path("uniform.gguf"), "--seq", "92", "--json",
                                       "--utilisation", "1", "--vram", QString::number(memory)});
        KVLAB_VERIFY_SUCCESS(fits);
        QCOMPARE(fits.json()["blocks_fit"].toInt(), num_blocks);
        QCOMPARE(fits.json()["sequences_fit"].toInt(), num_blocks / 3);
        const CliResult run =
            runCli({"replay", "--model", path("uniform.gguf"), "--requests", path("one.jsonl"),
                    "--blocks", QString::number(num_blocks), "--ignore-eos", "--json"});
        KVLAB_VERIFY_SUCCESS(run);
        QCOMPARE(run.json()["requests"].toArray()[0].toObject()["status"].toString(),
                 num_blocks < 3 ? "refused" : "finished");
    }
}

// The whole road: file, loader, forward pass, in each stored type.
void ModelTest::quantisedModelsDecode() {
    for (const TensorType type : kAllTensorTypes) {
        writeModelGguf(*ModelWeights::random(quantisedConfig(), 3, true, type),
                       path("decode.gguf").toStdString());
        const CliResult result = runCli({"generate", "--model", path("decode.gguf"), "--prompt",
                                         "abc", "--max-tokens", "3", "--ignore-eos", "--json"});
        KVLAB_VERIFY_SUCCESS(result);
        QVERIFY(!result.json()["token_ids"].isUndefined());
    }
}

void ModelTest::theTextSaysTheSame() {
    writeModelGguf(*ModelWeights::random(quantisedConfig(), 3, true, TensorType::kQ6_K),
                   path("q6.gguf").toStdString());
    const CliResult result = runCli({"model", path("q6.gguf")});
    KVLAB_VERIFY_SUCCESS(result);
    for (const char* part : {"qwen2", "Q6_K", "half-split", "tied", "1 KiB", "blocks that fit"}) {
        QVERIFY2(result.out.contains(part), part);
    }
}

void ModelTest::refusalsNameTheReason() {
    KVLAB_VERIFY_REFUSAL(runCli({"model", path("none.gguf")}), 1);
    QVERIFY(writeBytes(path("text.gguf"), "no model"));
    KVLAB_VERIFY_REFUSAL(runCli({"model", path("text.gguf"), "--json"}), 1);
    writeTinyModel(path("tiny.gguf"));
    QByteArray bytes = readBytes(path("tiny.gguf"));
    const qsizetype at = bytes.indexOf("llama", bytes.indexOf("general.architecture"));
    QVERIFY(at > 0);
    bytes.replace(at, 5, "mamba");
    QVERIFY(writeBytes(path("mamba.gguf"), bytes));
    const CliResult result = runCli({"model", path("mamba.gguf")});
    KVLAB_VERIFY_REFUSAL(result, 1);
    QVERIFY(result.err.contains("mamba"));
    for (const QStringList& wrong :
         {QStringList{"--dtype", "f8"}, QStringList{"--vram", "0"}, QStringList{"--seq", "0"},
          QStringList{"--block-size", "257"}, QStringList{"--utilisation", "2"}}) {
        KVLAB_VERIFY_REFUSAL(runCli(QStringList{"model", path("tiny.gguf")} + wrong), 2);
    }
}

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::ModelTest)
#include "model_test.moc"
