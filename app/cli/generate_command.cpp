// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <unistd.h>
#include <utility>

#include "app/cli/chat_options.h"
#include "app/cli/commands.h"
#include "app/cli/engine_options.h"
#include "app/cli/json_output.h"
#include "app/cli/later_options.h"
#include "app/cli/option_text.h"
#include "app/cli/run_output.h"
#include "engine/error.h"
#include "engine/model/model_loader.h"
#include "engine/session/generation.h"
#include "engine/session/session.h"
#include "engine/text_format.h"
#include "engine/trace/event.h"

namespace kvlab {

namespace {

struct GenerateOptions {
    EngineOptions engine;
    ScheduleOptions schedule;
    std::optional<std::string> prompt, prompt_file, prompt_tokens, system;
    bool chat = false;
    DrawOptions draw;
    std::optional<std::string> samples, beam, max_tokens, seed;
    std::optional<std::string> trace;
    bool ignore_eos = false;
    bool json = false;
};

// Of all samples together: more would run for days, and the pool for it would not fit.
constexpr int64_t kMaxSampledTokens = 10'000'000;

RunConfig runConfigFrom(const GenerateOptions& options) {
    RunConfig config;
    config.model_path = options.engine.modelPath();
    config.engine = options.engine.engineConfig();
    options.schedule.apply(config.engine);
    config.trace_path = options.trace.value_or("");
    checkTracePath(options.trace,
                   {options.engine.model.value_or(bundledModelPath()),
                    options.prompt_file == "-" ? "/dev/stdin" : options.prompt_file.value_or("")});

    GenerationRequest request;
    const int num_prompts = options.prompt.has_value() + options.prompt_file.has_value() +
                            options.prompt_tokens.has_value();
    if (num_prompts != 1) {
        throw EngineError(ErrorKind::kBadArgument,
                          "generate wants exactly one of --prompt, --prompt-file and "
                          "--prompt-tokens");
    }
    checkChatOptions(options.chat, options.system);
    if (options.chat && options.prompt_tokens) {
        throw EngineError(ErrorKind::kBadArgument,
                          "--chat wants a text: give --prompt or --prompt-file");
    }
    request.num_samples = static_cast<int>(parseWhole("--samples", options.samples, 1, 4096, 1));
    request.max_tokens =
        static_cast<int>(parseWhole("--max-tokens", options.max_tokens, 1, 1'000'000, 64));
    request.num_beams = static_cast<int>(parseWhole("--beam", options.beam, 1, 256, 1));
    if (request.num_beams > 1 && request.num_samples > 1) {
        throw EngineError(ErrorKind::kBadArgument,
                          "--beam keeps the most probable texts and --samples draws; choose one");
    }
    const int64_t num_sequences = int64_t{request.num_samples} * request.num_beams;
    if (num_sequences * request.max_tokens > kMaxSampledTokens) {
        throw EngineError(ErrorKind::kBadArgument,
                          "--samples or --beam times --max-tokens is " +
                              formatCount(num_sequences * request.max_tokens) +
                              " tokens; ask for at most " + formatCount(kMaxSampledTokens));
    }
    request.ignore_eos = options.ignore_eos;
    options.draw.apply(request.sampling);
    if (request.num_beams > 1 && request.sampling.temperature > 0) {
        throw EngineError(ErrorKind::kBadArgument,
                          "--beam keeps the most probable texts and draws none; leave "
                          "--temperature out, or draw with --samples");
    }
    request.sampling.seed = parseSeed("--seed", options.seed);
    request.corpus_seed = request.sampling.seed;
    if (options.prompt_tokens) {
        request.prompt_num_tokens =
            static_cast<int>(parseWhole("--prompt-tokens", *options.prompt_tokens, 1, 1'000'000));
        config.title = formatCount(*request.prompt_num_tokens) + " corpus tokens";
    } else {
        request.prompt_text = options.prompt ? *options.prompt : readTextFile(*options.prompt_file);
        config.title = request.prompt_text->substr(0, request.prompt_text->find('\n'));
        if (options.chat) {
            const std::string text = *std::exchange(request.prompt_text, std::nullopt);
            request.prompt_tokens =
                chatTokens(*loadTokenizer(config.model_path), options.system, text);
        }
    }
    config.requests.push_back(std::move(request));
    return config;
}

Json metricsJson(const RunResult& result) {
    const RunMetrics& metrics = result.metrics;
    // Prefix reuse does not exist yet: not measured, so null.
    const Json unmeasured = nullptr;
    return {{"blocks_held", metrics.blocks_held},
            {"tokens_held", metrics.tokens_held},
            {"slots_allocated", metrics.slots_allocated},
            {"slots_unused", metrics.slots_unused},
            {"blocks_unshared", metrics.blocks_unshared},
            {"tokens_unshared", metrics.tokens_unshared},
            {"copy_on_write", metrics.copy_on_write},
            {"blocks_peak", metrics.blocks_peak},
            {"device_bytes", metrics.device_bytes},
            {"bytes_moved", metrics.bytes_moved},
            {"preemptions", metrics.preemptions},
            {"prompt_tokens", metrics.prompt_tokens},
            {"matched_tokens", unmeasured},
            {"shared_tokens", unmeasured},
            {"copied_tokens", unmeasured},
            {"decode_tokens", metrics.decode_tokens},
            {"prefill_ms", numberOrNull(metrics.prefill_ms)},
            {"decode_ms", numberOrNull(metrics.decode_ms)},
            {"tokens_per_s", numberOrNull(metrics.tokens_per_s)},
            {"attention_bytes", result.steps.attention_bytes},
            {"attention_bytes_repeated", result.steps.attention_bytes_repeated},
            {"sharing_saved", metrics.sharing_saved},
            {"mean_log_probability", result.mean_log_probability},
            {"best", result.best},
            {"waste", wasteJson(result.waste)},
            {"concurrency", concurrencyJson(result.waste, result.steps)},
            {"step_time", stepTimeJson(measuredStepTime(result.steps))}};
}

Json resultJson(const RunResult& result) {
    Json token_ids = Json::array();
    for (const std::vector<TokenId>& tokens : result.token_ids) {
        Json row = Json::array();
        for (const TokenId token : tokens) row.push_back(token.value);
        token_ids.push_back(std::move(row));
    }
    return {{"texts", result.texts},
            {"token_ids", std::move(token_ids)},
            {"metrics", metricsJson(result)}};
}

void printAccount(const RunResult& result, const RunConfig& config) {
    for (size_t i = 0; i < result.texts.size(); ++i) {
        if (result.texts.size() > 1) {
            std::printf("[%s] ", ownerLetter(SequenceId(static_cast<int64_t>(i))).c_str());
        }
        std::printf("%s\n", result.texts[i].c_str());
    }
    const RunMetrics& metrics = result.metrics;
    std::printf("\nprompt     %s, %s\n", counted(metrics.prompt_tokens, "token", "tokens").c_str(),
                counted(static_cast<int64_t>(result.texts.size()), "sample", "samples").c_str());
    std::printf("K/V held   %s in %s of %d (%s unused)\n",
                counted(metrics.tokens_held, "token", "tokens").c_str(),
                counted(metrics.blocks_held, "block", "blocks").c_str(),
                config.engine.cache.block_size,
                counted(metrics.slots_unused, "slot", "slots").c_str());
    if (result.texts.size() > 1) {
        std::printf("best       [%s], mean log-probability %.4f of a token\n",
                    ownerLetter(SequenceId(result.best)).c_str(),
                    result.mean_log_probability[static_cast<size_t>(result.best)]);
        std::printf("unshared   %s in %s; copied on write: %s\n",
                    counted(metrics.tokens_unshared, "token", "tokens").c_str(),
                    counted(metrics.blocks_unshared, "block", "blocks").c_str(),
                    counted(metrics.copy_on_write, "block", "blocks").c_str());
    }
    std::printf("pool       %s; at most %s in use\n", formatBytes(metrics.device_bytes).c_str(),
                counted(metrics.blocks_peak, "block", "blocks").c_str());
    if (metrics.preemptions > 0) {
        std::printf("preempted  %s, %s moved between device and host\n",
                    counted(metrics.preemptions, "time", "times").c_str(),
                    formatBytes(metrics.bytes_moved).c_str());
    }
    printWaste(result.waste, config.engine.cache.layout);
    printStepTime(measuredStepTime(result.steps));
    const auto milliseconds = [](const std::optional<double>& value) {
        if (!value) return std::string("-");
        std::array<char, 32> text{};
        std::snprintf(text.data(), text.size(), "%.1f ms", *value);
        return std::string(text.data());
    };
    std::printf("time       prefill %s, decode %s", milliseconds(metrics.prefill_ms).c_str(),
                milliseconds(metrics.decode_ms).c_str());
    if (metrics.tokens_per_s) std::printf(", %.0f tokens/s", *metrics.tokens_per_s);
    std::printf("\n");
}

// On a terminal the progress is one line that rewrites itself; elsewhere only what went wrong is
// said.
SessionCallbacks reporting(const RunConfig& config) {
    SessionCallbacks callbacks;
    const auto info = std::make_shared<std::shared_ptr<const RunInfo>>();
    callbacks.on_started = [info](std::shared_ptr<const RunInfo> started) { *info = started; };
    const int max_tokens = config.requests.front().max_tokens;
    callbacks.on_step = [info, max_tokens](const std::shared_ptr<const StepTrace>& step) {
        if (step->step != 0) return;
        const auto is_start = [](const Event& e) {
            return std::holds_alternative<SequenceStarted>(e);
        };
        const auto first = std::find_if(step->events.begin(), step->events.end(), is_start);
        if (first == step->events.end()) return;
        const auto* started = std::get_if<SequenceStarted>(&*first);
        // The last sampled token is not fed back.
        const int64_t longest = static_cast<int64_t>(started->prompt.size()) + max_tokens - 1;
        if (longest > (*info)->model.context_len) {
            std::fprintf(
                stderr,
                "kvlab-cli: note: the model reads up to %s tokens of prompt and continuation, but "
                "was trained on %s; what it says beyond them means little\n",
                formatCount(longest).c_str(), formatCount((*info)->model.context_len).c_str());
        }
    };
    if (isatty(STDERR_FILENO) != 0) {
        callbacks.on_progress = [](SessionPhase, double fraction, const std::string& text) {
            std::fprintf(stderr, "\r%3.0f %%  %s\033[K", fraction * 100, text.c_str());
        };
    }
    return callbacks;
}

void runGenerate(const GenerateOptions& options) {
    const RunConfig config = runConfigFrom(options);
    const SessionCallbacks callbacks = reporting(config);
    const RunResult result = runToEnd(config, callbacks);
    if (callbacks.on_progress) std::fprintf(stderr, "\r\033[K");
    if (options.json) {
        printJson(resultJson(result));
    } else {
        printAccount(result, config);
    }
}

}  // namespace

void addGenerateCommand(CLI::App& app) {
    CLI::App* command =
        app.add_subcommand("generate", "decode a prompt and account for every block of its cache");
    const auto options = std::make_shared<GenerateOptions>();
    command
        ->add_option("--prompt", options->prompt,
                     "text to continue; a special token's name in it stays plain text")
        ->type_name("T");
    command
        ->add_option("--prompt-file", options->prompt_file,
                     "file with the text to continue; - is standard input")
        ->type_name("F");
    command
        ->add_option("--prompt-tokens", options->prompt_tokens,
                     "the first N tokens of a corpus document, begin token included")
        ->type_name("N");
    addChatOptions(*command, options->chat, options->system);
    addEngineOptions(*command, options->engine);
    addScheduleOptions(*command, options->schedule);
    command
        ->add_option("--samples", options->samples,
                     "continuations to draw, default 1; `best` names the one with the highest mean "
                     "log-probability")
        ->type_name("N");
    command
        ->add_option("--beam", options->beam,
                     "beam search: keep the N most probable texts, best first, default 1 (off)")
        ->type_name("N");
    command->add_option("--max-tokens", options->max_tokens, "tokens to sample, default 64")
        ->type_name("N");
    command->add_flag("--ignore-eos", options->ignore_eos, "go on past the end-of-text token");
    addDrawOptions(*command, options->draw);
    command
        ->add_option("--seed", options->seed,
                     "of sampling and of the corpus document, default 0; may stand where nothing "
                     "is drawn")
        ->type_name("S");
    command->add_option("--trace", options->trace, "write the run's log here")->type_name("F");
    command->add_flag("--json", options->json, "print JSON");

    addChoice(*command, "--prefix-cache", nullptr, {"off"}, {"hash", "radix"},
              "reuse of prompt beginnings");
    addPolicyOptions(*command);
    command->callback([options] { runGenerate(*options); });
}

}  // namespace kvlab
