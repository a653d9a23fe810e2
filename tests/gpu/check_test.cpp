// SPDX-License-Identifier: MIT
#include <QDir>
#include <QFile>
#include <QJsonArray>
#include <QJsonDocument>
#include <QJsonObject>
#include <QProcess>
#include <QTemporaryDir>
#include <QTest>

// tests/gpu/check.sh over stand-ins for cmake, nvidia-smi, compute-sanitizer and the program that
// it builds: what it makes of each outcome, without a GPU and without a build.
namespace kvlab {

namespace {

struct Outcome {
    int code = -1;
    QByteArray out;
    QJsonObject json;  // check.json; empty: not there, or no JSON

    QJsonObject step(const QString& name) const {
        for (const QJsonValue& step : json["steps"].toArray()) {
            if (step.toObject()["name"] == name) return step.toObject();
        }
        return {};
    }
};

// $MODE says what goes wrong.
constexpr const char* kCmake = R"(#!/bin/bash
case " $* " in
    *" --build "*)
        [ "$MODE" = no_build ] && exit 2
        mkdir -p "$2/app/cli"
        cp "$STANDINS/kvlab-cli" "$2/app/cli/kvlab-cli" ;;
    *" -DKVLAB_WERROR=OFF "*) ;;
    *) exit 3 ;;
esac
)";
constexpr const char* kProgram = R"(#!/bin/bash
echo "$*" >>"$STANDINS/calls"
case $1 in
    devices) echo '{"devices": []}' ;;
    selfcheck)
        [ "$MODE" = selfcheck_misses ] && code=1
        case " $* " in *" --json "*) echo '{"pass": "as told"}' ;; *) echo rows ;; esac
        exit ${code:-0} ;;
    generate) [ "$MODE" = decode_fails ] && exit 1; echo text ;;
    bench)
        if [ "$MODE" = bench_is_ended ]; then printf '{"benches": ['; exit 137; fi
        echo "a line of the table" >&2
        echo '{"benches": ["as told"]}'
        [ "$MODE" = bench_fails ] && exit 1 || exit 0 ;;
esac
)";
constexpr const char* kSanitizer = R"(#!/bin/bash
echo "========= COMPUTE-SANITIZER"
case $MODE in
    sanitizer_finds)
        echo "========= Invalid __global__ read of size 4 bytes"
        echo "========= a device that is not supported is not meant by this line"
        echo "========= ERROR SUMMARY: 3 errors"
        exit 9 ;;
    sanitizer_finds_a_call)
        echo '========= Program hit cudaErrorNotSupported "operation not supported" on a CUDA call'
        echo "========= ERROR SUMMARY: 1 error"
        exit 9 ;;
    sanitizer_finds_slowly)
        echo "========= Invalid __shared__ write of size 4 bytes"
        exit 124 ;;
    program_fails_under_it)
        echo "========= ERROR SUMMARY: 0 errors"
        exit 1 ;;
    sanitizer_is_old)
        echo '========= Error: Device "not supported" by this version'
        echo "========= ERROR SUMMARY: 1 error"
        exit 9 ;;
    sanitizer_is_silent) exit 255 ;;
    sanitizer_is_slow) exit 124 ;;
esac
shift 2
"$@" || exit
echo "========= ERROR SUMMARY: 0 errors"
)";

}  // namespace

class CheckTest : public QObject {
    Q_OBJECT

  private slots:
    void initTestCase() {
        QVERIFY(folder_.isValid());
        write("cmake", kCmake);
        write("kvlab-cli", kProgram);
        write("compute-sanitizer", kSanitizer);
        write("nvidia-smi", "#!/bin/bash\necho 9.0\n");
    }

    void allIsWell() {
        const Outcome outcome = check("");
        QVERIFY2(outcome.code == 0, outcome.out);
        QCOMPARE(outcome.json["pass"].toBool(), true);
        QStringList names;
        for (const QJsonValue& step : outcome.json["steps"].toArray()) {
            names += step.toObject()["name"].toString();
            QVERIFY(step.toObject()["left_out"].isNull());
        }
        QCOMPARE(names,
                 (QStringList{"configure", "build", "devices", "selfcheck", "selfcheck --json",
                              "short decode", "compute-sanitizer", "bench"}));
        QCOMPARE(outcome.json["selfcheck"].toObject()["pass"].toString(), QString("as told"));
        QCOMPARE(outcome.json["bench"].toObject()["benches"].toArray().size(), 1);
        QVERIFY(outcome.json.contains("devices"));
        QVERIFY(outcome.out.contains("a line of the table"));
    }

    void aSanitizerThatCannotWorkIsLeftOut_data() {
        QTest::addColumn<QString>("mode");
        QTest::addColumn<QString>("why");
        QTest::newRow("old") << "sanitizer_is_old"
                             << "it cannot work here:  Error: Device \"not supported\" by this "
                                "version";
        QTest::newRow("silent") << "sanitizer_is_silent"
                                << "it gives no summary (exit 255)";
        QTest::newRow("slow") << "sanitizer_is_slow"
                              << "it did not end within 90 s";
    }

    void aSanitizerThatCannotWorkIsLeftOut() {
        QFETCH(QString, mode);
        QFETCH(QString, why);
        const Outcome outcome = check(mode);
        QVERIFY2(outcome.code == 0, outcome.out);
        const QString told = outcome.step("compute-sanitizer")["left_out"].toString();
        QVERIFY2(told.startsWith(why), qPrintable(told));
        QVERIFY(outcome.out.contains("compute-sanitizer      left out"));
        QVERIFY(!outcome.step("bench").isEmpty());
    }

    void whatFailsIsNamedAndCostsNothingElse_data() {
        QTest::addColumn<QString>("mode");
        QTest::addColumn<QString>("step");
        QTest::addColumn<int>("exit_code");
        QTest::newRow("sanitizer") << "sanitizer_finds"
                                   << "compute-sanitizer" << 9;
        QTest::newRow("call") << "sanitizer_finds_a_call"
                              << "compute-sanitizer" << 9;
        QTest::newRow("slowly") << "sanitizer_finds_slowly"
                                << "compute-sanitizer" << 124;
        QTest::newRow("program") << "program_fails_under_it"
                                 << "compute-sanitizer" << 1;
        QTest::newRow("selfcheck") << "selfcheck_misses"
                                   << "selfcheck" << 1;
        QTest::newRow("decode") << "decode_fails"
                                << "short decode" << 1;
        QTest::newRow("bench") << "bench_fails"
                               << "bench" << 1;
        QTest::newRow("bench that is ended") << "bench_is_ended"
                                             << "bench" << 137;
    }

    void whatFailsIsNamedAndCostsNothingElse() {
        QFETCH(QString, mode);
        QFETCH(QString, step);
        QFETCH(int, exit_code);
        const Outcome outcome = check(mode);
        QCOMPARE(outcome.code, 1);
        QVERIFY2(!outcome.json.isEmpty(), outcome.out);
        QCOMPARE(outcome.json["pass"].toBool(true), false);
        QCOMPARE(outcome.step(step)["exit"].toInt(), exit_code);
        QCOMPARE(outcome.json["steps"].toArray().size(), 8);
        QVERIFY(outcome.json.contains("selfcheck"));
        QCOMPARE(outcome.json.contains("bench"), mode != "bench_is_ended");
        const QString left_out = outcome.step("compute-sanitizer")["left_out"].toString();
        QCOMPARE(left_out.contains("fails without it"), mode == "decode_fails");
    }

    void withoutABuildThereIsNothingToCheck() {
        const Outcome outcome = check("no_build");
        QCOMPARE(outcome.code, 1);
        QCOMPARE(outcome.json["steps"].toArray().size(), 2);
        QCOMPARE(outcome.step("build")["exit"].toInt(), 2);
        QVERIFY(calls().isEmpty());
    }

    void otherBackendsNeedNoSanitizer() {
        const Outcome outcome = check("sanitizer_finds", {"--backend", "cpu", "--quick"});
        QVERIFY2(outcome.code == 0, outcome.out);
        QCOMPARE(outcome.step("compute-sanitizer")["left_out"].toString(), QString("needs a GPU"));
        QVERIFY(calls().contains("bench --backend cpu --quick --json"));
    }

    void wrongCallsExitWith2() {
        QCOMPARE(check("", {"--nonsense"}).code, 2);
        QCOMPARE(check("", {"--backend", "tpu"}).code, 2);
    }

  private:
    void write(const QString& name, const char* text) {
        QFile file(folder_.filePath(name));
        QVERIFY(file.open(QIODevice::WriteOnly));
        file.write(text);
        file.setPermissions(QFile::ReadOwner | QFile::WriteOwner | QFile::ExeOwner);
    }
    QByteArray calls() const {
        QFile file(folder_.filePath("calls"));
        return file.open(QIODevice::ReadOnly) ? file.readAll() : QByteArray();
    }

    Outcome check(const QString& mode, const QStringList& options = {}) {
        QFile::remove(folder_.filePath("calls"));
        QDir(folder_.filePath("out")).removeRecursively();
        QDir(folder_.filePath("build")).removeRecursively();
        QProcess process;
        QProcessEnvironment environment = QProcessEnvironment::systemEnvironment();
        environment.insert("PATH", folder_.path() + ":" + environment.value("PATH"));
        environment.insert("STANDINS", folder_.path());
        environment.insert("MODE", mode);
        environment.insert("OUT", folder_.filePath("out"));
        process.setProcessEnvironment(environment);
        process.setProcessChannelMode(QProcess::MergedChannels);
        process.start("bash", QStringList{QStringLiteral(KVLAB_SOURCE_DIR "/tests/gpu/check.sh"),
                                          "--build", folder_.filePath("build")} +
                                  options);
        Outcome outcome;
        if (!process.waitForFinished(60'000)) process.kill();
        outcome.code = process.exitCode();
        outcome.out = process.readAll();
        QFile file(folder_.filePath("out/check.json"));
        if (file.open(QIODevice::ReadOnly)) {
            outcome.json = QJsonDocument::fromJson(file.readAll()).object();
        }
        return outcome;
    }

    QTemporaryDir folder_;
};

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::CheckTest)
#include "check_test.moc"
