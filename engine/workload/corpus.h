// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace kvlab {

enum class SpanKind { kFact, kQuestion, kAnswer };

// Where one sentence of interest lies in a document. All offsets are character (= byte: the text is
// ASCII) half-open ranges [begin, end) into CorpusDocument::text, without surrounding spaces.
struct CorpusSpan {
    SpanKind kind = SpanKind::kFact;
    // What the sentence is about. For an answer: the key in the question it belongs to.
    std::array<int, 2> key{0, 0};
    // What is stated or answered; empty [x, x) for questions. "Nobody knows" when nothing was said.
    std::array<int, 2> value{0, 0};
    // "place", "code", "home", "food", "pet" or "job".
    std::string fact_kind;
    // For answers and questions: index into CorpusDocument::spans of the statement that counts (the
    // last one of this key), -1 when the document never stated it. For facts: its own index.
    int fact_idx = -1;
    // The key had been stated before with another value (facts), or the statement that counts is
    // such a change (questions and answers).
    bool updated = false;
};

struct CorpusDocument {
    std::string text;
    std::vector<CorpusSpan> spans;  // in text order
};

enum class DocumentLayout {
    kStream,      // facts, questions and filler in random order
    kFactsFirst,  // facts, then filler, then every question once, in another order
    kMixed        // 70 % of documents stream, 30 % facts-first; for training
};

struct CorpusOptions {
    DocumentLayout layout = DocumentLayout::kStream;
    // Facts come only from the held-out tenth of all (kind, key, value) triples; otherwise only
    // from the other nine tenths. Training never sets it, evaluation does.
    bool held_out = false;
    std::uint64_t seed = 0;
    // Percentage (0 ... 100) of documents in which some facts change later in the text, and in
    // which some questions ask for what was never said. Facts-first documents state changes after
    // all facts.
    int update_percent = 0;
    int unanswerable_percent = 0;
};

// The bundled tokenizer makes about this many tokens of one word (begin token not counted).
inline constexpr double kCorpusTokensPerWord = 1.24;

// Documents longer than this many words are refused.
inline constexpr int kMaxCorpusWords = 1'000'000;

// Document number `document_idx` of the endless corpus that `options` names: the same text on every
// platform, independent of all other documents. The text has at least `approx_words` words
// (separated by white space) and stops at the end of the sentence or little story that reaches
// them, followed by a closing line; a document too short for its questions is longer. It never has
// fewer tokens than words, so the first N tokens of a document exist when approx_words >= N.
// Throws EngineError(kBadArgument) if approx_words is outside 1 ... kMaxCorpusWords or a percentage
// outside 0 ... 100.
CorpusDocument generateDocument(const CorpusOptions& options,
                                std::uint64_t document_idx,
                                int approx_words);

// True if the triple belongs to the tenth that training never sees. The strings are the span texts,
// e.g. ("code", "Mira", "742").
bool isHeldOutTriple(const std::string& fact_kind,
                     const std::string& key,
                     const std::string& value);

// One line of JSON without a line break: {"text": ..., "spans": [{"kind": "fact|question|answer",
// "key": [begin, end], "value": [begin, end], "fact_kind": ..., "fact": index or -1,
// "updated": bool}]}, offsets in characters.
std::string corpusDocumentJson(const CorpusDocument& document);

}  // namespace kvlab
