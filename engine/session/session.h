// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/session/generation.h"
#include "engine/trace/event.h"

namespace kvlab {

enum class SessionPhase { kLoadingModel, kPrefill, kDecode };

// Called on the run thread. Every argument is finished and immutable; a window forwards it to its
// own thread.
struct SessionCallbacks {
    // `fraction` 0 … 1 of the phase; text such as "prompt 1,024 of 2,000 tokens".
    std::function<void(SessionPhase phase, double fraction, const std::string& text)> on_progress;
    std::function<void(std::shared_ptr<const RunInfo>)> on_started;
    std::function<void(std::shared_ptr<const StepTrace>)> on_step;
    // What the user should know though the run goes on: that the CPU took over from a GPU, and why.
    // One sentence, at any time; also in RunResult::messages.
    std::function<void(const std::string& message)> on_message;
    std::function<void(const RunResult&)> on_finished;          // also after cancel()
    std::function<void(const std::string& message)> on_failed;  // one plain sentence
};

// The run thread: loads the model, decodes, records. Free of Qt. One run at a time.
class Session {
  public:
    explicit Session(SessionCallbacks callbacks);
    ~Session();  // cancels and joins
    void start(RunConfig config);
    void cancel();                // after the current step
    void setPaused(bool paused);  // between steps
    bool isRunning() const;
    void wait();  // until the run has ended

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// The same run on the calling thread. `on_step` may be empty. Throws EngineError.
RunResult runToEnd(const RunConfig& config, const SessionCallbacks& callbacks = {});

}  // namespace kvlab
