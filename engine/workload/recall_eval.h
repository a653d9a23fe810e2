// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config.h"
#include "engine/ids.h"
#include "engine/workload/corpus.h"

// Can a model still answer from its context? Generated documents run token by token through decode,
// their own text forced; the logits after token i are judged by token i + 1.
//
//   ... Mira keeps the code 742. ...filler... Which code does Mira keep? The code 742. ...
//                           ~~~                                       ^        ~~~
//                         statement <------------ distance ---------->|        value: exact when
//                                                 a refusal would start here   every token is the
//                                                                              arg max
namespace kvlab {

struct LoadedModel;
class Tokenizer;

enum class RecallKind {
    kStated,       // the fact was stated once
    kUpdated,      // it was stated again with another value; the last statement counts
    kUnanswerable  // never stated; the answer is the refusal
};
inline constexpr int kNumRecallKinds = 3;
// "stated", "updated", "unanswerable".
std::string_view recallKindName(RecallKind kind);

// What the corpus answers when a fact was never stated.
inline constexpr std::string_view kRefusal = "Nobody knows";

// Lower edges of the buckets of distances, in tokens; the last bucket is open.
inline constexpr std::array<int, 7> kRecallDistanceEdges = {20, 100, 200, 400, 600, 800, 1500};
// Ranges [first, last] of distances that the bundled model's quality is stated for.
inline constexpr std::array<std::array<int, 2>, 2> kRecallRanges = {{{100, 800}, {1500, 2000}}};

struct RecallQuestion {
    RecallKind kind = RecallKind::kStated;
    std::vector<int> value;  // indices of the tokens to predict, ascending, at least one
    // Tokens from the last token of the statement's value to the first of the answer's. With no
    // statement: tokens of context in front of the answer's value, begin token included.
    int distance = 0;
    // Index of the answer's first token that a refusal would not share, and the refusal's token
    // there: that arg max means the model refuses. -1 where the question is unanswerable or the
    // tokenizer gives no such place.
    int refusal_idx = -1;
    TokenId refusal_token{};
};

struct RecallDocument {
    std::vector<TokenId> tokens;  // begin token first
    std::vector<RecallQuestion> questions;
};

// Throws kUnsupported when the tokenizer does not spell the text back.
RecallDocument makeRecallDocument(const CorpusDocument& document, const Tokenizer& tokenizer);

// What a model said about one document. Element 0 is unused: nothing predicts the begin token.
struct RecallPredictions {
    std::vector<TokenId> best;  // arg max of the logits before token i, the first of equals
    std::vector<double> nll;    // -ln(probability of token i)
    int64_t num_blocks = 0;     // blocks that the document's own cache took
};

// A mean over things that come in documents. Questions of one document share its facts and filler,
// so they are not independent draws; the documents are. Intervals are two-sided, 95 %.
class ClusteredMean {
  public:
    void add(int64_t document_idx, double sum, int64_t count);
    void add(int64_t document_idx, bool hit) { add(document_idx, hit ? 1 : 0, 1); }

    double sum() const;
    int64_t count() const;
    int64_t numDocuments() const { return static_cast<int64_t>(documents_.size()); }
    // Pooled: sum / count. Empty without a count.
    std::optional<double> mean() const;
    // Mean plus and minus 1.96 standard errors, the error from the documents' scatter:
    //   se^2 = m / (m - 1) * sum over m documents of (sum_d - mean * count_d)^2 / count^2
    // Empty with fewer than two documents.
    std::optional<std::array<double, 2>> interval() const;
    // For shares, sums of 0 and 1. Wilson's interval for count / max(1, se^2 / (p (1 - p) / count))
    // observations, Kish's effective sample size (L. Kish, Survey Sampling, 1965): stays in [0, 1],
    // is Wilson's own when the share is 0 or 1 or documents differ by chance only, and wider when
    // hits cluster. One document is one observation.
    std::optional<std::array<double, 2>> shareInterval() const;

  private:
    struct Document {
        double sum = 0;
        int64_t count = 0;
    };
    std::optional<double> variance() const;  // se^2

    std::map<int64_t, Document> documents_;
};

struct RecallReport {
    // Exact answers of one kind. Every question is in `all`, in one bucket or `nearer`, and in each
    // range that holds its distance.
    struct Exact {
        ClusteredMean all;
        ClusteredMean nearer;  // below the first edge
        std::array<ClusteredMean, kRecallDistanceEdges.size()> by_distance;
        std::array<ClusteredMean, kRecallRanges.size()> in_range;
        ClusteredMean refused;  // stated and updated: refused at the answer's first own token
    };
    std::array<Exact, kNumRecallKinds> kinds;
    ClusteredMean false_refusals;  // over stated and updated facts together
    ClusteredMean nll;             // natural logarithm, all tokens but the begin token
    ClusteredMean nll_text;        // without the tokens of the answers' values
    int64_t num_documents = 0;
    int64_t num_tokens = 0;       // begin tokens included
    int64_t num_blocks = 0;       // over all documents, each at its end
    int64_t bytes_per_block = 0;  // K and V, all layers

    const Exact& of(RecallKind kind) const { return kinds[static_cast<size_t>(kind)]; }
    void add(const RecallDocument& document, const RecallPredictions& predictions);
};

struct RecallOptions {
    CorpusOptions corpus;
    int num_documents = 20;  // documents 0 ... num_documents - 1 of the corpus
    int doc_tokens = 1000;   // of each, about
    // After each engine step: the share of all documents that is through, rising to 1.
    std::function<void(double)> on_progress;
};

// Runs the documents through an Engine of `config` (num_blocks 0: as many as a batch needs).
// Several documents share a batch, which changes no number. Throws what Engine, makeRecallDocument
// and generateDocument throw.
RecallReport measureRecall(const LoadedModel& model,
                           EngineConfig config,
                           const RecallOptions& options);

}  // namespace kvlab
