// SPDX-License-Identifier: MIT
#include <QJsonArray>
#include <QTemporaryDir>

#include "tests/app/cli/cli_test_support.h"

namespace kvlab {

class BenchTest : public QObject {
    Q_OBJECT

  private slots:
    void everyBenchGivesMediansAndARatio();
};

void BenchTest::everyBenchGivesMediansAndARatio() {
    QTemporaryDir folder;
    QVERIFY(folder.isValid());
    const QString model = folder.filePath("tiny.gguf");
    writeTinyModel(model);
    // The temporary trace goes where this test can see that it was taken away again.
    const CliResult result =
        runCli({"bench", "--model", model, "--json"}, {{"TMPDIR", folder.path()}});
    KVLAB_VERIFY_SUCCESS(result);
    QStringList names;
    for (const QJsonValue& bench : result.json()["benches"].toArray()) {
        names.append(bench["name"].toString());
        const QJsonObject medians = bench["medians"].toObject();
        QVERIFY(medians.size() >= 2);
        for (const QJsonValue& value : medians) QVERIFY(value.toDouble() > 0);
        const QJsonObject ratio = bench["ratio"].toObject();
        QCOMPARE(ratio.size(), 1);
        QVERIFY(ratio.begin().value().toDouble() > 0);
    }
    QCOMPARE(names, (QStringList{"decode", "prefill", "fold", "pool", "tracing"}));
    QCOMPARE(QDir(folder.path()).entryList(QDir::Files), QStringList{"tiny.gguf"});
}

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::BenchTest)
#include "bench_test.moc"
