// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/main_window.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <variant>

#include <QAbstractSlider>
#include <QApplication>
#include <QDockWidget>
#include <QElapsedTimer>
#include <QFileDialog>
#include <QFileInfo>
#include <QHBoxLayout>
#include <QKeyEvent>
#include <QLabel>
#include <QLineEdit>
#include <QPainter>
#include <QPushButton>
#include <QSplitter>
#include <QTableView>
#include <QThread>
#include <QToolButton>
#include <QVBoxLayout>

#include "app/gui/export/figure.h"
#include "app/gui/panels/banner.h"
#include "app/gui/panels/header_bar.h"
#include "app/gui/panels/inspector_panel.h"
#include "app/gui/panels/kernel_walk_panel.h"
#include "app/gui/panels/key_sheet.h"
#include "app/gui/panels/lesson_panel.h"
#include "app/gui/panels/tables_panel.h"
#include "app/gui/panels/transport_bar.h"
#include "app/gui/panels/widgets.h"
#include "app/gui/provenance.h"
#include "app/gui/style_sheet.h"
#include "app/gui/views/kernel_walk_view.h"
#include "app/gui/views/memory_view.h"
#include "app/gui/views/sequence_text_view.h"
#include "app/gui/views/sharing_view.h"
#include "app/gui/views/timeline_view.h"
#include "engine/backend/devices.h"
#include "engine/error.h"
#include "lessons/lesson_loader.h"
#include "lessons/lesson_runner.h"

namespace kvlab {

namespace {

constexpr int kGap = 12;  // between cards, px

// What a dock is dragged by: a strip with six dots instead of a title.
class DockGrip : public QWidget {
  public:
    explicit DockGrip(const QString& name, QWidget* parent) : QWidget(parent) {
        setToolTip(QMainWindow::tr("Drag to move this panel; Ctrl+R puts it back"));
        setAccessibleName(name);
        setCursor(Qt::OpenHandCursor);
        setFixedHeight(9);
    }
    void setColors(const QColor& panel, const QColor& dots) {
        panel_ = panel;
        dots_ = dots;
        update();
    }

  protected:
    void paintEvent(QPaintEvent*) override {
        QPainter painter(this);
        painter.fillRect(rect(), panel_);
        painter.setRenderHint(QPainter::Antialiasing);
        painter.setPen(Qt::NoPen);
        painter.setBrush(dots_);
        for (int i = -2; i <= 2; ++i) {
            painter.drawEllipse(QPointF(width() / 2.0 + i * 6, height() / 2.0 + 1), 1.2, 1.2);
        }
    }

  private:
    QColor panel_, dots_;
};

QDockWidget* makeDock(const QString& name, const char* id, QWidget* widget, QMainWindow* room) {
    auto* dock = new QDockWidget(name, room);
    dock->setObjectName(QLatin1String(id));
    dock->setFeatures(QDockWidget::DockWidgetMovable);
    dock->setTitleBarWidget(new DockGrip(name, dock));
    dock->setWidget(widget);
    return dock;
}

// The engine's sentences name the way out as the command line has it.
QString inWindowWords(QString sentence) {
    return sentence.replace(QLatin1String("use --backend cpu"),
                            MainWindow::tr("choose cpu in the backend menu"));
}

bool deviceFailedIn(const StepTrace& step) {
    return std::any_of(step.events.begin(), step.events.end(), [](const Event& event) {
        const auto* made = std::get_if<DecisionsMade>(&event);
        return made && std::find(made->reason.begin(), made->reason.end(),
                                 DecisionReason::kDeviceFailed) != made->reason.end();
    });
}

QString shapeText(const ModelConfig& model) {
    return MainWindow::tr("%1 layers · %2 query / %3 KV heads")
        .arg(model.num_layers)
        .arg(model.num_heads)
        .arg(model.num_kv_heads);
}

}  // namespace

QRect firstGeometry(QSize wished, const QRect& available, const QMargins& frame) {
    const QRect room = available.marginsRemoved(frame);
    const QSize size = wished.boundedTo(room.size());
    QRect inside(QPoint(), size);
    inside.moveCenter(room.center());
    return inside;
}

MainWindow::MainWindow(ThemeKind theme, double scale)
    : playback_(&hub_), theme_kind_(theme), scale_(scale) {
    setWindowTitle(tr("KV Lab"));
    buildRoom();
    wireRun();
    applyLook();
    listBackends();
    qApp->installEventFilter(this);
}

MainWindow::~MainWindow() {
    qApp->removeEventFilter(this);
    for (QThread* thread : {trace_thread_, devices_thread_}) {
        if (thread) {
            thread->wait();
        }
    }
    // The parts still listen to the hub while Qt deletes them after our members are gone.
    hub_.disconnect();
    worker_.disconnect();
    playback_.disconnect();
    delete takeCentralWidget();
}

void MainWindow::buildRoom() {
    auto* page = new QWidget(this);
    page->setObjectName(QStringLiteral("page"));
    auto* column = new QVBoxLayout(page);
    column->setContentsMargins(0, 0, 0, 0);
    column->setSpacing(0);
    header_ = new HeaderBar(page);
    column->addWidget(header_);
    banner_ = new Banner(page);
    column->addWidget(banner_);

    room_ = new QMainWindow(page);
    room_->setWindowFlags(Qt::Widget);
    room_->setDockNestingEnabled(true);
    for (const auto corner : {Qt::TopLeftCorner, Qt::BottomLeftCorner}) {
        room_->setCorner(corner, Qt::LeftDockWidgetArea);
    }
    for (const auto corner : {Qt::TopRightCorner, Qt::BottomRightCorner}) {
        room_->setCorner(corner, Qt::RightDockWidgetArea);
    }
    column->addWidget(room_, 1);

    memory_view_ = new MemoryView(&hub_, room_);
    sharing_view_ = new SharingView(&hub_, room_);
    text_view_ = new SequenceTextView(&hub_, room_);
    auto* centre = new QWidget(room_);
    centre->setObjectName(QStringLiteral("page"));
    auto* centre_column = new QVBoxLayout(centre);
    centre_column->setContentsMargins(kGap, kGap, kGap, kGap);
    rows_ = new QSplitter(Qt::Vertical, centre);
    rows_->setHandleWidth(kGap);
    rows_->setChildrenCollapsible(false);
    rows_->addWidget(memory_view_);
    columns_ = new QSplitter(Qt::Horizontal, rows_);
    columns_->setHandleWidth(kGap);
    columns_->setChildrenCollapsible(false);
    columns_->addWidget(sharing_view_);
    columns_->addWidget(text_view_);
    rows_->addWidget(columns_);
    kernel_walk_ = new KernelWalkPanel(&hub_, rows_);
    kernel_walk_->hide();
    rows_->addWidget(kernel_walk_);
    centre_column->addWidget(rows_);
    room_->setCentralWidget(centre);

    lesson_panel_ = new LessonPanel(&hub_, room_);
    inspector_ = new InspectorPanel(&hub_, room_);
    tables_ = new TablesPanel(&hub_, room_);
    lesson_dock_ = makeDock(tr("Lesson"), "lessonDock", lesson_panel_, room_);
    inspector_dock_ = makeDock(tr("Inspector"), "inspectorDock", inspector_, room_);
    tables_dock_ = makeDock(tr("Tables"), "tablesDock", tables_, room_);
    room_->addDockWidget(Qt::LeftDockWidgetArea, lesson_dock_);
    room_->addDockWidget(Qt::RightDockWidgetArea, inspector_dock_);
    room_->addDockWidget(Qt::BottomDockWidgetArea, tables_dock_);
    tables_dock_->hide();

    auto* timeline_bar = new QWidget(page);
    timeline_bar->setObjectName(QStringLiteral("timelineBar"));
    auto* timeline_row = new QHBoxLayout(timeline_bar);
    timeline_row->setContentsMargins(0, 1, 0, 0);
    timeline_row->setSpacing(0);
    transport_ = new TransportBar(&hub_, &playback_, timeline_bar);
    timeline_view_ = new TimelineView(&hub_, timeline_bar);
    timeline_row->addWidget(transport_);
    timeline_row->addWidget(timeline_view_, 1);
    column->addWidget(timeline_bar);

    page->setFocusPolicy(Qt::ClickFocus);
    setCentralWidget(page);
    setMinimumSize(kMinimumSize);
}

void MainWindow::wireRun() {
    connect(header_, &HeaderBar::themeToggled, this, &MainWindow::toggleTheme);
    connect(header_, &HeaderBar::exportRequested, this, &MainWindow::exportDialog);
    connect(header_, &HeaderBar::openRequested, this, &MainWindow::openTraceDialog);
    connect(header_, &HeaderBar::keysRequested, this, &MainWindow::showKeys);
    connect(header_, &HeaderBar::cancelRequested, &worker_, &SessionWorker::cancel);

    connect(header_, &HeaderBar::backendChosen, this, &MainWindow::setBackend);
    connect(header_, &HeaderBar::kernelWalkRequested, this, &MainWindow::toggleKernelWalk);
    connect(header_, &HeaderBar::cpuFallbackChosen, this, &MainWindow::setCpuFallback);
    connect(kernel_walk_, &KernelWalkPanel::simtRequested, this,
            [this] { setBackend(QStringLiteral("simt")); });

    connect(banner_, &Banner::actionRequested, this,
            [this] { offers_cpu_ ? goOnOnTheCpu() : runAgain(); });

    connect(&worker_, &SessionWorker::runStarted, this, [this](const auto& info) {
        log_ = std::make_shared<RunLog>(*info);
        walks_ = std::make_shared<KernelWalks>();
        hub_.setWalks(walks_);
        hub_.setLog(log_, true);
        showRunInfo(*info);
        if (pending_step_) {
            return;
        }
        playback_.play();
    });
    connect(&worker_, &SessionWorker::walksReceived, this,
            [this](qint64 step, const StepWalks& walks) { walks_->add(step, walks); });
    connect(&worker_, &SessionWorker::stepsReceived, &hub_, &RunHub::appendSteps);
    connect(&worker_, &SessionWorker::progressChanged, this,
            [this](SessionPhase, double fraction, const QString& text) {
                header_->showProgress(text, fraction);
            });
    connect(&worker_, &SessionWorker::finished, this, [this](const auto& result) {
        header_->hideProgress();
        hub_.setLive(false);
        hub_.setWaitingFor({});
        const bool as_far_as_asked =
            step_limit_ && hub_.hasLog() && hub_.log().numSteps() >= *step_limit_;
        if (result->cancelled && as_far_as_asked) {
            run_stopped_ = true;
            hub_.setLogEnd(LogEnd::kStopped);
        } else if (result->cancelled) {
            run_stopped_ = true;
            hub_.setLogEnd(LogEnd::kStopped);
            offerRunAgain(hub_.hasLog()
                              ? tr("The run was stopped; what it did so far stays on the timeline.")
                              : tr("The run was stopped before its first step."),
                          false);
        } else {
            finished_runs_[{run_id_, backend_}] = {log_, walks_};
            lesson_panel_->recordRun(run_id_, result->metrics);
        }
        if (pending_step_ && hub_.hasLog() && hub_.log().numSteps() < *pending_step_) {
            playback_.toEnd();
        }
        pending_step_.reset();
    });
    connect(&worker_, &SessionWorker::failed, this, &MainWindow::fail);
    connect(&worker_, &SessionWorker::fellBack, this, [this](const QString& why) {
        const bool in_its_middle =
            hub_.hasLog() && hub_.isLive() && hub_.log().info().backend == "cuda";
        banner_->showMessage((in_its_middle ? tr("The GPU failed and the CPU goes on: %1")
                                            : tr("This run is on the CPU: %1"))
                                 .arg(inWindowWords(why)),
                             false);
    });
    connect(&worker_, &SessionWorker::messageTold, this,
            [this](const QString& message) { showNote(inWindowWords(message)); });
    connect(&hub_, &RunHub::logDamaged, this, [this](const QString& message) {
        worker_.abandon();
        fail(message);
    });
    connect(&hub_, &RunHub::logGrew, this, &MainWindow::onLogGrew);
    connect(&playback_, &Playback::movedByHand, this, [this] { pending_step_.reset(); });

    connect(lesson_panel_, &LessonPanel::stopShown, this, &MainWindow::onStopShown);
    connect(lesson_panel_, &LessonPanel::stepRequested, this, &MainWindow::requestStep);
    connect(lesson_panel_, &LessonPanel::lessonRequested, this, [this] {
        try {
            openLesson(loadLesson(lessonsFolder(), "best-of-8", "en"));
        } catch (const std::exception& error) {
            fail(QString::fromUtf8(error.what()));
        }
    });
    connect(&kernel_walk_->view(), &KernelWalkView::walkChanged, this,
            [this] { tables_->setWalkLayer(kernel_walk_->view().layer()); });
    connect(tables_, &TablesPanel::cursorRequested, &playback_, &Playback::seek);
}

// --- runs
// -----------------------------------------------------------------------------------------

void MainWindow::openLesson(Lesson lesson, int stop) {
    QString problem;
    try {
        computeFormulas(lesson);
    } catch (const std::exception& error) {
        problem = QString::fromUtf8(error.what());
    }
    const QString title = QString::fromStdString(lesson.title);
    header_->setPlace(tr("Lesson %1 · %2").arg(lesson.order).arg(title));
    setWindowTitle(tr("%1 – KV Lab").arg(title));
    run_id_.clear();
    finished_runs_.clear();
    pending_step_.reset();
    hub_.setWalks(nullptr);
    hub_.setLog(nullptr, false);
    lesson_panel_->setLesson(std::move(lesson));
    const Lesson& shown = lesson_panel_->lesson();
    stop = std::clamp(stop, 0, std::max(0, static_cast<int>(shown.stops.size()) - 1));
    // A stop without a run of its own keeps the one of the stops before it.
    std::string run = shown.runs.empty() ? std::string() : shown.runs.front().id;
    for (int i = 0; i <= stop && i < static_cast<int>(shown.stops.size()); ++i) {
        if (!shown.stops[static_cast<size_t>(i)].run.empty()) {
            run = shown.stops[static_cast<size_t>(i)].run;
        }
    }
    startRun(run);
    if (stop > 0) {
        lesson_panel_->goToStop(stop);
    }
    if (!problem.isEmpty()) {
        banner_->showMessage(problem, true);
    }
}

void MainWindow::startRun(const std::string& run_id) {
    for (const LessonRun& run : lesson_panel_->lesson().runs) {
        if (run.id == run_id) {
            run_id_ = run_id;
            pending_step_.reset();
            run_stopped_ = false;
            playback_.pause();
            // Whatever it says is about another run.
            banner_->hide();
            const auto finished = finished_runs_.find({run_id, backend_});
            if (finished != finished_runs_.end()) {
                worker_.abandon();
                header_->hideProgress();
                log_ = finished->second.log;
                walks_ = finished->second.walks;
                showRunInfo(log_->info());
                hub_.setWalks(walks_);
                hub_.setLog(log_, false);
                noteDeviceFailure();
                return;
            }
            hub_.setWalks(nullptr);
            hub_.setLog(nullptr, false);
            hub_.setWaitingFor(tr("Loading the model…"));
            header_->setBackend({}, {});
            header_->showProgress(tr("loading the model"), -1);
            RunConfig config = run.config;
            config.engine.backend = backend_.toStdString();
            config.engine.cpu_fallback = cpu_fallback_;
            worker_.start(config, step_limit_);
            return;
        }
    }
    fail(tr("The lesson names no run “%1”; its files are incomplete.")
             .arg(QString::fromStdString(run_id)));
}

void MainWindow::onStopShown(int stop) {
    const LessonStop& shown = lesson_panel_->lesson().stops[static_cast<size_t>(stop)];
    if (!shown.run.empty() && shown.run != run_id_) {
        startRun(shown.run);
    }
    if (shown.step >= 0) {
        requestStep(shown.step);
    }
}

void MainWindow::requestStep(qint64 step) {
    const bool reached = hub_.hasLog() && hub_.log().numSteps() >= step;
    if (run_stopped_ && !reached && !worker_.isRunning()) {
        runAgain();
    }
    if (hub_.hasLog() && (hub_.log().numSteps() >= step || !hub_.isLive())) {
        playback_.seek({step, 0, 0});
    } else if (worker_.isRunning()) {
        playback_.pause();
        pending_step_ = step;
        onLogGrew();
    }
}

void MainWindow::onLogGrew() {
    noteDeviceFailure();
    if (!pending_step_ || !hub_.hasLog()) {
        return;
    }
    if (hub_.log().numSteps() >= *pending_step_) {
        const qint64 step = *pending_step_;
        playback_.seek({step, 0, 0});
    } else {
        hub_.setCursor(hub_.log().end());
    }
}

void MainWindow::fail(const QString& given) {
    const QString message = inWindowWords(given);
    header_->hideProgress();
    hub_.setLive(false);
    hub_.setWaitingFor({});
    if (!worker_.isRunning() && !run_id_.empty() && !finished_runs_.contains({run_id_, backend_})) {
        hub_.setLogEnd(LogEnd::kStopped);
        offerRunAgain(message, true);
    } else {
        banner_->showMessage(message, true);
    }
}

// Behind what is told already: a run may have several things to say.
void MainWindow::showNote(const QString& message) {
    const QString before = banner_->message();
    banner_->showMessage(before.isEmpty() ? message : before + QStringLiteral("\n") + message,
                         false);
}

// After a failure on a GPU the reader may agree to the CPU.
void MainWindow::offerRunAgain(const QString& message, bool alarm) {
    const bool on_gpu =
        backend_ == QLatin1String("cuda") || (hub_.hasLog() && hub_.log().info().backend == "cuda");
    offers_cpu_ = alarm && on_gpu;
    banner_->showMessage(message, alarm,
                         run_id_.empty() ? QString()
                         : offers_cpu_   ? tr("Run on the CPU")
                                         : tr("Run again"));
}

void MainWindow::runAgain() {
    if (lesson_panel_->hasLesson() && !run_id_.empty()) {
        startRun(run_id_);
    }
}

void MainWindow::setBackend(const QString& name) {
    if (name == backend_) {
        return;
    }
    backend_ = name;
    header_->setChosenBackend(name);
    if (!lesson_panel_->hasLesson() || run_id_.empty()) {
        if (hub_.hasLog()) {
            banner_->showMessage(
                tr("This is a recording; the next run of a lesson uses backend %1.").arg(name),
                false);
        }
        return;
    }
    startRun(run_id_);
    // The reader stays at the lesson's stop.
    const LessonStop& stop =
        lesson_panel_->lesson().stops[static_cast<size_t>(lesson_panel_->stop())];
    if (stop.step >= 0) {
        requestStep(stop.step);
    }
}

void MainWindow::setCpuFallback(bool agreed) {
    cpu_fallback_ = agreed;
    header_->setCpuFallback(agreed);
}

// The answer to the banner's question. The CPU computes the run anew, the same tokens; the reader
// finds himself where the GPU had got to.
void MainWindow::goOnOnTheCpu() {
    const qint64 reached = hub_.hasLog() ? hub_.log().numSteps() : 0;
    setBackend(QStringLiteral("cpu"));
    if (reached > 0) {
        requestStep(reached);
    }
}

bool MainWindow::endWithin(int wait_ms) {
    QElapsedTimer waited;
    waited.start();
    bool ended = worker_.endWithin(wait_ms);
    for (QThread* thread : {trace_thread_, devices_thread_}) {
        const qint64 left = std::max<qint64>(0, wait_ms - waited.elapsed());
        ended = (!thread || thread->wait(static_cast<unsigned long>(left))) && ended;
    }
    return ended;
}

// Drivers may take a while to answer.
void MainWindow::listBackends() {
    auto devices = std::make_shared<std::vector<DeviceInfo>>();
    devices_thread_ = QThread::create([devices] { *devices = listDevices(); });
    devices_thread_->setParent(this);
    connect(devices_thread_, &QThread::finished, this, [this, devices] {
        header_->setDevices(*devices);
        emit devicesListed();
    });
    devices_thread_->start();
}

void MainWindow::showRunInfo(const RunInfo& info) {
    header_->setModel(QString::fromStdString(info.model.name), shapeText(info.model));
    header_->setBackend(QString::fromStdString(info.backend).toUpper(),
                        QString::fromStdString(info.device));
    steps_searched_ = 0;
}

// What a log's head names is where its run began; where the CPU took over, it tells in that step.
void MainWindow::noteDeviceFailure() {
    if (!hub_.hasLog()) {
        return;
    }
    const RunLog& log = hub_.log();
    for (; steps_searched_ < log.numSteps(); ++steps_searched_) {
        if (deviceFailedIn(log.step(steps_searched_))) {
            header_->setBackend(QStringLiteral("CPU"), QString::fromStdString(log.info().device),
                                tr("%1 until step %2")
                                    .arg(QString::fromStdString(log.info().backend).toUpper())
                                    .arg(steps_searched_));
        }
    }
}

void MainWindow::showLog(std::shared_ptr<RunLog> log, const QString& title) {
    worker_.abandon();
    header_->hideProgress();
    pending_step_.reset();
    playback_.pause();
    run_id_.clear();
    run_stopped_ = false;
    const RunInfo& info = log->info();
    showRunInfo(info);
    header_->setPlace(title);
    setWindowTitle(tr("%1 – KV Lab").arg(title));
    lesson_panel_->showRecording(
        QString::fromStdString(info.title.empty() ? "Recorded run" : info.title),
        tr("A recorded run of **%1**: %2, blocks of %3 tokens, a pool of %4 blocks, K and V as "
           "%5.\n\n"
           "It was made on %6 with KV Lab %7 and reads without its model: every picture is folded "
           "from the events of the trace.")
            .arg(plainMarkdown(QString::fromStdString(info.model.name)),
                 countOf(info.num_samples, "sample"))
            .arg(info.cache.block_size)
            .arg(formatCount(info.cache.num_blocks),
                 QString::fromUtf8(dataTypeName(info.cache.kv_dtype)),
                 info.device.empty() ? tr("an unnamed device")
                                     : plainMarkdown(QString::fromStdString(info.device)),
                 plainMarkdown(QString::fromStdString(info.build))));
    hub_.setWalks(nullptr);
    hub_.setLog(std::move(log), false);
    noteDeviceFailure();
}

void MainWindow::openTrace(const QString& path) {
    if (trace_thread_) {
        return;
    }
    worker_.abandon();
    header_->showProgress(tr("reading %1").arg(QFileInfo(path).fileName()), -1);
    auto trace = std::make_shared<LoadedTrace>();
    auto error = std::make_shared<QString>();
    trace_thread_ = QThread::create([trace, error, file = path.toStdString()] {
        try {
            *trace = loadTrace(file);
        } catch (const std::exception& e) {
            *error = QString::fromUtf8(e.what());
        }
    });
    connect(trace_thread_, &QThread::finished, this, [this, trace, error, path] {
        trace_thread_->deleteLater();
        trace_thread_ = nullptr;
        finishTrace(trace, QFileInfo(path).fileName(), *error);
    });
    trace_thread_->start();
}

void MainWindow::finishTrace(std::shared_ptr<LoadedTrace> trace,
                             const QString& name,
                             const QString& error) {
    header_->hideProgress();
    if (!error.isEmpty() || !trace->log) {
        banner_->showMessage(error.isEmpty() ? tr("%1 holds no run.").arg(name) : error, true);
    } else {
        showLog(trace->log, tr("Trace · %1").arg(name));
        if (!trace->damage.empty() || !trace->complete) {
            hub_.setLogEnd(LogEnd::kUnreadable);
        }
        if (!trace->damage.empty()) {
            banner_->showMessage(tr("This trace is damaged, and is shown up to there: %1")
                                     .arg(QString::fromStdString(trace->damage)),
                                 true);
        } else if (!trace->complete) {
            banner_->showMessage(
                tr("This run was cut off before its end; all steps up to there are shown."), false);
        } else {
            banner_->hide();
        }
    }
    emit traceOpened();
}

QString MainWindow::bannerText() const { return banner_->message(); }

// A changed size asks the layout above it in another event, up to the window.
void MainWindow::activateLayouts() {
    for (int level = 0; level < 12; ++level) {
        QCoreApplication::sendPostedEvents(nullptr, QEvent::LayoutRequest);
    }
}

void MainWindow::settle() {
    inspector_->settle();
    activateLayouts();
    QCoreApplication::processEvents(QEventLoop::ExcludeUserInputEvents);
}

void MainWindow::setMotion(bool motion) { memory_view_->setMotion(motion); }

// --- look
// -----------------------------------------------------------------------------------------

void MainWindow::setThemeKind(ThemeKind kind) {
    if (theme_kind_ != kind) {
        theme_kind_ = kind;
        applyLook();
    }
}

void MainWindow::toggleTheme() {
    setThemeKind(theme_kind_ == ThemeKind::kLight ? ThemeKind::kDark : ThemeKind::kLight);
}

void MainWindow::setScale(double scale) {
    scale = std::clamp(scale, 0.75, 3.0);
    if (scale_ != scale) {
        scale_ = scale;
        applyLook();
    }
}

void MainWindow::applyLook() {
    const Theme& theme = Theme::of(theme_kind_);
    qApp->setPalette(paletteOf(theme));
    qApp->setFont(textFont(kBodyPoints * scale_));
    qApp->setStyleSheet(styleSheetOf(theme, scale_));
    header_->setTheme(theme);
    lesson_panel_->setTheme(theme, scale_);
    inspector_->setTheme(theme, scale_);
    transport_->setTheme(theme, scale_);
    tables_->setScale(scale_);
    memory_view_->setTheme(theme, scale_);
    kernel_walk_->setTheme(theme, scale_);
    sharing_view_->setTheme(theme, scale_);
    text_view_->setTheme(theme, scale_);
    timeline_view_->setTheme(theme, scale_);
    for (QDockWidget* dock : {lesson_dock_, inspector_dock_, tables_dock_}) {
        static_cast<DockGrip*>(dock->titleBarWidget())->setColors(theme.panel, theme.hairline);
    }
    timeline_view_->parentWidget()->setFixedHeight(qRound(176 * std::max(1.0, scale_)));
}

void MainWindow::showEvent(QShowEvent* event) {
    QMainWindow::showEvent(event);
    if (!arranged_) {
        arranged_ = true;
        resetLayout();
        centralWidget()->setFocus();
    }
}

void MainWindow::resetLayout() {
    if (first_layout_.isEmpty()) {
        first_layout_ = room_->saveState();
    } else {
        room_->restoreState(first_layout_);
    }
    lesson_dock_->show();
    inspector_dock_->show();
    tables_dock_->hide();
    setKernelWalkShown(false);
    const int side = std::clamp(width() / 5, qRound(280 * scale_), qRound(340 * scale_));
    room_->resizeDocks({lesson_dock_, inspector_dock_},
                       {side, std::clamp(width() / 6, qRound(258 * scale_), qRound(300 * scale_))},
                       Qt::Horizontal);
    rows_->setSizes({540, 460, 0});
    columns_->setSizes({500, 500});
}

void MainWindow::toggleTables() {
    tables_dock_->setVisible(!tables_dock_->isVisible());
    shareHeight();
    if (tables_dock_->isVisible()) {
        activateLayouts();  // those that gave way no longer count
        room_->resizeDocks({tables_dock_}, {qRound(240 * scale_)}, Qt::Vertical);
        tables_->currentWidget()->setFocus();
    }
}

// A low window has room for two rows: the tables and the kernel walk take that of sharing and
// texts.
void MainWindow::shareHeight() {
    const bool low = height() < 900 * scale_;
    const bool walk = !kernel_walk_->isHidden();
    columns_->setVisible(!walk && !(low && tables_dock_->isVisible()));
    rows_->setSizes(!walk ? QList<int>{540, 460, 0}
                    : low ? QList<int>{440, 0, 560}
                          : QList<int>{480, 0, 520});
}

void MainWindow::setKernelWalkShown(bool shown) {
    kernel_walk_->setVisible(shown);
    header_->setKernelWalkShown(shown);
    shareHeight();
}

void MainWindow::toggleKernelWalk() {
    const bool shown = kernel_walk_->isHidden();
    setKernelWalkShown(shown);
    if (shown && kernel_walk_->view().hasWalk()) {
        kernel_walk_->view().setFocus();
    }
}

void MainWindow::showKeys() {
    if (!key_sheet_) {
        key_sheet_ = new KeySheet(this);
    }
    key_sheet_->show();
    key_sheet_->raise();
    key_sheet_->activateWindow();
}

void MainWindow::openTraceDialog() {
    const QString path = QFileDialog::getOpenFileName(this, tr("Open a recorded run"), {},
                                                      tr("KV Lab traces (*.trace);;All files (*)"));
    if (!path.isEmpty()) {
        openTrace(path);
    }
}

// The picture that has the focus, else the pool.
std::string MainWindow::figureView() const {
    const QWidget* focus = QApplication::focusWidget();
    if (focus == sharing_view_) {
        return "sharing";
    }
    if (focus == timeline_view_) {
        return "timeline";
    }
    if (kernel_walk_->isVisible() && kernel_walk_->view().hasWalk() &&
        (focus == &kernel_walk_->view() || focus == nullptr || focus == centralWidget())) {
        return "kernel-walk";
    }
    return hub_.shown().empty() ? "pool" : "tables";
}

void MainWindow::exportDialog() {
    if (!hub_.hasLog()) {
        banner_->showMessage(tr("There is no run to export yet."), false);
        return;
    }
    const std::string view = figureView();
    FigureOptions options;
    options.theme = theme_kind_;
    options.block = hub_.shown().block;
    if (view == "kernel-walk") options.walk = kernel_walk_->view().figure();
    // The run may go on while the dialog is open; the figure shows the moment it was asked for.
    const Cursor cursor = hub_.cursor();
    const QString path = QFileDialog::getSaveFileName(
        this, tr("Export a figure of this moment"),
        QStringLiteral("%1-step-%2.svg").arg(QString::fromStdString(view)).arg(cursor.step),
        tr("SVG drawing (*.svg);;PNG picture (*.png);;PDF page (*.pdf)"));
    if (path.isEmpty()) {
        return;
    }
    try {
        const std::string file = path.toStdString();
        exportFigure(view, hub_.log(), cursor, options, figureFormatOf(file), file);
        banner_->showMessage(tr("The figure was saved as %1.").arg(path), false);
    } catch (const std::exception& error) {
        banner_->showMessage(QString::fromUtf8(error.what()), true);
    }
}

// --- keys
// -----------------------------------------------------------------------------------------

// Keys work wherever the keyboard is, except where a control has a use of its own for them.
bool MainWindow::eventFilter(QObject* watched, QEvent* event) {
    if (event->type() == QEvent::KeyPress && isActiveWindow() && watched->isWidgetType() &&
        static_cast<QWidget*>(watched)->window() == this &&
        (watched == QApplication::focusWidget() || QApplication::focusWidget() == nullptr)) {
        return handleKey(static_cast<QKeyEvent*>(event));
    }
    return QMainWindow::eventFilter(watched, event);
}

bool MainWindow::handleKey(QKeyEvent* event) {
    QWidget* focus = QApplication::focusWidget();
    const auto modifiers = event->modifiers() & ~Qt::KeypadModifier;
    const bool plain = modifiers == Qt::NoModifier;
    const bool shift = modifiers == Qt::ShiftModifier;
    const bool ctrl =
        modifiers == Qt::ControlModifier || modifiers == (Qt::ControlModifier | Qt::ShiftModifier);
    const bool alt = modifiers == Qt::AltModifier;
    const int key = event->key();

    if (ctrl) {
        switch (key) {
            case Qt::Key_T:
                toggleTheme();
                return true;
            case Qt::Key_Plus:
            case Qt::Key_Equal:
                setScale(scale_ * 1.1);
                return true;
            case Qt::Key_Minus:
                setScale(scale_ / 1.1);
                return true;
            case Qt::Key_0:
                setScale(1);
                return true;
            case Qt::Key_O:
                openTraceDialog();
                return true;
            case Qt::Key_E:
                exportDialog();
                return true;
            case Qt::Key_L:
                toggleTables();
                return true;
            case Qt::Key_B:
                header_->openBackendMenu();
                return true;
            case Qt::Key_K:
                toggleKernelWalk();
                return true;
            case Qt::Key_R:
                resetLayout();
                return true;
            default:
                break;
        }
    }
    if (key == Qt::Key_F11) {
        isFullScreen() ? showNormal() : showFullScreen();
        return true;
    }
    if (key == Qt::Key_Escape) {
        hub_.lock({});
        hub_.hover({});
        banner_->hide();
        return true;
    }
    if (alt && (key == Qt::Key_Left || key == Qt::Key_Right)) {
        key == Qt::Key_Left ? lesson_panel_->previousStop() : lesson_panel_->nextStop();
        return true;
    }

    // What the focused control needs for itself.
    const auto* input = qobject_cast<QLineEdit*>(focus);
    if (input && input->isEnabled()) {
        return false;
    }
    // A picture or table that was tabbed into walks its cells with the arrows; the other keys still
    // move the run.
    const bool arrow =
        key == Qt::Key_Left || key == Qt::Key_Right || key == Qt::Key_Up || key == Qt::Key_Down;
    const bool table = qobject_cast<QAbstractItemView*>(focus) != nullptr;
    if (plain && arrow &&
        (focus == memory_view_ || focus == &kernel_walk_->view() || table ||
         qobject_cast<QAbstractSlider*>(focus))) {
        return false;
    }
    const bool pages = key == Qt::Key_PageUp || key == Qt::Key_PageDown || key == Qt::Key_Home ||
                       key == Qt::Key_End || key == Qt::Key_Return || key == Qt::Key_Enter;
    if (table && pages) {
        return false;
    }
    if (key == Qt::Key_Space && plain) {
        if (qobject_cast<QAbstractButton*>(focus)) {
            return false;
        }
        playback_.togglePlaying();
        return true;
    }
    switch (key) {
        case Qt::Key_Left:
            ctrl    ? playback_.previousStep()
            : shift ? playback_.previousRelated()
                    : playback_.stepBack();
            return true;
        case Qt::Key_Right:
            ctrl ? playback_.nextStep() : shift ? playback_.nextRelated() : playback_.stepForward();
            return true;
        case Qt::Key_PageUp:
            playback_.previousStep();
            return true;
        case Qt::Key_PageDown:
            playback_.nextStep();
            return true;
        case Qt::Key_Home:
            playback_.toStart();
            return true;
        case Qt::Key_End:
            playback_.toEnd();
            return true;
        case Qt::Key_Plus:
        case Qt::Key_Equal:
            playback_.faster();
            return true;
        case Qt::Key_Minus:
            playback_.slower();
            return true;
        case Qt::Key_Question:
            showKeys();
            return true;
        default:
            break;
    }
    if (plain && key >= Qt::Key_1 && key <= Qt::Key_9 && lesson_panel_->hasLesson()) {
        const int stop = key - Qt::Key_1;
        if (stop < static_cast<int>(lesson_panel_->lesson().stops.size())) {
            lesson_panel_->goToStop(stop);
            return true;
        }
    }
    return false;
}

}  // namespace kvlab
