// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>

#include "app/cli/commands.h"
#include "app/cli/engine_options.h"
#include "app/cli/json_output.h"
#include "app/cli/later_options.h"
#include "app/cli/option_text.h"
#include "engine/engine.h"
#include "engine/error.h"
#include "engine/model/model_loader.h"
#include "engine/model/tokenizer.h"
#include "engine/model/weights.h"
#include "engine/text_format.h"
#include "engine/workload/corpus.h"

// Protocol (DESIGN.md section 6): every document runs token by token through decode, its own text
// forced; the logits after token i are judged by token i + 1. An answer is exact when every token
// of its value is the arg max.
namespace kvlab {

namespace {

struct EvalOptions {
    EngineOptions engine;
    std::optional<std::string> documents, doc_tokens, doc_layout, seed;
    bool json = false;
};

// Lower edges of the buckets of distances, in tokens.
constexpr std::array<int, 7> kDistanceEdges = {20, 100, 200, 400, 600, 800, 1500};
// Documents of one engine batch: enough to share each pass over the weights, few enough for the
// pool of a laptop.
constexpr int kDocumentsPerBatch = 16;
// A document has more tokens than words by the tokenizer's ratio; a little under it, so that few
// documents pass the length asked for.
constexpr double kLengthMargin = 0.97;
// Of a two-sided interval of 95 %.
constexpr double kNormalQuantile = 1.959963984540054;

// One question: which tokens must be predicted, and how far back the statement lies.
struct QuestionTokens {
    std::vector<int> value;       // token indices of the answer's value, ascending
    std::optional<int> distance;  // tokens from the end of the stated value; empty: never stated
};

struct EvalDocument {
    std::vector<TokenId> tokens;  // begin token first
    std::vector<QuestionTokens> questions;
};

// Tokens that overlap characters [begin, end). `token_begin` [num_tokens + 1] are the byte offsets
// of the pieces. A piece that holds only the space in front of a value does not overlap it.
std::vector<int> tokensInRange(const std::vector<int>& token_begin, std::array<int, 2> range) {
    std::vector<int> tokens;
    const auto [begin, end] = range;
    // First piece that ends after `begin`.
    auto at = std::upper_bound(token_begin.begin() + 1, token_begin.end(), begin);
    for (auto idx = at - token_begin.begin() - 1;
         idx + 1 < static_cast<std::ptrdiff_t>(token_begin.size()) && token_begin[idx] < end;
         ++idx) {
        if (token_begin[idx] < token_begin[idx + 1]) tokens.push_back(static_cast<int>(idx));
    }
    return tokens;
}

EvalDocument makeDocument(const CorpusDocument& document, const Tokenizer& tokenizer) {
    EvalDocument result;
    result.tokens = tokenizer.encode(document.text, true);
    std::string spelled;
    std::vector<int> token_begin;
    for (const TokenId token : result.tokens) {
        token_begin.push_back(static_cast<int>(spelled.size()));
        spelled += tokenizer.piece(token);
    }
    // encode() puts a space before the first word that the text does not have.
    const int lead = !spelled.empty() && spelled[0] == ' ' &&
                             spelled.compare(1, std::string::npos, document.text) == 0
                         ? 1
                         : 0;
    if (lead == 0 && spelled != document.text) {
        throw EngineError(ErrorKind::kUnsupported,
                          "eval cannot place answers: this model's tokens do not spell the text "
                          "back; use another model");
    }
    token_begin.push_back(static_cast<int>(spelled.size()));
    for (int& begin : token_begin) begin = std::max(begin - lead, 0);

    for (const CorpusSpan& span : document.spans) {
        if (span.kind != SpanKind::kAnswer) continue;
        QuestionTokens question;
        question.value = tokensInRange(token_begin, span.value);
        if (question.value.empty()) continue;
        if (span.fact_idx >= 0) {
            const std::vector<int> stated = tokensInRange(
                token_begin, document.spans[static_cast<size_t>(span.fact_idx)].value);
            question.distance = question.value.front() - stated.back();
        }
        result.questions.push_back(std::move(question));
    }
    return result;
}

// What the model said about one document.
struct DocumentResult {
    double nll = 0;             // natural logarithm, summed over predicted tokens
    std::vector<char> is_best;  // token i was the arg max of the logits before it; [num_tokens]
    int64_t blocks_at_end = 0;  // blocks that the document's own cache took
};

void judge(const float* logits, int vocab_size, TokenId token, double& nll, bool& is_best) {
    const float best = *std::max_element(logits, logits + vocab_size);
    double sum = 0;
    for (int i = 0; i < vocab_size; ++i) sum += std::exp(static_cast<double>(logits[i] - best));
    nll = std::log(sum) - static_cast<double>(logits[token.value] - best);
    // The first of equals is the arg max, as in greedy sampling.
    is_best = std::max_element(logits, logits + vocab_size) - logits == token.value;
}

std::vector<DocumentResult> runBatch(const LoadedModel& model,
                                     EngineConfig config,
                                     const std::vector<EvalDocument>& documents) {
    std::vector<EngineRequest> requests;
    int64_t num_blocks = 0;
    for (const EvalDocument& document : documents) {
        EngineRequest request;
        request.prompt = {document.tokens.front()};
        request.forced.assign(document.tokens.begin() + 1, document.tokens.end());
        request.max_tokens = static_cast<int>(request.forced.size());
        request.ignore_eos = true;
        num_blocks += Engine::worstCaseBlocks(request, config.cache.block_size);
        requests.push_back(std::move(request));
    }
    if (config.cache.num_blocks == 0) config.cache.num_blocks = static_cast<int>(num_blocks);

    Engine engine(model.weights, model.tokenizer, config);
    std::vector<DocumentResult> results(documents.size());
    for (size_t i = 0; i < documents.size(); ++i) {
        results[i].is_best.resize(documents[i].tokens.size());
    }
    // Requests enter in order and have one sequence each, so sequence i is document i; the log
    // confirms it below.
    engine.setLogitsObserver(
        [&](SequenceId sequence, int position, const float* logits, int vocab_size) {
            const auto idx = static_cast<size_t>(sequence.value);
            KVLAB_CHECK(idx < documents.size(), "logits of an unknown sequence");
            const auto next = static_cast<size_t>(position) + 1;
            if (next >= documents[idx].tokens.size()) return;
            double nll = 0;
            bool is_best = false;
            judge(logits, vocab_size, documents[idx].tokens[next], nll, is_best);
            results[idx].nll += nll;
            results[idx].is_best[next] = is_best ? 1 : 0;
        });
    std::vector<RequestId> submitted;
    submitted.reserve(requests.size());
    for (EngineRequest& request : requests) submitted.push_back(engine.submit(std::move(request)));
    std::vector<int64_t> num_predicted(documents.size());
    while (const auto step = engine.step()) {
        for (const Event& event : step->events) {
            if (const auto* started = std::get_if<SequenceStarted>(&event)) {
                const auto idx = static_cast<size_t>(started->sequence.value);
                KVLAB_CHECK(idx < submitted.size() && started->request == submitted[idx],
                            "requests entered in another order");
            } else if (const auto* taken = std::get_if<BlocksAllocated>(&event)) {
                for (const SequenceId sequence : taken->sequence) {
                    ++results[static_cast<size_t>(sequence.value)].blocks_at_end;
                }
            } else if (const auto* sampled = std::get_if<TokensSampled>(&event)) {
                for (const SequenceId sequence : sampled->sequence) {
                    ++num_predicted[static_cast<size_t>(sequence.value)];
                }
            }
        }
    }
    for (size_t i = 0; i < documents.size(); ++i) {
        KVLAB_CHECK(num_predicted[i] + 1 == static_cast<int64_t>(documents[i].tokens.size()),
                    "a document ended before its text");
    }
    return results;
}

struct Share {
    int64_t num_exact = 0;
    int64_t num_questions = 0;
    void add(bool exact) {
        num_exact += exact ? 1 : 0;
        ++num_questions;
    }
    Json value() const {
        if (num_questions == 0) return nullptr;
        return static_cast<double>(num_exact) / static_cast<double>(num_questions);
    }
    // Wilson's interval, 95 %: stays inside [0, 1] and is honest for few questions.
    Json interval() const {
        if (num_questions == 0) return nullptr;
        const auto n = static_cast<double>(num_questions);
        const double p = static_cast<double>(num_exact) / n;
        const double scale = 1 / (1 + kNormalQuantile * kNormalQuantile / n);
        const double centre = scale * (p + kNormalQuantile * kNormalQuantile / (2 * n));
        const double half =
            scale * kNormalQuantile *
            std::sqrt(p * (1 - p) / n + kNormalQuantile * kNormalQuantile / (4 * n * n));
        return Json::array({std::max(0.0, centre - half), std::min(1.0, centre + half)});
    }
};

struct Evaluation {
    std::array<Share, kDistanceEdges.size()> by_distance;
    Share nearer;  // below the first edge
    Share stated;
    double nll = 0;
    int64_t num_predicted = 0;
    int64_t num_tokens = 0;
    int64_t num_documents = 0;
    int64_t blocks = 0;

    void add(const EvalDocument& document, const DocumentResult& result) {
        ++num_documents;
        num_tokens += static_cast<int64_t>(document.tokens.size());
        num_predicted += static_cast<int64_t>(document.tokens.size()) - 1;
        nll += result.nll;
        blocks += result.blocks_at_end;
        for (const QuestionTokens& question : document.questions) {
            if (!question.distance) continue;
            bool exact = true;
            for (const int token : question.value) {
                exact = exact && result.is_best[static_cast<size_t>(token)] != 0;
            }
            stated.add(exact);
            const auto above =
                std::upper_bound(kDistanceEdges.begin(), kDistanceEdges.end(), *question.distance);
            if (above == kDistanceEdges.begin()) {
                nearer.add(exact);
            } else {
                by_distance[static_cast<size_t>(above - kDistanceEdges.begin() - 1)].add(exact);
            }
        }
    }
};

DocumentLayout parseLayout(const std::string& name) {
    if (name == "stream") return DocumentLayout::kStream;
    if (name == "facts-first") return DocumentLayout::kFactsFirst;
    throw EngineError(ErrorKind::kBadArgument, "--doc-layout wants stream or facts-first, not \"" +
                                                   name.substr(0, 40) + "\"");
}

Json evaluationJson(const Evaluation& evaluation, int64_t bytes_per_block) {
    Json accuracy = Json::object();
    Json accuracy_intervals = Json::object();
    Json questions = Json::object();
    for (size_t i = 0; i < kDistanceEdges.size(); ++i) {
        const std::string key = std::to_string(kDistanceEdges[i]);
        accuracy[key] = evaluation.by_distance[i].value();
        accuracy_intervals[key] = evaluation.by_distance[i].interval();
        questions[key] = evaluation.by_distance[i].num_questions;
    }
    questions["below_20"] = evaluation.nearer.num_questions;
    questions["below_20_exact"] = evaluation.nearer.num_exact;
    questions["all"] = evaluation.stated.num_questions;
    const double perplexity =
        std::exp(evaluation.nll / static_cast<double>(evaluation.num_predicted));
    const int64_t device_bytes = evaluation.blocks * bytes_per_block / evaluation.num_documents;
    return {
        {"perplexity", perplexity},
        {"accuracy", std::move(accuracy)},
        {"accuracy_by_kind",
         {{"stated", evaluation.stated.value()}, {"updated", nullptr}, {"unanswerable", nullptr}}},
        {"intervals",
         {{"accuracy", std::move(accuracy_intervals)},
          {"accuracy_by_kind",
           {{"stated", evaluation.stated.interval()},
            {"updated", nullptr},
            {"unanswerable", nullptr}}}}},
        {"device_bytes", device_bytes},
        {"bytes_moved", nullptr},
        {"blocks_freed", nullptr},
        {"top_k_coverage", nullptr},
        {"questions", std::move(questions)},
        {"documents", evaluation.num_documents},
        {"document_tokens", evaluation.num_tokens}};
}

void printShare(const std::string& name, const Share& share) {
    if (share.num_questions == 0) {
        std::printf("  %-12s -\n", name.c_str());
        return;
    }
    const Json interval = share.interval();
    std::printf("  %-12s %5.1f %%  of %s (95 %%: %.1f to %.1f)\n", name.c_str(),
                100.0 * share.value().get<double>(), formatCount(share.num_questions).c_str(),
                100.0 * interval[0].get<double>(), 100.0 * interval[1].get<double>());
}

void printEvaluation(const Evaluation& evaluation, int64_t bytes_per_block) {
    std::printf("%s documents, %s tokens\n", formatCount(evaluation.num_documents).c_str(),
                formatCount(evaluation.num_tokens).c_str());
    std::printf("perplexity %.4f\n",
                std::exp(evaluation.nll / static_cast<double>(evaluation.num_predicted)));
    std::printf("exact answers by distance of the fact, tokens\n");
    printShare("below 20", evaluation.nearer);
    for (size_t i = 0; i < kDistanceEdges.size(); ++i) {
        const std::string upper = i + 1 < kDistanceEdges.size()
                                      ? " to " + formatCount(kDistanceEdges[i + 1] - 1)
                                      : " and more";
        printShare(formatCount(kDistanceEdges[i]) + upper, evaluation.by_distance[i]);
    }
    printShare("all", evaluation.stated);
    std::printf(
        "K/V of a document %s\n",
        formatBytes(evaluation.blocks * bytes_per_block / evaluation.num_documents).c_str());
}

void runEval(const EvalOptions& options) {
    const auto num_documents =
        static_cast<int>(parseWhole("--documents", options.documents, 1, 100'000, 20));
    const auto doc_tokens =
        static_cast<int>(parseWhole("--doc-tokens", options.doc_tokens, 16, 1'000'000, 1000));
    CorpusOptions corpus;
    corpus.layout = parseLayout(options.doc_layout.value_or("stream"));
    corpus.held_out = true;
    corpus.seed = parseSeed("--seed", options.seed);
    EngineConfig config = options.engine.engineConfig();
    const LoadedModel model = loadModel(options.engine.modelPath());
    const int num_words =
        std::max(1, static_cast<int>(doc_tokens / kCorpusTokensPerWord * kLengthMargin));

    Evaluation evaluation;
    for (int first = 0; first < num_documents; first += kDocumentsPerBatch) {
        std::vector<EvalDocument> documents;
        for (int i = first; i < std::min(num_documents, first + kDocumentsPerBatch); ++i) {
            documents.push_back(makeDocument(
                generateDocument(corpus, static_cast<uint64_t>(i), num_words), *model.tokenizer));
        }
        const std::vector<DocumentResult> results = runBatch(model, config, documents);
        for (size_t i = 0; i < documents.size(); ++i) evaluation.add(documents[i], results[i]);
    }
    const int64_t bytes_per_block =
        model.weights->config.kvBytesPerToken(config.cache.kv_dtype) * config.cache.block_size;
    if (options.json) {
        printJson(evaluationJson(evaluation, bytes_per_block));
    } else {
        printEvaluation(evaluation, bytes_per_block);
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
    command->add_flag("--json", options->json, "print JSON");
    addPolicyOptions(*command);
    addLaterOption(*command, "--sweep", "run eval once for each setting", false);
    command->callback([options] { runEval(*options); });
}

}  // namespace kvlab
