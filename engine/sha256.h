// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace kvlab {

// SHA-256 of `bytes` (libcrypto), 64 hexadecimal digits: names model files and seals trace records.
// Throws EngineError(kInternal) when libcrypto refuses.
std::string sha256Hex(std::string_view bytes);

}  // namespace kvlab
