// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/commands/bench_command.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <vector>

#include <QApplication>
#include <QElapsedTimer>
#include <QEventLoop>
#include <QJsonDocument>
#include <QJsonObject>
#include <QTimer>

#include "app/gui/main_window.h"
#include "app/gui/views/memory_view.h"
#include "app/gui/views/sequence_text_view.h"
#include "app/gui/views/sharing_view.h"
#include "app/gui/views/timeline_view.h"
#include "lessons/lesson_loader.h"

namespace kvlab {

namespace {

using Clock = std::chrono::steady_clock;

double msSince(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
    if (values.empty()) {
        return 0;
    }
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

// A timer that wants to fire every millisecond: what it cannot is the event loop being busy.
class Heartbeat : public QObject {
  public:
    Heartbeat() {
        timer_.setTimerType(Qt::PreciseTimer);
        connect(&timer_, &QTimer::timeout, this, [this] {
            const double gap = msSince(last_);
            last_ = Clock::now();
            longest_ms_ = std::max(longest_ms_, gap);
            ++beats_;
        });
    }
    void start() {
        longest_ms_ = 0;
        beats_ = 0;
        last_ = Clock::now();
        timer_.start(1);
    }
    void stop() { timer_.stop(); }
    double longestMs() const { return longest_ms_; }
    int64_t beats() const { return beats_; }

  private:
    QTimer timer_;
    Clock::time_point last_;
    double longest_ms_ = 0;
    int64_t beats_ = 0;
};

template <class Done>
bool runUntil(Done done, double limit_ms) {
    const Clock::time_point start = Clock::now();
    while (!done() && msSince(start) < limit_ms) {
        QApplication::processEvents(QEventLoop::AllEvents | QEventLoop::WaitForMoreEvents);
    }
    return done();
}

double paintMedianMs(QWidget* view) {
    std::vector<double> times;
    for (int i = 0; i < 40; ++i) {
        const Clock::time_point start = Clock::now();
        view->repaint();
        times.push_back(msSince(start));
    }
    return median(times);
}

}  // namespace

int runBench(Clock::time_point started, bool json) {
    MainWindow window;
    window.resize(1600, 1000);
    window.show();
    QApplication::processEvents();
    const double start_ms = msSince(started);

    // Guards runUntil's wait against a turn without events.
    QTimer guard;
    guard.start(5);
    Heartbeat heartbeat;
    heartbeat.start();
    const Clock::time_point run_start = Clock::now();
    try {
        window.openLesson(loadLesson(lessonsFolder(), "best-of-8", "en"));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "kvlab: %s\n", error.what());
        return 1;
    }
    RunHub& hub = window.hub();
    // 64 steps a second while the engine decodes: the busiest the window gets.
    window.playback().setSpeedIndex(Playback::kNumSpeeds - 2);
    double first_step_ms = 0;
    const bool finished = runUntil(
        [&] {
            if (first_step_ms == 0 && hub.hasLog() && hub.log().numSteps() > 0) {
                first_step_ms = msSince(run_start);
            }
            return hub.hasLog() && !window.worker().isRunning() && !hub.isLive() && hub.atEnd();
        },
        15 * 60 * 1000);
    const double run_ms = msSince(run_start);
    const double live_gap_ms = heartbeat.longestMs();
    if (!finished) {
        std::fprintf(stderr, "kvlab: the run did not finish: %s\n",
                     qPrintable(window.bannerText().isEmpty() ? QStringLiteral("no reason was told")
                                                              : window.bannerText()));
        return 1;
    }

    heartbeat.start();
    window.playback().toStart();
    window.playback().play();
    runUntil([&] { return !window.playback().isPlaying(); }, 60 * 1000);
    const double replay_gap_ms = heartbeat.longestMs();
    heartbeat.stop();

    const RunLog& log = hub.log();
    std::vector<double> seeks;
    for (int i = 0; i < 60; ++i) {
        const int64_t step = (int64_t{i} * 37) % std::max<int64_t>(1, log.numSteps());
        const Clock::time_point start = Clock::now();
        hub.setCursor({step, 0, 0});
        QApplication::processEvents();
        seeks.push_back(msSince(start));
    }
    const auto paint = [&](auto* view) { return view ? paintMedianMs(view) : 0; };
    const double memory_ms = paint(window.findChild<MemoryView*>());
    const double sharing_ms = paint(window.findChild<SharingView*>());
    const double text_ms = paint(window.findChild<SequenceTextView*>());
    const double timeline_ms = paint(window.findChild<TimelineView*>());
    const double window_ms = paintMedianMs(&window);

    if (json) {
        const QJsonObject object{
            {"start_ms", start_ms},
            {"first_step_ms", first_step_ms},
            {"run_ms", run_ms},
            {"steps", static_cast<double>(log.numSteps())},
            {"longest_gap_ms", std::max(live_gap_ms, replay_gap_ms)},
            {"longest_gap_live_ms", live_gap_ms},
            {"longest_gap_replay_ms", replay_gap_ms},
            {"seek_median_ms", median(seeks)},
            {"paint_median_ms", QJsonObject{{"window", window_ms},
                                            {"memory", memory_ms},
                                            {"sharing", sharing_ms},
                                            {"texts", text_ms},
                                            {"timeline", timeline_ms}}},
        };
        std::printf("%s\n", QJsonDocument(object).toJson(QJsonDocument::Indented).constData());
        return 0;
    }
    std::printf("start to first paint       %8.1f ms\n", start_ms);
    std::printf("run opened to first step   %8.1f ms\n", first_step_ms);
    std::printf("whole run played           %8.1f ms, %lld steps\n", run_ms,
                static_cast<long long>(log.numSteps()));
    std::printf("longest event-loop gap     %8.1f ms while the engine ran\n", live_gap_ms);
    std::printf("                           %8.1f ms while replaying\n", replay_gap_ms);
    std::printf("seek and repaint, median   %8.2f ms\n", median(seeks));
    std::printf("paint, median: window      %8.2f ms\n", window_ms);
    std::printf("               memory      %8.2f ms\n", memory_ms);
    std::printf("               sharing     %8.2f ms\n", sharing_ms);
    std::printf("               texts       %8.2f ms\n", text_ms);
    std::printf("               timeline    %8.2f ms\n", timeline_ms);
    return 0;
}

}  // namespace kvlab
