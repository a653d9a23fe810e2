// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>

#include "app/cli/bench/bench.h"
#include "app/cli/bench/cuda_bench.h"
#include "app/cli/commands.h"
#include "app/cli/engine_options.h"
#include "app/cli/json_output.h"
#include "app/cli/option_text.h"
#include "engine/error.h"
#include "engine/model/gguf_writer.h"
#include "engine/model/utf8.h"
#include "engine/model/weights.h"
#include "engine/temporary_file.h"

// Timings on this machine, now. Absolute figures say little on a busy machine, so every bench also
// gives ratios of medians that were taken in turn within one run.
namespace kvlab {

namespace {

struct BenchOptions {
    EngineOptions engine;
    std::vector<std::string> names;
    std::optional<std::string> write_model;
    bool quick = false;
    bool json = false;
};

// Groups of options that a bench may obey.
enum Obeys : unsigned {
    kThreads = 1,
    kEngine = 2,  // --backend, --kv-dtype, --block-size, --token-budget
    kBlocks = 4,
    kModel = 8,
    kAll = 15
};

struct Bench {
    const char* name;
    BenchResult (*run)(const BenchContext&);
    unsigned obeys;
};
constexpr std::array<Bench, 8> kBenches = {
    {{"machine", benchMachine, kThreads},
     {"decode", benchDecode, kAll},
     {"generated", benchGenerated, kAll & ~kModel},
     {"prefill", benchPrefill, kAll},
     {"layout", benchLayout, kAll & ~kBlocks},  // both pools are cut for its sequences
     {"fold", benchFold, kAll},
     {"pool", benchPool, 0},
     {"tracing", benchTracing, kAll}}};

std::string benchNames() {
    std::string names;
    for (const Bench& bench : kBenches) {
        if (!names.empty()) names += &bench == &kBenches.back() ? " and " : ", ";
        names += bench.name;
    }
    return names;
}

std::vector<Bench> chosenBenches(const std::vector<std::string>& names) {
    std::vector<Bench> chosen;
    for (const std::string& name : names) {
        const auto found = std::find_if(kBenches.begin(), kBenches.end(),
                                        [&](const Bench& b) { return name == b.name; });
        if (found == kBenches.end()) {
            throw EngineError(
                ErrorKind::kBadArgument,
                "there is no bench " + quotedForMessage(name) + "; choose among " + benchNames());
        }
        chosen.push_back(*found);
    }
    if (chosen.empty()) chosen.assign(kBenches.begin(), kBenches.end());
    return chosen;
}

Json resultJson(const BenchResult& result) {
    Json medians = Json::object();
    Json ratios = Json::object();
    Json targets = Json::object();
    for (const auto& [name, value] : result.medians) medians[name] = value;
    for (const BenchRatio& ratio : result.ratios) {
        ratios[ratio.name] = ratio.value;
        if (ratio.at_least) targets[ratio.name]["at_least"] = *ratio.at_least;
        if (ratio.at_most) targets[ratio.name]["at_most"] = *ratio.at_most;
    }
    return {{"name", result.name},           {"unit", result.unit},
            {"medians", std::move(medians)}, {"ratio", std::move(ratios)},
            {"targets", std::move(targets)}, {"repeats", result.num_repeats}};
}

void printResult(const BenchResult& result) {
    std::printf("%s, %s, median of %d\n", result.name.c_str(), result.unit.c_str(),
                result.num_repeats);
    for (const auto& [name, value] : result.medians) {
        std::printf("  %-28s %14.3f\n", name.c_str(), value);
    }
    for (const BenchRatio& ratio : result.ratios) {
        std::printf("  %-28s %14.3f (ratio", ratio.name.c_str(), ratio.value);
        if (ratio.at_least) std::printf(", wanted: at least %g", *ratio.at_least);
        if (ratio.at_most) {
            std::printf("%s at most %g", ratio.at_least ? "," : ", wanted:", *ratio.at_most);
        }
        std::printf(")\n");
    }
    std::fflush(stdout);
}

using NamedOption = std::pair<const char*, const std::optional<std::string>*>;

void refuseAny(std::initializer_list<NamedOption> options, const std::string& why) {
    for (const auto& [name, value] : options) {
        if (*value) throw EngineError(ErrorKind::kBadArgument, std::string(name) + " " + why);
    }
}

// Options that this call would not obey are refused, not ignored.
void checkCombination(const BenchOptions& o) {
    const EngineOptions& engine = o.engine;
    if (engine.cpu_fallback) {
        throw EngineError(ErrorKind::kBadArgument,
                          "bench times one backend: --cpu-fallback has no place there; choose "
                          "with --backend");
    }
    const std::initializer_list<NamedOption> shared = {
        {"--model", &engine.model},           {"--kv-dtype", &engine.kv_dtype},
        {"--block-size", &engine.block_size}, {"--blocks", &engine.blocks},
        {"--threads", &engine.threads},       {"--token-budget", &engine.token_budget}};
    if (o.write_model) {
        checkOutputName("--write-model", *o.write_model);
        const std::string why =
            "has no effect beside --write-model, which only writes the "
            "generated model; leave it out";
        if (!o.names.empty()) {
            throw EngineError(ErrorKind::kBadArgument,
                              quotedForMessage(o.names.front()) + " " + why);
        }
        if (o.json) throw EngineError(ErrorKind::kBadArgument, "--json " + why);
        refuseAny({{"--backend", &engine.backend}}, why);
        refuseAny(shared, why);
    } else if (engine.backend == "cuda") {
        refuseAny(
            shared,
            "has no effect on bench --backend cuda, which has sizes of its own; leave it out");
    } else {
        unsigned obeyed = 0;
        std::string names;
        for (const Bench& bench : chosenBenches(o.names)) {
            obeyed |= bench.obeys;
            names += std::string(names.empty() ? "" : " and ") + bench.name;
        }
        const std::string why = "has no effect on bench " + names + "; leave it out";
        if (!(obeyed & kModel)) refuseAny({{"--model", &engine.model}}, why);
        if (!(obeyed & kBlocks)) refuseAny({{"--blocks", &engine.blocks}}, why);
        if (!(obeyed & kThreads)) refuseAny({{"--threads", &engine.threads}}, why);
        if (obeyed & kEngine) return;
        refuseAny({{"--kv-dtype", &engine.kv_dtype},
                   {"--block-size", &engine.block_size},
                   {"--token-budget", &engine.token_budget}},
                  why);
        // The processor is what these time: cpu says nothing wrong.
        if (engine.backend == "simt") refuseAny({{"--backend", &engine.backend}}, why);
    }
}

// Not printed, since it has no figures: a file that is there when it is complete.
void writeGeneratedModel(const BenchOptions& options) {
    // A place that cannot be written to is told before a model is made.
    { const TemporaryFile probe(*options.write_model); }
    BenchContext context;
    context.quick = options.quick;
    writeModelGguf(*context.generated().weights, *options.write_model);
}

void runBench(const BenchOptions& options) {
    const std::vector<Bench> chosen = chosenBenches(options.names);
    BenchContext context;
    context.quick = options.quick;
    context.config = options.engine.engineConfig();
    context.model = loadModel(options.engine.modelPath());
    const EngineRequest probe = makeRequest(context.model, 1, 1, 1);
    const std::unique_ptr<Engine> engine = makeEngine(context.model, context.config, {probe});
    Json benches = Json::array();
    for (const Bench& bench : chosen) {
        const BenchResult result = bench.run(context);
        benches.push_back(resultJson(result));
        if (!options.json) printResult(result);
    }
    if (!options.json) return;
    printJson({{"device", engine->deviceName()},
               {"backend", engine->config().backend},
               {"threads", engine->config().num_threads},
               {"model", engine->model().name},
               {"benches", std::move(benches)}});
}

}  // namespace

void addBenchCommand(CLI::App& app) {
    CLI::App* command =
        app.add_subcommand("bench", "medians and ratios on this machine: " + benchNames() +
                                        "; with --backend cuda: " + cudaBenchNames());
    const auto options = std::make_shared<BenchOptions>();
    command->add_option("names", options->names, "which (default: all)")->type_name("NAME");
    addEngineOptions(*command, options->engine);
    command
        ->add_option("--write-model", options->write_model,
                     "write the generated model of 100M random parameters to a file, and stop")
        ->type_name("F.gguf");
    command->add_flag("--quick", options->quick,
                      "smallest sizes, one round: shows that everything runs, not how fast");
    command->add_flag("--json", options->json, "print JSON");
    command->callback([options] {
        checkCombination(*options);
        if (options->write_model) {
            writeGeneratedModel(*options);
        } else if (options->engine.backend == "cuda") {
            const Json report = runCudaBench(options->names, options->quick, options->json);
            if (options->json) printJson(report);
            if (!report["failures"].empty()) {
                const Json& failure = report["failures"].front();
                throw EngineError(ErrorKind::kDevice,
                                  "bench " + failure["name"].get<std::string>() +
                                      " failed: " + failure["why"].get<std::string>() +
                                      "; selfcheck --backend cuda tells whether the GPU works");
            }
        } else {
            runBench(*options);
        }
    });
}

}  // namespace kvlab
