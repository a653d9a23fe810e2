// SPDX-License-Identifier: GPL-3.0-or-later
#include <QDir>
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

    // `variables` as NAME=VALUE; `output` is a file that takes the standard output.
    static Outcome call(const QStringList& arguments,
                        const QStringList& variables = {},
                        const QString& output = {}) {
        QProcess process;
        QProcessEnvironment environment = QProcessEnvironment::systemEnvironment();
        for (const char* name : {"DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"}) {
            environment.remove(QLatin1String(name));
        }
        for (const QString& variable : variables) {
            environment.insert(variable.section('=', 0, 0), variable.section('=', 1));
        }
        process.setProcessEnvironment(environment);
        if (!output.isEmpty()) {
            process.setStandardOutputFile(output);
        }
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
        QTest::newRow("unknown backend") << QStringList{"--backend", "gpu"};
        QTest::newRow("backend before export")
            << QStringList{"--backend", "cpu", "export", "best-of-8", "-o", "x.svg"};
        QTest::newRow("bad size") << QStringList{"--screenshot", "x.png", "--size", "big"};
        QTest::newRow("size below the smallest")
            << QStringList{"--screenshot", "x.png", "--size", "900x600"};
        QTest::newRow("endless size")
            << QStringList{"--screenshot", "x.png", "--size", "99999999999x700"};
        QTest::newRow("negative step") << QStringList{"--screenshot", "x.png", "--at-step", "-5"};
        QTest::newRow("no selection") << QStringList{"--screenshot", "x.png", "--select", "bogus"};
        QTest::newRow("export without output") << QStringList{"export", "best-of-8"};
        QTest::newRow("unknown source") << QStringList{"export", "no-such-lesson", "-o", "x.svg"};
        QTest::newRow("unknown view")
            << QStringList{"export", "best-of-8", "--view", "x", "-o", "x.svg"};
        QTest::newRow("unknown format") << QStringList{"export", "best-of-8", "-o", "x.bmp"};
        QTest::newRow("scale that is no number") << QStringList{"--scale", "nan"};
        QTest::newRow("endless scale") << QStringList{"--scale", "inf"};
        QTest::newRow("export scale that is no number")
            << QStringList{"export", "best-of-8", "--scale", "nan", "-o", "x.png"};
        QTest::newRow("option twice") << QStringList{"--lesson", "a", "--lesson", "b"};
        QTest::newRow("export option twice")
            << QStringList{"export", "best-of-8", "-o", "x.svg", "-o", "y.svg"};
        QTest::newRow("two files") << QStringList{"a.trace", "b.trace"};
        QTest::newRow("no value") << QStringList{"--stop"};
        QTest::newRow("empty file") << QStringList{"", "--screenshot", "x.png"};
        QTest::newRow("empty picture") << QStringList{"--screenshot", ""};
        QTest::newRow("step of no picture") << QStringList{"--at-step", "3"};
        QTest::newRow("selection of no picture") << QStringList{"--select", "kv:block/3"};
        QTest::newRow("agreement for no GPU") << QStringList{"--backend", "cpu", "--cpu-fallback"};
        QTest::newRow("agreement that auto has")
            << QStringList{"--backend", "auto", "--cpu-fallback"};
        QTest::newRow("line break") << QStringList{"--theme", "a\nb"};
        QTest::newRow("option of the window before export")
            << QStringList{"--theme", "dark", "export", "best-of-8", "-o", "x.svg"};
        QTest::newRow("name against format")
            << QStringList{"export", "best-of-8", "-o", "x.svg", "--format", "png"};
        QTest::newRow("name without format") << QStringList{"export", "best-of-8", "-o", "x"};
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
        QVERIFY2(outcome.err.contains("; "), outcome.err.constData());  // what to do
    }

    void whatIsNotUnderstoodIsTheFirstOfIt() {
        const Outcome outcome = call({"export", "best-of-8", "--backend", "simt", "-o", "x.svg"});
        QCOMPARE(outcome.code, 2);
        QVERIFY2(outcome.err.contains("\"--backend\" is not understood"), outcome.err.constData());
    }

    void whatCannotBeReadOrWrittenIsOneSentence_data() {
        QTest::addColumn<QStringList>("arguments");
        QTest::addColumn<QString>("says");
        const QString picture = folder_.filePath("never-written.png");
        QTest::newRow("no file") << QStringList{"/nowhere/a.trace", "--screenshot", picture}
                                 << "\"/nowhere/a.trace\" does not exist; give the path of a trace";
        QTest::newRow("folder") << QStringList{folder_.path(), "--screenshot", picture}
                                << "is a folder; give";
        QTest::newRow("device") << QStringList{"/dev/null", "--screenshot", picture}
                                << "is a device, not a file; give";
        QTest::newRow("no trace") << QStringList{KVLAB_GUI_PATH, "--screenshot", picture}
                                  << "give a file made with --trace";
        QTest::newRow("no lesson") << QStringList{"--lesson", "nope", "--screenshot", picture}
                                   << "there is no lesson \"nope\"";
        QTest::newRow("picture into no folder")
            << QStringList{trace_, "--screenshot", "/nowhere/a.png"} << "there is no such folder";
        QTest::newRow("picture over a folder")
            << QStringList{trace_, "--screenshot", folder_.path()} << "this is a folder";
        QTest::newRow("picture without a format")
            << QStringList{trace_, "--screenshot", folder_.filePath("a")} << "end in .png";
        QTest::newRow("picture of no format")
            << QStringList{trace_, "--screenshot", folder_.filePath("a.doc")} << "end in .png";
    }
    void whatCannotBeReadOrWrittenIsOneSentence() {
        QFETCH(QStringList, arguments);
        QFETCH(QString, says);
        const Outcome outcome = call(arguments);
        QVERIFY2(outcome.code == 1, outcome.err.constData());
        QVERIFY2(outcome.err.startsWith("kvlab: ") && outcome.err.contains(says.toUtf8()),
                 outcome.err.constData());
        QCOMPARE(outcome.err.count('\n'), 1);
        QVERIFY(!QFile::exists(folder_.filePath("never-written.png")));
    }

    // On simt a whole lesson takes minutes; the picture needs its first step.
    void aPictureOnSimtNeedsNoMoreThanItsSteps() {
        if (!QFile::exists(QStringLiteral(KVLAB_SOURCE_DIR "/assets/model/village.gguf"))) {
            QSKIP("no bundled model");
        }
        const QString lessons = folder_.filePath("lessons");
        QVERIFY(QDir().mkpath(lessons + "/best-of-8"));
        const QString from = QStringLiteral(KVLAB_SOURCE_DIR "/lessons/content/best-of-8/");
        QVERIFY(QFile::copy(from + "en.md", lessons + "/best-of-8/en.md"));
        QByteArray lesson = contents(from + "lesson.json");
        lesson.replace("\"prompt_tokens\": 2000", "\"prompt_tokens\": 33");
        QVERIFY(lesson != contents(from + "lesson.json"));
        QFile out(lessons + "/best-of-8/lesson.json");
        QVERIFY(out.open(QIODevice::WriteOnly) && out.write(lesson) == lesson.size());
        out.close();
        const QString file = folder_.filePath("simt.png");
        const Outcome outcome = call({"--backend", "simt", "--kernel-walk", "--screenshot", file,
                                      "--size", "1024x700", "--at-step", "1"},
                                     {"KVLAB_LESSONS=" + lessons});
        QVERIFY2(outcome.code == 0, outcome.err.constData());
        QCOMPARE(QImage(file).size(), QSize(1024, 700));
        // A figure of its first step, in which nothing was sampled yet.
        const QString figure = folder_.filePath("simt.svg");
        const Outcome exported =
            call({"export", "best-of-8", "--view", "kernel-walk", "--step", "1", "-o", figure},
                 {"KVLAB_LESSONS=" + lessons});
        QVERIFY2(exported.code == 0, exported.err.constData());
        QVERIFY(contents(figure).contains("Thread block (0, 0, 0)"));
        // The selection is looked for in the moment asked for, though no step comes after it.
        const Outcome later = call({"--backend", "simt", "--screenshot", file, "--at-step", "2",
                                    "--select", "kv:block/99999"},
                                   {"KVLAB_LESSONS=" + lessons});
        QVERIFY2(later.code == 2 && later.err.contains("no 99999"), later.err.constData());
    }

    void aBackendThatIsNotThereIsOneSentence() {
        const Outcome outcome =
            call({"--backend", "cuda", "--screenshot", folder_.filePath("x.png")},
                 {"KVLAB_CUDA_PLUGIN=/nowhere/libkvlab_cuda.so"});
        QVERIFY2(outcome.code == 1, outcome.err.constData());
        QCOMPARE(outcome.err.count('\n'), 1);
        QVERIFY2(outcome.err.startsWith("kvlab: ") && outcome.err.contains("is not there"),
                 outcome.err.constData());
        QVERIFY2(outcome.err.contains("--backend cpu") && !outcome.err.contains("menu"),
                 outcome.err.constData());
    }

    void aTraceHoldsNoKernelWalk() {
        const Outcome outcome =
            call({"export", trace_, "--view", "kernel-walk", "-o", folder_.filePath("walk.svg")});
        QCOMPARE(outcome.code, 2);
        QVERIFY2(outcome.err.contains("a trace holds no kernel walk"), outcome.err.constData());
        QVERIFY(!QFile::exists(folder_.filePath("walk.svg")));
    }

    void whatComesLaterSaysSo_data() {
        QTest::addColumn<QStringList>("arguments");
        QTest::newRow("language") << QStringList{"--lang", "de"};
        QTest::newRow("language twice") << QStringList{"--lang", "de", "--lang", "ru"};
        QTest::newRow("language before export")
            << QStringList{"--lang", "de", "export", "best-of-8", "-o", "x.svg"};
        QTest::newRow("all") << QStringList{"export", "--all", "folder"};
        QTest::newRow("both themes")
            << QStringList{"export", "best-of-8", "--theme", "both", "-o", "x.svg"};
        QTest::newRow("csv") << QStringList{"export", "best-of-8", "--format", "csv", "-o", "x"};
        QTest::newRow("json by name") << QStringList{"export", "best-of-8", "-o", "x.json"};
        QTest::newRow("millimetres")
            << QStringList{"export", "best-of-8", "--width", "160mm", "-o", "x.svg"};
        QTest::newRow("view") << QStringList{"export", "best-of-8", "--view",
                                             "radix",  "-o",        "x.svg"};
    }
    void whatComesLaterSaysSo() {
        QFETCH(QStringList, arguments);
        const Outcome outcome = call(arguments);
        QVERIFY2(outcome.code == 2, outcome.err.constData());
        QVERIFY2(outcome.err.contains("not built yet"), outcome.err.constData());
        QCOMPARE(outcome.err.count('\n'), 1);
    }

    void aDisplayThatIsGoneIsOneSentence_data() {
        QTest::addColumn<QString>("variable");
        QTest::newRow("X11") << "DISPLAY=:4711";
        QTest::newRow("Wayland") << "WAYLAND_DISPLAY=wayland-4711";
        QTest::newRow("platform") << "QT_QPA_PLATFORM=nonsense";
    }
    void aDisplayThatIsGoneIsOneSentence() {
        QFETCH(QString, variable);
        const Outcome outcome = call({}, {variable});
        QCOMPARE(outcome.code, 1);
        QVERIFY2(outcome.err.startsWith("kvlab: "), outcome.err.constData());
        QVERIFY(outcome.err.contains(variable.section('=', 0, 0).toUtf8()));
        QCOMPARE(outcome.err.count('\n'), 1);
    }

    void withoutAWindowTheDisplayDoesNotMatter() {
        for (const QStringList& arguments :
             {QStringList{"export", trace_, "-o", folder_.filePath("stale.svg")},
              QStringList{"export", "--list"},
              QStringList{trace_, "--screenshot", folder_.filePath("stale.png")}}) {
            const Outcome outcome = call(arguments, {"DISPLAY=:4711", "WAYLAND_DISPLAY=none"});
            QVERIFY2(outcome.code == 0, outcome.err.constData());
            QCOMPARE(outcome.err, QByteArray());
        }
    }

    void aFullDiskIsAFailure_data() {
        QTest::addColumn<QStringList>("arguments");
        QTest::newRow("help") << QStringList{"--help"};
        QTest::newRow("version") << QStringList{"--version"};
        QTest::newRow("list") << QStringList{"export", "--list"};
        QTest::newRow("figure") << QStringList{"export", trace_, "--format", "svg"};
        QTest::newRow("figure by name")
            << QStringList{"export", trace_, "--format", "svg", "-o", "/dev/full"};
        QTest::newRow("bench") << QStringList{"bench", "--json"};
    }
    void aFullDiskIsAFailure() {
        if (!QFile::exists("/dev/full")) QSKIP("no /dev/full here");
        QFETCH(QStringList, arguments);
        const Outcome outcome = call(arguments, {}, "/dev/full");
        QVERIFY2(outcome.code == 1, outcome.err.constData());
        QVERIFY(outcome.err.startsWith("kvlab: "));
        QCOMPARE(outcome.err.count('\n'), 1);
    }

    void aMissingLessonsFolderIsNamed() {
        for (const QStringList& arguments :
             {QStringList{}, QStringList{"bench"},
              QStringList{"export", "best-of-8", "-o", folder_.filePath("none.svg")}}) {
            const Outcome outcome = call(arguments, {"KVLAB_LESSONS=/nope"});
            QCOMPARE(outcome.code, 1);
            QVERIFY(outcome.err.contains("/nope"));
            QVERIFY(outcome.err.contains("missing"));
            QCOMPARE(outcome.err.count('\n'), 1);
        }
        // A trace needs no lessons.
        const Outcome outcome =
            call({"export", trace_, "-o", folder_.filePath("trace.svg")}, {"KVLAB_LESSONS=/nope"});
        QVERIFY2(outcome.code == 0, outcome.err.constData());
    }

    void helpNamesTheEnvironment() {
        const Outcome help = call({"--help"});
        QCOMPARE(help.code, 0);
        QVERIFY(help.out.contains("KVLAB_MODEL"));
        QVERIFY(help.out.contains("KVLAB_LESSONS"));
        const Outcome version = call({"--version"});
        QCOMPARE(version.code, 0);
        QCOMPARE(version.out.count('\n'), 1);
    }

    void withoutFontsItWarnsOnce() {
        QFile configuration(folder_.filePath("fonts.conf"));
        QVERIFY(configuration.open(QIODevice::WriteOnly));
        configuration.write("<?xml version=\"1.0\"?><fontconfig><cachedir>" +
                            folder_.filePath("cache").toUtf8() + "</cachedir></fontconfig>");
        configuration.close();
        const Outcome outcome = call({"export", trace_, "-o", folder_.filePath("boxes.svg")},
                                     {"FONTCONFIG_FILE=" + configuration.fileName()});
        QCOMPARE(outcome.code, 0);
        QVERIFY2(outcome.err.contains("font"), outcome.err.constData());
        QCOMPARE(outcome.err.count('\n'), 1);
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

    void aPdfIsTheSameASecondLater() {
        const QString first = folder_.filePath("first.pdf");
        const QString second = folder_.filePath("second.pdf");
        QCOMPARE(call({"export", trace_, "-o", first}).code, 0);
        QTest::qSleep(1100);
        QCOMPARE(call({"export", trace_, "-o", second}).code, 0);
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

    void refusesToPhotographWhatTheRunHasNot() {
        const QString file = folder_.filePath("never.png");
        const QStringList wishes[] = {{"--at-step", "99999"},
                                      {"--select", "kv:block/99999"},
                                      {"--at-step", "0", "--select", "kv:sequence/0"}};
        for (const QStringList& wish : wishes) {
            const Outcome outcome = call(QStringList{trace_, "--screenshot", file} + wish);
            QCOMPARE(outcome.code, 2);
            QCOMPARE(outcome.err.count('\n'), 1);
            QVERIFY(!QFile::exists(file));
        }
    }

    void photographsTheSameTwice() {
        const QString first = folder_.filePath("first.png");
        const QString second = folder_.filePath("second.png");
        for (const QString& file : {first, second}) {
            const Outcome outcome =
                call({trace_, "--screenshot", file, "--size", "1280x800", "--at-step", "9"});
            QVERIFY2(outcome.code == 0, outcome.err.constData());
        }
        QVERIFY(QImage(first) == QImage(second));
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
