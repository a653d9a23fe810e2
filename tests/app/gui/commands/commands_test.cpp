// SPDX-License-Identifier: GPL-3.0-or-later
#include <QFile>
#include <QImage>
#include <QProcess>
#include <QTemporaryDir>
#include <QtTest>

#include "engine/trace/trace_io.h"
#include "tests/support/log_builder.h"

namespace kvlab {

// The program itself, as a shell calls it, with no display.
class CommandsTest : public QObject {
    Q_OBJECT

    struct Outcome {
        int code = -1;
        QByteArray out, err;
    };

    QTemporaryDir folder_;
    QString trace_;

    static Outcome call(const QStringList& arguments) {
        QProcess process;
        QProcessEnvironment environment = QProcessEnvironment::systemEnvironment();
        for (const char* name : {"DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"}) {
            environment.remove(QLatin1String(name));
        }
        process.setProcessEnvironment(environment);
        process.start(QStringLiteral(KVLAB_GUI_PATH), arguments);
        Outcome outcome;
        if (process.waitForFinished(120000) && process.exitStatus() == QProcess::NormalExit) {
            outcome.code = process.exitCode();
        }
        outcome.out = process.readAllStandardOutput();
        outcome.err = process.readAllStandardError();
        return outcome;
    }

    static QByteArray contents(const QString& path) {
        QFile file(path);
        return file.open(QIODevice::ReadOnly) ? file.readAll() : QByteArray();
    }

  private slots:
    void initTestCase() {
        trace_ = folder_.filePath("scripted.trace");
        const LogScript script{
            .prompt_len = 97, .num_samples = 3, .num_decode_steps = 20, .num_blocks = 40};
        TraceWriter writer(trace_.toStdString(), scriptedInfo(script));
        for (const auto& step : scriptedSteps(script)) {
            writer.append(*step);
        }
        writer.finish();
    }

    void wrongCallsExitWith2AndOneLine_data() {
        QTest::addColumn<QStringList>("arguments");
        QTest::newRow("unknown option") << QStringList{"--nonsense"};
        QTest::newRow("later option") << QStringList{"--presenter"};
        QTest::newRow("unknown theme") << QStringList{"--theme", "pink"};
        QTest::newRow("bad size") << QStringList{"--screenshot", "x.png", "--size", "big"};
        QTest::newRow("export without output") << QStringList{"export", "best-of-8"};
        QTest::newRow("unknown source") << QStringList{"export", "no-such-lesson", "-o", "x.svg"};
        QTest::newRow("unknown view")
            << QStringList{"export", "best-of-8", "--view", "x", "-o", "x.svg"};
        QTest::newRow("unknown format") << QStringList{"export", "best-of-8", "-o", "x.bmp"};
        QTest::newRow("later export option")
            << QStringList{"export", "best-of-8", "--worksheet", "-o", "x.svg"};
        QTest::newRow("stop outside")
            << QStringList{"export", "best-of-8", "--stop", "99", "-o", "x.svg"};
    }
    void wrongCallsExitWith2AndOneLine() {
        QFETCH(QStringList, arguments);
        const Outcome outcome = call(arguments);
        QVERIFY2(outcome.code == 2, outcome.err.constData());
        QCOMPARE(outcome.err.count('\n'), 1);
        QVERIFY(outcome.err.startsWith("kvlab: "));
    }

    void withoutADisplayTheWindowSaysSo() {
        const Outcome outcome = call({});
        QCOMPARE(outcome.code, 1);
        QVERIFY(outcome.err.contains("display"));
        QCOMPARE(outcome.err.count('\n'), 1);
    }

    void listsWhatCanBeExported() {
        const Outcome outcome = call({"export", "--list"});
        QCOMPARE(outcome.code, 0);
        QVERIFY(outcome.out.contains("best-of-8"));
        QVERIFY(outcome.out.contains("pool"));
        QCOMPARE(outcome.err, QByteArray());
    }

    void exportsTheSameBytesTwice_data() {
        QTest::addColumn<QString>("view");
        QTest::addColumn<QString>("theme");
        for (const char* view : {"pool", "tables", "sharing", "timeline"}) {
            for (const char* theme : {"light", "dark"}) {
                QTest::addRow("%s %s", view, theme) << view << theme;
            }
        }
    }
    void exportsTheSameBytesTwice() {
        QFETCH(QString, view);
        QFETCH(QString, theme);
        const QString first = folder_.filePath("first.svg");
        const QString second = folder_.filePath("second.svg");
        for (const QString& file : {first, second}) {
            const Outcome outcome = call(
                {"export", trace_, "--view", view, "--theme", theme, "--step", "9", "-o", file});
            QVERIFY2(outcome.code == 0, outcome.err.constData());
            QCOMPARE(outcome.err, QByteArray());
        }
        QVERIFY(contents(first).size() > 1000);
        QCOMPARE(contents(first), contents(second));
    }

    // Two runs of the real engine, one figure: to the standard output and to a file.
    void aLessonsFigureIsTheSameFromRunToRun() {
        const Outcome printed = call({"export", "best-of-8", "--view", "pool", "--format", "svg"});
        QVERIFY2(printed.code == 0, printed.err.constData());
        QVERIFY(printed.out.contains("181 active + 0 cached + 39 free = 220 blocks"));
        const QString file = folder_.filePath("lesson.svg");
        const Outcome written = call({"export", "best-of-8", "--view", "pool", "-o", file});
        QVERIFY2(written.code == 0, written.err.constData());
        QCOMPARE(printed.out, contents(file));
    }

    void photographsTheWindow() {
        const QString file = folder_.filePath("window.png");
        const Outcome outcome =
            call({trace_, "--screenshot", file, "--size", "1280x800", "--at-step", "5"});
        QVERIFY2(outcome.code == 0, outcome.err.constData());
        QCOMPARE(outcome.err, QByteArray());
        const QImage image(file);
        QCOMPARE(image.size(), QSize(1280, 800));
    }

    void aMissingTraceIsOneSentence() {
        const Outcome outcome =
            call({"/nowhere/run.trace", "--screenshot", folder_.filePath("none.png")});
        QCOMPARE(outcome.code, 1);
        QVERIFY(outcome.err.contains("/nowhere/run.trace"));
        QCOMPARE(outcome.err.count('\n'), 1);
        QVERIFY(!QFile::exists(folder_.filePath("none.png")));
    }
};

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::CommandsTest)
#include "commands_test.moc"
