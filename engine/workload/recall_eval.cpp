// SPDX-License-Identifier: MIT
#include "engine/workload/recall_eval.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <variant>

#include "engine/engine.h"
#include "engine/error.h"
#include "engine/model/model_loader.h"
#include "engine/model/tokenizer.h"
#include "engine/model/weights.h"

namespace kvlab {
namespace {

// Documents of one engine batch: enough to share each pass over the weights, few enough for the
// pool of a laptop.
constexpr int kDocumentsPerBatch = 16;
// A document has more tokens than words by the tokenizer's ratio; a little under it, so that few
// documents pass the length asked for.
constexpr double kLengthMargin = 0.97;
// Of a two-sided interval of 95 %.
constexpr double kNormalQuantile = 1.959963984540054;

// Byte offsets of the pieces in `text`, [num_tokens + 1]; empty when the pieces do not spell it.
// The space that encode() puts before the first word is no byte of it.
std::vector<int> tokenOffsets(const std::vector<TokenId>& tokens,
                              const Tokenizer& tokenizer,
                              const std::string& text) {
    std::string spelled;
    std::vector<int> offsets;
    for (const TokenId token : tokens) {
        offsets.push_back(static_cast<int>(spelled.size()));
        spelled += tokenizer.piece(token);
    }
    offsets.push_back(static_cast<int>(spelled.size()));
    if (spelled == text) return offsets;
    if (spelled.empty() || spelled[0] != ' ' || spelled.compare(1, std::string::npos, text) != 0) {
        return {};
    }
    for (int& offset : offsets) offset = std::max(offset - 1, 0);
    return offsets;
}

// Tokens that overlap characters [begin, end). A piece that holds only the space in front of a
// value does not overlap it.
std::vector<int> tokensInRange(const std::vector<int>& offsets, std::array<int, 2> range) {
    std::vector<int> tokens;
    const auto [begin, end] = range;
    // First piece that ends after `begin`.
    const auto at = std::upper_bound(offsets.begin() + 1, offsets.end(), begin);
    for (auto idx = static_cast<size_t>(at - offsets.begin() - 1);
         idx + 1 < offsets.size() && offsets[idx] < end; ++idx) {
        if (offsets[idx] < offsets[idx + 1]) tokens.push_back(static_cast<int>(idx));
    }
    return tokens;
}

// Finds where the refusal would part from the true answer. The end of the question is encoded again
// with either answer; the first token that differs is looked up in the document.
void placeRefusal(RecallQuestion& result,
                  const std::vector<TokenId>& tokens,
                  const std::vector<int>& offsets,
                  const std::string& text,
                  const CorpusSpan& question,
                  const CorpusSpan& answer,
                  const Tokenizer& tokenizer) {
    const int begin = question.key[0];
    const int answer_begin = question.value[0] + 1;  // after the space
    const auto cut = [&](int from, int to) {
        return text.substr(static_cast<size_t>(from), static_cast<size_t>(to - from));
    };
    const std::string answered = cut(begin, answer.value[1]);
    const std::string refused = cut(begin, answer_begin).append(kRefusal);
    const std::vector<TokenId> as_answered = tokenizer.encode(answered, false);
    const std::vector<TokenId> as_refused = tokenizer.encode(refused, false);
    const auto [own, other] =
        std::mismatch(as_answered.begin(), as_answered.end(), as_refused.begin(), as_refused.end());
    const std::vector<int> local = tokenOffsets(as_answered, tokenizer, answered);
    if (own == as_answered.end() || other == as_refused.end() || local.empty()) return;
    const int offset = begin + local[static_cast<size_t>(own - as_answered.begin())];
    const auto at = std::lower_bound(offsets.begin(), offsets.end(), offset);
    const auto idx = static_cast<size_t>(at - offsets.begin());
    if (idx >= tokens.size() || *at != offset || tokens[idx] != *own) return;
    result.refusal_idx = static_cast<int>(idx);
    result.refusal_token = *other;
}

void judge(const float* logits, int vocab_size, TokenId token, TokenId& best, double& nll) {
    // The first of equals is the arg max, as in greedy sampling.
    const float* highest = std::max_element(logits, logits + vocab_size);
    double sum = 0;
    for (int i = 0; i < vocab_size; ++i) {
        sum += std::exp(static_cast<double>(logits[i]) - static_cast<double>(*highest));
    }
    best = TokenId(static_cast<int32_t>(highest - logits));
    nll =
        std::log(sum) - (static_cast<double>(logits[token.value]) - static_cast<double>(*highest));
}

std::vector<RecallPredictions> runBatch(const LoadedModel& model,
                                        EngineConfig config,
                                        const std::vector<RecallDocument>& documents,
                                        const std::function<void(double)>& on_progress) {
    std::vector<EngineRequest> requests;
    int64_t num_blocks = 0;
    int64_t num_tokens = 0;
    for (const RecallDocument& document : documents) {
        EngineRequest request;
        request.prompt = {document.tokens.front()};
        request.forced.assign(document.tokens.begin() + 1, document.tokens.end());
        request.max_tokens = static_cast<int>(request.forced.size());
        request.ignore_eos = true;
        num_blocks += Engine::worstCaseBlocks(request, config.cache.block_size);
        num_tokens += request.max_tokens;
        requests.push_back(std::move(request));
    }
    if (config.cache.num_blocks == 0) config.cache.num_blocks = static_cast<int>(num_blocks);

    Engine engine(model.weights, model.tokenizer, config);
    std::vector<RecallPredictions> results(documents.size());
    for (size_t i = 0; i < documents.size(); ++i) {
        results[i].best.resize(documents[i].tokens.size());
        results[i].nll.resize(documents[i].tokens.size());
    }
    // Requests enter in order and have one sequence each, so sequence i is document i; the log
    // confirms it below.
    engine.setLogitsObserver(
        [&](SequenceId sequence, int position, const float* logits, int vocab_size) {
            const auto idx = static_cast<size_t>(sequence.value);
            KVLAB_CHECK(idx < documents.size(), "logits of an unknown sequence");
            const auto next = static_cast<size_t>(position) + 1;
            if (next >= documents[idx].tokens.size()) return;
            judge(logits, vocab_size, documents[idx].tokens[next], results[idx].best[next],
                  results[idx].nll[next]);
        });
    std::vector<RequestId> submitted;
    submitted.reserve(requests.size());
    for (EngineRequest& request : requests) submitted.push_back(engine.submit(std::move(request)));
    std::vector<int64_t> num_predicted(documents.size());
    int64_t num_done = 0;
    while (const auto step = engine.step()) {
        for (const Event& event : step->events) {
            if (const auto* started = std::get_if<SequenceStarted>(&event)) {
                const auto idx = static_cast<size_t>(started->sequence.value);
                KVLAB_CHECK(idx < submitted.size() && started->request == submitted[idx],
                            "requests entered in another order");
            } else if (const auto* taken = std::get_if<BlocksAllocated>(&event)) {
                for (const SequenceId sequence : taken->sequence) {
                    ++results[static_cast<size_t>(sequence.value)].num_blocks;
                }
            } else if (const auto* sampled = std::get_if<TokensSampled>(&event)) {
                for (const SequenceId sequence : sampled->sequence) {
                    ++num_predicted[static_cast<size_t>(sequence.value)];
                    ++num_done;
                }
            }
        }
        on_progress(static_cast<double>(num_done) / static_cast<double>(num_tokens));
    }
    for (size_t i = 0; i < documents.size(); ++i) {
        KVLAB_CHECK(num_predicted[i] + 1 == static_cast<int64_t>(documents[i].tokens.size()),
                    "a document ended before its text");
    }
    return results;
}

}  // namespace

std::string_view recallKindName(RecallKind kind) {
    switch (kind) {
        case RecallKind::kStated:
            return "stated";
        case RecallKind::kUpdated:
            return "updated";
        case RecallKind::kUnanswerable:
            return "unanswerable";
    }
    return "";
}

RecallDocument makeRecallDocument(const CorpusDocument& document, const Tokenizer& tokenizer) {
    RecallDocument result;
    result.tokens = tokenizer.encode(document.text, true);
    const std::vector<int> offsets = tokenOffsets(result.tokens, tokenizer, document.text);
    if (offsets.empty()) {
        throw EngineError(ErrorKind::kUnsupported,
                          "eval cannot place answers: this model's tokens do not spell the text "
                          "back; use another model");
    }
    for (size_t i = 0; i < document.spans.size(); ++i) {
        const CorpusSpan& span = document.spans[i];
        if (span.kind != SpanKind::kAnswer) continue;
        RecallQuestion question;
        question.value = tokensInRange(offsets, span.value);
        if (question.value.empty()) continue;
        if (span.fact_idx < 0) {
            question.kind = RecallKind::kUnanswerable;
            question.distance = question.value.front();
        } else {
            question.kind = span.updated ? RecallKind::kUpdated : RecallKind::kStated;
            const std::vector<int> stated =
                tokensInRange(offsets, document.spans[static_cast<size_t>(span.fact_idx)].value);
            question.distance = question.value.front() - stated.back();
            KVLAB_CHECK(i > 0 && document.spans[i - 1].kind == SpanKind::kQuestion,
                        "an answer without its question");
            placeRefusal(question, result.tokens, offsets, document.text, document.spans[i - 1],
                         span, tokenizer);
        }
        result.questions.push_back(std::move(question));
    }
    return result;
}

void ClusteredMean::add(int64_t document_idx, double sum, int64_t count) {
    Document& document = documents_[document_idx];
    document.sum += sum;
    document.count += count;
}

double ClusteredMean::sum() const {
    double sum = 0;
    for (const auto& [idx, document] : documents_) sum += document.sum;
    return sum;
}

int64_t ClusteredMean::count() const {
    int64_t count = 0;
    for (const auto& [idx, document] : documents_) count += document.count;
    return count;
}

std::optional<double> ClusteredMean::mean() const {
    const int64_t n = count();
    if (n == 0) return std::nullopt;
    return sum() / static_cast<double>(n);
}

std::optional<double> ClusteredMean::variance() const {
    const std::optional<double> middle = mean();
    const auto m = static_cast<double>(documents_.size());
    if (!middle || documents_.size() < 2) return std::nullopt;
    double scatter = 0;
    for (const auto& [idx, document] : documents_) {
        const double rest = document.sum - *middle * static_cast<double>(document.count);
        scatter += rest * rest;
    }
    const auto n = static_cast<double>(count());
    return m / (m - 1) * scatter / (n * n);
}

std::optional<std::array<double, 2>> ClusteredMean::interval() const {
    const std::optional<double> squared = variance();
    if (!squared) return std::nullopt;
    const double half = kNormalQuantile * std::sqrt(*squared);
    return std::array<double, 2>{*mean() - half, *mean() + half};
}

std::optional<std::array<double, 2>> ClusteredMean::shareInterval() const {
    const std::optional<double> share = mean();
    if (!share) return std::nullopt;
    const double p = *share;
    auto n = static_cast<double>(count());
    if (documents_.size() == 1) {
        n = 1;
    } else if (p > 0 && p < 1) {
        n /= std::max(1.0, *variance() / (p * (1 - p) / n));
    }
    constexpr double kSquare = kNormalQuantile * kNormalQuantile;
    const double scale = 1 / (1 + kSquare / n);
    const double centre = scale * (p + kSquare / (2 * n));
    const double half =
        scale * kNormalQuantile * std::sqrt(p * (1 - p) / n + kSquare / (4 * n * n));
    return std::array<double, 2>{std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

void RecallReport::add(const RecallDocument& document, const RecallPredictions& predictions) {
    const size_t num = document.tokens.size();
    KVLAB_CHECK(predictions.best.size() == num && predictions.nll.size() == num,
                "predictions of another document");
    const int64_t idx = num_documents++;
    num_tokens += static_cast<int64_t>(num);
    num_blocks += predictions.num_blocks;
    std::vector<char> is_value(num);
    for (const RecallQuestion& question : document.questions) {
        bool exact = true;
        for (const int token : question.value) {
            const auto at = static_cast<size_t>(token);
            is_value[at] = 1;
            exact = exact && predictions.best[at] == document.tokens[at];
        }
        Exact& kind = kinds[static_cast<size_t>(question.kind)];
        kind.all.add(idx, exact);
        const auto above = std::upper_bound(kRecallDistanceEdges.begin(),
                                            kRecallDistanceEdges.end(), question.distance);
        if (above == kRecallDistanceEdges.begin()) {
            kind.nearer.add(idx, exact);
        } else {
            kind.by_distance[static_cast<size_t>(above - kRecallDistanceEdges.begin() - 1)].add(
                idx, exact);
        }
        for (size_t i = 0; i < kRecallRanges.size(); ++i) {
            const auto [first, last] = kRecallRanges[i];
            if (question.distance >= first && question.distance <= last) {
                kind.in_range[i].add(idx, exact);
            }
        }
        if (question.refusal_idx >= 0) {
            const bool refused = predictions.best[static_cast<size_t>(question.refusal_idx)] ==
                                 question.refusal_token;
            kind.refused.add(idx, refused);
            false_refusals.add(idx, refused);
        }
    }
    for (size_t i = 1; i < num; ++i) {
        nll.add(idx, predictions.nll[i], 1);
        if (is_value[i] == 0) nll_text.add(idx, predictions.nll[i], 1);
    }
}

RecallReport measureRecall(const LoadedModel& model,
                           EngineConfig config,
                           const RecallOptions& options) {
    const int num_words =
        std::max(1, static_cast<int>(options.doc_tokens / kCorpusTokensPerWord * kLengthMargin));
    RecallReport report;
    for (int first = 0; first < options.num_documents; first += kDocumentsPerBatch) {
        std::vector<RecallDocument> documents;
        for (int i = first; i < std::min(options.num_documents, first + kDocumentsPerBatch); ++i) {
            documents.push_back(makeRecallDocument(
                generateDocument(options.corpus, static_cast<uint64_t>(i), num_words),
                *model.tokenizer));
        }
        const auto num_here = static_cast<double>(documents.size());
        const auto on_progress = [&](double share) {
            if (!options.on_progress) return;
            options.on_progress((first + num_here * share) / options.num_documents);
        };
        const std::vector<RecallPredictions> results =
            runBatch(model, config, documents, on_progress);
        for (size_t i = 0; i < documents.size(); ++i) report.add(documents[i], results[i]);
    }
    report.bytes_per_block =
        model.weights->config.kvBytesPerToken(config.cache.kv_dtype) * config.cache.block_size;
    return report;
}

}  // namespace kvlab
