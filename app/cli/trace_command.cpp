// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

#include "app/cli/commands.h"
#include "app/cli/json_output.h"
#include "app/cli/later_options.h"
#include "app/cli/option_text.h"
#include "engine/error.h"
#include "engine/model/utf8.h"
#include "engine/text_format.h"
#include "engine/trace/perfetto.h"
#include "engine/trace/trace_io.h"

namespace kvlab {

namespace {

struct TraceOptions {
    std::string file;
    std::string output;
    bool json = false;
};

// First broken invariant after any step, "" when all hold. A sealed log can still have been written
// by a broken engine, so the fold is checked and not only the seals.
// Counting a pool of millions of blocks after each of thousands of steps would take minutes: then
// it is counted after every `stride`th step and the last.
std::string firstBrokenInvariant(const RunLog& log, int64_t stride) {
    CacheState state = log.stateAt(log.begin());
    for (Cursor at = log.begin(); at < log.end();) {
        const Cursor next = log.nextStep(at);
        log.advance(state, at, next);
        at = next;
        if (at.step % stride != 0 && at < log.end()) continue;
        const std::string broken = checkInvariants(state);
        if (!broken.empty()) return "after step " + formatCount(at.step - 1) + ": " + broken;
    }
    return "";
}

void verifyTrace(const TraceOptions& options) {
    const LoadedTrace trace = loadTrace(options.file);
    const std::string name = quotedForMessage(options.file);
    std::string problem = trace.damage;
    if (problem.empty() && !trace.complete) problem = "the run was cut off before its end";
    const CacheConfig& cache = trace.log->info().cache;
    const int64_t num_blocks = int64_t{cache.num_blocks} + cache.num_host_blocks;
    constexpr int64_t kMostCounted = 200'000'000;  // blocks: some seconds
    const int64_t stride = 1 + trace.log->numSteps() * num_blocks / kMostCounted;
    if (problem.empty()) problem = firstBrokenInvariant(*trace.log, stride);
    if (!problem.empty()) {
        throw EngineError(ErrorKind::kBadFile,
                          name + ": " + problem +
                              "; record the run again, or see what is left with trace summary");
    }
    const int64_t num_steps = trace.log->numSteps();
    if (options.json) {
        printJson({{"file", options.file},
                   {"intact", true},
                   {"steps", num_steps},
                   {"pool_counted_every", stride}});
        return;
    }
    std::string checked = "every seal and every invariant holds";
    if (stride > 1) {
        checked += " (the pool is large: counted after every " + formatCount(stride) +
                   " steps and at the end)";
    }
    std::printf("%s is intact: %s steps, %s\n", name.c_str(), formatCount(num_steps).c_str(),
                checked.c_str());
}

Json accountJson(const PoolAccount& account) {
    return {
        {"total_blocks", account.total_blocks},       {"free_blocks", account.free_blocks},
        {"cached_blocks", account.cached_blocks},     {"active_blocks", account.active_blocks},
        {"shared_blocks", account.shared_blocks},     {"tokens_held", account.tokens_held},
        {"slots_allocated", account.slots_allocated}, {"slots_unused", account.slots_unused},
        {"tokens_unshared", account.tokens_unshared}, {"blocks_unshared", account.blocks_unshared},
        {"copy_on_write", account.copy_on_write}};
}

void summariseTrace(const TraceOptions& options) {
    const LoadedTrace trace = loadTrace(options.file);
    const RunLog& log = *trace.log;
    const RunInfo& info = log.info();
    std::map<std::string, int64_t> num_events;
    int64_t prefill_tokens = 0;
    int64_t decode_tokens = 0;
    double total_ms = 0;
    PoolAccount peak;
    for (int64_t i = 0; i < log.numSteps(); ++i) {
        const StepTrace& step = log.step(i);
        for (const Event& event : step.events) num_events[eventName(event)] += numEntries(event);
        prefill_tokens += step.stats.num_prefill_tokens;
        decode_tokens += step.stats.num_decode_tokens;
        total_ms += step.stats.total_ms;
        const PoolAccount& account = log.accountAfter(i);
        if (account.active_blocks >= peak.active_blocks) peak = account;
    }
    if (options.json) {
        printJson(
            {{"file", options.file},
             {"bytes", trace.num_bytes},
             {"complete", trace.complete},
             {"damage", trace.damage.empty() ? Json(nullptr) : Json(trace.damage)},
             {"title", info.title},
             {"model", info.model.name},
             {"model_sha256", info.model_sha256.empty() ? Json(nullptr) : Json(info.model_sha256)},
             {"backend", info.backend},
             {"device", info.device},
             {"build", info.build},
             {"block_size", info.cache.block_size},
             {"num_blocks", info.cache.num_blocks},
             {"kv_dtype", dataTypeName(info.cache.kv_dtype)},
             {"samples", info.num_samples},
             {"max_tokens", info.max_tokens},
             {"temperature", info.sampling.temperature},
             {"seed", info.sampling.seed},
             {"steps", log.numSteps()},
             {"prefill_tokens", prefill_tokens},
             {"decode_tokens", decode_tokens},
             {"total_ms", total_ms},
             {"sequences", log.lastState().sequences.size()},
             {"entries", num_events},
             {"account_at_peak", log.numSteps() > 0 ? accountJson(peak) : Json(nullptr)}});
        return;
    }
    // As messages do: a file may hold anything, a terminal's commands too.
    std::printf("%s\n", quotedForMessage(info.title).c_str());
    std::printf("model    %s on %s\n", quotedForMessage(info.model.name).c_str(),
                quotedForMessage(info.device).c_str());
    std::printf("pool     %s blocks of %d, %s\n", formatCount(info.cache.num_blocks).c_str(),
                info.cache.block_size, dataTypeName(info.cache.kv_dtype));
    std::printf("steps    %s: %s prompt tokens, %s decoded\n", formatCount(log.numSteps()).c_str(),
                formatCount(prefill_tokens).c_str(), formatCount(decode_tokens).c_str());
    if (log.numSteps() > 0) {
        std::printf("size     %s bytes, %s a step\n", formatCount(trace.num_bytes).c_str(),
                    formatCount(trace.num_bytes / log.numSteps()).c_str());
    }
    std::printf("at most  %s blocks in use, %s tokens held\n",
                formatCount(peak.active_blocks).c_str(), formatCount(peak.tokens_held).c_str());
    for (const auto& [name, count] : num_events) {
        std::printf("  %-20s %s\n", name.c_str(), formatCount(count).c_str());
    }
    if (!trace.damage.empty()) {
        std::printf("damaged  %s\n", trace.damage.c_str());
    } else if (!trace.complete) {
        std::printf("cut off  the file has no end record\n");
    }
}

void exportTrace(const TraceOptions& options) {
    checkOutputName("-o", options.output);
    std::error_code code;
    if (std::filesystem::equivalent(options.file, options.output, code)) {
        throw EngineError(ErrorKind::kBadArgument,
                          "-o names the trace itself; choose another file to write");
    }
    // As in the window, a damaged trace is exported up to its damage, and the output says so.
    const LoadedTrace trace = loadTrace(options.file);
    const int64_t num_events = writePerfettoTrace(*trace.log, options.output);
    if (options.json) {
        printJson({{"file", options.output},
                   {"format", "perfetto"},
                   {"steps", trace.log->numSteps()},
                   {"sequences", trace.log->lastState().sequences.size()},
                   {"events", num_events},
                   {"complete", trace.complete},
                   {"damage", trace.damage.empty() ? Json(nullptr) : Json(trace.damage)}});
        return;
    }
    std::printf("%s: %s events of %s steps; open it at ui.perfetto.dev\n",
                quotedForMessage(options.output).c_str(), formatCount(num_events).c_str(),
                formatCount(trace.log->numSteps()).c_str());
    if (!trace.complete) std::printf("only up to its damage: %s\n", trace.damage.c_str());
}

}  // namespace

void addTraceCommand(CLI::App& app) {
    CLI::App* command = app.add_subcommand("trace", "check a run's log, or tell what is in it");
    command->require_subcommand(1);
    const auto options = std::make_shared<TraceOptions>();

    CLI::App* verify = command->add_subcommand(
        "verify", "check seals, order and invariants; exit status 1 on damage");
    verify->add_option("file", options->file, "trace file")->required()->type_name("F");
    verify->add_flag("--json", options->json, "print JSON");
    verify->callback([options] { verifyTrace(*options); });

    CLI::App* summary =
        command->add_subcommand("summary", "what a trace holds, up to its first damage");
    summary->add_option("file", options->file, "trace file")->required()->type_name("F");
    summary->add_flag("--json", options->json, "print JSON");
    summary->callback([options] { summariseTrace(*options); });

    CLI::App* exported = command->add_subcommand(
        "export", "write a trace as Chrome trace-event JSON, for ui.perfetto.dev");
    exported->add_option("file", options->file, "trace file")->required()->type_name("F");
    addChoice(*exported, "--format", nullptr, {"perfetto"}, {}, "what to write");
    exported
        ->add_option("-o,--output", options->output,
                     "file to write; it appears when it is complete")
        ->required()
        ->type_name("G");
    exported->add_flag("--json", options->json, "print JSON");
    exported->callback([options] { exportTrace(*options); });
}

}  // namespace kvlab
