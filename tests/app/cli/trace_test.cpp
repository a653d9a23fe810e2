// SPDX-License-Identifier: MIT
#include <QFile>
#include <QFileInfo>
#include <QJsonArray>
#include <QTemporaryDir>

#include "tests/app/cli/cli_test_support.h"

namespace kvlab {

class TraceTest : public QObject {
    Q_OBJECT

  private slots:
    void initTestCase();
    void intactTraceIsVerified();
    void summaryCountsTheRun();
    void truncationIsFoundAndReadUpTo();
    void everyFlippedByteIsFound();
    void swappedAndMissingLinesAreFound();
    void foreignFilesAreRefused_data();
    void foreignFilesAreRefused();
    void exportWritesAWholeFileOrNone();

  private:
    QTemporaryDir folder_;
    QString trace_;
    QByteArray bytes_;
};

void TraceTest::initTestCase() {
    QVERIFY(folder_.isValid());
    const QString model = folder_.filePath("tiny.gguf");
    writeTinyModel(model);
    trace_ = folder_.filePath("run.trace");
    const CliResult result = runCli({"generate", "--model", model, "--prompt-tokens", "40",
                                     "--samples", "3", "--max-tokens", "20", "--ignore-eos",
                                     "--temperature", "1", "--trace", trace_, "--json"});
    KVLAB_VERIFY_SUCCESS(result);
    bytes_ = readBytes(trace_);
    QVERIFY(bytes_.size() > 1000);
}

void TraceTest::intactTraceIsVerified() {
    const CliResult result = runCli({"trace", "verify", trace_});
    KVLAB_VERIFY_SUCCESS(result);
    QVERIFY(result.out.contains("intact"));
    const CliResult json = runCli({"trace", "verify", trace_, "--json"});
    KVLAB_VERIFY_SUCCESS(json);
    QCOMPARE(json.json()["intact"].toBool(), true);
    QCOMPARE(json.json()["steps"].toInt(), 20);
}

void TraceTest::summaryCountsTheRun() {
    const CliResult result = runCli({"trace", "summary", trace_, "--json"});
    KVLAB_VERIFY_SUCCESS(result);
    const QJsonObject json = result.json();
    QCOMPARE(json["complete"].toBool(), true);
    QVERIFY(json["damage"].isNull());
    QCOMPARE(json["bytes"].toInteger(), bytes_.size());
    QCOMPARE(json["steps"].toInt(), 20);
    QCOMPARE(json["prefill_tokens"].toInt(), 40);
    QCOMPARE(json["decode_tokens"].toInt(), 3 * 19);
    QCOMPARE(json["samples"].toInt(), 3);
    QCOMPARE(json["sequences"].toInt(), 3);
    QCOMPARE(json["entries"].toObject()["tokens_sampled"].toInt(), 60);
    // 40 = 2 full blocks and 8 tokens: two samples copy, the third writes in place.
    const QJsonObject account = json["account_at_peak"].toObject();
    QCOMPARE(account["copy_on_write"].toInt(), 2);
    QCOMPARE(account["active_blocks"].toInt(), 2 + 3 * 2);
    const CliResult text = runCli({"trace", "summary", trace_});
    KVLAB_VERIFY_SUCCESS(text);
    QVERIFY(text.out.contains("steps"));
    const qsizetype bytes = bytes_.size();
    const QString per_step = QLocale::c().toString(bytes / json["steps"].toInt());
    QVERIFY2(text.out.contains(per_step.toUtf8() + " a step"), text.out.constData());
}

void TraceTest::truncationIsFoundAndReadUpTo() {
    const QString cut = folder_.filePath("cut.trace");
    for (const double share : {0.2, 0.5, 0.9, 0.999}) {
        QVERIFY(writeBytes(cut, bytes_.left(static_cast<qsizetype>(bytes_.size() * share))));
        KVLAB_VERIFY_REFUSAL(runCli({"trace", "verify", cut}), 1);
        const CliResult summary = runCli({"trace", "summary", cut, "--json"});
        if (summary.exit_code == 0) {
            QCOMPARE(summary.json()["complete"].toBool(true), false);
            QVERIFY(summary.json()["steps"].toInt() < 20 || share > 0.9);
        } else {
            KVLAB_VERIFY_REFUSAL(summary, 1);
        }
    }
    // The end record alone is missing.
    const qsizetype last_line = bytes_.lastIndexOf('\n', bytes_.size() - 2);
    QVERIFY(writeBytes(cut, bytes_.left(last_line + 1)));
    KVLAB_VERIFY_REFUSAL(runCli({"trace", "verify", cut}), 1);
    const CliResult summary = runCli({"trace", "summary", cut, "--json"});
    KVLAB_VERIFY_SUCCESS(summary);
    QCOMPARE(summary.json()["steps"].toInt(), 20);
    QCOMPARE(summary.json()["complete"].toBool(true), false);
}

void TraceTest::everyFlippedByteIsFound() {
    const QString damaged = folder_.filePath("flipped.trace");
    // Every process start costs, so a sample of bytes; trace_io's own test flips them all.
    const qsizetype stride = bytes_.size() / 40 + 1;
    for (qsizetype at = 3; at < bytes_.size(); at += stride) {
        QByteArray flipped = bytes_;
        flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 7)));
        QVERIFY(writeBytes(damaged, flipped));
        const CliResult result = runCli({"trace", "verify", damaged});
        QVERIFY2(result.exit_code == 1 && result.hasOneLineError(),
                 qPrintable(QStringLiteral("byte %1: %2").arg(at).arg(described(result))));
        const CliResult summary = runCli({"trace", "summary", damaged, "--json"});
        QVERIFY2(!summary.crashed && (summary.exit_code == 0 || summary.hasOneLineError()),
                 qPrintable(QStringLiteral("byte %1: %2").arg(at).arg(described(summary))));
    }
}

void TraceTest::swappedAndMissingLinesAreFound() {
    const QString damaged = folder_.filePath("lines.trace");
    QByteArrayList lines = bytes_.split('\n');
    QVERIFY(lines.size() > 10);
    QByteArrayList swapped = lines;
    swapped.swapItemsAt(5, 6);
    QVERIFY(writeBytes(damaged, swapped.join('\n')));
    KVLAB_VERIFY_REFUSAL(runCli({"trace", "verify", damaged}), 1);
    QByteArrayList missing = lines;
    missing.removeAt(7);
    QVERIFY(writeBytes(damaged, missing.join('\n')));
    KVLAB_VERIFY_REFUSAL(runCli({"trace", "verify", damaged}), 1);
    QByteArrayList repeated = lines;
    repeated.insert(7, lines[6]);
    QVERIFY(writeBytes(damaged, repeated.join('\n')));
    KVLAB_VERIFY_REFUSAL(runCli({"trace", "verify", damaged}), 1);
    QVERIFY(writeBytes(damaged, bytes_ + lines[6] + '\n'));
    KVLAB_VERIFY_REFUSAL(runCli({"trace", "verify", damaged}), 1);
}

void TraceTest::foreignFilesAreRefused_data() {
    QTest::addColumn<QString>("path");
    QTest::newRow("missing") << folder_.filePath("missing.trace");
    QTest::newRow("directory") << folder_.path();
    QTest::newRow("model") << folder_.filePath("tiny.gguf");
    const auto made = [&](const char* name, const QByteArray& bytes) {
        const QString path = folder_.filePath(name);
        writeBytes(path, bytes);
        QTest::newRow(name) << path;
    };
    made("empty", "");
    made("zeros", QByteArray(5000, '\0'));
    made("text", "once upon a time\n");
    made("brackets", QByteArray(200'000, '['));
    made("braces", QByteArray("{\"a\":").repeated(50'000));
}

void TraceTest::foreignFilesAreRefused() {
    QFETCH(QString, path);
    KVLAB_VERIFY_REFUSAL(runCli({"trace", "verify", path}), 1);
    KVLAB_VERIFY_REFUSAL(runCli({"trace", "summary", path, "--json"}), 1);
}

void TraceTest::exportWritesAWholeFileOrNone() {
    const QString out = folder_.filePath("run.json");
    const CliResult result =
        runCli({"trace", "export", trace_, "--format", "perfetto", "-o", out, "--json"});
    KVLAB_VERIFY_SUCCESS(result);
    QCOMPARE(result.json()["steps"].toInt(), 20);
    QCOMPARE(result.json()["sequences"].toInt(), 3);
    QCOMPARE(result.json()["complete"].toBool(), true);
    const QJsonArray events =
        QJsonDocument::fromJson(readBytes(out)).object()["traceEvents"].toArray();
    QVERIFY(events.size() > 100);
    QCOMPARE(result.json()["events"].toInteger(), events.size());

    // Up to the damage, and the command says so.
    const QString cut = folder_.filePath("cut-export.trace");
    QVERIFY(writeBytes(cut, bytes_.left(bytes_.size() * 2 / 3)));
    const CliResult damaged = runCli({"trace", "export", cut, "-o", out});
    KVLAB_VERIFY_SUCCESS(damaged);
    QVERIFY(damaged.out.contains("only up to its damage"));
    QVERIFY(QJsonDocument::fromJson(readBytes(out)).object()["traceEvents"].toArray().size() <
            events.size());

    KVLAB_VERIFY_REFUSAL(runCli({"trace", "export", trace_, "-o", trace_}), 2);
    QVERIFY(readBytes(trace_) == bytes_);
    KVLAB_VERIFY_REFUSAL(runCli({"trace", "export", trace_, "-o", folder_.path()}), 1);
    // A link stays one, and a device stays a device.
    const QString target = folder_.filePath("target.json");
    const QString link = folder_.filePath("link.json");
    QVERIFY(writeBytes(target, "old"));
    QVERIFY(QFile::link(target, link));
    KVLAB_VERIFY_SUCCESS(runCli({"trace", "export", trace_, "-o", link}));
    QVERIFY(QFileInfo(link).isSymLink());
    QVERIFY(QFileInfo(target).size() > 3);
    const QString to_null = folder_.filePath("null.json");
    QVERIFY(QFile::link("/dev/null", to_null));
    KVLAB_VERIFY_REFUSAL(runCli({"trace", "export", trace_, "-o", to_null}), 1);
    QVERIFY(QFileInfo(to_null).isSymLink());
    KVLAB_VERIFY_REFUSAL(runCli({"trace", "export", trace_, "--format", "svg", "-o", out}), 2);
    KVLAB_VERIFY_REFUSAL(runCli({"trace", "export", trace_}), 2);
    const QString missing = folder_.filePath("none.json");
    KVLAB_VERIFY_REFUSAL(
        runCli({"trace", "export", folder_.filePath("missing.trace"), "-o", missing}), 1);
    QVERIFY(!QFile::exists(missing));
}

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::TraceTest)
#include "trace_test.moc"
