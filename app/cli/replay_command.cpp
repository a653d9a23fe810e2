// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string_view>
#include <unistd.h>
#include <utility>

#include "app/cli/commands.h"
#include "app/cli/engine_options.h"
#include "app/cli/json_output.h"
#include "app/cli/later_options.h"
#include "app/cli/option_text.h"
#include "app/cli/run_output.h"
#include "engine/error.h"
#include "engine/model/model_loader.h"
#include "engine/model/tokenizer.h"
#include "engine/model/weights.h"
#include "engine/sizing/kv_size.h"
#include "engine/sizing/model_table.h"
#include "engine/text_format.h"
#include "engine/workload/replay.h"

namespace kvlab {

namespace {

using Typed = std::optional<std::string>;

struct ReplayCommandOptions {
    EngineOptions engine;
    ScheduleOptions schedule;
    Typed requests, poisson, count, samples, burst_on, burst_off, seed;
    Typed prompt_median, prompt_sigma, prompt_max, output_median, output_sigma, output_max;
    Typed clock, vram, utilisation, weights_bytes, flops, bandwidth, link, step_overhead;
    Typed watermark, trace, why, list;
    DrawOptions draw;
    bool bursts = false;
    bool no_weights = false;
    bool ignore_eos = false;
    bool json = false;
};

using NamedOption = std::pair<const char*, const Typed*>;

[[noreturn]] void refuse(const std::string& message) {
    throw EngineError(ErrorKind::kBadArgument, message);
}

void refuseAny(std::initializer_list<NamedOption> options, const std::string& why) {
    for (const auto& [name, value] : options) {
        if (*value) refuse(std::string(name) + " " + why);
    }
}

// --- what is asked for
// ----------------------------------------------------------------------------

// Options that a run of this kind would not obey are refused, not ignored.
void checkCombination(const ReplayCommandOptions& o) {
    if (o.requests.has_value() == o.poisson.has_value()) {
        refuse("replay wants either --requests F.jsonl or --poisson RATE with --count N");
    }
    if (o.requests) {
        const std::string why = "draws arrivals; with --requests the file says them";
        if (o.bursts) refuse("--bursts " + why);
        refuseAny({{"--count", &o.count},
                   {"--samples", &o.samples},
                   {"--burst-on", &o.burst_on},
                   {"--burst-off", &o.burst_off},
                   {"--prompt-median", &o.prompt_median},
                   {"--prompt-sigma", &o.prompt_sigma},
                   {"--prompt-max", &o.prompt_max},
                   {"--output-median", &o.output_median},
                   {"--output-sigma", &o.output_sigma},
                   {"--output-max", &o.output_max}},
                  why);
    } else if (!o.count) {
        refuse("--poisson wants --count N, the number of requests");
    } else if (!o.bursts) {
        refuseAny({{"--burst-on", &o.burst_on}, {"--burst-off", &o.burst_off}},
                  "is of arrivals in bursts; add --bursts");
    }
    if (o.no_weights) {
        if (o.ignore_eos) refuse("--ignore-eos needs a model; --no-weights samples nothing");
        if (o.engine.cpu_fallback) {
            refuse("--cpu-fallback needs a model; --no-weights computes nothing");
        }
        refuseAny({{"--backend", &o.engine.backend},
                   {"--threads", &o.engine.threads},
                   {"--temperature", &o.draw.temperature},
                   {"--top-k", &o.draw.top_k},
                   {"--top-p", &o.draw.top_p}},
                  "needs a model; --no-weights computes nothing");
        if (o.clock && *o.clock != "virtual") {
            refuse("--clock " + *o.clock + " needs a model; --no-weights has only assumed times");
        }
        if (!o.engine.model) {
            refuse("--no-weights wants --model SLUG, a published model such as llama-3-70b");
        }
        if (o.engine.blocks) {
            refuseAny({{"--vram", &o.vram}, {"--utilisation", &o.utilisation}},
                      "says what the pool gets; --blocks says it already");
        }
        return;
    }
    refuseAny({{"--vram", &o.vram},
               {"--utilisation", &o.utilisation},
               {"--weights-bytes", &o.weights_bytes}},
              "is for --no-weights; give the pool of a real run with --blocks");
    if (o.clock != "virtual") {
        refuseAny({{"--flops", &o.flops},
                   {"--bandwidth", &o.bandwidth},
                   {"--link", &o.link},
                   {"--step-overhead", &o.step_overhead}},
                  "is of the assumed machine; add --clock virtual");
    }
}

double parseRate(const char* option, const Typed& text, double fallback) {
    if (!text) return fallback;
    try {
        const int64_t value = parseByteSize(*text);
        if (value >= 1'000'000) return static_cast<double>(value);
    } catch (const EngineError&) {
    }
    refuse(std::string(option) + " wants bytes a second, at least 1MB, such as 3.35TB");
}

AssumedMachine machineFrom(const ReplayCommandOptions& o) {
    AssumedMachine machine;
    machine.flops_per_s =
        1e12 * parseReal("--flops", o.flops, 1e-6, 1e12, machine.flops_per_s / 1e12);
    machine.memory_bytes_per_s = parseRate("--bandwidth", o.bandwidth, machine.memory_bytes_per_s);
    machine.link_bytes_per_s = parseRate("--link", o.link, machine.link_bytes_per_s);
    machine.overhead_ms = parseReal("--step-overhead", o.step_overhead, 0, 1e6, 0);
    return machine;
}

std::vector<TraceRequest> requestsFrom(const ReplayCommandOptions& o, int context_len) {
    if (o.requests) {
        if (o.requests->empty()) refuse("--requests wants a file of request lines");
        return readRequestTrace(*o.requests);
    }
    RequestTraceOptions trace;
    trace.rate_per_s = parseReal("--poisson", o.poisson, 1e-3, 1e6, 1);
    trace.num_requests = parseWhole("--count", *o.count, 1, kMaxTraceRequests);
    trace.seed = parseSeed("--seed", o.seed);
    if (o.bursts) {
        BurstOptions bursts;
        bursts.mean_on_s = parseReal("--burst-on", o.burst_on, 1e-3, 1e6, bursts.mean_on_s);
        bursts.mean_off_s = parseReal("--burst-off", o.burst_off, 1e-3, 1e6, bursts.mean_off_s);
        trace.bursts = bursts;
    }
    const auto lengths = [&](LengthDistribution& length, const char* name, const Typed& median,
                             const Typed& sigma, const Typed& high, int most) {
        const std::string prefix = std::string("--") + name;
        // Prompt and output together stay within what the model was made for.
        if (most > 0) length.high = std::min(length.high, most);
        length.high =
            static_cast<int>(parseWhole(prefix + "-max", high, 1, kMaxRequestTokens, length.high));
        length.median = static_cast<double>(parseWhole(
            prefix + "-median", median, 1, kMaxRequestTokens,
            std::min<int64_t>(static_cast<int64_t>(length.median), std::max(1, length.high / 2))));
        if (length.median > length.high) {
            refuse(prefix + "-median " + *median + " is above the longest " + name + ", " +
                   formatCount(length.high) + " tokens; make it smaller or raise " + prefix +
                   "-max");
        }
        length.sigma = parseReal(prefix + "-sigma", sigma, 0, 5, length.sigma);
    };
    lengths(trace.prompt, "prompt", o.prompt_median, o.prompt_sigma, o.prompt_max,
            context_len / 4 * 3);
    lengths(trace.output, "output", o.output_median, o.output_sigma, o.output_max, context_len / 4);
    std::vector<TraceRequest> requests = generateRequestTrace(trace);
    const auto num_samples =
        static_cast<int>(parseWhole("--samples", o.samples, 1, kMaxRequestSamples, 1));
    for (TraceRequest& request : requests) request.num_samples = num_samples;
    return requests;
}

// The pool that the assumed machine has left beside the weights.
int blocksFrom(const ReplayCommandOptions& o, const ModelSpec& spec, const CacheConfig& cache) {
    if (cache.num_blocks > 0) return cache.num_blocks;
    CapacityRequest request;
    request.memory_bytes = o.vram ? parseByteSize(*o.vram) : kAssumedMemoryBytes;
    if (request.memory_bytes < 1) refuse("--vram wants at least one byte");
    request.utilisation = parseReal("--utilisation", o.utilisation, 0, 1, 0.9);
    request.weights_bytes = spec.weights_bytes;
    request.block_size = cache.block_size;
    request.seq_len = 1;
    const Capacity capacity = kvCapacity(KvShape::of(spec), cache.kv_dtype, request);
    if (capacity.blocks_fit.value < 1) {
        refuse("no block fits: " + formatBytes(request.memory_bytes) + " and weights of " +
               formatBytes(spec.weights_bytes) + " leave " + formatBytes(capacity.kv_bytes.value) +
               " for the cache; give --vram or --blocks");
    }
    return static_cast<int>(std::min<int64_t>(
        capacity.blocks_fit.value, INT32_MAX / cache.block_size - int64_t{cache.num_host_blocks}));
}

ReplayOptions replayOptionsFrom(const ReplayCommandOptions& o) {
    ReplayOptions options;
    options.engine = o.engine.engineConfig();
    o.schedule.apply(options.engine);
    options.engine.watermark = parseReal("--watermark", o.watermark, 0, 0.99, 0.01);
    o.draw.apply(options.sampling);
    options.sampling.seed = parseSeed("--seed", o.seed);
    options.ignore_eos = o.ignore_eos;
    options.time = o.no_weights || o.clock == "virtual" ? ReplayTime::kVirtual
                   : o.clock == "wait"                  ? ReplayTime::kWait
                                                        : ReplayTime::kReal;
    options.machine = machineFrom(o);
    options.max_why = parseWhole("--why", o.why, 0, 100'000'000, o.json ? 1000 : 20);
    options.trace_path = o.trace.value_or("");
    options.title = o.requests ? "replay of " + *o.requests
                               : "replay of " + *o.count + " requests, " + *o.poisson + " a second";
    if (isatty(STDERR_FILENO) != 0) {
        // Ten thousands of steps a second: a line for each would cost more than the run.
        const auto shown = std::make_shared<int64_t>(-1);
        options.on_progress = [shown](int64_t num_ended, int64_t num_requests) {
            const int64_t percent = 100 * num_ended / num_requests;
            if (percent == *shown) return;
            *shown = percent;
            std::fprintf(stderr, "\r%3d %%  %s of %s requests\033[K", static_cast<int>(percent),
                         formatCount(num_ended).c_str(), formatCount(num_requests).c_str());
        };
    }
    return options;
}

// --- JSON
// -----------------------------------------------------------------------------------------

// From the first arrival to the last end; empty where every request was refused.
std::optional<double> durationMs(const ReplayResult& result) {
    if (result.num_finished + result.num_cancelled == 0) return std::nullopt;
    return std::max(0.0, result.ended_ms - result.first_arrival_ms);
}

Json percentilesJson(const std::optional<Percentiles>& values) {
    if (!values) return nullptr;
    return {{"count", values->count}, {"mean", values->mean}, {"p50", values->p50},
            {"p90", values->p90},     {"p99", values->p99},   {"max", values->max}};
}

Json requestJson(const ReplayedRequest& request,
                 const ReplayResult& result,
                 const Tokenizer* words) {
    const RequestTimings& times = request.timings;
    const bool is_refused = request.status == ReplayStatus::kRefused;
    Json tokens = nullptr;
    Json text = nullptr;
    Json samples = nullptr;
    const auto list = [](const std::vector<TokenId>& ids) {
        Json values = Json::array();
        for (const TokenId token : ids) values.push_back(token.value);
        return values;
    };
    if (result.has_weights) {
        tokens = list(request.token_ids);
        if (request.num_samples > 1) {
            samples = Json::array({tokens});
            for (const auto& sample : request.more_samples) samples.push_back(list(sample));
        }
        if (words != nullptr) text = words->decode(request.token_ids, false);
    }
    return {{"request", times.request.value},
            {"status", replayStatusName(request.status)},
            {"finish", is_refused ? Json(nullptr) : Json(finishReasonName(times.finish))},
            {"refusal", is_refused ? Json(request.refusal) : Json(nullptr)},
            {"prompt_tokens", times.prompt_len},
            {"max_tokens", request.max_tokens},
            {"priority", times.priority},
            {"seed", result.has_weights ? Json(request.seed) : Json(nullptr)},
            {"sampled_tokens", times.num_sampled},
            {"num_samples", request.num_samples},
            {"token_ids", std::move(tokens)},
            {"samples", std::move(samples)},
            {"text", std::move(text)},
            {"preemptions", times.num_preemptions},
            {"timings",
             {{"arrived_ms", times.arrived_ms},
              {"admitted_ms", numberOrNull(times.admitted_ms)},
              {"first_token_ms", numberOrNull(times.first_token_ms)},
              {"finished_ms", numberOrNull(times.finished_ms)},
              {"queue_ms", numberOrNull(times.queueMs())},
              {"time_to_first_token_ms", numberOrNull(times.timeToFirstTokenMs())},
              {"time_per_token_ms", numberOrNull(times.timePerTokenMs())},
              {"longest_gap_ms", times.num_gaps > 0 ? Json(times.longest_gap_ms) : Json(nullptr)},
              {"end_to_end_ms", numberOrNull(times.endToEndMs())}}}};
}

Json whyJson(const ReplayResult& result) {
    Json entries = Json::array();
    for (const WhyEntry& entry : result.why) {
        const Decision& decision = entry.decision;
        entries.push_back(
            {{"time_ms", entry.time_ms},
             {"step", entry.step},
             {"decision", decisionKindName(decision.kind)},
             {"reason", decisionReasonName(decision.reason)},
             {"request", decision.request.value},
             {"priority", decision.priority},
             {"blocks_needed", decision.blocks_needed},
             {"blocks_free", decision.blocks_free},
             {"watermark", decision.watermark},
             {"tokens_needed", decision.tokens_needed},
             {"tokens_free", decision.tokens_free},
             {"head", decision.head.valid() ? Json(decision.head.value) : Json(nullptr)},
             {"text", entry.sentence}});
    }
    return entries;
}

Json decisionsJson(const ReplayResult& result) {
    Json counts;
    for (size_t kind = 0; kind < result.num_decisions.size(); ++kind) {
        counts[decisionKindName(static_cast<DecisionKind>(kind))] = result.num_decisions[kind];
    }
    return counts;
}

Json assumptionsJson(const AssumedMachine& machine, const ModelWork& work) {
    return {{"flops_per_s", machine.flops_per_s},
            {"memory_bytes_per_s", machine.memory_bytes_per_s},
            {"link_bytes_per_s", machine.link_bytes_per_s},
            {"step_overhead_ms", machine.overhead_ms},
            {"parameters", work.num_parameters},
            {"weights_bytes", work.weights_bytes},
            {"matmul",
             "max(2 · parameters · tokens / flops_per_s, weights_bytes / "
             "memory_bytes_per_s)"},
            {"attention", "attention_bytes / memory_bytes_per_s"},
            {"copies", "2 · bytes copied / memory_bytes_per_s + bytes swapped / link_bytes_per_s"}};
}

StepTime stepTimeOf(const ReplayResult& result) {
    return result.has_weights ? measuredStepTime(result.steps)
                              : assumedStepTime(result.cost.value_or(StepCost{}));
}

void printReplayJson(const ReplayResult& result,
                     const ReplayOptions& options,
                     const ModelWork& work,
                     const Tokenizer* words,
                     int64_t list) {
    const size_t listed = std::min(result.requests.size(), static_cast<size_t>(list));
    Json requests = Json::array();
    for (size_t i = 0; i < listed; ++i) {
        requests.push_back(requestJson(result.requests[i], result, words));
    }
    const StepTotals& steps = result.steps;
    const CacheConfig& cache = result.engine.cache;
    const bool is_virtual = result.time == ReplayTime::kVirtual;
    printJson({
        {"requests", std::move(requests)},
        {"requests_left_out", result.requests.size() - listed},
        {"counts",
         {{"requests", result.requests.size()},
          {"finished", result.num_finished},
          {"cancelled", result.num_cancelled},
          {"refused", result.num_refused}}},
        {"clock", replayTimeName(result.time)},
        {"times", is_virtual ? "assumed" : "measured"},
        {"percentiles",
         {{"queue_ms", percentilesJson(result.queue_ms)},
          {"time_to_first_token_ms", percentilesJson(result.time_to_first_token_ms)},
          {"time_per_token_ms", percentilesJson(result.time_per_token_ms)},
          {"end_to_end_ms", percentilesJson(result.end_to_end_ms)}}},
        {"duration_ms", numberOrNull(durationMs(result))},
        {"sampled_tokens", result.sampled_tokens},
        {"tokens_per_s", numberOrNull(result.tokensPerSecond())},
        {"waste", wasteJson(result.waste)},
        {"concurrency", concurrencyJson(result.waste, steps)},
        {"preemptions", result.num_preemptions},
        {"bytes_moved", result.bytes_moved},
        {"recomputed_tokens", steps.recomputed_tokens},
        {"steps",
         {{"count", steps.num_steps},
          {"prefill_tokens", steps.prefill_tokens},
          {"decode_tokens", steps.decode_tokens},
          {"attention_bytes", steps.attention_bytes},
          {"attention_bytes_repeated", steps.attention_bytes_repeated},
          {"attention_bytes_per_step",
           {{"mean", steps.perStep(steps.attention_bytes)}, {"max", steps.max_attention_bytes}}}}},
        {"step_time", stepTimeJson(stepTimeOf(result))},
        {"pool",
         {{"layout", cacheLayoutName(cache.layout)},
          {"blocks", cache.num_blocks},
          {"block_size", cache.block_size},
          {"max_len", cache.slabsHaveOneLength() ? Json(cache.max_len) : Json(nullptr)},
          {"slab_length", cache.slabsHaveOneLength() ? Json("max")
                          : cache.slab_per_request   ? Json("request")
                                                     : Json(nullptr)},
          {"host_blocks", cache.num_host_blocks},
          {"kv_dtype", dataTypeName(cache.kv_dtype)},
          {"device_bytes", result.pool_bytes},
          {"blocks_peak", result.blocks_peak}}},
        {"model", result.model.name},
        {"backend", result.engine.backend},
        {"assumptions", is_virtual ? assumptionsJson(options.machine, work) : Json(nullptr)},
        {"decisions", decisionsJson(result)},
        {"why", whyJson(result)},
        {"why_left_out", result.numDecisions() - static_cast<int64_t>(result.why.size())},
    });
}

// --- text
// -----------------------------------------------------------------------------------------

// "12.3", "48,411".
std::string meanText(double mean) {
    if (mean >= 1000) return formatCount(static_cast<int64_t>(mean + 0.5));
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.1f", mean);
    return text.data();
}

void printPercentiles(const char* name, const std::optional<Percentiles>& values) {
    const auto cell = [&](double Percentiles::*part) {
        return timeText(values ? std::optional<double>((*values).*part) : std::nullopt);
    };
    std::printf("  %-16s %12s %12s %12s %12s %12s\n", name, cell(&Percentiles::p50).c_str(),
                cell(&Percentiles::p90).c_str(), cell(&Percentiles::p99).c_str(),
                cell(&Percentiles::max).c_str(), cell(&Percentiles::mean).c_str());
}

void printRequests(const ReplayResult& result, size_t listed) {
    if (listed == 0) return;
    std::printf(
        "\nrequest   arrived      prompt  tokens        queue  first token    per token   "
        "end to end  ended\n");
    for (size_t i = 0; i < listed; ++i) {
        const ReplayedRequest& request = result.requests[i];
        const RequestTimings& times = request.timings;
        std::string ended = request.status == ReplayStatus::kFinished
                                ? finishReasonName(times.finish)
                                : replayStatusName(request.status);
        std::replace(ended.begin(), ended.end(), '_', ' ');
        if (times.num_preemptions > 0) {
            ended += ", preempted " + counted(times.num_preemptions, "time", "times");
        }
        std::printf("%7zu %9s %11s %7s %12s %12s %12s %12s  %s\n", i,
                    timeText(times.arrived_ms).c_str(), formatCount(times.prompt_len).c_str(),
                    formatCount(times.num_sampled).c_str(), timeText(times.queueMs()).c_str(),
                    timeText(times.timeToFirstTokenMs()).c_str(),
                    timeText(times.timePerTokenMs()).c_str(), timeText(times.endToEndMs()).c_str(),
                    ended.c_str());
    }
    if (listed < result.requests.size()) {
        std::printf("%s more; --list N shows N\n",
                    formatCount(static_cast<int64_t>(result.requests.size() - listed)).c_str());
    }
}

void printWhy(const ReplayResult& result) {
    if (!result.why.empty()) std::printf("\nwhy\n");
    for (const WhyEntry& entry : result.why) {
        std::printf("%12s  %s\n", timeText(entry.time_ms).c_str(), entry.sentence.c_str());
    }
    const int64_t left_out = result.numDecisions() - static_cast<int64_t>(result.why.size());
    if (left_out > 0 && !result.why.empty()) {
        std::printf("%s more; --why N shows N\n", formatCount(left_out).c_str());
    }
}

void printReplay(const ReplayResult& result, const ReplayOptions& options, int64_t list) {
    const CacheConfig& cache = result.engine.cache;
    const StepTotals& steps = result.steps;
    std::printf(
        "%s of %s%s: %s finished, %s cancelled, %s refused\n",
        counted(static_cast<int64_t>(result.requests.size()), "request", "requests").c_str(),
        oneLine(result.model.name).c_str(), result.has_weights ? "" : ", accounts without weights",
        formatCount(result.num_finished).c_str(), formatCount(result.num_cancelled).c_str(),
        formatCount(result.num_refused).c_str());
    std::printf("pool       %s, %s of %d tokens, %s", cacheLayoutName(cache.layout),
                counted(cache.num_blocks, "block", "blocks").c_str(), cache.block_size,
                formatBytes(result.pool_bytes).c_str());
    if (cache.layout == CacheLayout::kSlab) {
        std::printf(", slabs for %s", cache.slab_per_request
                                          ? "what each request may grow to"
                                          : (formatCount(cache.max_len) + " tokens").c_str());
    }
    std::printf("; at most %s in use\n", counted(result.blocks_peak, "block", "blocks").c_str());
    std::printf("time       %s from the first arrival to the last token",
                timeText(durationMs(result)).c_str());
    if (const auto rate = result.tokensPerSecond()) {
        std::printf(", %s tokens/s", formatCount(static_cast<int64_t>(*rate + 0.5)).c_str());
    }
    switch (result.time) {
        case ReplayTime::kReal:
            std::printf(" (measured; idle time is skipped)\n");
            break;
        case ReplayTime::kWait:
            std::printf(" (measured)\n");
            break;
        case ReplayTime::kVirtual:
            std::printf(
                " (assumed)\nmachine    %.4g TFLOP/s, memory %.4g TB/s, link to the host %.4g "
                "GB/s, "
                "%.4g ms more a step (assumed)\n",
                options.machine.flops_per_s / 1e12, options.machine.memory_bytes_per_s / 1e12,
                options.machine.link_bytes_per_s / 1e9, options.machine.overhead_ms);
            break;
    }
    std::printf("running    %s in a step, at most %s; waiting %s, at most %s\n",
                meanText(result.waste.meanRunning()).c_str(),
                counted(result.waste.max_running, "sequence", "sequences").c_str(),
                meanText(steps.perStep(steps.num_waiting)).c_str(),
                formatCount(steps.max_waiting).c_str());
    printWaste(result.waste, cache.layout);
    printStepTime(stepTimeOf(result));
    std::printf("read       %s of K/V a step, at most %s",
                formatBytes(static_cast<int64_t>(steps.perStep(steps.attention_bytes))).c_str(),
                formatBytes(steps.max_attention_bytes).c_str());
    if (steps.attention_bytes_repeated > 0) {
        std::printf("; %s again for a shared block",
                    formatBytes(static_cast<int64_t>(steps.perStep(steps.attention_bytes_repeated)))
                        .c_str());
    }
    std::printf("\npreempted  %s; %s moved between device and host, %s computed again\n",
                counted(result.num_preemptions, "time", "times").c_str(),
                formatBytes(result.bytes_moved).c_str(),
                counted(steps.recomputed_tokens, "token", "tokens").c_str());
    std::printf("\n  %-16s %12s %12s %12s %12s %12s\n", "", "p50", "p90", "p99", "max", "mean");
    printPercentiles("queue", result.queue_ms);
    printPercentiles("first token", result.time_to_first_token_ms);
    printPercentiles("per token", result.time_per_token_ms);
    printPercentiles("end to end", result.end_to_end_ms);
    printRequests(result, std::min(result.requests.size(), static_cast<size_t>(list)));
    printWhy(result);
}

// --- the command
// ----------------------------------------------------------------------------------

void runReplay(const ReplayCommandOptions& o) {
    checkCombination(o);
    ReplayOptions options = replayOptionsFrom(o);
    const int64_t list =
        parseWhole("--list", o.list, 0, kMaxTraceRequests, o.json ? kMaxTraceRequests : 20);
    const std::string model_file =
        o.no_weights ? std::string() : o.engine.model.value_or(bundledModelPath());
    checkTracePath(o.trace, {model_file, o.requests.value_or("")});

    ReplayResult result;
    ModelWork work;
    LoadedModel model;
    if (o.no_weights) {
        ModelSpec spec = modelSpec(*o.engine.model);
        CacheConfig& cache = options.engine.cache;
        const ModelConfig config = accountingModel(spec, cache.kv_dtype);
        if (spec.weights_bytes == 0 && !o.weights_bytes) {
            refuse("the weights of " + spec.name +
                   " are not in the table; give --weights-bytes, such as 141GB (bf16: 2 bytes a "
                   "parameter)");
        }
        spec.weights_bytes =
            parseBytes("--weights-bytes", o.weights_bytes, 1, int64_t{1} << 60, spec.weights_bytes);
        work = modelWork(spec);
        cache.num_blocks = blocksFrom(o, spec, cache);
        if (spec.num_local_layers > 0 && config.uniformWindow() == 0) {
            std::fprintf(
                stderr,
                "kvlab-cli: note: %d of %d layers of %s see a window of %d tokens; a block "
                "serves all layers, so the window spares reads and frees no block\n",
                spec.num_local_layers, spec.num_layers, spec.name.c_str(), spec.window);
        }
        result = replayAccounts(requestsFrom(o, spec.context_len), config, work, options);
    } else {
        std::vector<TraceRequest> requests;
        // A damaged file is told before a large model is read.
        if (o.requests) requests = requestsFrom(o, 0);
        model = loadModel(o.engine.modelPath());
        if (!o.requests) requests = requestsFrom(o, model.weights->config.context_len);
        work = modelWork(*model.weights);
        result = replay(requests, model, options);
    }
    if (options.on_progress) std::fprintf(stderr, "\r\033[K");
    if (o.json) {
        printReplayJson(result, options, work, model.tokenizer.get(), list);
    } else {
        printReplay(result, options, list);
    }
}

}  // namespace

void addReplayCommand(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "replay", "requests that arrive over time, scheduled on a model or on its accounts alone");
    const auto o = std::make_shared<ReplayCommandOptions>();
    const auto add = [&](const char* name, Typed& value, const char* help, const char* type) {
        return command->add_option(name, value, help)->type_name(type);
    };
    add("--requests", o->requests,
        "JSON Lines, by arrival: {\"arrival_ms\", \"prompt\" or \"prompt_tokens\" (a number or a "
        "list of ids), \"max_tokens\", and if wanted \"num_samples\", \"priority\" (higher goes "
        "first), \"cancel_ms\", \"salt\"}",
        "F.jsonl");
    add("--poisson", o->poisson, "draw arrivals instead: requests a second", "RATE");
    add("--count", o->count, "requests to draw", "N");
    add("--samples", o->samples,
        "continuations of each drawn request, default 1; they share its prompt", "N");
    command->add_flag("--bursts", o->bursts,
                      "arrivals only in bursts, at the same rate in the long run");
    add("--burst-on", o->burst_on, "with --bursts: mean seconds of one, default 5 (assumed)", "S");
    add("--burst-off", o->burst_off,
        "with --bursts: mean seconds between two, default 15 (assumed)", "S");
    add("--prompt-median", o->prompt_median,
        "tokens of the median prompt, at most --prompt-max; default 1,020, at most half of "
        "--prompt-max (assumed)",
        "N");
    add("--prompt-sigma", o->prompt_sigma,
        "spread of the prompts' logarithm, default 1 (assumed); 0: all equal", "S");
    add("--prompt-max", o->prompt_max,
        "longest prompt, default 8,192, at most 3/4 of the model's context", "N");
    add("--output-median", o->output_median,
        "tokens of the median output, at most --output-max; default 129, at most half of "
        "--output-max (assumed)",
        "N");
    add("--output-sigma", o->output_sigma, "spread of its logarithm, default 1 (assumed)", "S");
    add("--output-max", o->output_max,
        "longest output, default 2,048, at most 1/4 of the model's context", "N");
    add("--seed", o->seed,
        "of arrivals, lengths, corpus documents and sampling, default 0; request i runs as "
        "`generate --seed` S + i; may stand where nothing is drawn",
        "S");
    command->add_flag("--no-weights", o->no_weights,
                      "an accounting run: --model names a published model, times are assumed");
    addEngineOptions(*command, o->engine);
    command->get_option("--model")
        ->description(
            "GGUF file (default: the bundled model); with --no-weights a name such as llama-3-70b")
        ->type_name("F.gguf|SLUG");
    command->get_option("--blocks")
        ->description(
            "blocks in the pool (default: enough for all requests at once, at most 1 GiB; with "
            "--no-weights what --vram leaves)");
    addScheduleOptions(*command, o->schedule);
    add("--watermark", o->watermark,
        "share of the pool that admission leaves free for running sequences, default 0.01", "R");
    addChoice(*command, "--clock", &o->clock, {"real", "wait", "virtual"}, {},
              "real (default): the machine's, idle time is skipped; wait: idle time is waited; "
              "virtual: steps take what the assumed machine needs, the same run everywhere");
    add("--vram", o->vram, "memory of the assumed machine, default 640GB: eight H100 SXM", "BYTES");
    add("--utilisation", o->utilisation, "share of it to use, default 0.9", "U");
    add("--weights-bytes", o->weights_bytes, "141GB; default: the model's, in bf16", "BYTES");
    add("--flops", o->flops, "TFLOP/s of the assumed machine, default 7,912", "T");
    add("--bandwidth", o->bandwidth, "bytes a second of its memory, default 26.8TB", "BYTES");
    add("--link", o->link, "bytes a second between device and host, default 512GB", "BYTES");
    add("--step-overhead", o->step_overhead, "ms more in every step, default 0", "MS");
    command->add_flag("--ignore-eos", o->ignore_eos, "go on past the end-of-text token");
    addDrawOptions(*command, o->draw);
    add("--trace", o->trace, "write the run's log here", "F");
    add("--why", o->why,
        "entries of the why log, the first ones: why each request was admitted, waited, gave way "
        "or was refused; default 20, with --json 1,000",
        "N");
    add("--list", o->list, "requests to list, default 20, with --json all", "N");
    command->add_flag("--json", o->json, "print JSON");
    addChoice(*command, "--prefix-cache", nullptr, {"off"}, {"hash", "radix"},
              "reuse of prompt beginnings");
    addPolicyOptions(*command);
    command->callback([o] { runReplay(*o); });
}

}  // namespace kvlab
