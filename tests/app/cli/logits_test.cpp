// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include <QJsonArray>
#include <QTemporaryDir>

#include "engine/model/model_loader.h"
#include "tests/app/cli/cli_test_support.h"

namespace kvlab {

class LogitsTest : public QObject {
    Q_OBJECT

  private slots:
    void initTestCase();
    void generatedModelAgreesWithTheChecker();
    void bundledModelAgreesWithTheChecker();
    void chunksChangeNoLogit();
    void tokenizeGoesThereAndBack();
    void badCalls_data();
    void badCalls();
    void truncatedModelsAreRefused();
    void flippedModelsNeverCrash();

  private:
    // Logits of the engine and of assets/model/check_gguf.py.
    void compareWithChecker(const QString& model, const QString& tokens, double tolerance);

    QTemporaryDir folder_;
    QString model_;
    bool has_numpy_ = false;
};

QString checkerPath() { return QStringLiteral(KVLAB_SOURCE_DIR "/assets/model/check_gguf.py"); }

QList<double> logitsOf(const QByteArray& output) {
    QList<double> logits;
    for (const QJsonValue& value : QJsonDocument::fromJson(output).object()["logits"].toArray()) {
        logits.append(value.toDouble());
    }
    return logits;
}

void LogitsTest::initTestCase() {
    QVERIFY(folder_.isValid());
    model_ = folder_.filePath("tiny.gguf");
    writeTinyModel(model_);
    QProcess python;
    python.start("/usr/bin/python3", {"-c", "import numpy"});
    has_numpy_ = python.waitForFinished() && python.exitStatus() == QProcess::NormalExit &&
                 python.exitCode() == 0 && QFile::exists(checkerPath());
}

void LogitsTest::compareWithChecker(const QString& model, const QString& tokens, double tolerance) {
    const CliResult result =
        runCli({"logits", "--model", model, "--tokens", tokens, "--kv-dtype", "f32", "--json"});
    KVLAB_VERIFY_SUCCESS(result);
    QProcess python;
    python.start("/usr/bin/python3", {checkerPath(), model, "--tokens", tokens});
    QVERIFY(python.waitForFinished(300'000));
    QVERIFY2(python.exitCode() == 0, python.readAllStandardError().constData());
    const QList<double> ours = logitsOf(result.out);
    const QList<double> theirs = logitsOf(python.readAllStandardOutput());
    QVERIFY(!ours.isEmpty());
    QCOMPARE(ours.size(), theirs.size());
    double largest = 0;
    double error = 0;
    for (qsizetype i = 0; i < ours.size(); ++i) {
        largest = std::max(largest, std::abs(theirs[i]));
        error = std::max(error, std::abs(ours[i] - theirs[i]));
    }
    QVERIFY2(
        error <= tolerance * std::max(1.0, largest),
        qPrintable(QStringLiteral("largest error %1 at logits up to %2").arg(error).arg(largest)));
}

void LogitsTest::generatedModelAgreesWithTheChecker() {
    if (!has_numpy_) QSKIP("/usr/bin/python3 has no NumPy: the independent check is left out");
    for (const char* tokens : {"1", "1,5,9", "1,300,299,298,7,7,7,44,101,260,259,258,3,4,5,6,7"}) {
        compareWithChecker(model_, tokens, 1e-4);
    }
}

void LogitsTest::bundledModelAgreesWithTheChecker() {
    if (!has_numpy_) QSKIP("/usr/bin/python3 has no NumPy: the independent check is left out");
    const QString bundled = QString::fromStdString(bundledModelPath());
    if (!QFile::exists(bundled)) QSKIP("the bundled model is missing");
    const CliResult text = runCli({"tokenize", "--json", "--text",
                                   "A day in the village. Mira keeps the code 742. Where is it?"});
    KVLAB_VERIFY_SUCCESS(text);
    QStringList ids;
    for (const QJsonValue& id : text.json()["ids"].toArray()) {
        ids.append(QString::number(id.toInt()));
    }
    compareWithChecker(bundled, ids.join(','), 1e-4);
}

void LogitsTest::chunksChangeNoLogit() {
    const QStringList call = {"logits",
                              "--model",
                              model_,
                              "--tokens",
                              "1,5,9,260,261,262,263,264,265,266,267,268,269,270,271,272,273",
                              "--json"};
    const CliResult whole = runCli(call);
    KVLAB_VERIFY_SUCCESS(whole);
    QCOMPARE(logitsOf(whole.out).size(), 320);
    for (const QStringList& variant :
         {QStringList{"--token-budget", "3"}, QStringList{"--block-size", "1"},
          QStringList{"--threads", "1"}}) {
        QCOMPARE(runCli(call + variant).out, whole.out);
    }
}

void LogitsTest::tokenizeGoesThereAndBack() {
    for (const QString& text :
         {QStringLiteral("Mira keeps the code 742."), QStringLiteral(" two  "),
          QStringLiteral("Grüße, 日本 😀\n\tend"), QStringLiteral("")}) {
        const CliResult result =
            runCli({"tokenize", "--model", model_, "--json", "--text=" + text});
        KVLAB_VERIFY_SUCCESS(result);
        const QJsonObject json = result.json();
        QCOMPARE(json.keys(), (QStringList{"ids", "pieces", "round_trip"}));
        QCOMPARE(json["ids"].toArray().size(), json["pieces"].toArray().size());
        QVERIFY2(json["round_trip"].toBool(), qPrintable(text));
        QCOMPARE(json["ids"].toArray().at(0).toInt(), 1);
    }
    // A file may hold bytes that are no text at all.
    const QString file = folder_.filePath("bytes.bin");
    QByteArray all;
    for (int byte = 0; byte < 256; ++byte) all.append(static_cast<char>(byte));
    QVERIFY(writeBytes(file, all));
    const CliResult bytes = runCli({"tokenize", "--model", model_, "--json", "--file", file});
    KVLAB_VERIFY_SUCCESS(bytes);
    QVERIFY(bytes.json()["round_trip"].toBool());
}

void LogitsTest::badCalls_data() {
    QTest::addColumn<QString>("tokens");
    for (const char* tokens : {"", ",", "1,", ",1", "1,,2", "x", "1;2", "-1", "1,-5", "1.5",
                               "99999999999", "320", "1,2,100000", "nan", "1 2"}) {
        QTest::addRow("\"%s\"", tokens) << tokens;
    }
}

void LogitsTest::badCalls() {
    QFETCH(QString, tokens);
    KVLAB_VERIFY_REFUSAL(runCli({"logits", "--model", model_, "--tokens=" + tokens, "--json"}), 2);
}

void LogitsTest::truncatedModelsAreRefused() {
    const QByteArray bytes = readBytes(model_);
    const QString cut = folder_.filePath("cut.gguf");
    for (const qsizetype size :
         {qsizetype(0), qsizetype(3), qsizetype(4), qsizetype(20), qsizetype(100), bytes.size() / 4,
          bytes.size() / 2, bytes.size() - 1}) {
        QVERIFY(writeBytes(cut, bytes.left(size)));
        KVLAB_VERIFY_REFUSAL(runCli({"logits", "--model", cut, "--tokens", "1"}), 1);
    }
}

void LogitsTest::flippedModelsNeverCrash() {
    const QByteArray bytes = readBytes(model_);
    const QString damaged = folder_.filePath("flipped.gguf");
    // Counts, keys and offsets lie at the front; gguf's own test flips every byte there.
    for (qsizetype at = 0; at < std::min<qsizetype>(bytes.size(), 3000); at += 61) {
        QByteArray flipped = bytes;
        flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
        QVERIFY(writeBytes(damaged, flipped));
        const CliResult result = runCli({"logits", "--model", damaged, "--tokens", "1", "--json"});
        const bool refused = result.exit_code == 1 && result.hasOneLineError();
        QVERIFY2(!result.crashed && (result.exit_code == 0 || refused),
                 qPrintable(QStringLiteral("byte %1: %2").arg(at).arg(described(result))));
    }
}

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::LogitsTest)
#include "logits_test.moc"
