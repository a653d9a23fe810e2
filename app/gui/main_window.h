// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <QByteArray>
#include <QMainWindow>
#include <QMargins>
#include <QRect>
#include <QSize>
#include <QString>

#include "app/gui/run/playback.h"
#include "app/gui/run/run_hub.h"
#include "app/gui/run/session_worker.h"
#include "app/gui/theme.h"
#include "engine/trace/trace_io.h"
#include "lessons/lesson.h"

class QDockWidget;
class QSplitter;
class QThread;

namespace kvlab {

class Banner;
class HeaderBar;
class InspectorPanel;
class KernelWalkPanel;
class KeySheet;
class LessonPanel;
class MemoryView;
class SequenceTextView;
class SharingView;
class TablesPanel;
class TimelineView;
class TransportBar;

// Where the window's inside lies at first: as wished, or as much of it as the screen has room for
// once the frame and its title bar are around it.
QRect firstGeometry(QSize wished, const QRect& available, const QMargins& frame);

// Arranges the room and wires it; what happens, happens in the parts.
//
//   ┌ header: place, model, backend, progress, buttons ──────────┐
//   │ lesson │ block tables → pool              │ inspector      │
//   │        │ sharing, to scale │ texts        │                │
//   │        │ (tables)                         │                │
//   └ transport │ timeline: never moves ─────────────────────────┘
class MainWindow : public QMainWindow {
    Q_OBJECT

  public:
    static constexpr QSize kMinimumSize{1024, 640};  // below it views would be cut off

    explicit MainWindow(ThemeKind theme = ThemeKind::kLight, double scale = 1);
    ~MainWindow() override;

    // Shows the lesson and starts its first run at once.
    void openLesson(Lesson lesson, int stop = 0);
    // Loads in the background; damage is told in the banner and the rest is shown.
    void openTrace(const QString& path);
    // A log that is already there (tests, figures).
    void showLog(std::shared_ptr<RunLog> log, const QString& title);

    RunHub& hub() { return hub_; }
    Playback& playback() { return playback_; }
    SessionWorker& worker() { return worker_; }
    LessonPanel& lessonPanel() { return *lesson_panel_; }
    QString bannerText() const;
    // auto, cpu, simt, cuda: what the next runs are started with; the lesson's run on show starts
    // again with it.
    void setBackend(const QString& name);
    const QString& backend() const { return backend_; }
    // The reader's agreement that the CPU takes over when a GPU fails in a run on cuda. Without it
    // the run ends there and the banner asks; `auto` needs none.
    void setCpuFallback(bool agreed);
    bool cpuFallback() const { return cpu_fallback_; }
    // Of the next runs: no more steps than these are computed.
    void limitSteps(std::optional<int64_t> steps) { step_limit_ = steps; }
    // Stops what runs in the background and waits for it, this long at most; false: it still runs.
    bool endWithin(int wait_ms);
    HeaderBar& header() { return *header_; }
    KernelWalkPanel& kernelWalk() { return *kernel_walk_; }
    // All that waits for a turn of the event loop, done now: the next picture is the final one.
    void settle();
    // Off: moves show their end state at once.
    void setMotion(bool motion);
    ThemeKind themeKind() const { return theme_kind_; }
    double scale() const { return scale_; }

  public slots:
    void setThemeKind(kvlab::ThemeKind kind);
    void toggleTheme();
    void setScale(double scale);
    void resetLayout();
    void toggleTables();
    // The kernel walk stands below the tables and the pool, in the place of sharing and texts.
    void setKernelWalkShown(bool shown);
    void toggleKernelWalk();
    void showKeys();
    void openTraceDialog();
    void exportDialog();
    // Moves to the moment before this engine step, as soon as a live run has got there.
    void requestStep(qint64 step);

  signals:
    void traceOpened();  // or failed to open: see bannerText()
    void devicesListed();

  protected:
    bool eventFilter(QObject* watched, QEvent* event) override;
    void showEvent(QShowEvent* event) override;

  private:
    void buildRoom();
    void wireRun();
    void applyLook();
    void showRunInfo(const RunInfo& info);
    void noteDeviceFailure();
    void shareHeight();
    void activateLayouts();
    void goOnOnTheCpu();
    void startRun(const std::string& run_id);
    void onStopShown(int stop);
    void onLogGrew();
    void finishTrace(std::shared_ptr<LoadedTrace> trace, const QString& name, const QString& error);
    void fail(const QString& message);
    void showNote(const QString& message);
    void offerRunAgain(const QString& message, bool alarm);
    void runAgain();
    void listBackends();
    std::string figureView() const;
    bool handleKey(class QKeyEvent* event);

    RunHub hub_;
    SessionWorker worker_;
    Playback playback_;
    ThemeKind theme_kind_;
    double scale_;
    std::string run_id_;  // of the lesson's run on show
    QString backend_ = QStringLiteral("auto");
    // Runs of this lesson that have finished, by id and backend: going back to one shows it again,
    // nothing is decoded twice.
    struct FinishedRun {
        std::shared_ptr<RunLog> log;
        std::shared_ptr<KernelWalks> walks;
    };
    std::map<std::pair<std::string, QString>, FinishedRun> finished_runs_;
    std::shared_ptr<RunLog> log_;         // the one on show
    std::shared_ptr<KernelWalks> walks_;  // its
    std::optional<qint64> pending_step_;
    bool run_stopped_ = false;  // by the reader, before its end
    bool offers_cpu_ = false;   // the banner's button: on the CPU this time
    bool cpu_fallback_ = false;
    std::optional<int64_t> step_limit_;
    int64_t steps_searched_ = 0;  // of the log on show, for the step that a GPU failed in
    QThread* trace_thread_ = nullptr;
    QThread* devices_thread_ = nullptr;

    HeaderBar* header_ = nullptr;
    Banner* banner_ = nullptr;
    QMainWindow* room_ = nullptr;
    QDockWidget* lesson_dock_ = nullptr;
    QDockWidget* inspector_dock_ = nullptr;
    QDockWidget* tables_dock_ = nullptr;
    QSplitter* rows_ = nullptr;
    QSplitter* columns_ = nullptr;
    LessonPanel* lesson_panel_ = nullptr;
    InspectorPanel* inspector_ = nullptr;
    TablesPanel* tables_ = nullptr;
    MemoryView* memory_view_ = nullptr;
    KernelWalkPanel* kernel_walk_ = nullptr;
    SharingView* sharing_view_ = nullptr;
    SequenceTextView* text_view_ = nullptr;
    TransportBar* transport_ = nullptr;
    TimelineView* timeline_view_ = nullptr;
    KeySheet* key_sheet_ = nullptr;
    QByteArray first_layout_;
    bool arranged_ = false;
};

}  // namespace kvlab
