// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/run/session_worker.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <iterator>
#include <mutex>
#include <optional>
#include <utility>

#ifdef __linux__
#include <sys/resource.h>
#endif

#include <QMetaObject>
#include <QThread>

#include "engine/error.h"

namespace kvlab {

// What the run thread left for the window's thread. Each run has its own, so a replaced run cannot
// be heard.
struct SessionWorker::Mailbox {
    struct Progress {
        SessionPhase phase;
        double fraction;
        std::string text;
    };

    std::mutex mutex;
    SessionWorker* worker = nullptr;  // outlives every session, see ~SessionWorker
    bool wake_posted = false;
    bool closed = false;               // nothing more is told of this run
    std::optional<Progress> progress;  // the newest
    std::optional<std::string> fallback;
    std::deque<std::string> messages;
    std::shared_ptr<const RunInfo> info;
    std::deque<std::shared_ptr<const StepTrace>> steps;
    std::deque<StepWalks> walks;  // of each of the steps; empty: none
    std::shared_ptr<const RunResult> result;
    std::optional<std::string> failure;

    template <class Change>
    void put(Change change) {
        std::lock_guard lock(mutex);
        if (closed) return;
        change(*this);
        if (!wake_posted) {
            wake_posted = true;
            QMetaObject::invokeMethod(
                worker, [w = worker] { w->wake(); }, Qt::QueuedConnection);
        }
    }
};

namespace {

// Of a run that was left in the middle of a step: nothing was measured.
std::shared_ptr<const RunResult> cancelledResult() {
    auto result = std::make_shared<RunResult>();
    result->cancelled = true;
    return result;
}

// Called on the run thread before it makes the engine's threads, which inherit the level. The
// engine may use every core, and the window still paints at once when it has something to paint: on
// two cores the event loop's longest gap fell from 146 ms to 58 ms, the run took as long as before.
void yieldToTheWindow() {
#ifdef __linux__
    setpriority(PRIO_PROCESS, 0, 5);  // here, "0" is the calling thread
#endif
}

}  // namespace

SessionWorker::SessionWorker(QObject* parent) : QObject(parent) {
    frame_timer_.setSingleShot(true);
    frame_timer_.setTimerType(Qt::PreciseTimer);
    connect(&frame_timer_, &QTimer::timeout, this, &SessionWorker::deliver);
    reap_timer_.setInterval(200);
    connect(&reap_timer_, &QTimer::timeout, this, &SessionWorker::reapSessions);
    since_delivery_.start();
}

SessionWorker::~SessionWorker() {
    // All are told to stop before the first is joined.
    cancel();
    session_.reset();
    retired_.clear();
}

bool SessionWorker::endWithin(int wait_ms) {
    abandon();
    QElapsedTimer waited;
    waited.start();
    for (reapSessions(); !retired_.empty() && waited.elapsed() < wait_ms; reapSessions()) {
        QThread::msleep(5);
    }
    return retired_.empty();
}

void SessionWorker::start(const RunConfig& config, std::optional<int64_t> max_steps) {
    retireSession();
    mailbox_ = std::make_shared<Mailbox>();
    mailbox_->worker = this;
    stopped_ = std::make_shared<std::atomic<bool>>(false);
    SessionCallbacks callbacks;
    // Of the run thread alone.
    struct OfTheRun {
        Mailbox::Progress progress{SessionPhase::kLoadingModel, 0, {}};
        StepWalks walks;  // of a step, before the step itself
        int64_t walk_bytes = 0;
        int num_layers = 0;
        int64_t num_steps = 0;
        bool polite = false;
        Session* session = nullptr;
    };
    const auto own = std::make_shared<OfTheRun>();
    callbacks.on_progress = [box = mailbox_, own](SessionPhase phase, double fraction,
                                                  const std::string& text) {
        if (!own->polite) {
            own->polite = true;
            yieldToTheWindow();
        }
        own->progress = {phase, fraction, text};
        box->put([&](Mailbox& m) { m.progress = own->progress; });
    };
    callbacks.on_started = [box = mailbox_, own](std::shared_ptr<const RunInfo> info) {
        own->num_layers = info->model.num_layers;
        box->put([&](Mailbox& m) { m.info = std::move(info); });
    };
    auto listener = std::make_shared<KernelWalkListener>();
    // Asked before each layer's attention, and so the place to say how far a long step is and to
    // leave it.
    listener->wants = [box = mailbox_, own, stopped = stopped_](int layer) {
        if (*stopped) throw EngineError(ErrorKind::kCancelled, "the run was stopped");
        Mailbox::Progress progress = own->progress;
        progress.text = "simt is slow: step " + std::to_string(own->num_steps) + ", layer " +
                        std::to_string(layer + 1) + " of " + std::to_string(own->num_layers);
        // The first step belongs to no phase yet.
        if (progress.phase == SessionPhase::kLoadingModel) progress.fraction = -1;
        box->put([&](Mailbox& m) { m.progress = std::move(progress); });
        return own->walk_bytes < KernelWalks::kMaxBytes;
    };
    listener->on_walks = [own](StepWalks told) {
        for (const auto& walk : told) own->walk_bytes += bytesOf(*walk);
        own->walks = std::move(told);
    };
    callbacks.on_step = [box = mailbox_, own, max_steps,
                         stopped = stopped_](std::shared_ptr<const StepTrace> step) {
        // Behind the last one wanted comes a step that only ends the sequences.
        if (max_steps && own->num_steps >= *max_steps) return;
        ++own->num_steps;
        box->put([&](Mailbox& m) {
            m.steps.push_back(std::move(step));
            m.walks.push_back(std::exchange(own->walks, {}));
        });
        if (max_steps && own->num_steps >= *max_steps) {
            *stopped = true;
            own->session->cancel();
        }
    };
    // A fallback is told as a message once more; its own signal says it.
    const auto fallback = std::make_shared<std::string>();  // lives on the run thread
    callbacks.on_message = [box = mailbox_, fallback](const std::string& message) {
        if (!fallback->empty() && message.ends_with(*fallback)) return;
        box->put([&](Mailbox& m) { m.messages.push_back(message); });
    };
    callbacks.on_finished = [box = mailbox_](const RunResult& result) {
        auto shared = std::make_shared<const RunResult>(result);
        box->put([&](Mailbox& m) { m.result = std::move(shared); });
    };
    callbacks.on_failed = [box = mailbox_, stopped = stopped_](const std::string& message) {
        if (*stopped) {
            box->put([&](Mailbox& m) { m.result = cancelledResult(); });
            return;
        }
        box->put([&](Mailbox& m) { m.failure = message; });
    };
    running_ = true;
    paused_ = false;
    slow_ = config.engine.backend == "simt";
    try {
        session_ = std::make_unique<Session>(std::move(callbacks));
        own->session = session_.get();
        RunConfig told = config;
        told.engine.on_fallback = [box = mailbox_, fallback](const std::string& why) {
            *fallback = why;
            box->put([&](Mailbox& m) { m.fallback = why; });
        };
        told.engine.kernel_walks = std::move(listener);
        session_->start(std::move(told));
    } catch (const std::exception& error) {
        const std::string message = error.what();
        mailbox_->put([&](Mailbox& m) { m.failure = message; });
    }
}

void SessionWorker::cancel() {
    if (session_) {
        *stopped_ = true;
        session_->setPaused(false);
        session_->cancel();
        if (slow_ && mailbox_) {
            // What is under way ends by itself; nobody waits for it.
            mailbox_->put([](Mailbox& m) {
                m.result = cancelledResult();
                m.closed = true;
            });
        }
    }
    paused_ = false;
}

void SessionWorker::abandon() {
    retireSession();
    mailbox_.reset();
    running_ = false;
    paused_ = false;
}

void SessionWorker::setPaused(bool paused) {
    if (session_ && running_) {
        paused_ = paused;
        session_->setPaused(paused);
    }
}

void SessionWorker::wake() {
    // Also reached by the last wake-ups of a replaced run; then there is nothing new to tell.
    if (frame_timer_.isActive()) {
        return;
    }
    const qint64 elapsed_ms = since_delivery_.elapsed();
    if (elapsed_ms >= kFrameMs) {
        deliver();
    } else {
        frame_timer_.start(static_cast<int>(kFrameMs - elapsed_ms));
    }
}

void SessionWorker::deliver() {
    const std::shared_ptr<Mailbox> box = mailbox_;
    if (!box) {
        return;
    }
    std::optional<Mailbox::Progress> progress;
    std::optional<std::string> fallback;
    std::deque<std::string> messages;
    std::shared_ptr<const RunInfo> info;
    std::vector<std::shared_ptr<const StepTrace>> steps;
    std::vector<StepWalks> walks;
    std::shared_ptr<const RunResult> result;
    std::optional<std::string> failure;
    bool more = false;
    {
        std::lock_guard lock(box->mutex);
        box->wake_posted = false;
        progress = std::exchange(box->progress, std::nullopt);
        fallback = std::exchange(box->fallback, std::nullopt);
        messages = std::exchange(box->messages, {});
        info = std::exchange(box->info, nullptr);
        const size_t count = std::min(box->steps.size(), size_t{kMaxStepsPerFrame});
        const auto last = box->steps.begin() + static_cast<std::ptrdiff_t>(count);
        steps.assign(std::make_move_iterator(box->steps.begin()), std::make_move_iterator(last));
        box->steps.erase(box->steps.begin(), last);
        const auto last_walks = box->walks.begin() + static_cast<std::ptrdiff_t>(count);
        walks.assign(std::make_move_iterator(box->walks.begin()),
                     std::make_move_iterator(last_walks));
        box->walks.erase(box->walks.begin(), last_walks);
        more = !box->steps.empty();
        if (!more) {
            result = std::exchange(box->result, nullptr);
            failure = std::exchange(box->failure, std::nullopt);
        }
        if (more) {
            box->wake_posted = true;
            frame_timer_.start(kFrameMs);
        }
    }
    since_delivery_.restart();

    // A slot may start another run, which replaces the mailbox; what is left of this one is then
    // nobody's.
    const auto is_current = [&] { return mailbox_ == box; };
    if (fallback) {
        emit fellBack(QString::fromStdString(*fallback));
    }
    if (info && is_current()) {
        emit runStarted(info);
    }
    for (size_t i = 0; i < walks.size() && is_current(); ++i) {
        if (!walks[i].empty()) {
            emit walksReceived(steps[i]->step, walks[i]);
        }
    }
    if (!steps.empty() && is_current()) {
        emit stepsReceived(steps);
    }
    for (const std::string& message : messages) {
        if (is_current()) {
            emit messageTold(QString::fromStdString(message));
        }
    }
    if (progress && is_current()) {
        emit progressChanged(progress->phase, progress->fraction,
                             QString::fromStdString(progress->text));
    }
    if (is_current() && (result || failure)) {
        running_ = false;
        paused_ = false;
        if (failure) {
            emit failed(QString::fromStdString(*failure));
        } else {
            emit finished(result);
        }
    }
}

void SessionWorker::retireSession() {
    if (!session_) {
        return;
    }
    *stopped_ = true;
    session_->setPaused(false);
    session_->cancel();
    retired_.push_back(std::move(session_));
    running_ = false;
    reap_timer_.start();
}

void SessionWorker::reapSessions() {
    std::erase_if(retired_,
                  [](const std::unique_ptr<Session>& session) { return !session->isRunning(); });
    if (retired_.empty()) {
        reap_timer_.stop();
    }
}

}  // namespace kvlab
