// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "engine/trace/run_log.h"

namespace kvlab {

// Writes a log as Chrome trace-event JSON (the "Trace Event Format" document of the Chromium
// project), which ui.perfetto.dev and chrome://tracing open. What becomes what stands in
// engine/trace/README.md.
//
// The file is written beside `path` and renamed, so `path` never holds half a file. Returns the
// number of events written. Throws EngineError(kBadFile) when the file cannot be written.
int64_t writePerfettoTrace(const RunLog& log, const std::string& path);

}  // namespace kvlab
