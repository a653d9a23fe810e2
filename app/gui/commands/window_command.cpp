// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/commands/window_command.h"

#include <cstdio>
#include <exception>

#include <QApplication>
#include <QElapsedTimer>
#include <QFileInfo>
#include <QPixmap>
#include <QSettings>
#include <QTimer>

#include "app/gui/main_window.h"
#include "app/gui/panels/lesson_panel.h"
#include "lessons/lesson_loader.h"

namespace kvlab {

namespace {

int complain(const QString& message) {
    std::fprintf(stderr, "kvlab: %s\n", qPrintable(message));
    return 1;
}

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
                QApplication::exit(complain(window_->bannerText()));
            } else if (waited_.elapsed() > 15 * 60 * 1000) {
                QApplication::exit(
                    complain(QStringLiteral("the run did not end within 15 minutes")));
            }
            return;
        }
        if (!placed_) {
            placed_ = true;
            if (options_.at_step) {
                window_->playback().seek({*options_.at_step, 0, 0});
            } else if (options_.stop <= 1) {
                window_->playback().toEnd();
            }
            if (const auto link = parseLessonLink(QString::fromStdString(options_.select))) {
                Selection selection;
                if (link->kind == LessonLink::Kind::kBlock) {
                    selection.block = BlockId(link->number);
                } else if (link->kind == LessonLink::Kind::kSequence) {
                    selection.sequence = SequenceId(link->number);
                }
                hub.lock(selection);
            }
            return;  // one more turn, so that everything has painted
        }
        timer_.stop();
        const QString file = QString::fromStdString(options_.screenshot);
        if (!window_->grab().save(file)) {
            QApplication::exit(complain(QStringLiteral("cannot write %1").arg(file)));
            return;
        }
        QApplication::exit(0);
    }

    MainWindow* window_;
    WindowOptions options_;
    QTimer timer_;
    QElapsedTimer waited_;
    bool placed_ = false;
};

}  // namespace

int runWindow(const WindowOptions& options) {
    const bool photograph = !options.screenshot.empty();
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
    window.resize(options.size);
    if (!options.trace.empty()) {
        const QString file = QString::fromStdString(options.trace);
        if (!QFileInfo::exists(file)) {
            return complain(QStringLiteral("there is no file %1").arg(file));
        }
        window.openTrace(file);
    } else {
        try {
            Lesson lesson = loadLesson(lessonsFolder(), options.lesson, "en");
            if (options.stop < 1 || options.stop > static_cast<int>(lesson.stops.size())) {
                std::fprintf(stderr, "kvlab: lesson %s has stops 1 to %zu, not %d\n",
                             options.lesson.c_str(), lesson.stops.size(), options.stop);
                return 2;
            }
            window.openLesson(std::move(lesson), options.stop - 1);
        } catch (const std::exception& error) {
            return complain(QString::fromUtf8(error.what()));
        }
    }
    window.show();
    std::optional<Photographer> photographer;
    if (photograph) {
        photographer.emplace(&window, options);
    }
    const int code = QApplication::exec();
    if (!photograph) {
        settings.setValue("theme", window.themeKind() == ThemeKind::kDark ? "dark" : "light");
        settings.setValue("text_scale", window.scale());
    }
    return code;
}

}  // namespace kvlab
