// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "app/cli/chat_options.h"
#include "app/cli/commands.h"
#include "app/cli/json_output.h"
#include "app/cli/option_text.h"
#include "engine/error.h"
#include "engine/model/model_loader.h"
#include "engine/model/tokenizer.h"

namespace kvlab {

namespace {

struct TokenizeOptions {
    std::optional<std::string> model, text, file, system;
    bool chat = false;
    bool json = false;
};

void runTokenize(const TokenizeOptions& options) {
    if (options.text.has_value() == options.file.has_value()) {
        throw EngineError(ErrorKind::kBadArgument, "tokenize wants either --text or --file");
    }
    checkChatOptions(options.chat, options.system);
    const std::string text = options.text ? *options.text : readTextFile(*options.file);
    const std::shared_ptr<const Tokenizer> tokenizer = loadTokenizer(options.model.value_or(""));
    const std::vector<TokenId> tokens = options.chat ? chatTokens(*tokenizer, options.system, text)
                                                     : tokenizer->encode(text, true, true);
    if (tokenizer->lacksNormalisation()) {
        std::fprintf(stderr,
                     "kvlab-cli: note: the model wants text in Unicode's form C, which this build "
                     "cannot do (libutf8proc was missing); text stays as it is\n");
    }
    // The way back leaves out what a chat template writes, so there it shows nothing.
    const bool round_trip = !options.chat && tokenizer->decode(tokens) == text;
    if (options.json) {
        Json ids = Json::array();
        Json pieces = Json::array();
        for (const TokenId token : tokens) {
            ids.push_back(token.value);
            pieces.push_back(tokenizer->rawPiece(token));
        }
        printJson({{"ids", std::move(ids)},
                   {"pieces", std::move(pieces)},
                   {"round_trip", options.chat ? Json(nullptr) : Json(round_trip)}});
        return;
    }
    for (const TokenId token : tokens) {
        std::printf("%6d  %s\n", token.value, tokenizer->rawPiece(token).c_str());
    }
    if (options.chat) {
        std::printf("%zu tokens of the chat prompt\n", tokens.size());
        return;
    }
    std::printf("%zu tokens; decoding them %s\n", tokens.size(),
                round_trip ? "gives the text back" : "gives another text");
}

}  // namespace

void addTokenizeCommand(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "tokenize", "tokens of a text, begin and end token as the file asks, and the way back");
    const auto options = std::make_shared<TokenizeOptions>();
    command->add_option("--model", options->model, "GGUF file (default: the bundled model)")
        ->type_name("F.gguf");
    command->add_option("--text", options->text, "text to cut")->type_name("T");
    command->add_option("--file", options->file, "file with the text; - is standard input")
        ->type_name("F");
    addChatOptions(*command, options->chat, options->system);
    command->add_flag("--json", options->json, "print JSON");
    command->callback([options] { runTokenize(*options); });
}

}  // namespace kvlab
