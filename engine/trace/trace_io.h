// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/trace/run_log.h"

namespace kvlab {

// Writes a trace while the run goes on: every step is on disk when append() returns, so a killed
// process loses at most the step it was in. The format stands in engine/trace/README.md.
class TraceWriter {
  public:
    // Throws EngineError(kBadFile) when the file cannot be made.
    TraceWriter(const std::string& path, const RunInfo& info);
    ~TraceWriter();
    void append(const StepTrace& step);
    // Seals the file with its end record; without it a reader reports a run that was cut off.
    void finish();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// A trace as far as it could be read.
struct LoadedTrace {
    std::shared_ptr<RunLog> log;  // up to the damage
    bool complete = true;         // ended with its end record
    std::string damage;           // "" or one sentence: what, which line, which byte
    int64_t num_bytes = 0;
};

// Throws EngineError(kBadFile) when not even the header can be read. Every size is bounded by the
// file's.
LoadedTrace loadTrace(const std::string& path);

}  // namespace kvlab
