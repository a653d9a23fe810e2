// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ids.h"

namespace kvlab {

// Options arrive as typed text and are read here, not by the option parser, so that every command
// refuses "1e3x", "", "nan" or 2^64 with the same plain sentence. All functions throw
// EngineError(kBadArgument); `option` is the name as typed, "--samples".

// Whole number in [low, high], decimal digits with an optional sign.
int64_t parseWhole(std::string_view option, std::string_view text, int64_t low, int64_t high);
// As above; `fallback` when the option was not given.
int64_t parseWhole(std::string_view option,
                   const std::optional<std::string>& text,
                   int64_t low,
                   int64_t high,
                   int64_t fallback);
// Any 64-bit number that is not negative: seeds.
uint64_t parseSeed(std::string_view option, const std::optional<std::string>& text);
// Finite number in [low, high].
double parseReal(std::string_view option,
                 const std::optional<std::string>& text,
                 double low,
                 double high,
                 double fallback);
// "141GB", "1.5GiB" or bytes (parseByteSize), in [low, high]; `fallback` when the option was not
// given.
int64_t parseBytes(std::string_view option,
                   const std::optional<std::string>& text,
                   int64_t low,
                   int64_t high,
                   int64_t fallback);
// "1,5,9".
std::vector<TokenId> parseTokens(std::string_view option, std::string_view text);

// Whole content of a regular file, or of standard input for "-": at most 64 MiB, read to the end.
// Throws EngineError(kBadFile).
std::string readTextFile(const std::string& path);

// Throws EngineError(kBadArgument) for a name that is empty: `option` wants the name of a file.
void checkOutputName(std::string_view option, std::string_view name);

}  // namespace kvlab
