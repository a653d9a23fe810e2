// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace kvlab {

// Why what stands at `path` cannot be read as a file: "does not exist", "is a folder", "is a pipe,
// not a file", …; empty for a regular file, a link to one included.
std::string inputFileProblem(const std::string& path);

// Throws EngineError(kBadFile), one sentence: the path, the problem, and `advice`, such as "give
// the path of a trace". Whether the file may be opened is the caller's to see.
void checkInputFile(const std::string& path, const char* advice);

}  // namespace kvlab
