// SPDX-License-Identifier: MIT
#include <cmath>

#include <QElapsedTimer>
#include <QJsonArray>
#include <QRegularExpression>
#include <QTemporaryDir>

#include "engine/model/model_loader.h"
#include "tests/app/cli/cli_test_support.h"

namespace kvlab {

class EvalTest : public QObject {
    Q_OBJECT

  private slots:
    void initTestCase();
    void keysAreThere();
    void allKindsByDefault();
    void textNamesTheKinds();
    void untrainedModelGuesses();
    void batchesAndBlocksChangeNothing();
    void bundledModelRemembers();
    void longRunsSaySo();
    void badCalls_data();
    void badCalls();

  private:
    CliResult eval(const QStringList& arguments) const {
        return runCli(QStringList{"eval", "--model", model_, "--json"} + arguments);
    }

    QTemporaryDir folder_;
    QString model_;
};

void EvalTest::initTestCase() {
    QVERIFY(folder_.isValid());
    model_ = folder_.filePath("tiny.gguf");
    writeTinyModel(model_);
}

void EvalTest::keysAreThere() {
    const CliResult result =
        eval({"--documents", "2", "--doc-tokens", "60", "--updates", "0", "--unanswerable", "0"});
    KVLAB_VERIFY_SUCCESS(result);
    const QJsonObject json = result.json();
    for (const char* key :
         {"perplexity", "accuracy", "accuracy_by_kind", "intervals", "device_bytes", "bytes_moved",
          "blocks_freed", "top_k_coverage", "perplexity_without_answers", "accuracy_by_distance",
          "accuracy_in_range", "false_refusals", "questions"}) {
        QVERIFY2(json.contains(key), key);
    }
    for (const char* key : {"bytes_moved", "blocks_freed", "top_k_coverage"}) {
        QVERIFY2(json[key].isNull(), key);
    }
    QStringList edges = {"20", "100", "200", "400", "600", "800", "1500"};
    edges.sort();
    QCOMPARE(json["accuracy"].toObject().keys(), edges);
    QCOMPARE(json["intervals"].toObject()["accuracy"].toObject().keys(), edges);
    // No document of this length has a fact so far back: not measured, not 0.
    QVERIFY(json["accuracy"].toObject()["1500"].isNull());
    const QJsonObject kinds = json["accuracy_by_kind"].toObject();
    QCOMPARE(kinds.keys(), (QStringList{"stated", "unanswerable", "updated"}));
    QVERIFY(kinds["updated"].isNull());
    QVERIFY(kinds["unanswerable"].isNull());
    // Every share has an interval under the same key.
    const QJsonObject intervals = json["intervals"].toObject();
    for (const char* key : {"accuracy_by_kind", "accuracy_by_distance", "accuracy_in_range"}) {
        QCOMPARE(intervals[key].toObject().keys(), json[key].toObject().keys());
    }
    for (const char* key : {"perplexity", "perplexity_without_answers"}) {
        const QJsonArray interval = intervals[key].toArray();
        QCOMPARE(interval.size(), 2);
        QVERIFY2(interval.at(0).toDouble() < json[key].toDouble(), key);
        QVERIFY2(interval.at(1).toDouble() > json[key].toDouble(), key);
    }
}

void EvalTest::allKindsByDefault() {
    const CliResult result = eval({"--documents", "10", "--doc-tokens", "500"});
    KVLAB_VERIFY_SUCCESS(result);
    const QJsonObject questions = result.json()["questions"].toObject();
    const QJsonObject by_kind = questions["by_kind"].toObject();
    for (const char* kind : {"stated", "updated", "unanswerable"}) {
        const QJsonObject counts = by_kind[kind].toObject();
        QVERIFY2(counts["all"].toInt() > 0, kind);
        int sum = counts["below_20"].toInt();
        for (const char* edge : {"20", "100", "200", "400", "600", "800", "1500"}) {
            sum += counts[edge].toInt();
        }
        QCOMPARE(sum, counts["all"].toInt());
    }
    QCOMPARE(questions["all"], by_kind["stated"].toObject()["all"]);
}

void EvalTest::textNamesTheKinds() {
    const CliResult result =
        runCli({"eval", "--model", model_, "--documents", "2", "--doc-tokens", "60"});
    KVLAB_VERIFY_SUCCESS(result);
    for (const char* part : {"2 documents", "stated facts", "updated facts", "unanswerable",
                             "false refusals", "perplexity without the answers' values"}) {
        QVERIFY2(result.out.contains(part), part);
    }
}

void EvalTest::untrainedModelGuesses() {
    const CliResult result = eval({"--documents", "2", "--doc-tokens", "60"});
    KVLAB_VERIFY_SUCCESS(result);
    // Logits of a generated model are small, so it is not far from choosing among all 320 tokens.
    const double perplexity = result.json()["perplexity"].toDouble();
    QVERIFY2(perplexity > 200 && perplexity < 600, qPrintable(QString::number(perplexity)));
    QCOMPARE(result.json()["accuracy_by_kind"].toObject()["stated"].toDouble(-1), 0.0);
    const QJsonArray interval =
        result.json()["intervals"].toObject()["accuracy_by_kind"].toObject()["stated"].toArray();
    QCOMPARE(interval.size(), 2);
    QCOMPARE(interval.at(0).toDouble(), 0.0);
    QVERIFY(interval.at(1).toDouble() > 0 && interval.at(1).toDouble() < 1);
}

void EvalTest::batchesAndBlocksChangeNothing() {
    const QStringList call = {"--documents", "3", "--doc-tokens", "40", "--seed", "5"};
    const CliResult base = eval(call);
    KVLAB_VERIFY_SUCCESS(base);
    for (const QStringList& variant :
         {QStringList{"--block-size", "7"}, QStringList{"--threads", "1"},
          QStringList{"--token-budget", "2"}}) {
        const CliResult result = eval(call + variant);
        KVLAB_VERIFY_SUCCESS(result);
        QCOMPARE(result.json()["perplexity"], base.json()["perplexity"]);
        QCOMPARE(result.json()["accuracy"], base.json()["accuracy"]);
    }
    const CliResult other = eval({"--documents", "3", "--doc-tokens", "40", "--seed", "6"});
    QVERIFY(other.json()["perplexity"] != base.json()["perplexity"]);
}

void EvalTest::bundledModelRemembers() {
    if (!QFile::exists(QString::fromStdString(bundledModelPath()))) {
        QSKIP("the bundled model is missing");
    }
    const CliResult result = runCli({"eval", "--documents", "4", "--doc-tokens", "500", "--json"});
    KVLAB_VERIFY_SUCCESS(result);
    const QJsonObject json = result.json();
    QVERIFY(json["perplexity"].toDouble() < 10);
    QVERIFY(json["accuracy_by_kind"].toObject()["stated"].toDouble() > 0.9);
    QVERIFY(json["device_bytes"].toInteger() > 0);
    QVERIFY(json["false_refusals"].toDouble(1) < 0.1);
    QVERIFY(json["perplexity_without_answers"].toDouble() > json["perplexity"].toDouble());
}

// Minutes without a word would look like a hang. Only the first lines are waited for.
void EvalTest::longRunsSaySo() {
    QProcess process;
    process.start(QStringLiteral(KVLAB_CLI_PATH),
                  {"eval", "--model", model_, "--documents", "20000", "--doc-tokens", "1000"});
    process.setReadChannel(QProcess::StandardError);
    QElapsedTimer waited;
    waited.start();
    const auto line = [&] {
        while (!process.canReadLine() && waited.elapsed() < 120'000) process.waitForReadyRead(1000);
        return process.readLine();
    };
    const QByteArray first = line();
    const QByteArray second = line();
    process.kill();
    process.waitForFinished();
    QVERIFY2(first.startsWith("kvlab-cli: note: reading 20,000 documents of about 1,000 tokens"),
             first);
    static const QRegularExpression kShare("^kvlab-cli: note: ([0-9]+\\.[0-9]) % read\n$");
    QVERIFY2(kShare.match(QString::fromUtf8(second)).hasMatch(), second);
}

void EvalTest::badCalls_data() {
    QTest::addColumn<QStringList>("arguments");
    for (const char* value : {"0", "-1", "x", "nan", "", "99999999999999"}) {
        QTest::addRow("documents \"%s\"", value) << QStringList{"--documents", value};
        QTest::addRow("doc-tokens \"%s\"", value) << QStringList{"--doc-tokens", value};
    }
    for (const char* value : {"-1", "101", "x", "5%", ""}) {
        QTest::addRow("updates \"%s\"", value) << QStringList{"--updates", value};
        QTest::addRow("unanswerable \"%s\"", value) << QStringList{"--unanswerable", value};
    }
    for (const char* value : {"-1", "x", "nan", ""}) {
        QTest::addRow("seed \"%s\"", value) << QStringList{"--seed", value};
    }
    QTest::newRow("layout") << QStringList{"--doc-layout", "sideways"};
    QTest::newRow("pool too small") << QStringList{"--documents", "1", "--blocks", "1"};
}

void EvalTest::badCalls() {
    QFETCH(QStringList, arguments);
    KVLAB_VERIFY_REFUSAL(eval(arguments), 2);
}

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::EvalTest)
#include "eval_test.moc"
