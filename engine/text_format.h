// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

namespace kvlab {

// 16800 → "16,800". The one place that groups digits, so that window, command line and exports
// agree.
std::string formatCount(int64_t value);
// "1 token", "2,000 tokens".
std::string counted(int64_t count, const char* one, const char* many);
// Bytes in binary units with at most three significant decimals: 32768 → "32 KiB", 2684354560 →
// "2.5 GiB".
std::string formatBytes(int64_t bytes);
// "the pool needs 2.5 GiB", "the weights need 64 KiB": how a failed allocation is told.
std::string formatNeed(const std::string& purpose, int64_t num_bytes);

// The first line of a text, at most 120 bytes of it, for titles and names: a prompt or a model file
// may bring any amount of text.
std::string oneLine(const std::string& text);

}  // namespace kvlab
