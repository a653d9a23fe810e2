// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <chrono>

namespace kvlab {

// Plays the best-of-8 run in the window, measures the event loop's longest gap, painting, seeking
// and start, and prints them as a table or as JSON. `started` is when main() began. Returns the
// exit code.
int runBench(std::chrono::steady_clock::time_point started, bool json);

}  // namespace kvlab
