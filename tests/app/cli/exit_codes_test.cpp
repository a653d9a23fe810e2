// SPDX-License-Identifier: MIT
#include <sys/stat.h>

#include <QTemporaryDir>

#include "tests/app/cli/cli_test_support.h"

namespace kvlab {

// What every command promises: help, one line of error, exit status 2 for a wrong call and for what
// is not built yet.
class ExitCodesTest : public QObject {
    Q_OBJECT

  private slots:
    void helpIsEverywhere_data();
    void helpIsEverywhere();
    void wrongCalls_data();
    void wrongCalls();
    void laterRoomsSaySo_data();
    void laterRoomsSaySo();
    void fullDiskIsAFailure();
    void lineBreaksStayInOneLine();
};

void ExitCodesTest::helpIsEverywhere_data() {
    QTest::addColumn<QStringList>("command");
    QTest::newRow("top") << QStringList{};
    for (const char* name : {"size", "generate", "logits", "tokenize", "corpus", "eval", "lessons",
                             "trace", "devices", "bench", "replay"}) {
        QTest::newRow(name) << QStringList{name};
    }
    QTest::newRow("lessons list") << QStringList{"lessons", "list"};
    QTest::newRow("lessons check") << QStringList{"lessons", "check"};
    QTest::newRow("trace verify") << QStringList{"trace", "verify"};
    QTest::newRow("trace summary") << QStringList{"trace", "summary"};
}

void ExitCodesTest::helpIsEverywhere() {
    QFETCH(QStringList, command);
    const CliResult result = runCli(command + QStringList{"--help"});
    KVLAB_VERIFY_SUCCESS(result);
    QVERIFY(result.out.contains("Usage:"));
}

void ExitCodesTest::wrongCalls_data() {
    QTest::addColumn<QStringList>("arguments");
    QTest::newRow("nothing") << QStringList{};
    QTest::newRow("unknown command") << QStringList{"dance"};
    QTest::newRow("unknown option") << QStringList{"--dance"};
    QTest::newRow("lessons alone") << QStringList{"lessons"};
    QTest::newRow("trace alone") << QStringList{"trace"};
    QTest::newRow("trace without file") << QStringList{"trace", "verify"};
    QTest::newRow("logits without tokens") << QStringList{"logits"};
    QTest::newRow("tokenize without text") << QStringList{"tokenize"};
    QTest::newRow("tokenize with both") << QStringList{"tokenize", "--text", "a", "--file", "b"};
    QTest::newRow("unknown bench") << QStringList{"bench", "dance"};
    QTest::newRow("unknown lesson") << QStringList{"lessons", "check", "dance"};
    QTest::newRow("lesson outside the folder") << QStringList{"lessons", "check", "../best-of-8"};
    QTest::newRow("replay of nothing") << QStringList{"replay"};
    QTest::newRow("two commands") << QStringList{"size", "--model", "llama-3-8b", "devices"};
}

void ExitCodesTest::wrongCalls() {
    QFETCH(QStringList, arguments);
    KVLAB_VERIFY_REFUSAL(runCli(arguments), 2);
}

void ExitCodesTest::laterRoomsSaySo_data() {
    QTest::addColumn<QStringList>("arguments");
    const QStringList generate = {"generate", "--prompt", "x"};
    const QList<QStringList> options = {{"--policy", "recent"},     {"--policy", "sink"},
                                        {"--policy", "h2o"},        {"--policy", "infinigen"},
                                        {"--granularity", "head"},  {"--budget", "20%"},
                                        {"--sinks", "4"},           {"--recent", "10"},
                                        {"--heavy", "10"},          {"--decay", "0.9"},
                                        {"--alpha", "4"},           {"--partial", "0.3"},
                                        {"--host-rule", "lru"},     {"--gqa", "sum"},
                                        {"--prefix-cache", "hash"}, {"--prefix-cache", "radix"},
                                        {"--kept", "kept.csv"}};
    for (const QStringList& option : options) {
        QTest::addRow("generate %s", qPrintable(option.join(' '))) << generate + option;
    }
    QTest::newRow("eval --policy") << QStringList{"eval", "--policy", "h2o"};
    QTest::newRow("eval --budget") << QStringList{"eval", "--budget", "20%"};
    QTest::newRow("eval --sweep") << QStringList{"eval", "--sweep"};
    QTest::newRow("prefix") << QStringList{"prefix", "--mode", "hash", "--script", "F"};
    QTest::newRow("replay --prefix-cache")
        << QStringList{"replay", "--poisson", "2", "--count", "5", "--prefix-cache", "hash"};
    QTest::newRow("replay --policy")
        << QStringList{"replay", "--poisson", "2", "--count", "5", "--policy", "h2o"};
    QTest::newRow("workload") << QStringList{"workload", "--kind", "chat", "--json"};
    QTest::newRow("lessons grade") << QStringList{"lessons", "grade", "answers"};
}

void ExitCodesTest::laterRoomsSaySo() {
    QFETCH(QStringList, arguments);
    const CliResult result = runCli(arguments);
    KVLAB_VERIFY_REFUSAL(result, 2);
    QVERIFY2(result.err.contains("is not built yet"), result.err.constData());
}

void ExitCodesTest::fullDiskIsAFailure() {
    struct stat status {};
    // In a bare container it may be missing, or a plain file that a test before this one made.
    if (stat("/dev/full", &status) != 0 || !S_ISCHR(status.st_mode)) {
        QSKIP("this system has no /dev/full");
    }
    QProcess process;
    process.setStandardOutputFile("/dev/full");
    process.start(QStringLiteral(KVLAB_CLI_PATH), {"size", "--model", "llama-3-8b", "--json"});
    QVERIFY(process.waitForFinished());
    QCOMPARE(process.exitCode(), 1);
    QCOMPARE(process.readAllStandardError().count('\n'), 1);
}

void ExitCodesTest::lineBreaksStayInOneLine() {
    KVLAB_VERIFY_REFUSAL(runCli({"trace", "verify", "no\nsuch\r\nfile\033[31m"}), 1);
    KVLAB_VERIFY_REFUSAL(runCli({"--no\nsuch"}), 2);
}

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::ExitCodesTest)
#include "exit_codes_test.moc"
