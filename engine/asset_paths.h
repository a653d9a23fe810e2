// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace kvlab {

// Where a file of assets/ lies at run time: the environment variable when it is set, else
// share/kvlab beside the installed executable, else the source tree it was built from. The path may
// not exist; opening it says so.
std::string assetPath(const std::string& relative, const char* environment_variable);

// The folder of the running executable; "" when the system does not tell.
std::string executableFolder();

}  // namespace kvlab
