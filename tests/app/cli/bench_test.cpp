// SPDX-License-Identifier: MIT
#include <sys/stat.h>

#include <QJsonArray>
#include <QTemporaryDir>

#include "tests/app/cli/cli_test_support.h"

namespace kvlab {

class BenchTest : public QObject {
    Q_OBJECT

  private slots:
    void everyBenchGivesMediansAndRatios();
    void writtenModelIsTheGeneratedOne();
    void optionsWithoutEffectAreRefused();
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
    const QStringList write = {"bench", "--quick", "--write-model"};
    KVLAB_VERIFY_REFUSAL(runCli(write + QStringList{"/no/such/folder/model.gguf"}), 1);

    // Through links, also to what is not there yet; the link stays.
    const QByteArray bytes = readBytes(model);
    for (const char* target : {"other.gguf", "fresh.gguf"}) {
        const QString link = folder.filePath(QString("link to ") + target);
        QVERIFY(QFile::link(target, link));
        if (QByteArray(target) == "other.gguf") {
            QVERIFY(writeBytes(folder.filePath(target), "old"));
        }
        KVLAB_VERIFY_SUCCESS(runCli(write + QStringList{link}));
        QVERIFY(QFileInfo(link).isSymLink());
        QCOMPARE(readBytes(folder.filePath(target)), bytes);
    }
    // Onto what is no file: refused before a model is made, and nothing is left behind.
    const QString pipe = folder.filePath("pipe");
    QCOMPARE(mkfifo(pipe.toLocal8Bit(), 0600), 0);
    const QStringList before = QDir(folder.path()).entryList(QDir::Files | QDir::System);
    const auto full = QStringList{"bench", "--write-model"};
    for (const QString& place : {folder.path(), pipe, folder.filePath("none/model.gguf")}) {
        KVLAB_VERIFY_REFUSAL(runCli(full + QStringList{place}, {}, 20'000), 1);
    }
    KVLAB_VERIFY_REFUSAL(runCli(full + QStringList{""}), 2);
    QCOMPARE(QDir(folder.path()).entryList(QDir::Files | QDir::System), before);
}

void BenchTest::optionsWithoutEffectAreRefused() {
    const QStringList write = {"bench", "--quick", "--write-model", "/nowhere/model.gguf"};
    const QStringList cuda = {"bench", "--quick", "--backend", "cuda"};
    for (const char* option :
         {"--model", "--kv-dtype", "--block-size", "--blocks", "--threads", "--token-budget"}) {
        const QString value = QByteArray(option) == "--kv-dtype" ? "f16" : "1";
        for (const QStringList& call : {write, cuda}) {
            const CliResult result = runCli(call + QStringList{option, value});
            KVLAB_VERIFY_REFUSAL(result, 2);
            QVERIFY2(result.err.contains("has no effect"), result.err);
        }
    }
    // Of the benches that were named none obeys it.
    for (const char* call :
         {"pool --kv-dtype int8", "pool --threads 2", "pool --backend simt", "machine --model @",
          "machine --token-budget 9", "machine pool --block-size 8", "machine --blocks 9",
          "generated --model @", "layout --blocks 9"}) {
        const CliResult result = runCli(QStringList{"bench", "--quick"} + QString(call).split(' '));
        KVLAB_VERIFY_REFUSAL(result, 2);
        QVERIFY2(result.err.contains("has no effect on bench"), result.err);
    }
    KVLAB_VERIFY_SUCCESS(runCli({"bench", "--quick", "machine", "--threads", "1"}));
    KVLAB_VERIFY_SUCCESS(
        runCli({"bench", "--quick", "pool", "decode", "--kv-dtype", "int8", "--blocks", "300"}));
    for (const QStringList& more :
         {QStringList{"pool"}, QStringList{"--json"}, QStringList{"--backend", "cuda"}}) {
        KVLAB_VERIFY_REFUSAL(runCli(write + more), 2);
    }
}

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::BenchTest)
#include "bench_test.moc"
