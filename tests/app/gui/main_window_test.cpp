// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/main_window.h"

#include <algorithm>

#include <QAbstractButton>
#include <QAction>
#include <QFile>
#include <QLabel>
#include <QLineEdit>
#include <QMenu>
#include <QPushButton>
#include <QScrollArea>
#include <QScrollBar>
#include <QSet>
#include <QSignalSpy>
#include <QTemporaryDir>
#include <QtTest>

#include "app/gui/panels/header_bar.h"
#include "app/gui/panels/inspector_panel.h"
#include "app/gui/panels/kernel_walk_panel.h"
#include "app/gui/panels/key_sheet.h"
#include "app/gui/panels/lesson_panel.h"
#include "app/gui/panels/tables_panel.h"
#include "app/gui/panels/transport_bar.h"
#include "app/gui/panels/widgets.h"
#include "app/gui/views/kernel_walk_view.h"
#include "app/gui/views/memory_view.h"
#include "app/gui/views/sharing_view.h"
#include "engine/trace/trace_io.h"
#include "lessons/lesson_loader.h"
#include "tests/support/log_builder.h"

namespace kvlab {

// The whole window on the offscreen platform.
class MainWindowTest : public QObject {
    Q_OBJECT

    static void show(MainWindow& window) {
        window.resize(1280, 800);
        window.show();
        QVERIFY(QTest::qWaitForWindowActive(&window));
    }

    // A key as the keyboard sends it: to whatever has the focus.
    static void press(MainWindow& window, Qt::Key key, Qt::KeyboardModifiers modifiers = {}) {
        QWidget* focus = QApplication::focusWidget();
        QTest::keyClick(focus ? focus : &window, key, modifiers);
    }

    static QImage picture(MainWindow& window) {
        QCoreApplication::processEvents();
        return window.findChild<MemoryView*>()->grab().toImage();
    }

    // By the keys a reader has: to the end by steps, a stretch by single events, and back to the
    // start.
    static void driveBothWays(MainWindow& window) {
        RunHub& hub = window.hub();
        press(window, Qt::Key_Home);
        const CacheState first = hub.state();
        QVERIFY(first == initialState(hub.log().info().cache));
        const QImage first_picture = picture(window);

        std::vector<CacheState> states{first};
        while (!hub.atEnd()) {
            press(window, Qt::Key_PageDown);
            QCOMPARE(QString::fromStdString(checkInvariants(hub.state())), QString());
            states.push_back(hub.state());
            if (hub.cursor().step == hub.log().numSteps() / 2) {
                QVERIFY(picture(window) != first_picture);
            }
        }
        QVERIFY(hub.state() == hub.log().lastState());
        for (size_t i = states.size() - 1; i > 0; --i) {
            press(window, Qt::Key_PageUp);
            QVERIFY(hub.state() == states[i - 1]);
        }
        QVERIFY(hub.cursor() == hub.log().begin());
        for (int i = 0; i < 60; ++i) {
            press(window, Qt::Key_Right);
        }
        QVERIFY(hub.cursor() > hub.log().begin());
        for (int i = 0; i < 60; ++i) {
            press(window, Qt::Key_Left);
        }
        QVERIFY(hub.cursor() == hub.log().begin());
        QVERIFY(hub.state() == first);
        QCOMPARE(picture(window), first_picture);
    }

    // A lesson whose runs take a moment, on any backend.
    static Lesson shortLesson() {
        Lesson lesson = loadLesson(KVLAB_SOURCE_DIR "/lessons/content", "best-of-8", "en");
        for (LessonRun& run : lesson.runs) {
            run.config.requests.front().prompt_num_tokens = 40;
            run.config.requests.front().num_samples = 2;
            run.config.requests.front().max_tokens = 3;
        }
        for (LessonStop& stop : lesson.stops) stop.step = -1;
        return lesson;
    }

    static bool hasModel() {
        return QFile::exists(QStringLiteral(KVLAB_SOURCE_DIR "/assets/model/village.gguf"));
    }

    static QAction* backendAction(MainWindow& window, const QString& name) {
        for (QAction* action : window.header().backendMenu()->actions()) {
            if (action->data().toString() == name) return action;
        }
        return nullptr;
    }

    static QAbstractButton* buttonNamed(MainWindow& window, const QString& text) {
        for (auto* button : window.findChildren<QAbstractButton*>()) {
            if (button->isVisible() && button->text() == text) return button;
        }
        return nullptr;
    }

    static QString backendChip(MainWindow& window) {
        for (auto* button : window.header().findChildren<QPushButton*>()) {
            if (button->menu() == window.header().backendMenu()) return button->text();
        }
        return {};
    }

    // By the log's own words; -1: no GPU failed.
    static int64_t stepOfFailure(const RunLog& log) {
        for (int64_t step = 0; step < log.numSteps(); ++step) {
            for (const Event& event : log.step(step).events) {
                for (int entry = 0; entry < numEntries(event); ++entry) {
                    if (describeEntry(event, entry).find("the device failed") !=
                        std::string::npos) {
                        return step;
                    }
                }
            }
        }
        return -1;
    }

    // Every operation from the 50th on, in the run's second step. The stand-in counts anew for
    // another number.
    static QByteArray lostAfter(int more) { return "operation:2:" + QByteArray::number(50 + more); }

    // The variables of the GPU's plugin, for one test.
    struct Plugin {
        explicit Plugin(const char* path, const QByteArray& failure = {}) {
            qputenv("KVLAB_CUDA_PLUGIN", path);
            qputenv("KVLAB_SIMT_PLUGIN_FAIL", failure);
        }
        ~Plugin() {
            qunsetenv("KVLAB_CUDA_PLUGIN");
            qunsetenv("KVLAB_SIMT_PLUGIN_FAIL");
        }
    };

  private slots:
    void theBackendMenuListsWhatIsThere() {
        const Plugin none("/nowhere/libkvlab_cuda.so");
        MainWindow window;
        QSignalSpy listed(&window, &MainWindow::devicesListed);
        show(window);
        QVERIFY(!listed.isEmpty() || listed.wait(30000));
        QStringList names;
        for (QAction* action : window.header().backendMenu()->actions()) {
            if (action->isCheckable()) names.push_back(action->data().toString());
        }
        QCOMPARE(names, QStringList({"auto", "cpu", "simt", "cuda", "cpu fallback"}));
        QVERIFY(!backendAction(window, "cpu fallback")->isChecked());
        QVERIFY(!window.cpuFallback());
        QVERIFY(backendAction(window, "auto")->isChecked());
        QVERIFY(backendAction(window, "simt")->isEnabled());
        QVERIFY(backendAction(window, "simt")->text().contains("slowly"));
        const QAction* cuda = backendAction(window, "cuda");
        QVERIFY(!cuda->isEnabled());
        QVERIFY2(cuda->statusTip().contains("is not there"), qPrintable(cuda->statusTip()));
    }

    void theKeyboardChoosesABackend() {
        MainWindow window;
        show(window);
        QMenu* menu = window.header().backendMenu();
        // The menu has its own event loop.
        QTimer::singleShot(0, [menu] {
            QTRY_VERIFY(menu->isVisible());
            menu->setActiveAction(menu->actions().front());
            QTest::keyClick(menu, Qt::Key_Down);
            QTest::keyClick(menu, Qt::Key_Return);
        });
        press(window, Qt::Key_B, Qt::ControlModifier);
        QTRY_VERIFY(!menu->isVisible());
        QVERIFY(window.backend() != "auto");
    }

    void anotherBackendRunsTheLessonAgain() {
        if (!hasModel()) QSKIP("no bundled model");
        const Plugin gpu(KVLAB_SIMT_PLUGIN);
        MainWindow window;
        QSignalSpy listed(&window, &MainWindow::devicesListed);
        show(window);
        QVERIFY(!listed.isEmpty() || listed.wait(30000));
        window.setBackend("cpu");
        window.openLesson(shortLesson());
        QTRY_VERIFY_WITH_TIMEOUT(window.hub().hasLog() && !window.worker().isRunning(), 120000);
        QCOMPARE(window.hub().log().info().backend, std::string("cpu"));
        const RunLog* first = &window.hub().log();
        const CacheState end = window.hub().log().lastState();
        for (const char* name : {"simt", "cuda"}) {
            QVERIFY2(backendAction(window, name)->isEnabled(), name);
            backendAction(window, name)->trigger();
            QCOMPARE(window.backend(), QString(name));
            QVERIFY(backendAction(window, name)->isChecked());
            QVERIFY(window.worker().isRunning());
            QTRY_VERIFY_WITH_TIMEOUT(window.hub().hasLog() && !window.worker().isRunning(), 120000);
            QCOMPARE(window.bannerText(), QString());
            QCOMPARE(window.hub().log().info().backend, std::string(name));
            QCOMPARE(accountOf(window.hub().log().lastState()), accountOf(end));
        }
        // What has finished is shown again, and not decoded twice.
        backendAction(window, "cpu")->trigger();
        QVERIFY(!window.worker().isRunning());
        QCOMPARE(&window.hub().log(), first);
    }

    void aSimtRunShowsTheKernelsWalk() {
        if (!hasModel()) QSKIP("no bundled model");
        MainWindow window;
        show(window);
        window.setBackend("cpu");
        window.openLesson(shortLesson());
        QTRY_VERIFY_WITH_TIMEOUT(window.hub().hasLog() && !window.worker().isRunning(), 120000);
        QVERIFY(!window.kernelWalk().isVisible());
        press(window, Qt::Key_K, Qt::ControlModifier);
        QVERIFY(window.kernelWalk().isVisible());
        QVERIFY(!window.kernelWalk().view().hasWalk());
        QAbstractButton* simt = buttonNamed(window, "Run with simt");
        QVERIFY(simt);
        simt->click();
        QCOMPARE(window.backend(), QString("simt"));
        QTRY_VERIFY_WITH_TIMEOUT(window.hub().hasLog() && !window.worker().isRunning(), 120000);
        window.playback().toEnd();
        KernelWalkView& view = window.kernelWalk().view();
        QVERIFY(view.hasWalk());
        QVERIFY(!buttonNamed(window, "Run with simt"));
        QCOMPARE(view.numLayers(), window.hub().log().info().model.num_layers);
        // Every entry of every thread block, against the tables of the log.
        const CacheState& state = window.hub().state();
        int num_entries = 0;
        for (int i = 0; i < static_cast<int>(view.scene().chosenLaunch().thread_blocks.size());
             ++i) {
            view.setThreadBlock(0, i);
            for (int step = 0; step < view.numSteps(); ++step) {
                view.setStep(step);
                const WalkStep& at = view.scene().steps[static_cast<size_t>(step)];
                if (at.read == nullptr) continue;
                const Selection& lit = window.hub().locked();
                const auto& table = state.sequences[static_cast<size_t>(lit.sequence->value)].table;
                QCOMPARE(*lit.block, table[static_cast<size_t>(at.read->block_idx)]);
                QCOMPARE(window.findChild<MemoryView*>()->scene().looked_at, lit.block);
                ++num_entries;
            }
        }
        QVERIFY(num_entries >= 4);
        // Every earlier step with rows has its own.
        press(window, Qt::Key_PageUp);
        QVERIFY(view.hasWalk());
        // A run that is shown again brings its walks along; another backend has none.
        window.setBackend("cpu");
        QVERIFY(!view.hasWalk());
        QVERIFY(buttonNamed(window, "Run with simt"));
        window.setBackend("simt");
        window.playback().toEnd();
        QVERIFY(view.hasWalk());
        press(window, Qt::Key_R, Qt::ControlModifier);
        QVERIFY(!window.kernelWalk().isVisible());
    }

    void aMessageOfTheRunIsShown() {
        MainWindow window;
        show(window);
        emit window.worker().messageTold("the GPU failed at step 12; use --backend cpu");
        QCOMPARE(window.bannerText(),
                 QString("the GPU failed at step 12; choose cpu in the backend menu"));
        emit window.worker().messageTold("another thing");
        QVERIFY(window.bannerText().contains("step 12") &&
                window.bannerText().endsWith("another thing"));
    }

    void aFailingGpuIsOneSentence() {
        if (!hasModel()) QSKIP("no bundled model");
        const Plugin failing(KVLAB_SIMT_PLUGIN, "allocate:1:5");
        MainWindow window;
        show(window);
        window.openLesson(shortLesson());
        QTRY_VERIFY_WITH_TIMEOUT(window.hub().hasLog() && !window.worker().isRunning(), 120000);
        QCOMPARE(window.hub().log().info().backend, std::string("cpu"));
        QVERIFY2(window.bannerText().startsWith("This run is on the CPU: ") &&
                     window.bannerText().contains("the GPU has"),
                 qPrintable(window.bannerText()));
        QVERIFY(!window.bannerText().contains("--backend"));
        // Told as a message too, and shown once.
        QVERIFY(!window.bannerText().contains('\n'));

        window.setBackend("cuda");
        QTRY_VERIFY_WITH_TIMEOUT(!window.worker().isRunning(), 120000);
        QTRY_VERIFY(buttonNamed(window, "Run on the CPU"));
        QVERIFY2(window.bannerText().contains("the GPU has"), qPrintable(window.bannerText()));
        buttonNamed(window, "Run on the CPU")->click();
        QCOMPARE(window.backend(), QString("cpu"));
        QTRY_VERIFY_WITH_TIMEOUT(window.hub().hasLog() && !window.worker().isRunning(), 120000);
        QCOMPARE(window.hub().log().info().backend, std::string("cpu"));
        QCOMPARE(window.bannerText(), QString());
    }

    // The GPU works for a while, and then no more.
    void aGpuThatFailsInTheMiddleIsNamedAsWhatItWas() {
        if (!hasModel()) QSKIP("no bundled model");
        const Plugin failing(KVLAB_SIMT_PLUGIN, lostAfter(0));
        MainWindow window;
        QSignalSpy listed(&window, &MainWindow::devicesListed);
        show(window);
        QVERIFY(!listed.isEmpty() || listed.wait(30000));
        QSignalSpy steps(&window.worker(), &SessionWorker::stepsReceived);
        window.openLesson(shortLesson());
        QTRY_VERIFY_WITH_TIMEOUT(window.hub().hasLog() && !window.worker().isRunning(), 120000);
        const RunLog& log = window.hub().log();
        QCOMPARE(log.info().backend, std::string("cuda"));
        const int64_t failed_step = stepOfFailure(log);
        QVERIFY2(failed_step > 0 && failed_step < log.numSteps() - 1,
                 qPrintable(QString::number(failed_step)));
        const QString until = QStringLiteral("CUDA until step %1").arg(failed_step);
        QCOMPARE(backendChip(window), QStringLiteral("backend CPU · %1 ▾").arg(until));
        QVERIFY2(window.bannerText().startsWith("The GPU failed and the CPU goes on: ") &&
                     window.bannerText().contains("computed again"),
                 qPrintable(window.bannerText()));
        QVERIFY(!window.bannerText().contains('\n'));
        QVERIFY(!buttonNamed(window, "Run on the CPU"));
        QVERIFY(backendAction(window, "auto")->isChecked());
        QVERIFY2(backendAction(window, "cpu")->text().endsWith("this run, " + until),
                 qPrintable(backendAction(window, "cpu")->text()));
        QVERIFY2(backendAction(window, "cuda")->text().endsWith("failed in this run"),
                 qPrintable(backendAction(window, "cuda")->text()));

        // Another run is another matter, and the one before is what it was when it is back.
        window.setBackend("cpu");
        QTRY_VERIFY_WITH_TIMEOUT(window.hub().hasLog() && !window.worker().isRunning(), 120000);
        QCOMPARE(backendChip(window), QString("backend CPU ▾"));
        QVERIFY(!backendAction(window, "cuda")->text().contains("failed"));
        window.setBackend("auto");
        QVERIFY(!window.worker().isRunning());
        QCOMPARE(backendChip(window), QStringLiteral("backend CPU · %1 ▾").arg(until));
    }

    void whoChoseTheGpuIsAskedBeforeTheCpuGoesOn() {
        if (!hasModel()) QSKIP("no bundled model");
        const Plugin failing(KVLAB_SIMT_PLUGIN, lostAfter(1));
        MainWindow window;
        show(window);
        window.setBackend("cuda");
        window.openLesson(shortLesson());
        QTRY_VERIFY_WITH_TIMEOUT(buttonNamed(window, "Run on the CPU"), 120000);
        QCOMPARE(backendChip(window), QString("backend CUDA ▾"));
        const qint64 reached = window.hub().log().numSteps();
        QVERIFY(reached > 0);
        buttonNamed(window, "Run on the CPU")->click();
        QTRY_VERIFY_WITH_TIMEOUT(window.hub().hasLog() && !window.worker().isRunning(), 120000);
        QCOMPARE(window.hub().log().info().backend, std::string("cpu"));
        QCOMPARE(backendChip(window), QString("backend CPU ▾"));
        QCOMPARE(window.hub().cursor(), (Cursor{reached, 0, 0}));
        QVERIFY(window.hub().log().numSteps() > reached);
    }

    void whoHasAgreedIsNotAsked() {
        if (!hasModel()) QSKIP("no bundled model");
        const Plugin failing(KVLAB_SIMT_PLUGIN, lostAfter(2));
        MainWindow window;
        show(window);
        window.setBackend("cuda");
        backendAction(window, "cpu fallback")->trigger();
        QVERIFY(window.cpuFallback());
        window.openLesson(shortLesson());
        QTRY_VERIFY_WITH_TIMEOUT(window.hub().hasLog() && !window.worker().isRunning(), 120000);
        QVERIFY(!buttonNamed(window, "Run on the CPU"));
        QVERIFY2(backendChip(window).startsWith("backend CPU · CUDA until step "),
                 qPrintable(backendChip(window)));
        QCOMPARE(window.hub().log().lastState().sequences.size(), size_t{2});
        for (const SequenceState& sequence : window.hub().log().lastState().sequences) {
            QCOMPARE(sequence.finish, FinishReason::kLength);
        }
    }

    void aNewRunIsNotNamedAfterTheOneBefore() {
        if (!hasModel()) QSKIP("no bundled model");
        MainWindow window;
        show(window);
        window.setBackend("cpu");
        window.openLesson(shortLesson());
        QTRY_VERIFY_WITH_TIMEOUT(window.hub().hasLog() && !window.worker().isRunning(), 120000);
        QCOMPARE(backendChip(window), QString("backend CPU ▾"));
        window.setBackend("simt");
        QCOMPARE(backendChip(window), QString("backend simt ▾"));
        window.worker().cancel();
        QTRY_VERIFY_WITH_TIMEOUT(!window.worker().isRunning(), 60000);
    }

    void noMoreStepsAreComputedThanAskedFor() {
        if (!hasModel()) QSKIP("no bundled model");
        for (const char* backend : {"cpu", "simt"}) {
            MainWindow window;
            show(window);
            window.setBackend(backend);
            window.limitSteps(2);
            window.openLesson(shortLesson());
            QTRY_VERIFY_WITH_TIMEOUT(window.hub().hasLog() && !window.worker().isRunning(), 120000);
            QCOMPARE(window.hub().log().numSteps(), int64_t{2});
            QCOMPARE(window.bannerText(), QString());
            for (const SequenceState& sequence : window.hub().log().lastState().sequences) {
                QCOMPARE(sequence.finish, FinishReason::kNone);
            }
            window.playback().toEnd();
            QCOMPARE(window.kernelWalk().view().hasWalk(), backend == QLatin1String("simt"));
            QVERIFY(window.endWithin(60000));
        }
    }

    // At the sizes that a reader has, with the real model's walk.
    void theKernelWalkHasItsWordsAtEverySize() {
        if (!hasModel()) QSKIP("no bundled model");
        MainWindow window;
        show(window);
        window.setBackend("simt");
        window.limitSteps(2);
        window.openLesson(shortLesson());
        QTRY_VERIFY_WITH_TIMEOUT(window.hub().hasLog() && !window.worker().isRunning(), 120000);
        window.playback().toEnd();
        window.setKernelWalkShown(true);
        KernelWalkView& view = window.kernelWalk().view();
        auto* area = qobject_cast<QScrollArea*>(view.parentWidget()->parentWidget());
        QVERIFY(area);
        for (const QSize size : {QSize(1024, 700), QSize(1280, 800), QSize(1600, 1000)}) {
            window.resize(size);
            window.setKernelWalkShown(true);
            window.settle();
            QCOMPARE(window.size(), size);
            const KernelWalkScene& scene = view.scene();
            QVERIFY(view.hasWalk());
            // All of it is inside the widget, and what is below the edge is scrolled to.
            QVERIFY2(scene.totals.bottom() <= view.height(),
                     qPrintable(QString::number(view.height())));
            QVERIFY(view.width() <= area->viewport()->width());
            QCOMPARE(view.height() > area->viewport()->height(),
                     area->verticalScrollBar()->maximum() > 0);
            if (!scene.stacked) continue;
            QVERIFY(scene.words.top() >= scene.hop.bottom());
            QVERIFY(scene.totals.top() >= scene.words.bottom());
            // Some of the words stand there before anybody scrolls.
            QVERIFY(scene.words.top() + 36 <= area->viewport()->height());
        }
    }

    void withoutAGpuTheChoiceOfItIsRefusedInOneSentence() {
        if (!hasModel()) QSKIP("no bundled model");
        const Plugin none("/nowhere/libkvlab_cuda.so");
        MainWindow window;
        show(window);
        window.setBackend("cuda");
        window.openLesson(shortLesson());
        QTRY_VERIFY_WITH_TIMEOUT(!window.bannerText().isEmpty(), 60000);
        QVERIFY2(window.bannerText().contains("is not there"), qPrintable(window.bannerText()));
        QVERIFY(buttonNamed(window, "Run on the CPU"));
    }

    void drivesTheRealRunForwardsAndBack() {
        if (!QFile::exists(QStringLiteral(KVLAB_SOURCE_DIR "/assets/model/village.gguf"))) {
            QSKIP("no bundled model");
        }
        // The lesson as it is, with a shorter prompt: the same events in less time.
        Lesson lesson = loadLesson(KVLAB_SOURCE_DIR "/lessons/content", "best-of-8", "en");
        for (LessonRun& run : lesson.runs) {
            run.config.requests.front().prompt_num_tokens = run.id == "2001" ? 401 : 400;
            run.config.requests.front().max_tokens = 41;
        }
        MainWindow window;
        show(window);
        window.openLesson(std::move(lesson));
        QTRY_VERIFY_WITH_TIMEOUT(window.hub().hasLog(), 60000);
        QVERIFY(window.playback().isPlaying());
        QTRY_VERIFY_WITH_TIMEOUT(!window.worker().isRunning(), 300000);
        QCOMPARE(window.bannerText(), QString());
        QVERIFY(!window.hub().isLive());
        const PoolAccount account = accountOf(window.hub().log().lastState());
        QCOMPARE(account.shared_blocks, 25);
        QCOMPARE(account.active_blocks, 25 + 8 * 3);
        driveBothWays(window);
    }

    void drivesAScriptedRunForwardsAndBack() {
        MainWindow window;
        show(window);
        window.showLog(scriptedLog({.prompt_len = 2001, .num_decode_steps = 30, .release = true}),
                       "scripted");
        driveBothWays(window);
    }

    void keysMoveTheRunWhereverTheFocusIs() {
        MainWindow window;
        show(window);
        window.showLog(scriptedLog(), "scripted");
        RunHub& hub = window.hub();
        press(window, Qt::Key_End);
        QVERIFY(hub.atEnd());
        press(window, Qt::Key_Left, Qt::ControlModifier);
        QCOMPARE(hub.cursor().step, hub.log().numSteps() - 1);
        press(window, Qt::Key_Home);
        press(window, Qt::Key_Space);
        QVERIFY(window.playback().isPlaying());
        press(window, Qt::Key_Space);
        QVERIFY(!window.playback().isPlaying());

        Selection selection;
        selection.block = BlockId(60);
        hub.lock(selection);
        press(window, Qt::Key_Right, Qt::ShiftModifier);
        QVERIFY(hub.lastApplied().has_value());
        press(window, Qt::Key_Escape);
        QVERIFY(hub.locked().empty());
    }

    void typingAPredictionMovesNothing() {
        Lesson lesson = loadLesson(KVLAB_SOURCE_DIR "/lessons/content", "best-of-8", "en");
        MainWindow window;
        show(window);
        window.showLog(scriptedLog(), "scripted");
        window.lessonPanel().setLesson(lesson);
        for (size_t i = 0; i < lesson.stops.size(); ++i) {
            if (!lesson.stops[i].question.empty()) {
                QSignalBlocker no_run(&window.lessonPanel());
                window.lessonPanel().goToStop(static_cast<int>(i));
                break;
            }
        }
        auto* input = window.lessonPanel().findChild<QLineEdit*>();
        QVERIFY(input->isVisible());
        input->setFocus();
        const Cursor before = window.hub().cursor();
        for (const Qt::Key key : {Qt::Key_1, Qt::Key_7, Qt::Key_Space, Qt::Key_5, Qt::Key_Left}) {
            press(window, key);
        }
        QCOMPARE(input->text(), QString("17 5"));
        QVERIFY(window.hub().cursor() == before);
        QVERIFY(!window.playback().isPlaying());
    }

    void everyControlIsReachedByTabAndHasAName() {
        MainWindow window;
        show(window);
        window.showLog(scriptedLog(), "scripted");
        QSet<QWidget*> reached;
        for (int i = 0; i < 80; ++i) {
            press(window, Qt::Key_Tab);
            QWidget* focus = QApplication::focusWidget();
            QVERIFY(focus);
            reached.insert(focus);
            QString name = focus->accessibleName();
            if (const auto* button = qobject_cast<QAbstractButton*>(focus);
                button && name.isEmpty()) {
                name = button->text();
            }
            if (const auto* label = qobject_cast<QLabel*>(focus); label && name.isEmpty()) {
                name = label->text();
            }
            QVERIFY2(!name.isEmpty(), focus->metaObject()->className());
        }
        for (const QAbstractButton* button : window.findChildren<QAbstractButton*>()) {
            if (button->isVisible() && button->isEnabled() &&
                button->focusPolicy() != Qt::NoFocus) {
                QVERIFY2(reached.contains(const_cast<QAbstractButton*>(button)),
                         qPrintable(button->text() + button->accessibleName()));
            }
        }
    }

    void switchesThemeAndScale() {
        MainWindow window;
        show(window);
        window.showLog(scriptedLog(), "scripted");
        const QImage light = picture(window);
        press(window, Qt::Key_T, Qt::ControlModifier);
        QCOMPARE(window.themeKind(), ThemeKind::kDark);
        QVERIFY(picture(window) != light);
        press(window, Qt::Key_T, Qt::ControlModifier);
        press(window, Qt::Key_Plus, Qt::ControlModifier);
        QVERIFY(window.scale() > 1.05);
        press(window, Qt::Key_0, Qt::ControlModifier);
        QCOMPARE(window.scale(), 1.0);
        // Panels that grew keep their width until the room is put back.
        press(window, Qt::Key_R, Qt::ControlModifier);
        QCOMPARE(picture(window), light);
    }

    void opensTablesAndKeysAndPutsTheRoomBack() {
        MainWindow window;
        show(window);
        window.showLog(scriptedLog(), "scripted");
        auto* tables = window.findChild<TablesPanel*>();
        QVERIFY(!tables->isVisible());
        press(window, Qt::Key_L, Qt::ControlModifier);
        QVERIFY(tables->isVisible());
        // In a low window the second row gives way, so that the tables show more than their heads.
        window.settle();
        QVERIFY2(tables->height() >= 200, qPrintable(QString::number(tables->height())));
        QVERIFY(!window.findChild<SharingView*>()->isVisible());
        QCOMPARE(tables->count(), 5);
        QVERIFY(!tables->isTabVisible(4));  // a kernel walk, of which this run has none
        press(window, Qt::Key_R, Qt::ControlModifier);
        QVERIFY(!tables->isVisible());
        QVERIFY(window.findChild<SharingView*>()->isVisible());
        press(window, Qt::Key_Question);
        QTRY_VERIFY(window.findChild<KeySheet*>() && window.findChild<KeySheet*>()->isVisible());
        QTest::keyClick(window.findChild<KeySheet*>(), Qt::Key_Escape);
        QVERIFY(!window.findChild<KeySheet*>()->isVisible());
    }

    void opensADamagedTraceUpToTheDamage() {
        QTemporaryDir folder;
        const LogScript script;
        const std::string whole = folder.filePath("whole.trace").toStdString();
        {
            TraceWriter writer(whole, scriptedInfo(script));
            for (const auto& step : scriptedSteps(script)) {
                writer.append(*step);
            }
            writer.finish();
        }
        MainWindow window;
        show(window);
        QSignalSpy opened(&window, &MainWindow::traceOpened);
        window.openTrace(QString::fromStdString(whole));
        QVERIFY(opened.wait(30000));
        QCOMPARE(window.bannerText(), QString());
        const int64_t num_steps = window.hub().log().numSteps();

        QFile file(QString::fromStdString(whole));
        QVERIFY(file.open(QIODevice::ReadOnly));
        QByteArray bytes = file.readAll();
        bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x15);
        const QString damaged = folder.filePath("damaged.trace");
        QFile out(damaged);
        QVERIFY(out.open(QIODevice::WriteOnly));
        out.write(bytes);
        out.close();
        window.openTrace(damaged);
        QVERIFY(opened.wait(30000));
        QVERIFY2(window.bannerText().contains("damaged"), qPrintable(window.bannerText()));
        QVERIFY(window.hub().log().numSteps() < num_steps);
        const auto says = [&](const QString& words) {
            const auto labels = window.findChild<TransportBar*>()->findChildren<QLabel*>();
            return std::any_of(labels.begin(), labels.end(),
                               [&](const QLabel* label) { return label->text() == words; });
        };
        press(window, Qt::Key_End);
        QVERIFY(says("end of what is readable"));

        const QString nonsense = folder.filePath("nonsense.trace");
        QFile junk(nonsense);
        QVERIFY(junk.open(QIODevice::WriteOnly));
        junk.write("no trace at all\n");
        junk.close();
        window.openTrace(nonsense);
        QVERIFY(opened.wait(30000));
        QVERIFY(!window.bannerText().isEmpty());
        QVERIFY(window.hub().hasLog());  // what was there stays
    }

    void theFirstSizeFitsTheScreen() {
        const QMargins frame(4, 30, 4, 4);
        for (const QRect screen : {QRect(0, 0, 1366, 768), QRect(0, 27, 1600, 973)}) {
            const QRect inside = firstGeometry({1600, 1000}, screen, frame);
            QVERIFY(screen.contains(inside.marginsAdded(frame)));
            QVERIFY(inside.width() > 1300 && inside.height() > 700);
        }
        QCOMPARE(firstGeometry({1600, 1000}, {0, 0, 3840, 2160}, frame).size(), QSize(1600, 1000));
        MainWindow window;
        window.resize(1180, 700);
        window.show();
        QVERIFY(QTest::qWaitForWindowActive(&window));
        QCOMPARE(window.size(), QSize(1180, 700));
        // Nothing asks for more than the window has.
        for (const QWidget* widget : window.centralWidget()->findChildren<QWidget*>(
                 QString(), Qt::FindDirectChildrenOnly)) {
            if (widget->isVisible()) {
                QVERIFY2(window.centralWidget()->rect().contains(widget->geometry()),
                         widget->metaObject()->className());
            }
        }
    }

    void spacePlaysAfterAClickOnNext() {
        Lesson lesson = loadLesson(KVLAB_SOURCE_DIR "/lessons/content", "best-of-8", "en");
        for (LessonStop& stop : lesson.stops) {
            stop.run.clear();
            stop.step = -1;
        }
        MainWindow window;
        show(window);
        window.showLog(scriptedLog(), "scripted");
        window.lessonPanel().setLesson(lesson);
        QAbstractButton* next = nullptr;
        for (auto* button : window.lessonPanel().findChildren<QAbstractButton*>()) {
            if (button->accessibleName() == "Next stop of the lesson") {
                next = button;
            }
        }
        QVERIFY(next);
        QTest::mouseClick(next, Qt::LeftButton);
        QCOMPARE(window.lessonPanel().stop(), 1);
        press(window, Qt::Key_Space);
        QCOMPARE(window.lessonPanel().stop(), 1);
        QVERIFY(window.playback().isPlaying());
        // Reached by Tab, it is what Space is for.
        next->setFocus(Qt::TabFocusReason);
        press(window, Qt::Key_Space);
        QCOMPARE(window.lessonPanel().stop(), 2);
    }

    void numbersHaveTheirRoomInAPicture() {
        MainWindow window;
        show(window);
        window.showLog(scriptedLog(), "scripted");
        window.playback().toEnd();
        window.settle();
        int seen = 0;
        for (const NumberLabel* label :
             window.findChild<InspectorPanel*>()->findChildren<NumberLabel*>()) {
            if (label->isVisible()) {
                QVERIFY2(label->width() >= label->sizeHint().width(), qPrintable(label->text()));
                ++seen;
            }
        }
        QVERIFY(seen >= 4);
    }

    void aStoppedRunRunsAgainWhenItIsNeeded() {
        if (!QFile::exists(QStringLiteral(KVLAB_SOURCE_DIR "/assets/model/village.gguf"))) {
            QSKIP("no bundled model");
        }
        Lesson lesson = loadLesson(KVLAB_SOURCE_DIR "/lessons/content", "best-of-8", "en");
        for (LessonRun& run : lesson.runs) {
            run.config.requests.front().prompt_num_tokens = 400;
            run.config.requests.front().max_tokens = 21;
        }
        for (LessonStop& stop : lesson.stops) {
            stop.step = std::min<int64_t>(stop.step, 12);
        }
        MainWindow window;
        show(window);
        const auto again = [&]() -> QAbstractButton* {
            for (auto* button : window.findChildren<QAbstractButton*>()) {
                if (button->isVisible() && button->text() == "Run again") {
                    return button;
                }
            }
            return nullptr;
        };
        window.openLesson(lesson);
        window.worker().cancel();
        QTRY_VERIFY_WITH_TIMEOUT(!window.worker().isRunning(), 60000);
        QVERIFY2(window.bannerText().contains("stopped"), qPrintable(window.bannerText()));
        QVERIFY(again());

        again()->click();
        QCOMPARE(window.bannerText(), QString());
        QVERIFY(window.worker().isRunning());
        window.worker().cancel();
        QTRY_VERIFY_WITH_TIMEOUT(!window.worker().isRunning(), 60000);
        QVERIFY(!window.bannerText().isEmpty());

        window.lessonPanel().goToStop(6);
        QVERIFY(window.worker().isRunning());
        QCOMPARE(window.bannerText(), QString());
        QTRY_VERIFY_WITH_TIMEOUT(!window.worker().isRunning(), 120000);
        QCOMPARE(window.bannerText(), QString());
        QCOMPARE(window.hub().cursor().step, 12);
        QVERIFY(window.hub().log().numSteps() > 12);
    }

    void whileTheModelLoadsThePicturesSaySo() {
        MainWindow window;
        show(window);
        QCOMPARE(window.hub().waitingFor(), QString());
        window.openLesson(loadLesson(KVLAB_SOURCE_DIR "/lessons/content", "best-of-8", "en"));
        QVERIFY(window.hub().waitingFor().startsWith("Loading"));
        window.worker().cancel();
        QTRY_COMPARE_WITH_TIMEOUT(window.hub().waitingFor(), QString(), 60000);
    }

    void aMissingModelIsABannerNotACrash() {
        Lesson lesson = loadLesson(KVLAB_SOURCE_DIR "/lessons/content", "best-of-8", "en");
        for (LessonRun& run : lesson.runs) {
            run.config.model_path = "/nowhere/model.gguf";
        }
        MainWindow window;
        show(window);
        window.openLesson(std::move(lesson));
        QTRY_VERIFY_WITH_TIMEOUT(!window.bannerText().isEmpty(), 30000);
        QVERIFY(window.bannerText().contains("/nowhere/model.gguf"));
        for (const Qt::Key key :
             {Qt::Key_Space, Qt::Key_Right, Qt::Key_Left, Qt::Key_End, Qt::Key_2}) {
            press(window, key);
        }
    }
};

}  // namespace kvlab

QTEST_MAIN(kvlab::MainWindowTest)
#include "main_window_test.moc"
