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
        change(*this);
        if (!wake_posted) {
            wake_posted = true;
            QMetaObject::invokeMethod(
                worker, [w = worker] { w->wake(); }, Qt::QueuedConnection);
        }
    }
};

namespace {

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
    if (session_) {
        session_->cancel();
    }
    session_.reset();
    retired_.clear();
}

void SessionWorker::start(const RunConfig& config) {
    retireSession();
    mailbox_ = std::make_shared<Mailbox>();
    mailbox_->worker = this;
    SessionCallbacks callbacks;
    callbacks.on_progress = [box = mailbox_, polite = false](SessionPhase phase, double fraction,
                                                             const std::string& text) mutable {
        if (!polite) {
            polite = true;
            yieldToTheWindow();
        }
        box->put([&](Mailbox& m) { m.progress = Mailbox::Progress{phase, fraction, text}; });
    };
    callbacks.on_started = [box = mailbox_](std::shared_ptr<const RunInfo> info) {
        box->put([&](Mailbox& m) { m.info = std::move(info); });
    };
    // Both live on the run thread; the walks of a step come before it.
    const auto walks = std::make_shared<StepWalks>();
    auto listener = std::make_shared<KernelWalkListener>();
    const auto walk_bytes = std::make_shared<int64_t>(0);
    listener->wants = [walk_bytes](int) { return *walk_bytes < KernelWalks::kMaxBytes; };
    listener->on_walks = [walks, walk_bytes](StepWalks told) {
        for (const auto& walk : told) *walk_bytes += bytesOf(*walk);
        *walks = std::move(told);
    };
    callbacks.on_step = [box = mailbox_, walks](std::shared_ptr<const StepTrace> step) {
        box->put([&](Mailbox& m) {
            m.steps.push_back(std::move(step));
            m.walks.push_back(std::exchange(*walks, {}));
        });
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
    callbacks.on_failed = [box = mailbox_](const std::string& message) {
        box->put([&](Mailbox& m) { m.failure = message; });
    };
    running_ = true;
    paused_ = false;
    try {
        session_ = std::make_unique<Session>(std::move(callbacks));
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
        session_->setPaused(false);
        session_->cancel();
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
