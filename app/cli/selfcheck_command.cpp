// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>

#include "app/cli/commands.h"
#include "app/cli/engine_options.h"
#include "app/cli/json_output.h"
#include "app/cli/later_options.h"
#include "app/cli/option_text.h"
#include "engine/backend/selfcheck.h"
#include "engine/clock.h"
#include "engine/error.h"
#include "engine/model/model_loader.h"
#include "engine/model/tokenizer.h"
#include "engine/workload/corpus.h"

namespace kvlab {

namespace {

constexpr size_t kNumTokens = 48;  // of the text that the model decodes

struct SelfcheckCommandOptions {
    std::optional<std::string> backend, seed, threads;
    bool json = false;
};

// A failure that prints no number: nothing came out, or it went where it must not.
std::string errorText(double error) {
    if (std::isinf(error)) return "wrong";
    char text[32];
    std::snprintf(text, sizeof text, "%.1e", error);
    return text;
}

void printRow(const SelfcheckRow& row) {
    std::printf("%-20s %-38s %5d %9s %9s  %s\n", row.operation.c_str(), row.variant.c_str(),
                row.num_cases, errorText(row.worst_error).c_str(), errorText(row.tolerance).c_str(),
                row.passed() ? "ok" : "MISS");
    if (!row.passed()) std::printf("%16s %s\n", "", row.worst_case.c_str());
    std::fflush(stdout);  // it is watched while it runs
}

Json rowJson(const SelfcheckRow& row) {
    return {{"operation", row.operation},
            {"variant", row.variant},
            {"cases", row.num_cases},
            {"worst_error", std::isinf(row.worst_error) ? Json(nullptr) : Json(row.worst_error)},
            {"tolerance", row.tolerance},
            {"worst_case", row.worst_case},
            {"pass", row.passed()},
            {"seconds", row.seconds}};
}

uint64_t freshSeed() {
    std::random_device device;
    return device() & 0x7fffffffu;
}

void runSelfcheck(const SelfcheckCommandOptions& options) {
    const int num_threads = static_cast<int>(parseWhole("--threads", options.threads, 1, 256, 0));
    const std::string name = options.backend.value_or("cpu");
    if (options.threads && name == "cuda") {
        throw EngineError(
            ErrorKind::kBadArgument,
            "--threads is the CPU's, and --backend cuda takes none of it; leave it out");
    }
    if (name == "simt") noteThatSimtIsSlow("the whole check takes half a minute or more");
    const std::unique_ptr<Backend> backend = makeBackend(name, num_threads);
    const LoadedModel model = loadModel("");
    SelfcheckOptions check;
    check.seed = options.seed ? parseSeed("--seed", options.seed) : freshSeed();
    check.model = model.weights;
    check.model_name = "bundled model";
    for (const TokenId token :
         model.tokenizer->encode(generateDocument({}, check.seed, 400).text, true)) {
        if (check.tokens.size() < kNumTokens) check.tokens.push_back(token.value);
    }
    if (!options.json) {
        std::printf("backend %s, %s, seed %llu\n\n%-20s %-38s %5s %9s %9s\n", backend->name(),
                    backend->deviceName().c_str(), static_cast<unsigned long long>(check.seed),
                    "operation", "variant", "cases", "worst", "allowed");
        check.on_row = printRow;
    }
    SteadyClock clock;
    const double start_ms = clock.nowMs();
    const SelfcheckReport report = selfcheck(*backend, check);
    const double seconds = (clock.nowMs() - start_ms) / 1000;
    int num_missed = 0;
    for (const SelfcheckRow& row : report.rows) num_missed += row.passed() ? 0 : 1;
    if (options.json) {
        Json rows = Json::array();
        for (const SelfcheckRow& row : report.rows) rows.push_back(rowJson(row));
        printJson({{"backend", report.backend},
                   {"device", report.device},
                   {"seed", report.seed},
                   {"pass", report.passed()},
                   {"seconds", seconds},
                   {"rows", rows}});
    } else {
        std::printf("\n%s: %zu rows in %.1f s\n",
                    report.passed() ? "all within tolerance" : "MISSED", report.rows.size(),
                    seconds);
    }
    if (!report.passed()) {
        throw EngineError(ErrorKind::kInternal,
                          std::to_string(num_missed) + " of " + std::to_string(report.rows.size()) +
                              " rows are outside their tolerance; --seed " +
                              std::to_string(report.seed) + " repeats this run");
    }
}

}  // namespace

void addSelfcheckCommand(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "selfcheck", "kernels and whole decodes against dense double-precision references");
    const auto options = std::make_shared<SelfcheckCommandOptions>();
    addChoice(*command, "--backend", &options->backend, {"cpu", "cuda", "simt"}, {},
              "whose kernels, default cpu; simt takes half a minute or more");
    command
        ->add_option("--seed", options->seed,
                     "of shapes and values (default: another one each time, printed)")
        ->type_name("S");
    command
        ->add_option("--threads", options->threads,
                     "CPU threads (default: one per core); not for cuda")
        ->type_name("N");
    command->add_flag("--json", options->json, "print JSON");
    command->callback([options] { runSelfcheck(*options); });
}

}  // namespace kvlab
