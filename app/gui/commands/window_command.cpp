// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/commands/window_command.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include <QApplication>
#include <QElapsedTimer>
#include <QFileInfo>
#include <QImageWriter>
#include <QPixmap>
#include <QScreen>
#include <QSettings>
#include <QTimer>
#include <QWindow>

#include "app/gui/main_window.h"
#include "app/gui/panels/kernel_walk_panel.h"
#include "app/gui/panels/lesson_panel.h"
#include "app/gui/panels/widgets.h"
#include "app/gui/provenance.h"
#include "app/gui/views/kernel_walk_view.h"
#include "engine/error.h"
#include "engine/input_file.h"
#include "lessons/lesson_loader.h"

namespace kvlab {

namespace {

int complain(const QString& message, int code = 1) {
    std::fprintf(stderr, "kvlab: %s\n", qPrintable(message));
    return code;
}

// What a window manager puts around a window, until it has told its own; px.
constexpr QMargins kUsualFrame(6, 36, 6, 6);

// How long a closed window waits for its threads before the program leaves them behind, ms.
constexpr int kEndMs = 1000;

void fitIntoScreen(MainWindow& window, QSize wished, const QMargins& frame) {
    if (const QScreen* screen = window.screen()) {
        window.setGeometry(firstGeometry(wished, screen->availableGeometry(), frame));
    }
}

// Told before a run of minutes: why no picture can be saved there; "" where one can.
QString whyNoPicture(const QString& file) {
    const QFileInfo info(file);
    const QFileInfo folder(info.absolutePath());
    const QString shown = QStringLiteral("--screenshot %1: ").arg(shortened(file, 200));
    if (info.isDir()) {
        return shown + QStringLiteral("this is a folder; name a file to write in it");
    }
    if (!QImageWriter::supportedImageFormats().contains(info.suffix().toLower().toLatin1())) {
        return shown + QStringLiteral("its name tells no picture format; let it end in .png");
    }
    if (!folder.isDir()) {
        return shown + QStringLiteral("there is no such folder; create it or choose another one");
    }
    if (info.exists() ? !info.isWritable() : !folder.isWritable()) {
        return shown + QStringLiteral("this may not be written; check its permissions");
    }
    return {};
}

// How far a run of minutes is, for who waits at a shell: a line now and then.
class ProgressTeller : public QObject {
  public:
    explicit ProgressTeller(SessionWorker& worker) {
        since_last_.start();
        connect(&worker, &SessionWorker::progressChanged, this,
                [this](SessionPhase, double, const QString& text) {
                    if (since_last_.elapsed() < kEveryMs) {
                        return;
                    }
                    since_last_.restart();
                    std::fprintf(stderr, "kvlab: %s\n", qPrintable(text));
                });
    }

  private:
    static constexpr int kEveryMs = 5000;
    QElapsedTimer since_last_;
};

// Waits for the run and the wished place, paints once more, saves.
class Photographer : public QObject {
  public:
    Photographer(MainWindow* window, const WindowOptions& options)
        : window_(window), options_(options) {
        connect(&timer_, &QTimer::timeout, this, &Photographer::look);
        timer_.start(30);
        waited_.start();
    }

  private:
    void look() {
        RunHub& hub = window_->hub();
        const bool loaded = hub.hasLog() && !hub.isLive() && !window_->worker().isRunning();
        if (!loaded) {
            if (!hub.hasLog() && !window_->worker().isRunning() &&
                !window_->bannerText().isEmpty()) {
                // Whoever called from the command line has no menu.
                QApplication::exit(complain(
                    window_->bannerText().replace(MainWindow::tr("choose cpu in the backend menu"),
                                                  QStringLiteral("use --backend cpu"))));
            } else if (waited_.elapsed() > 15 * 60 * 1000) {
                QApplication::exit(
                    complain(QStringLiteral("the run did not end within 15 minutes")));
            }
            return;
        }
        timer_.stop();
        const QString problem = place();
        if (!problem.isEmpty()) {
            QApplication::exit(complain(problem, 2));
            return;
        }
        window_->settle();
        const QString file = QString::fromStdString(options_.screenshot);
        if (!window_->grab().save(file)) {
            QApplication::exit(complain(
                QStringLiteral("the picture %1 could not be written; free some disk space, or "
                               "write elsewhere")
                    .arg(file)));
            return;
        }
        QApplication::exit(0);
    }

    // Returns what is wrong with the wish, or nothing.
    QString place() {
        RunHub& hub = window_->hub();
        if (options_.at_step) {
            const int64_t last = hub.log().numSteps();
            if (*options_.at_step > last) {
                return QStringLiteral(
                           "the run has steps 0 to %1, not %2; give one of them with --at-step")
                    .arg(last)
                    .arg(*options_.at_step);
            }
            window_->playback().seek({*options_.at_step, 0, 0});
        } else if (options_.stop <= 1) {
            window_->playback().toEnd();
        }
        KernelWalkView& walk = window_->kernelWalk().view();
        if (options_.kernel_walk && options_.select.empty()) {
            // On its way, so that tables and pool show where.
            walk.setStep(walk.numSteps() / 2);
        }
        const auto link = parseLessonLink(QString::fromStdString(options_.select));
        if (!link) {
            return {};
        }
        const bool block = link->kind == LessonLink::Kind::kBlock;
        const CacheState& state = hub.state();
        const size_t count = block ? state.blocks.size() : state.sequences.size();
        if (static_cast<size_t>(link->number) >= count) {
            return QStringLiteral("this moment of the run has %1, counted from 0; there is no %2")
                .arg(countOf(static_cast<int64_t>(count), block ? "block" : "sequence"))
                .arg(link->number);
        }
        Selection selection;
        if (block) {
            selection.block = BlockId(link->number);
        } else {
            selection.sequence = SequenceId(link->number);
        }
        hub.lock(selection);
        return {};
    }

    MainWindow* window_;
    WindowOptions options_;
    QTimer timer_;
    QElapsedTimer waited_;
};

}  // namespace

int runWindow(const WindowOptions& options) {
    const bool photograph = !options.screenshot.empty();
    if (options.at_step && *options.at_step < 0) {
        return complain(
            QStringLiteral("--at-step counts from 0, not %1; give 0 or more").arg(*options.at_step),
            2);
    }
    if (photograph) {
        const QString problem = whyNoPicture(QString::fromStdString(options.screenshot));
        if (!problem.isEmpty()) {
            return complain(problem);
        }
    }
    if (!options.select.empty()) {
        const auto link = parseLessonLink(QString::fromStdString(options.select));
        if (!link || link->kind == LessonLink::Kind::kStep) {
            return complain(
                QStringLiteral("--select is written as kv:block/37 or kv:sequence/0, not %1; give "
                               "one of these")
                    .arg(QString::fromStdString(options.select).left(60)),
                2);
        }
    }
    QSettings settings;
    ThemeKind theme = ThemeKind::kLight;
    double scale = 1;
    if (!photograph) {
        theme = settings.value("theme").toString() == QLatin1String("dark") ? ThemeKind::kDark
                                                                            : ThemeKind::kLight;
        scale = settings.value("text_scale", 1.0).toDouble();
    }
    theme = options.theme.value_or(theme);

    MainWindow window(theme, scale);
    window.setBackend(QString::fromStdString(options.backend));
    window.setCpuFallback(options.cpu_fallback ||
                          (!photograph && settings.value("cpu_fallback").toBool()));
    if (photograph && options.at_step && options.backend == "simt") {
        // Its steps take many seconds each; the end of the run is not in the picture.
        window.limitSteps(std::max<int64_t>(1, *options.at_step));
    }
    if (photograph) {
        window.resize(options.size);
        window.setMotion(false);
    } else {
        fitIntoScreen(window, options.size, kUsualFrame);
    }
    if (!options.trace.empty()) {
        try {
            checkInputFile(options.trace, "give the path of a trace, or --lesson NAME");
        } catch (const EngineError& error) {
            return complain(QString::fromUtf8(error.what()));
        }
        window.openTrace(QString::fromStdString(options.trace));
    } else {
        try {
            Lesson lesson = loadLesson(lessonsFolder(), options.lesson, "en");
            if (options.stop < 1 || options.stop > static_cast<int>(lesson.stops.size())) {
                std::fprintf(
                    stderr,
                    "kvlab: lesson %s has stops 1 to %zu, not %d; give one of them with --stop\n",
                    options.lesson.c_str(), lesson.stops.size(), options.stop);
                return 2;
            }
            window.openLesson(std::move(lesson), options.stop - 1);
        } catch (const std::exception& error) {
            return complain(QString::fromUtf8(error.what()));
        }
    }
    window.show();
    if (options.kernel_walk) {
        window.setKernelWalkShown(true);
    }
    std::optional<Photographer> photographer;
    std::optional<ProgressTeller> teller;
    if (photograph) {
        photographer.emplace(&window, options);
        teller.emplace(window.worker());
    } else {
        // By now the frame is known.
        QTimer::singleShot(300, &window, [&window] {
            const QMargins frame =
                window.windowHandle() ? window.windowHandle()->frameMargins() : QMargins();
            const bool free = !window.isMaximized() && !window.isFullScreen();
            const QScreen* screen = window.screen();
            if (free && !frame.isNull() && screen &&
                !screen->availableGeometry().contains(window.frameGeometry())) {
                fitIntoScreen(window, window.size(), frame);
            }
        });
    }
    const int code = QApplication::exec();
    if (!photograph) {
        settings.setValue("theme", window.themeKind() == ThemeKind::kDark ? "dark" : "light");
        settings.setValue("text_scale", window.scale());
        // The option is for this call.
        if (!options.cpu_fallback) settings.setValue("cpu_fallback", window.cpuFallback());
        settings.sync();
    }
    if (!window.endWithin(kEndMs)) {
        // A long step, a slow driver or a large file: nothing of them is to be kept.
        std::fflush(nullptr);
        std::_Exit(code);
    }
    return code;
}

}  // namespace kvlab
