// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>

#include "app/cli/commands.h"
#include "app/cli/engine_options.h"
#include "app/cli/json_output.h"
#include "app/cli/option_text.h"
#include "engine/engine.h"
#include "engine/error.h"
#include "engine/model/model_loader.h"
#include "engine/model/tokenizer.h"

namespace kvlab {

namespace {

struct LogitsOptions {
    EngineOptions engine;
    std::optional<std::string> tokens;
    bool json = false;
};

constexpr size_t kMaxTokens = 1'000'000;

// Logits after the last token, [vocab_size].
std::vector<float> lastLogits(const LoadedModel& model,
                              EngineConfig config,
                              const std::vector<TokenId>& tokens) {
    EngineRequest request;
    request.prompt = tokens;
    request.max_tokens = 1;
    request.ignore_eos = true;
    if (config.cache.num_blocks == 0) {
        config.cache.num_blocks =
            static_cast<int>(Engine::worstCaseBlocks(request, config.cache.block_size));
    }
    Engine engine(model.weights, model.tokenizer, config);
    std::vector<float> logits;
    const int last_position = static_cast<int>(tokens.size()) - 1;
    engine.setLogitsObserver([&](SequenceId, int position, const float* row, int vocab_size) {
        if (position == last_position) logits.assign(row, row + vocab_size);
    });
    engine.submit(std::move(request));
    while (engine.step()) {
    }
    KVLAB_CHECK(!logits.empty(), "the engine showed no logits of the last position");
    return logits;
}

void runLogits(const LogitsOptions& options) {
    const std::vector<TokenId> tokens = parseTokens("--tokens", options.tokens.value_or(""));
    if (tokens.size() > kMaxTokens) {
        throw EngineError(ErrorKind::kBadArgument, "--tokens wants at most 1,000,000 token ids");
    }
    const EngineConfig config = options.engine.engineConfig();
    const LoadedModel model = loadModel(options.engine.modelPath());
    const std::vector<float> logits = lastLogits(model, config, tokens);
    if (options.json) {
        printJson({{"logits", logits}});
        return;
    }
    std::vector<int> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    const size_t num_shown = std::min<size_t>(10, order.size());
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(num_shown),
                      order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
    for (size_t i = 0; i < num_shown; ++i) {
        const std::string piece =
            model.tokenizer ? model.tokenizer->rawPiece(TokenId(order[i])) : "";
        std::printf("%6d  %10.4f  %s\n", order[i], logits[order[i]], piece.c_str());
    }
}

}  // namespace

void addLogitsCommand(CLI::App& app) {
    CLI::App* command =
        app.add_subcommand("logits", "logits after the last of some tokens, to check the model");
    const auto options = std::make_shared<LogitsOptions>();
    addEngineOptions(*command, options->engine);
    command->add_option("--tokens", options->tokens, "token ids: 1,5,9")
        ->type_name("IDS")
        ->required();
    command->add_flag("--json", options->json, "print all of them as JSON");
    command->callback([options] { runLogits(*options); });
}

}  // namespace kvlab
