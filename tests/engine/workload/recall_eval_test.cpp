// SPDX-License-Identifier: MIT
#include "engine/workload/recall_eval.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>

#include <QFile>
#include <QTest>

#include "engine/error.h"
#include "engine/model/model_loader.h"
#include "engine/model/tokenizer.h"
#include "engine/model/weights.h"
#include "tests/support/reference_model.h"

namespace kvlab {
namespace {

RecallOptions optionsOf(DocumentLayout layout, int num_documents, int doc_tokens) {
    RecallOptions options;
    options.corpus.layout = layout;
    options.corpus.held_out = true;
    options.corpus.seed = 11;
    options.corpus.update_percent = 60;
    options.corpus.unanswerable_percent = 60;
    options.num_documents = num_documents;
    options.doc_tokens = doc_tokens;
    return options;
}

// Counts of one name, "updated 200" or "refused stated".
struct Tally {
    int64_t num_hits = 0;
    int64_t count = 0;
    void add(bool hit) {
        num_hits += hit ? 1 : 0;
        ++count;
    }
    bool operator==(const Tally&) const = default;
};
using Tallies = std::map<std::string, Tally>;

// The same counts made again without RecallDocument: characters are walked one by one, and a
// refusal is the first piece of " Nobody knows" at the first piece of the answer's sentence.
void recount(const CorpusDocument& document,
             const Tokenizer& tokenizer,
             const std::vector<TokenId>& best,
             Tallies* tallies) {
    const std::vector<TokenId> tokens = tokenizer.encode(document.text, true);
    // Token of each character; the bundled tokenizer puts one space in front of the text.
    std::vector<int> token_of;
    for (size_t i = 0; i < tokens.size(); ++i) {
        token_of.insert(token_of.end(), tokenizer.piece(tokens[i]).size(), static_cast<int>(i));
    }
    token_of.erase(token_of.begin());
    QCOMPARE(token_of.size(), document.text.size());
    const TokenId refusal = tokenizer.encode("Nobody knows", false).front();
    for (size_t i = 0; i < document.spans.size(); ++i) {
        const CorpusSpan& span = document.spans[i];
        if (span.kind != SpanKind::kAnswer) continue;
        bool exact = true;
        for (int at = span.value[0]; at < span.value[1]; ++at) {
            const auto token = static_cast<size_t>(token_of[static_cast<size_t>(at)]);
            exact = exact && best[token] == tokens[token];
        }
        const int first = token_of[static_cast<size_t>(span.value[0])];
        std::string kind = "unanswerable";
        int distance = first;
        if (span.fact_idx >= 0) {
            kind = span.updated ? "updated" : "stated";
            const CorpusSpan& fact = document.spans[static_cast<size_t>(span.fact_idx)];
            distance = first - token_of[static_cast<size_t>(fact.value[1] - 1)];
            // One character after the question mark stands the space, then the answer.
            const auto begin = static_cast<size_t>(document.spans[i - 1].value[0] + 1);
            const bool refused = best[static_cast<size_t>(token_of[begin])] == refusal;
            (*tallies)["refused " + kind].add(refused);
            (*tallies)["refused"].add(refused);
        } else {
            const auto begin = static_cast<size_t>(span.value[0]);
            const auto length = static_cast<size_t>(span.value[1] - span.value[0]);
            QCOMPARE(document.text.substr(begin, length), std::string(kRefusal));
        }
        int edge = 0;
        for (const int candidate : {20, 100, 200, 400, 600, 800, 1500}) {
            if (distance >= candidate) edge = candidate;
        }
        (*tallies)[kind].add(exact);
        (*tallies)[kind + " " + std::to_string(edge)].add(exact);
        if (distance >= 100 && distance <= 800) (*tallies)[kind + " 100-800"].add(exact);
        if (distance >= 1500 && distance <= 2000) (*tallies)[kind + " 1500-2000"].add(exact);
    }
}

Tallies talliesOf(const RecallReport& report) {
    Tallies tallies;
    const auto put = [&](const std::string& name, const ClusteredMean& mean) {
        if (mean.count() > 0) tallies[name] = {std::llround(mean.sum()), mean.count()};
    };
    for (const RecallKind kind :
         {RecallKind::kStated, RecallKind::kUpdated, RecallKind::kUnanswerable}) {
        const std::string name(recallKindName(kind));
        const RecallReport::Exact& exact = report.of(kind);
        put(name, exact.all);
        put(name + " 0", exact.nearer);
        for (size_t i = 0; i < kRecallDistanceEdges.size(); ++i) {
            put(name + " " + std::to_string(kRecallDistanceEdges[i]), exact.by_distance[i]);
        }
        put(name + " 100-800", exact.in_range[0]);
        put(name + " 1500-2000", exact.in_range[1]);
        put("refused " + name, exact.refused);
    }
    put("refused", report.false_refusals);
    return tallies;
}

std::string described(const Tallies& tallies) {
    std::string text;
    for (const auto& [name, tally] : tallies) {
        text +=
            name + ": " + std::to_string(tally.num_hits) + "/" + std::to_string(tally.count) + "; ";
    }
    return text;
}

// Words of a document of so many tokens, as DESIGN.md's protocol makes it.
int numWords(int doc_tokens) { return static_cast<int>(doc_tokens / kCorpusTokensPerWord * 0.97); }

}  // namespace

class RecallEvalTest : public QObject {
    Q_OBJECT

  private slots:
    void sharesOfIndependentDraws();
    void clusteredSharesAreLessSure();
    void meanIntervalByHand();
    void countsAgreeWithARecount_data();
    void countsAgreeWithARecount();
    void predictionsAgreeWithTheDenseReference();
};

void RecallEvalTest::sharesOfIndependentDraws() {
    ClusteredMean none;
    QVERIFY(!none.mean() && !none.interval() && !none.shareInterval());
    // Wilson at 0 and 1 in closed form: z^2 / (n + z^2) away from it.
    constexpr double kSquare = 3.8414588;
    ClusteredMean all, nothing, one_document;
    for (int i = 0; i < 10; ++i) {
        all.add(i / 5, true);
        nothing.add(i / 5, false);
        one_document.add(3, true);
    }
    QVERIFY(std::abs((*all.shareInterval())[0] - 10 / (10 + kSquare)) < 1e-6);
    QCOMPARE((*all.shareInterval())[1], 1.0);
    QCOMPARE((*nothing.shareInterval())[0], 0.0);
    QVERIFY(std::abs((*nothing.shareInterval())[1] - kSquare / (10 + kSquare)) < 1e-6);
    // Ten questions of one document are one observation.
    QVERIFY(std::abs((*one_document.shareInterval())[0] - 1 / (1 + kSquare)) < 1e-6);
    QVERIFY(!one_document.interval());
}

void RecallEvalTest::clusteredSharesAreLessSure() {
    // One document all right and one all wrong: as good as one observation of 0.5. Spread evenly,
    // the twenty count in full.
    ClusteredMean apart, even;
    for (int i = 0; i < 10; ++i) {
        apart.add(0, true);
        apart.add(1, false);
        even.add(0, i % 2 == 0);
        even.add(1, i % 2 == 0);
    }
    const auto wilson = [](double p,
                           double n) {  // half width, solved from (p - x)^2 n = z^2 x(1-x)
        const double z2 = 3.8414588;
        return std::sqrt(z2 * z2 + 4 * n * z2 * p * (1 - p)) / (2 * (n + z2));
    };
    QCOMPARE(*apart.mean(), 0.5);
    QVERIFY(std::abs((*apart.shareInterval())[1] - 0.5 - wilson(0.5, 1)) < 1e-6);
    QVERIFY(std::abs((*even.shareInterval())[1] - 0.5 - wilson(0.5, 20)) < 1e-6);
}

void RecallEvalTest::meanIntervalByHand() {
    // Documents (sum, count) (3, 2), (1, 2), (8, 4): mean 1.5, rests 0, -2, 2,
    // se^2 = 3/2 * 8 / 64 = 0.1875.
    ClusteredMean mean;
    mean.add(0, 3.0, 2);
    mean.add(7, 0.5, 1);
    mean.add(7, 0.5, 1);
    mean.add(2, 8.0, 4);
    QCOMPARE(*mean.mean(), 1.5);
    QCOMPARE(mean.numDocuments(), 3);
    const double half = 1.959964 * std::sqrt(0.1875);
    QVERIFY(std::abs((*mean.interval())[0] - (1.5 - half)) < 1e-6);
    QVERIFY(std::abs((*mean.interval())[1] - (1.5 + half)) < 1e-6);
}

void RecallEvalTest::countsAgreeWithARecount_data() {
    QTest::addColumn<int>("layout");
    QTest::addColumn<int>("doc_tokens");
    QTest::newRow("stream") << static_cast<int>(DocumentLayout::kStream) << 700;
    QTest::newRow("facts first") << static_cast<int>(DocumentLayout::kFactsFirst) << 2200;
}

void RecallEvalTest::countsAgreeWithARecount() {
    QFETCH(int, layout);
    QFETCH(int, doc_tokens);
    if (!QFile::exists(QString::fromStdString(bundledModelPath()))) {
        QSKIP("the bundled model is missing");
    }
    const std::shared_ptr<const Tokenizer> tokenizer = loadModel("").tokenizer;
    const RecallOptions options = optionsOf(static_cast<DocumentLayout>(layout), 12, doc_tokens);
    const TokenId refusal = tokenizer->encode("Nobody knows", false).front();
    RecallReport report;
    Tallies expected;
    double sum = 0;
    int64_t num_predicted = 0;
    std::mt19937 random(5);  // its numbers are fixed by the standard; distributions' are not
    for (int i = 0; i < options.num_documents; ++i) {
        const CorpusDocument document =
            generateDocument(options.corpus, static_cast<uint64_t>(i), numWords(doc_tokens));
        const RecallDocument placed = makeRecallDocument(document, *tokenizer);
        // Nearly right predictions, with refusals in places where an answer may begin or not.
        RecallPredictions predictions;
        predictions.best = placed.tokens;
        predictions.nll.resize(placed.tokens.size());
        for (size_t t = 1; t < placed.tokens.size(); ++t) {
            const auto roll = random() % 100;
            if (roll < 8) predictions.best[t] = placed.tokens[t - 1];
            if (roll >= 85) predictions.best[t] = refusal;
            predictions.nll[t] = static_cast<double>(random() % 1000) / 500;
            sum += predictions.nll[t];
            ++num_predicted;
        }
        predictions.num_blocks = 2;
        report.add(placed, predictions);
        recount(document, *tokenizer, predictions.best, &expected);
    }
    QCOMPARE(described(talliesOf(report)), described(expected));
    for (const char* name : {"stated", "updated", "unanswerable", "refused"}) {
        const Tally& tally = expected[name];
        QVERIFY2(tally.num_hits > 0 && tally.num_hits < tally.count, name);
    }
    QCOMPARE(report.nll.count(), num_predicted);
    QVERIFY(std::abs(report.nll.sum() - sum) < 1e-6);
    QVERIFY(report.nll_text.count() < num_predicted);
    QCOMPARE(report.num_documents, 12);
    QCOMPARE(report.num_blocks, 24);
}

void RecallEvalTest::predictionsAgreeWithTheDenseReference() {
    if (!QFile::exists(QString::fromStdString(bundledModelPath()))) {
        QSKIP("the bundled model is missing");
    }
    const LoadedModel model = loadModel("");
    EngineConfig config;
    config.cache.kv_dtype = DataType::kF32;
    config.num_threads = 2;
    RecallOptions options = optionsOf(DocumentLayout::kStream, 3, 200);
    std::vector<double> progress;
    options.on_progress = [&progress](double share) { progress.push_back(share); };
    const RecallReport report = measureRecall(model, config, options);
    QVERIFY(progress.size() > 100);  // some 200 tokens, one a step and document
    QVERIFY(std::is_sorted(progress.begin(), progress.end()));
    QVERIFY(progress.front() > 0);
    QCOMPARE(progress.back(), 1.0);

    const LlamaReferenceModel dense = reference(*model.weights);
    const auto vocab_size = static_cast<size_t>(dense.vocab_size);
    Tallies expected;
    double sum = 0, sum_text = 0;
    int64_t num_text = 0;
    for (int i = 0; i < options.num_documents; ++i) {
        const CorpusDocument document =
            generateDocument(options.corpus, static_cast<uint64_t>(i), numWords(200));
        const std::vector<TokenId> tokens = model.tokenizer->encode(document.text, true);
        std::vector<int32_t> ids;
        for (const TokenId token : tokens) ids.push_back(token.value);
        const std::vector<double> logits = llamaReference(dense, ids);
        // The text with every answer's value blanked: what is left belongs to nll_text.
        std::string masked = document.text;
        for (const CorpusSpan& span : document.spans) {
            if (span.kind != SpanKind::kAnswer) continue;
            for (int at = span.value[0]; at < span.value[1]; ++at) {
                masked[static_cast<size_t>(at)] = '#';
            }
        }
        std::vector<TokenId> best(tokens.size());
        size_t at = 0;
        for (size_t t = 1; t < tokens.size(); ++t) {
            const auto row = logits.begin() + static_cast<std::ptrdiff_t>((t - 1) * vocab_size);
            const auto end = row + dense.vocab_size;
            best[t] = TokenId(std::max_element(row, end) - row);
            double total = 0;
            for (auto logit = row; logit != end; ++logit) total += std::exp(*logit);
            const double nll = std::log(total) - row[ids[t]];
            const std::string piece = model.tokenizer->piece(tokens[t]);
            // The first piece brings a space that the text does not have.
            const size_t length = piece.size() - (t == 1 ? 1 : 0);
            sum += nll;
            if (masked.substr(at, length).find('#') == std::string::npos) {
                sum_text += nll;
                ++num_text;
            }
            at += length;
        }
        recount(document, *model.tokenizer, best, &expected);
    }
    QCOMPARE(described(talliesOf(report)), described(expected));
    QVERIFY(expected["stated"].num_hits > 0);
    QVERIFY(std::abs(report.nll.sum() - sum) < 1e-3 * sum);
    QCOMPARE(report.nll_text.count(), num_text);
    QVERIFY(std::abs(report.nll_text.sum() - sum_text) < 1e-3 * sum_text);
}

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::RecallEvalTest)
#include "recall_eval_test.moc"
