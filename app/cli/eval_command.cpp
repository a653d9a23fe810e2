// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <utility>

#include "app/cli/commands.h"
#include "app/cli/engine_options.h"
#include "app/cli/json_output.h"
#include "app/cli/later_options.h"
#include "app/cli/option_text.h"
#include "engine/clock.h"
#include "engine/engine.h"
#include "engine/error.h"
#include "engine/model/model_loader.h"
#include "engine/model/utf8.h"
#include "engine/text_format.h"
#include "engine/workload/corpus.h"
#include "engine/workload/cost_model.h"
#include "engine/workload/recall_eval.h"

// Measuring itself is engine/workload/recall_eval.h; here are options and the two ways of printing.
namespace kvlab {

namespace {

struct EvalOptions {
    EngineOptions engine;
    std::optional<std::string> documents, doc_tokens, doc_layout, seed, updates, unanswerable;
    bool json = false;
};

// Percentage of documents with changed facts, and with unanswerable questions: so that a plain call
// has enough of all three kinds.
constexpr int kDefaultPercent = 50;

// A minute and more: in decode a core does some 10^9 a second.
constexpr double kLongMultiplyAdds = 2e11;

constexpr std::array<RecallKind, kNumRecallKinds> kKinds = {
    RecallKind::kStated, RecallKind::kUpdated, RecallKind::kUnanswerable};

DocumentLayout parseLayout(const std::string& name) {
    if (name == "stream") return DocumentLayout::kStream;
    if (name == "facts-first") return DocumentLayout::kFactsFirst;
    throw EngineError(ErrorKind::kBadArgument,
                      "--doc-layout wants stream or facts-first, not " + quotedForMessage(name));
}

std::optional<double> perplexity(const ClusteredMean& nll) {
    const std::optional<double> mean = nll.mean();
    if (!mean) return std::nullopt;
    return std::exp(*mean);
}

std::optional<std::array<double, 2>> perplexityInterval(const ClusteredMean& nll) {
    const std::optional<std::array<double, 2>> interval = nll.interval();
    if (!interval) return std::nullopt;
    return std::array<double, 2>{std::exp((*interval)[0]), std::exp((*interval)[1])};
}

std::string rangeName(size_t idx) {
    return std::to_string(kRecallRanges[idx][0]) + "-" + std::to_string(kRecallRanges[idx][1]);
}

// One value of every share of a kind, by bucket and by range.
template <class Value>
Json byDistance(const RecallReport::Exact& kind, const Value& value) {
    Json json = Json::object();
    for (size_t i = 0; i < kRecallDistanceEdges.size(); ++i) {
        json[std::to_string(kRecallDistanceEdges[i])] = value(kind.by_distance[i]);
    }
    return json;
}

template <class Value>
Json inRange(const RecallReport::Exact& kind, const Value& value) {
    Json json = Json::object();
    for (size_t i = 0; i < kRecallRanges.size(); ++i) {
        json[rangeName(i)] = value(kind.in_range[i]);
    }
    return json;
}

template <class Make>
Json byKind(const RecallReport& report, const Make& make) {
    Json json = Json::object();
    for (const RecallKind kind : kKinds) {
        json[std::string(recallKindName(kind))] = make(report.of(kind));
    }
    return json;
}

Json reportJson(const RecallReport& report) {
    const auto share = [](const ClusteredMean& mean) { return numberOrNull(mean.mean()); };
    const auto interval = [](const ClusteredMean& mean) {
        return numberOrNull(mean.shareInterval());
    };
    const auto count = [](const ClusteredMean& mean) { return Json(mean.count()); };
    // Every share under the same key in the object that `value` fills.
    const auto shares = [&](const auto& value) {
        return Json{{"accuracy", byDistance(report.of(RecallKind::kStated), value)},
                    {"accuracy_by_kind",
                     byKind(report, [&](const auto& kind) { return Json(value(kind.all)); })},
                    {"accuracy_by_distance",
                     byKind(report, [&](const auto& kind) { return byDistance(kind, value); })},
                    {"accuracy_in_range",
                     byKind(report, [&](const auto& kind) { return inRange(kind, value); })},
                    {"false_refusals", value(report.false_refusals)},
                    {"false_refusals_by_kind",
                     {{"stated", value(report.of(RecallKind::kStated).refused)},
                      {"updated", value(report.of(RecallKind::kUpdated).refused)}}}};
    };
    Json json = {{"perplexity", numberOrNull(perplexity(report.nll))},
                 {"perplexity_without_answers", numberOrNull(perplexity(report.nll_text))}};
    json.update(shares(share));
    json["intervals"] = shares(interval);
    json["intervals"]["perplexity"] = numberOrNull(perplexityInterval(report.nll));
    json["intervals"]["perplexity_without_answers"] =
        numberOrNull(perplexityInterval(report.nll_text));
    json["device_bytes"] = report.num_blocks * report.bytes_per_block / report.num_documents;
    for (const char* key : {"bytes_moved", "blocks_freed", "top_k_coverage"}) json[key] = nullptr;

    const RecallReport::Exact& stated = report.of(RecallKind::kStated);
    Json questions = byDistance(stated, count);
    questions["below_20"] = stated.nearer.count();
    questions["below_20_exact"] = static_cast<int64_t>(stated.nearer.sum());
    questions["all"] = stated.all.count();
    questions["by_kind"] = byKind(report, [&](const auto& kind) {
        Json counts = byDistance(kind, count);
        counts["below_20"] = kind.nearer.count();
        counts["below_20_exact"] = static_cast<int64_t>(kind.nearer.sum());
        counts["all"] = kind.all.count();
        counts.update(inRange(kind, count));
        return counts;
    });
    json["questions"] = std::move(questions);
    json["documents"] = report.num_documents;
    json["document_tokens"] = report.num_tokens;
    return json;
}

void printShare(const std::string& name, const ClusteredMean& share) {
    if (share.count() == 0) {
        std::printf("  %-15s -\n", name.c_str());
        return;
    }
    const std::array<double, 2> interval = *share.shareInterval();
    std::printf("  %-15s %5.1f %%  of %s (95 %%: %.1f to %.1f)\n", name.c_str(),
                100.0 * *share.mean(), formatCount(share.count()).c_str(), 100.0 * interval[0],
                100.0 * interval[1]);
}

void printKind(const char* title, const RecallReport::Exact& kind) {
    std::printf("%s\n", title);
    printShare("below 20", kind.nearer);
    for (size_t i = 0; i < kRecallDistanceEdges.size(); ++i) {
        const std::string upper = i + 1 < kRecallDistanceEdges.size()
                                      ? " to " + formatCount(kRecallDistanceEdges[i + 1] - 1)
                                      : " and more";
        printShare(formatCount(kRecallDistanceEdges[i]) + upper, kind.by_distance[i]);
    }
    printShare("all", kind.all);
}

void printPerplexity(const char* name, const ClusteredMean& nll) {
    std::printf("%s", name);
    if (const auto value = perplexity(nll)) {
        std::printf(" %.4f", *value);
    } else {
        std::printf(" -");
    }
    if (const auto interval = perplexityInterval(nll)) {
        std::printf(" (95 %%: %.4f to %.4f)", (*interval)[0], (*interval)[1]);
    }
    std::printf("\n");
}

void printReport(const RecallReport& report) {
    std::printf("%s documents, %s tokens\n", formatCount(report.num_documents).c_str(),
                formatCount(report.num_tokens).c_str());
    printPerplexity("perplexity", report.nll);
    printPerplexity("perplexity without the answers' values", report.nll_text);
    printKind("exact answers, stated facts, by distance in tokens", report.of(RecallKind::kStated));
    for (size_t i = 0; i < kRecallRanges.size(); ++i) {
        printShare(formatCount(kRecallRanges[i][0]) + " to " + formatCount(kRecallRanges[i][1]),
                   report.of(RecallKind::kStated).in_range[i]);
    }
    printKind("exact answers, updated facts, by distance from the last statement",
              report.of(RecallKind::kUpdated));
    printKind("exact refusals of unanswerable questions, by tokens of context",
              report.of(RecallKind::kUnanswerable));
    std::printf("false refusals: \"%s\" though the fact was stated\n",
                std::string(kRefusal).c_str());
    printShare("stated", report.of(RecallKind::kStated).refused);
    printShare("updated", report.of(RecallKind::kUpdated).refused);
    printShare("both", report.false_refusals);
    std::printf(
        "K/V of a document %s\n",
        formatBytes(report.num_blocks * report.bytes_per_block / report.num_documents).c_str());
}

// Minutes without a word would look like a hang. On a terminal a line stands there until the
// documents are through; elsewhere lines are written where it takes a processor long.
class ProgressLine {
  public:
    ProgressLine(const LoadedModel& model, const RecallOptions& recall) {
        const int64_t num_tokens = int64_t{recall.num_documents} * recall.doc_tokens;
        const double multiply_adds =
            static_cast<double>(num_tokens) * modelWork(*model.weights).num_parameters;
        is_long_ = multiply_adds > kLongMultiplyAdds;
        what_ = counted(recall.num_documents, "document", "documents") + " of about " +
                counted(recall.doc_tokens, "token", "tokens");
        if (is_terminal_) {
            std::fprintf(stderr, "\rreading %s%s\033[K", what_.c_str(),
                         is_long_ ? ", which takes a CPU minutes or more" : "");
        } else if (is_long_) {
            std::fprintf(stderr,
                         "kvlab-cli: note: reading %s through this model takes a CPU minutes or "
                         "more; --documents and --doc-tokens make it shorter\n",
                         what_.c_str());
        }
    }
    ~ProgressLine() {
        if (is_terminal_) std::fprintf(stderr, "\r\033[K");
    }
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    void update(double share) {
        const double now_ms = clock_.nowMs();
        if (now_ms < next_ms_) return;
        next_ms_ = now_ms + (is_terminal_ ? kLineMs : kNoteMs);
        if (is_terminal_) {
            std::fprintf(stderr, "\rreading %s: %.1f %%\033[K", what_.c_str(), 100 * share);
        } else if (is_long_) {
            std::fprintf(stderr, "kvlab-cli: note: %.1f %% read\n", 100 * share);
        }
    }

  private:
    static constexpr double kLineMs = 200, kNoteMs = 10'000;

    const bool is_terminal_ = isatty(STDERR_FILENO) != 0;
    bool is_long_ = false;
    std::string what_;
    SteadyClock clock_;
    double next_ms_ = clock_.nowMs() + (is_terminal_ ? kLineMs : kNoteMs);
};

void runEval(const EvalOptions& options) {
    RecallOptions recall;
    recall.num_documents =
        static_cast<int>(parseWhole("--documents", options.documents, 1, 100'000, 20));
    recall.doc_tokens =
        static_cast<int>(parseWhole("--doc-tokens", options.doc_tokens, 16, 1'000'000, 1000));
    recall.corpus.layout = parseLayout(options.doc_layout.value_or("stream"));
    recall.corpus.held_out = true;
    recall.corpus.seed = parseSeed("--seed", options.seed);
    recall.corpus.update_percent =
        static_cast<int>(parseWhole("--updates", options.updates, 0, 100, kDefaultPercent));
    recall.corpus.unanswerable_percent = static_cast<int>(
        parseWhole("--unanswerable", options.unanswerable, 0, 100, kDefaultPercent));
    const EngineConfig config = options.engine.engineConfig();
    const LoadedModel model = loadModel(options.engine.modelPath());
    const RecallReport report = [&] {
        ProgressLine line(model, recall);
        recall.on_progress = [&line](double share) { line.update(share); };
        return measureRecall(model, config, recall);
    }();
    if (options.json) {
        printJson(reportJson(report));
    } else {
        printReport(report);
    }
}

}  // namespace

void addEvalCommand(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "eval", "can the model still answer? perplexity and exact answers on unseen documents");
    const auto options = std::make_shared<EvalOptions>();
    addEngineOptions(*command, options->engine);
    command->add_option("--documents", options->documents, "how many, default 20")->type_name("N");
    command->add_option("--doc-tokens", options->doc_tokens, "tokens of each, about; default 1000")
        ->type_name("N");
    command->add_option("--doc-layout", options->doc_layout, "stream (default) or facts-first")
        ->type_name("L");
    command->add_option("--seed", options->seed, "of the documents, default 0")->type_name("S");
    command
        ->add_option("--updates", options->updates,
                     "percent of documents in which facts change, default 50")
        ->type_name("P");
    command
        ->add_option("--unanswerable", options->unanswerable,
                     "percent of documents that also ask for what was never said, default 50")
        ->type_name("P");
    command->add_flag("--json", options->json, "print JSON");
    command->footer(
        "An answer is exact when each token of its value is the most probable one. Stated facts,\n"
        "facts that changed (the last statement counts) and unanswerable questions are counted\n"
        "apart; a false refusal says \"Nobody knows\" of a fact that was stated. Intervals\n"
        "are 95 %: Wilson's, with the number of questions reduced by how much more documents "
        "differ\n"
        "than chance allows; perplexity's come from the scatter of documents.");
    addPolicyOptions(*command);
    addLaterOption(*command, "--sweep", "run eval once for each setting", false);
    command->callback([options] { runEval(*options); });
}

}  // namespace kvlab
