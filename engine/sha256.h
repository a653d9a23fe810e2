// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace kvlab {

// SHA-256 of `bytes`, 64 hexadecimal digits: names model files and seals trace records. Through
// libcrypto where the build found it (it uses the processor's instructions for it); throws
// EngineError(kInternal) when that refuses.
std::string sha256Hex(std::string_view bytes);
// The same in plain C++ (FIPS 180-4), for builds without libcrypto.
std::string sha256HexPortable(std::string_view bytes);

}  // namespace kvlab
