// SPDX-License-Identifier: MIT
#include <cstring>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

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
    void theParserSpeaksInSentences_data();
    void theParserSpeaksInSentences();
    void whatIsNoFileIsSaid_data();
    void whatIsNoFileIsSaid();
    void textComesFromStandardInput();
    void aClosedOutputIsAFailure();
    void limitsOfTheProcessAreTold();
    void aVariableThatCannotBeObeyedIsTold();
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
    QTest::newRow("lesson without a name") << QStringList{"lessons", "check", ""};
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

void ExitCodesTest::theParserSpeaksInSentences_data() {
    QTest::addColumn<QStringList>("arguments");
    QTest::addColumn<QByteArray>("sentence");
    const auto row = [](const QStringList& arguments, const char* sentence) {
        QTest::newRow(qPrintable("kvlab-cli " + arguments.join(' ')))
            << arguments << QByteArray(sentence);
    };
    row({}, "kvlab-cli wants a command; see kvlab-cli --help");
    row({"dance"}, "there is no command \"dance\"; see kvlab-cli --help");
    row({""}, "there is no command \"\"; see kvlab-cli --help");
    row({"--dance"}, "kvlab-cli has no option \"--dance\"; see kvlab-cli --help");
    // The parser itself lists the value in front of its option.
    row({"trace", "export", "a", "--backend", "simt", "--x", "y", "-o", "b"},
        "trace export has no option \"--backend\"; see kvlab-cli trace export --help");
    row({"trace", "export"}, "trace export wants a file; see kvlab-cli trace export --help");
    row({"trace", "export", "a"}, "trace export wants --output; see kvlab-cli trace export --help");
    row({"lessons"}, "lessons wants a command; see kvlab-cli lessons --help");
    row({"lessons", "dance"}, "lessons does not take \"dance\"; see kvlab-cli lessons --help");
    row({"generate", "--prompt", "a", "b"},
        "generate does not take \"b\"; see kvlab-cli generate --help");
    row({"generate", "--prompt"}, "--prompt wants a value; see kvlab-cli generate --help");
    row({"devices", "--json=x"}, "--json takes no value; see kvlab-cli devices --help");
    row({"size", "--model", "llama-3-8b", "devices"},
        "size does not take \"devices\"; see kvlab-cli size --help");
}

void ExitCodesTest::theParserSpeaksInSentences() {
    QFETCH(QStringList, arguments);
    QFETCH(QByteArray, sentence);
    const CliResult result = runCli(arguments);
    KVLAB_VERIFY_REFUSAL(result, 2);
    QCOMPARE(result.err, "kvlab-cli: " + sentence + "\n");
}

void ExitCodesTest::whatIsNoFileIsSaid_data() {
    QTest::addColumn<QStringList>("command");
    QTest::newRow("prompt") << QStringList{"generate", "--prompt-file"};
    QTest::newRow("text") << QStringList{"tokenize", "--file"};
    QTest::newRow("requests") << QStringList{"replay", "--requests"};
    QTest::newRow("trace verify") << QStringList{"trace", "verify"};
    QTest::newRow("trace summary") << QStringList{"trace", "summary"};
    QTest::newRow("trace export") << QStringList{"trace", "export", "-o", "/nowhere/out", "--"};
    QTest::newRow("model") << QStringList{"model"};
    QTest::newRow("--model") << QStringList{"logits", "--tokens", "1", "--model"};
}

// A pipe must not be waited for either.
void ExitCodesTest::whatIsNoFileIsSaid() {
    QFETCH(QStringList, command);
    QTemporaryDir dir;
    QVERIFY(dir.isValid());
    const QString pipe = dir.filePath("pipe");
    QCOMPARE(mkfifo(pipe.toLocal8Bit(), 0600), 0);
    const auto says = [&](const QString& path, const char* part) {
        const CliResult result = runCli(command + QStringList{path}, {}, 20'000);
        KVLAB_VERIFY_REFUSAL(result, 1);
        QVERIFY2(result.err.contains(part), result.err);
    };
    says(dir.filePath("nothing"), "does not exist");
    says(dir.path(), "is a folder");
    says(pipe, "is a pipe, not a file");
    const QString link = dir.filePath("link"), loop = dir.filePath("loop");
    QVERIFY(QFile::link("/nowhere", link) && QFile::link(loop, loop));
    says(link, "is a link to something that does not exist");
    says(loop, "cannot be reached");
    const QByteArray place = dir.filePath("socket").toLocal8Bit();
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    QVERIFY(place.size() < qsizetype(sizeof address.sun_path));
    std::memcpy(address.sun_path, place.constData(), static_cast<size_t>(place.size()));
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    close(fd);
    QVERIFY(bound);
    says(place, "is a socket, not a file");
}

// A shell's pipe for the text; a text that cannot be read is not an empty one.
void ExitCodesTest::textComesFromStandardInput() {
    const auto piped = [](const QStringList& arguments, const QByteArray& text) {
        QProcess process;
        process.start(QStringLiteral(KVLAB_CLI_PATH), arguments);
        process.write(text);
        process.closeWriteChannel();
        CliResult result;
        result.crashed =
            !process.waitForFinished(60'000) || process.exitStatus() != QProcess::NormalExit;
        result.exit_code = process.exitCode();
        result.out = process.readAllStandardOutput();
        result.err = process.readAllStandardError();
        return result;
    };
    const QStringList tokenize = {"tokenize", "--json", "--file"};
    const CliResult cut = piped(tokenize + QStringList{"-"}, "two\nlines");
    KVLAB_VERIFY_SUCCESS(cut);
    QCOMPARE(cut.out, runCli({"tokenize", "--json", "--text", "two\nlines"}).out);
    const QStringList generate = {"generate", "--max-tokens", "3", "--json"};
    const CliResult run = piped(generate + QStringList{"--prompt-file", "-"}, "The code");
    KVLAB_VERIFY_SUCCESS(run);
    QCOMPARE(run.json()["texts"],
             runCli(generate + QStringList{"--prompt", "The code"}).json()["texts"]);
    const CliResult large = piped(tokenize + QStringList{"-"}, QByteArray((64 << 20) + 1, 'a'));
    KVLAB_VERIFY_REFUSAL(large, 1);
    QVERIFY2(large.err.contains("larger than 64 MiB"), large.err);

    const auto shell = [](const char* end, const QStringList& arguments) {
        QProcess process;
        process.start("/bin/sh", QStringList{"-c", QString("exec \"$0\" \"$@\" ") + end,
                                             QStringLiteral(KVLAB_CLI_PATH)} +
                                     arguments);
        CliResult result;
        result.crashed =
            !process.waitForFinished(60'000) || process.exitStatus() != QProcess::NormalExit;
        result.exit_code = process.exitCode();
        result.out = process.readAllStandardOutput();
        result.err = process.readAllStandardError();
        return result;
    };
    for (const char* end : {"<&-", "</"}) {
        const CliResult result = shell(end, tokenize + QStringList{"-"});
        KVLAB_VERIFY_REFUSAL(result, 1);
        QVERIFY2(result.err.contains("standard input cannot be read"), result.err);
    }
    // A regular file of 0 bytes by its size, whose first page is not there.
    if (!QFile::exists("/proc/self/mem")) QSKIP("this system has no /proc/self/mem");
    for (const QStringList& command :
         {tokenize, QStringList{"generate", "--max-tokens", "2", "--prompt-file"}}) {
        const CliResult result = runCli(command + QStringList{"/proc/self/mem"});
        KVLAB_VERIFY_REFUSAL(result, 1);
        QVERIFY2(result.err.contains("cannot be read"), result.err);
    }
}

// What is printed must not land in the next file that is opened.
void ExitCodesTest::aClosedOutputIsAFailure() {
    QTemporaryDir dir;
    QVERIFY(dir.isValid());
    const QString trace = dir.filePath("run.trace");
    const auto closed = [&](const char* how, const QStringList& arguments) {
        QProcess process;
        process.start("/bin/sh", QStringList{"-c", QString("exec \"$0\" \"$@\" ") + how,
                                             QStringLiteral(KVLAB_CLI_PATH)} +
                                     arguments);
        if (!process.waitForFinished(60'000) || process.exitStatus() != QProcess::NormalExit) {
            return -1;
        }
        return process.exitCode();
    };
    const QStringList run = {"generate", "--prompt", "x", "--max-tokens", "2", "--trace", trace};
    for (const char* how : {">&-", "<&- >&-", ">&- 2>&-"}) {
        QCOMPARE(closed(how, run), 1);
        KVLAB_VERIFY_SUCCESS(runCli({"trace", "verify", trace}));
    }
    QCOMPARE(closed("2>&-", run), 0);
    QCOMPARE(closed("2>&-", {"trace", "verify", "/nowhere"}), 1);
}

void ExitCodesTest::limitsOfTheProcessAreTold() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    QSKIP("sanitizers take more addresses than any limit");
#endif
    const auto limited = [](const QStringList& arguments) {
        QProcess process;
        process.start("/bin/sh", QStringList{"-c", "ulimit -v 400000 && exec \"$0\" \"$@\"",
                                             QStringLiteral(KVLAB_CLI_PATH)} +
                                     arguments);
        CliResult result;
        result.crashed =
            !process.waitForFinished(60'000) || process.exitStatus() != QProcess::NormalExit;
        result.exit_code = process.exitCode();
        result.out = process.readAllStandardOutput();
        result.err = process.readAllStandardError();
        return result;
    };
    const QStringList run = {"generate", "--prompt", "x", "--max-tokens", "2", "--backend", "cpu"};
    if (limited(run).exit_code != 0) QSKIP("the limit is too narrow for this system");
    const CliResult pool = limited(run + QStringList{"--threads", "1", "--blocks", "20000"});
    KVLAB_VERIFY_REFUSAL(pool, 1);
    QVERIFY2(pool.err.contains("ulimit -v") && pool.err.contains("the pool needs 625 MiB") &&
                 pool.err.contains("391 MiB in all"),
             pool.err);
    // A file that may not become so large: nothing of it stays.
    QTemporaryDir dir;
    const QString trace = dir.filePath("run.trace");
    KVLAB_VERIFY_SUCCESS(
        runCli({"generate", "--prompt", "x", "--max-tokens", "20", "--trace", trace}));
    QProcess process;
    process.start("/bin/sh",
                  {"-c", "ulimit -f 1 && exec \"$0\" \"$@\"", QStringLiteral(KVLAB_CLI_PATH),
                   "trace", "export", trace, "-o", dir.filePath("run.json")});
    QVERIFY(process.waitForFinished(60'000) && process.exitStatus() == QProcess::NormalExit);
    QCOMPARE(process.exitCode(), 1);
    const QByteArray error = process.readAllStandardError();
    QVERIFY2(error.startsWith("kvlab-cli: cannot write ") && error.count('\n') == 1, error);
    QCOMPARE(QDir(dir.path()).entryList(QDir::Files | QDir::Hidden), QStringList{"run.trace"});
    // Threads that are not granted: no wait for those that were.
    const CliResult threads = limited(run + QStringList{"--threads", "256"});
    KVLAB_VERIFY_REFUSAL(threads, 1);
    QVERIFY2(threads.err.contains("threads") && threads.err.contains("ulimit"), threads.err);
}

void ExitCodesTest::aVariableThatCannotBeObeyedIsTold() {
    const QStringList size = {"size", "--model", "llama-3-8b"};
    KVLAB_VERIFY_SUCCESS(runCli(size, {{"KVLAB_VECTOR", "baseline"}}));
    KVLAB_VERIFY_SUCCESS(runCli(size, {{"KVLAB_VECTOR", ""}}));
    const CliResult result = runCli(size, {{"KVLAB_VECTOR", "avx9"}});
    QCOMPARE(result.exit_code, 0);
    QVERIFY2(result.hasOneLineError() && result.err.contains("not \"avx9\""), result.err);
}

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::ExitCodesTest)
#include "exit_codes_test.moc"
