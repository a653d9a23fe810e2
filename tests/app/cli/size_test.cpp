// SPDX-License-Identifier: MIT
#include "tests/app/cli/cli_test_support.h"

namespace kvlab {

class SizeTest : public QObject {
    Q_OBJECT

  private slots:
    void llama3HasItsKeysAndNumbers();
    void latentModelHasNoHeads();
    void windowedModelStopsGrowing();
    void int8CountsItsScales();
    void memoryAsksWhatFits();
    void longSequencesStayExact();
    void badCalls_data();
    void badCalls();
};

void SizeTest::llama3HasItsKeysAndNumbers() {
    const CliResult result = runCli({"size", "--model", "llama-3-70b", "--seq", "8192", "--batch",
                                     "32", "--dtype", "bf16", "--json"});
    KVLAB_VERIFY_SUCCESS(result);
    const QJsonObject json = result.json();
    const QStringList keys = {"bytes_per_sequence", "bytes_per_token", "bytes_total",
                              "head_dim",           "kv_heads",        "layers"};
    QCOMPARE(json.keys(), keys);
    QCOMPARE(json["layers"].toInt(), 80);
    QCOMPARE(json["kv_heads"].toInt(), 8);
    QCOMPARE(json["head_dim"].toInt(), 128);
    QCOMPARE(json["bytes_per_token"].toInteger(), 327'680);
    QCOMPARE(json["bytes_per_sequence"].toInteger(), 2'684'354'560);
    QCOMPARE(json["bytes_total"].toInteger(), 85'899'345'920);
}

void SizeTest::latentModelHasNoHeads() {
    const CliResult result = runCli({"size", "--model", "deepseek-v3", "--seq", "1", "--json"});
    KVLAB_VERIFY_SUCCESS(result);
    const QJsonObject json = result.json();
    QVERIFY(json.contains("kv_heads") && json["kv_heads"].isNull());
    QCOMPARE(json["latent_dim"].toInt(), 576);
    QCOMPARE(json["bytes_per_token"].toInteger(), 70'272);
}

void SizeTest::windowedModelStopsGrowing() {
    const CliResult gemma = runCli({"size", "--model", "gemma-3-4b", "--seq", "131072", "--json"});
    KVLAB_VERIFY_SUCCESS(gemma);
    // 5 global layers see everything, 29 local ones their window of 1,024; 4,096 B a layer.
    QCOMPARE(gemma.json()["bytes_per_sequence"].toInteger(),
             (qint64(5) * 131'072 + qint64(29) * 1'024) * 4'096);
    const CliResult mistral =
        runCli({"size", "--model", "mistral-7b-v0.1", "--seq", "32768", "--json"});
    KVLAB_VERIFY_SUCCESS(mistral);
    QCOMPARE(mistral.json()["bytes_per_token"].toInteger(), 131'072);
    QCOMPARE(mistral.json()["bytes_per_sequence"].toInteger(), qint64(131'072) * 4'096);

    // The window may begin within a block: 257 of the 2,560 blocks each.
    const QStringList fits = {"size", "--seq", "16384", "--utilisation", "1", "--vram"};
    const CliResult nine = runCli(fits + QStringList{"5GiB", "--model", "mistral-7b-v0.1"});
    KVLAB_VERIFY_SUCCESS(nine);
    QVERIFY2(nine.out.contains("+ 1) = 257") && nine.out.contains("⌊2,560 / 257⌋ = 9"), nine.out);
    QVERIFY(!nine.out.contains("Assumed"));
    // Of layers that differ it says what it counts, and what this engine does: 6,103 / 1,024.
    const CliResult mixed = runCli(fits + QStringList{"13600000000", "--model", "gemma-3-4b"});
    KVLAB_VERIFY_SUCCESS(mixed);
    QVERIFY2(mixed.out.contains("Assumed: each layer") &&
                 mixed.out.contains("5 sequences fit in its 6,103 blocks"),
             mixed.out);
}

void SizeTest::int8CountsItsScales() {
    const CliResult result =
        runCli({"size", "--model", "llama-3-8b", "--seq", "1", "--dtype", "int8", "--json"});
    KVLAB_VERIFY_SUCCESS(result);
    QCOMPARE(result.json()["bytes_per_token"].toInteger(), 2 * 32 * 8 * (128 + 4));
}

void SizeTest::memoryAsksWhatFits() {
    const QStringList call = {"size",        "--model",       "llama-3-8b", "--vram",
                              "24GiB",       "--utilisation", "1",          "--weights-bytes",
                              "16060522496", "--json",        "--seq"};
    const CliResult slabs = runCli(call + QStringList{"8192"});
    KVLAB_VERIFY_SUCCESS(slabs);
    QCOMPARE(slabs.json()["blocks_fit"].toInteger(), 4'629);
    QCOMPARE(slabs.json()["sequences_fit"].toInteger(), 9);
    const CliResult paged = runCli(call + QStringList{"800"});
    KVLAB_VERIFY_SUCCESS(paged);
    QCOMPARE(paged.json()["sequences_fit"].toInteger(), 92);

    // A size with a unit, as --vram takes it.
    const QStringList weights = {"size", "--model", "llama-3-8b", "--vram", "24GiB", "--json"};
    const CliResult bytes = runCli(weights + QStringList{"--weights-bytes", "16000000000"});
    const CliResult units = runCli(weights + QStringList{"--weights-bytes", "16GB"});
    KVLAB_VERIFY_SUCCESS(units);
    QCOMPARE(units.out, bytes.out);
    const CliResult hint = runCli({"size", "--model", "llama-3-8b", "--vram", "24GiB"});
    QVERIFY2(hint.out.contains("(in bf16: 15.0 GiB)"), hint.out);

    // The default leaves a tenth free.
    const CliResult most =
        runCli({"size", "--model", "llama-3-70b", "--seq", "8192", "--vram", "80GB", "--json"});
    KVLAB_VERIFY_SUCCESS(most);
    QCOMPARE(most.json()["blocks_fit"].toInteger(), qint64(72'000'000'000) / (327'680 * 16));
}

void SizeTest::longSequencesStayExact() {
    const CliResult result =
        runCli({"size", "--model", "llama-3-70b", "--seq", "200000", "--json"});
    KVLAB_VERIFY_SUCCESS(result);
    QCOMPARE(result.json()["bytes_per_sequence"].toInteger(), 65'536'000'000);
}

void SizeTest::badCalls_data() {
    QTest::addColumn<QStringList>("arguments");
    const QStringList model = {"size", "--model", "llama-3-70b"};
    QTest::newRow("no model") << QStringList{"size"};
    QTest::newRow("unknown model") << QStringList{"size", "--model", "llama-9"};
    QTest::newRow("empty model") << QStringList{"size", "--model", ""};
    QTest::newRow("model with a line break") << QStringList{"size", "--model", "a\nb"};
    QTest::newRow("zero tokens") << model + QStringList{"--seq", "0"};
    QTest::newRow("negative tokens") << model + QStringList{"--seq", "-1"};
    QTest::newRow("not a number") << model + QStringList{"--seq", "many"};
    QTest::newRow("nan") << model + QStringList{"--seq", "nan"};
    QTest::newRow("fraction") << model + QStringList{"--seq", "1.5"};
    QTest::newRow("trailing text") << model + QStringList{"--seq", "8192x"};
    QTest::newRow("beyond 64 bits") << model + QStringList{"--seq", "99999999999999999999999"};
    QTest::newRow("result too large")
        << model + QStringList{"--seq", "1000000000000", "--batch", "1000000000000"};
    QTest::newRow("zero sequences") << model + QStringList{"--batch", "0"};
    QTest::newRow("unknown type") << model + QStringList{"--dtype", "f8"};
    QTest::newRow("no memory") << model + QStringList{"--vram", "0"};
    QTest::newRow("unknown unit") << model + QStringList{"--vram", "80XB"};
    QTest::newRow("negative memory") << model + QStringList{"--vram", "-80GB"};
    QTest::newRow("huge memory") << model + QStringList{"--vram", "99999999999999TB"};
    QTest::newRow("no share") << model + QStringList{"--vram", "80GB", "--utilisation", "0"};
    QTest::newRow("share above 1") << model + QStringList{"--vram", "80GB", "--utilisation", "2"};
    QTest::newRow("share nan") << model + QStringList{"--vram", "80GB", "--utilisation", "nan"};
    QTest::newRow("block 0") << model + QStringList{"--vram", "80GB", "--block-size", "0"};
    QTest::newRow("block 257") << model + QStringList{"--vram", "80GB", "--block-size", "257"};
    for (const char* value : {"", "x", "-1", "1.5", "80XB", "2000000TB"}) {
        QTest::addRow("weights \"%s\"", value)
            << model + QStringList{"--vram", "80GB", "--weights-bytes", value};
    }
    QTest::newRow("share without memory") << model + QStringList{"--utilisation", "0.5"};
    QTest::newRow("unknown option") << model + QStringList{"--sequence", "5"};
}

void SizeTest::badCalls() {
    QFETCH(QStringList, arguments);
    KVLAB_VERIFY_REFUSAL(runCli(arguments), 2);
    KVLAB_VERIFY_REFUSAL(runCli(arguments + QStringList{"--json"}), 2);
}

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::SizeTest)
#include "size_test.moc"
