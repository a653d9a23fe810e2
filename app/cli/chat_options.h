// SPDX-License-Identifier: MIT
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ids.h"

namespace kvlab {

class Tokenizer;

// --chat and --system, for commands that take a text.
void addChatOptions(CLI::App& command, bool& chat, std::optional<std::string>& system);
// Throws EngineError kBadArgument for --system without --chat.
void checkChatOptions(bool chat, const std::optional<std::string>& system);

// Tokens of `user` in the model's chat template, begin token included. Where the template is not
// supported: of `user` alone, with a line on stderr. Throws EngineError where the file has none.
std::vector<TokenId> chatTokens(const Tokenizer& tokenizer,
                                const std::optional<std::string>& system,
                                std::string_view user);

}  // namespace kvlab
