// SPDX-License-Identifier: MIT
#include <QJsonArray>
#include <QTemporaryDir>

#include "tests/app/cli/cli_test_support.h"

namespace kvlab {

class BenchTest : public QObject {
    Q_OBJECT

  private slots:
    void everyBenchGivesMediansAndRatios();
    void writtenModelIsTheGeneratedOne();
};

// How fast is not asked here.
void BenchTest::everyBenchGivesMediansAndRatios() {
    QTemporaryDir folder;
    QVERIFY(folder.isValid());
    const QString model = folder.filePath("tiny.gguf");
    writeTinyModel(model);
    // The temporary trace goes where this test can see that it was taken away again.
    const CliResult result =
        runCli({"bench", "--quick", "--model", model, "--json"}, {{"TMPDIR", folder.path()}});
    KVLAB_VERIFY_SUCCESS(result);
    QStringList names;
    QStringList wanted;
    for (const QJsonValue& bench : result.json()["benches"].toArray()) {
        names.append(bench["name"].toString());
        const QJsonObject medians = bench["medians"].toObject();
        QVERIFY(medians.size() >= 2);
        for (const QJsonValue& value : medians) QVERIFY(value.toDouble() > 0);
        const QJsonObject ratios = bench["ratio"].toObject();
        QVERIFY(!ratios.isEmpty());
        for (const QJsonValue& value : ratios) QVERIFY(value.toDouble() > 0);
        for (const QString& name : bench["targets"].toObject().keys()) {
            QVERIFY(ratios.contains(name));
            wanted.append(bench["name"].toString() + '/' + name);
        }
        if (names.last() == "decode") {
            // A ratio is that of the medians beside it.
            QCOMPARE(ratios["8_sequences_to_1"].toDouble(),
                     medians["8_sequences"].toDouble() / medians["1_sequence"].toDouble());
            QCOMPARE(ratios["1_sequence_to_floor"].toDouble(),
                     medians["1_sequence"].toDouble() / medians["flop_floor"].toDouble());
        }
    }
    QCOMPARE(names, (QStringList{"machine", "decode", "generated", "prefill", "layout", "fold",
                                 "pool", "tracing"}));
    QCOMPARE(wanted, (QStringList{"generated/1_sequence_to_memory_speed",
                                  "generated/8_sequences_to_1", "layout/paged_to_slab",
                                  "pool/1000000_blocks_to_1000", "tracing/with_to_without"}));
    QCOMPARE(QDir(folder.path()).entryList(QDir::Files), QStringList{"tiny.gguf"});
}

void BenchTest::writtenModelIsTheGeneratedOne() {
    QTemporaryDir folder;
    QVERIFY(folder.isValid());
    const QString model = folder.filePath("generated.gguf");
    const CliResult written = runCli({"bench", "--quick", "--write-model", model});
    KVLAB_VERIFY_SUCCESS(written);
    QVERIFY(written.out.isEmpty());
    const CliResult run =
        runCli({"generate", "--model", model, "--prompt", "x", "--max-tokens", "3", "--json"});
    KVLAB_VERIFY_SUCCESS(run);
    KVLAB_VERIFY_REFUSAL(
        runCli({"bench", "--quick", "--write-model", "/no/such/folder/model.gguf"}), 1);
}

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::BenchTest)
#include "bench_test.moc"
