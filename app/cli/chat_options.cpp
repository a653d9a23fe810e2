// SPDX-License-Identifier: MIT
#include "app/cli/chat_options.h"

#include <cstdio>

#include "engine/error.h"
#include "engine/model/chat_template.h"

namespace kvlab {

void addChatOptions(CLI::App& command, bool& chat, std::optional<std::string>& system) {
    command.add_flag("--chat", chat,
                     "write the text as the user's turn in the model's chat template");
    command.add_option("--system", system, "system text of the chat (with --chat)")->type_name("T");
}

void checkChatOptions(bool chat, const std::optional<std::string>& system) {
    if (system && !chat) {
        throw EngineError(ErrorKind::kBadArgument,
                          "--system is part of a chat prompt; give --chat with it");
    }
}

std::vector<TokenId> chatTokens(const Tokenizer& tokenizer,
                                const std::optional<std::string>& system,
                                std::string_view user) {
    const ChatPrompt prompt = makeChatPrompt(tokenizer, system, user);
    if (!prompt.warning.empty()) {
        std::fprintf(stderr, "kvlab-cli: note: %s\n", prompt.warning.c_str());
    }
    return tokenizer.encode(prompt.parts, true);
}

}  // namespace kvlab
