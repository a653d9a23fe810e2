// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <QElapsedTimer>
#include <QObject>
#include <QString>
#include <QTimer>

#include "app/gui/run/kernel_walks.h"
#include "engine/session/session.h"

namespace kvlab {

// Owns the engine's run thread and hands its finished values to the window's thread.
//
//   run thread  ──on_step──▶ mailbox ──one queued wake-up──▶ window's thread, at most once a frame
//
// Steps that arrive between two frames leave as one batch; a fast run is told in bounded portions,
// one a frame, and no step is lost. finished() and failed() come after the last step of their run
// was told. A run that was replaced is cancelled and joined later, so nothing ever waits for the
// engine on the window's thread; its signals end at once.
//
// A step on simt takes many seconds, so it is told layer by layer. A cancelled run leaves it at its
// next layer, and finished() does not wait for that: what that step did is told by nobody.
class SessionWorker : public QObject {
    Q_OBJECT

  public:
    static constexpr int kFrameMs = 16;
    static constexpr int kMaxStepsPerFrame = 64;

    explicit SessionWorker(QObject* parent = nullptr);
    ~SessionWorker() override;  // cancels and joins

    bool isRunning() const { return running_; }  // until finished() or failed() was told
    bool isPaused() const { return paused_; }
    // Cancels everything and waits until the threads have ended, this long at most; false: they
    // have not.
    bool endWithin(int wait_ms);

  public slots:
    // Cancels the run before. With max_steps the run ends as a cancelled one after so many steps.
    void start(const kvlab::RunConfig& config, std::optional<int64_t> max_steps = {});
    void cancel();   // finished() follows, after the current step, on simt at once
    void abandon();  // cancels too, but nothing more is told
    void setPaused(bool paused);

  signals:
    void progressChanged(kvlab::SessionPhase phase, double fraction, const QString& text);
    void runStarted(std::shared_ptr<const kvlab::RunInfo> info);
    void stepsReceived(std::span<const std::shared_ptr<const kvlab::StepTrace>> steps);
    // Of a simt run, before the step itself.
    void walksReceived(qint64 step, const kvlab::StepWalks& walks);
    void finished(std::shared_ptr<const kvlab::RunResult> result);
    void failed(const QString& message);
    // The CPU took over from a GPU, and why: one sentence. Before runStarted(), or in the middle of
    // a run before the step that the GPU failed in is told.
    void fellBack(const QString& why);
    // What else the reader should know though the run goes on: one sentence.
    void messageTold(const QString& message);

  private:
    struct Mailbox;

    void wake();
    void deliver();
    void retireSession();
    void reapSessions();

    std::shared_ptr<Mailbox> mailbox_;
    std::unique_ptr<Session> session_;
    std::shared_ptr<std::atomic<bool>> stopped_;  // of session_: seen within a step, too
    std::vector<std::unique_ptr<Session>> retired_;
    QTimer frame_timer_, reap_timer_;
    QElapsedTimer since_delivery_;
    bool running_ = false;
    bool paused_ = false;
    bool slow_ = false;  // on simt
};

}  // namespace kvlab
