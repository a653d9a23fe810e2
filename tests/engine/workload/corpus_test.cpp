// SPDX-License-Identifier: MIT
#include "engine/workload/corpus.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <QtTest>

#include "engine/error.h"

namespace kvlab {
namespace {

std::string textOf(const CorpusDocument& document, const std::array<int, 2>& range) {
    return document.text.substr(static_cast<size_t>(range[0]),
                                static_cast<size_t>(range[1] - range[0]));
}

int numWords(const std::string& text) {
    int words = 0;
    bool inside = false;
    for (const char c : text) {
        const bool blank = c == ' ' || c == '\n';
        words += !blank && !inside;
        inside = !blank;
    }
    return words;
}

CorpusOptions optionsOf(DocumentLayout layout, bool held_out, uint64_t seed) {
    CorpusOptions options;
    options.layout = layout;
    options.held_out = held_out;
    options.seed = seed;
    options.update_percent = 30;
    options.unanswerable_percent = 30;
    return options;
}

const DocumentLayout kLayouts[] = {DocumentLayout::kStream, DocumentLayout::kFactsFirst,
                                   DocumentLayout::kMixed};

}  // namespace

class CorpusTest : public QObject {
    Q_OBJECT

  private slots:
    void sameSeedSameText();
    void textIsFixedAcrossPlatforms();
    void spansAreExact();
    void answersFollowTheStatementThatCounts();
    void heldOutTriplesStayApart();
    void heldOutShareIsATenth();
    void lengthIsReached();
    void factsFirstAsksLast();
    void storiesKeepTheirWords();
    void keysAreStatedOnce();
    void textIsPlain();
    void jsonNamesEverySpan();
    void badArgumentsAreRefused();
};

void CorpusTest::sameSeedSameText() {
    const CorpusOptions options = optionsOf(DocumentLayout::kMixed, false, 5);
    std::set<std::string> texts;
    for (uint64_t i = 0; i < 50; ++i) {
        const CorpusDocument document = generateDocument(options, i, 120);
        QCOMPARE(document.text, generateDocument(options, i, 120).text);
        texts.insert(document.text);
    }
    QCOMPARE(texts.size(), size_t{50});
    CorpusOptions other = options;
    other.seed = 6;
    QVERIFY(generateDocument(options, 0, 120).text != generateDocument(other, 0, 120).text);
}

// Lessons quote counts of this text, so a change here changes them.
void CorpusTest::textIsFixedAcrossPlatforms() {
    const CorpusDocument document = generateDocument(CorpusOptions{}, 0, 20);
    QCOMPARE(document.text,
             std::string(
                 "A quiet day in the village.\n"
                 "Clara looks after a mouse called Fig. Karl made pear soup to surprise Lena. The "
                 "soup burned. Lena was surprised all the same. That was the day in the village."));
}

void CorpusTest::spansAreExact() {
    int num_spans = 0;
    for (const DocumentLayout layout : kLayouts) {
        for (uint64_t i = 0; i < 100; ++i) {
            const CorpusDocument document = generateDocument(optionsOf(layout, false, 1), i, 300);
            int last_begin = 0;
            for (size_t s = 0; s < document.spans.size(); ++s) {
                const CorpusSpan& span = document.spans[s];
                ++num_spans;
                const int size = static_cast<int>(document.text.size());
                QVERIFY(0 < span.key[0] && span.key[0] < span.key[1] && span.key[1] <= size);
                QVERIFY(span.value[0] <= span.value[1] && span.value[1] <= size);
                QVERIFY(span.key[0] >= last_begin);
                last_begin = span.key[0];
                for (const auto& range : {span.key, span.value}) {
                    if (range[0] == range[1]) continue;
                    const std::string part = textOf(document, range);
                    QVERIFY(part.front() != ' ' && part.back() != ' ' && part.back() != '.');
                    // Whole words only.
                    const char before = document.text[static_cast<size_t>(range[0]) - 1];
                    QVERIFY(before == ' ' || before == '\n');
                    const char after = document.text[static_cast<size_t>(range[1])];
                    QVERIFY(after == ' ' || after == '.' || after == '?');
                }
                if (span.kind == SpanKind::kQuestion) {
                    QCOMPARE(span.value[0], span.value[1]);
                    QCOMPARE(document.text[static_cast<size_t>(span.value[0]) - 1], '?');
                    QVERIFY(s + 1 < document.spans.size());
                    QVERIFY(document.spans[s + 1].kind == SpanKind::kAnswer);
                    QCOMPARE(document.spans[s + 1].key, span.key);
                } else {
                    QVERIFY(span.value[0] > span.key[1]);
                }
            }
        }
    }
    QVERIFY(num_spans > 3000);
}

void CorpusTest::answersFollowTheStatementThatCounts() {
    int num_updated = 0;
    int num_unknown = 0;
    int num_stated = 0;
    for (uint64_t i = 0; i < 200; ++i) {
        const CorpusDocument document =
            generateDocument(optionsOf(DocumentLayout::kMixed, false, 2), i, 500);
        std::map<std::pair<std::string, std::string>, int> last_fact;
        for (size_t s = 0; s < document.spans.size(); ++s) {
            const CorpusSpan& span = document.spans[s];
            const auto key = std::make_pair(span.fact_kind, textOf(document, span.key));
            if (span.kind == SpanKind::kFact) {
                QCOMPARE(span.fact_idx, static_cast<int>(s));
                QCOMPARE(span.updated, last_fact.count(key) == 1);
                last_fact[key] = static_cast<int>(s);
            } else if (span.kind == SpanKind::kAnswer) {
                const auto found = last_fact.find(key);
                QCOMPARE(span.fact_idx, found == last_fact.end() ? -1 : found->second);
                if (span.fact_idx < 0) {
                    ++num_unknown;
                    QCOMPARE(textOf(document, span.value), std::string("Nobody knows"));
                    continue;
                }
                const CorpusSpan& fact = document.spans[static_cast<size_t>(span.fact_idx)];
                QCOMPARE(textOf(document, span.value), textOf(document, fact.value));
                QCOMPARE(span.updated, fact.updated);
                ++(span.updated ? num_updated : num_stated);
            }
        }
    }
    QVERIFY(num_updated > 50);
    QVERIFY(num_unknown > 50);
    QVERIFY(num_stated > 1000);
}

void CorpusTest::heldOutTriplesStayApart() {
    for (const bool held_out : {false, true}) {
        int num_facts = 0;
        std::set<std::string> kinds;
        for (const DocumentLayout layout : kLayouts) {
            for (uint64_t i = 0; i < 150; ++i) {
                const CorpusDocument document =
                    generateDocument(optionsOf(layout, held_out, 3), i, 250);
                for (const CorpusSpan& span : document.spans) {
                    if (span.fact_idx < 0 || span.kind == SpanKind::kQuestion) continue;
                    ++num_facts;
                    kinds.insert(span.fact_kind);
                    QCOMPARE(isHeldOutTriple(span.fact_kind, textOf(document, span.key),
                                             textOf(document, span.value)),
                             held_out);
                }
            }
        }
        QVERIFY(num_facts > 3000);
        QCOMPARE(kinds.size(), size_t{6});
    }
}

void CorpusTest::heldOutShareIsATenth() {
    int held_out = 0;
    for (int code = 0; code < 1000; ++code) {
        for (const char* name : {"Mira", "Otto", "Vera"}) {
            const std::string digits = std::to_string(code);
            held_out += isHeldOutTriple("code", name, std::string(3 - digits.size(), '0') + digits);
        }
    }
    QVERIFY(held_out > 240 && held_out < 360);
    QVERIFY(isHeldOutTriple("job", "baker", "Mira") == isHeldOutTriple("job", "baker", "Mira"));
}

void CorpusTest::lengthIsReached() {
    for (const DocumentLayout layout : kLayouts) {
        for (const int words : {1, 40, 300, 800, 2600}) {
            for (uint64_t i = 0; i < 20; ++i) {
                const int length =
                    numWords(generateDocument(optionsOf(layout, false, 4), i, words).text);
                QVERIFY2(length >= words, qPrintable(QString::number(length)));
                QVERIFY2(length <= words * 12 / 10 + 60, qPrintable(QString::number(length)));
            }
        }
    }
}

void CorpusTest::factsFirstAsksLast() {
    int num_updated = 0;
    for (uint64_t i = 0; i < 50; ++i) {
        const CorpusDocument document =
            generateDocument(optionsOf(DocumentLayout::kFactsFirst, true, 8), i, 700);
        std::multiset<int> asked;
        bool questions_began = false;
        int last_fact_end = 0;
        int first_question = 0;
        for (const CorpusSpan& span : document.spans) {
            if (span.kind == SpanKind::kFact) {
                QVERIFY(!questions_began);
                num_updated += span.updated;
                last_fact_end = span.value[1];
            } else if (!questions_began) {
                questions_began = true;
                first_question = span.key[0];
            }
            if (span.kind == SpanKind::kQuestion && span.fact_idx >= 0) asked.insert(span.fact_idx);
        }
        QVERIFY(asked.size() >= 8);
        QCOMPARE(asked.size(), std::set<int>(asked.begin(), asked.end()).size());
        const int size = static_cast<int>(document.text.size());
        QVERIFY(last_fact_end < size * 35 / 100);
        QVERIFY(first_question > size * 60 / 100);
    }
    QVERIFY(num_updated > 10);
}

void CorpusTest::storiesKeepTheirWords() {
    const QRegularExpression lost(
        "lost a \\w+ (\\w+) on the road\\.[ \n]\\w+ helped to look for it\\."
        "[ \n]They found the (\\w+) near");
    int num_stories = 0;
    for (uint64_t i = 0; i < 100; ++i) {
        const std::string text =
            generateDocument(optionsOf(DocumentLayout::kStream, false, 12), i, 600).text;
        auto matches = lost.globalMatch(QString::fromStdString(text));
        while (matches.hasNext()) {
            const QRegularExpressionMatch match = matches.next();
            QCOMPARE(match.captured(2), match.captured(1));
            ++num_stories;
        }
    }
    QVERIFY(num_stories > 20);
}

void CorpusTest::keysAreStatedOnce() {
    for (uint64_t i = 0; i < 100; ++i) {
        CorpusOptions options;
        options.seed = 9;
        const CorpusDocument document = generateDocument(options, i, 800);
        std::set<std::pair<std::string, std::string>> keys;
        for (const CorpusSpan& span : document.spans) {
            QVERIFY(span.kind == SpanKind::kFact || span.fact_idx >= 0);
            QVERIFY(!span.updated);
            if (span.kind == SpanKind::kFact) {
                QVERIFY(keys.insert({span.fact_kind, textOf(document, span.key)}).second);
            }
        }
    }
}

void CorpusTest::textIsPlain() {
    for (uint64_t i = 0; i < 100; ++i) {
        const std::string text =
            generateDocument(optionsOf(DocumentLayout::kMixed, false, 10), i, 400).text;
        QVERIFY(std::all_of(text.begin(), text.end(),
                            [](char c) { return c == '\n' || (c >= ' ' && c <= 'z'); }));
        for (const char* wrong : {"  ", " .", " ?", "\n\n", " \n", "\n ", "$", "#", "@", "|"}) {
            QVERIFY2(text.find(wrong) == std::string::npos, wrong);
        }
        QCOMPARE(text.back(), '.');
    }
}

void CorpusTest::jsonNamesEverySpan() {
    const CorpusDocument document =
        generateDocument(optionsOf(DocumentLayout::kStream, false, 11), 0, 150);
    QVERIFY(!document.spans.empty());
    const QByteArray json = QByteArray::fromStdString(corpusDocumentJson(document));
    QVERIFY(!json.contains('\n'));
    QJsonParseError error;
    const QJsonObject object = QJsonDocument::fromJson(json, &error).object();
    QCOMPARE(error.error, QJsonParseError::NoError);
    QCOMPARE(object["text"].toString().toStdString(), document.text);
    const QJsonArray spans = object["spans"].toArray();
    QCOMPARE(spans.size(), static_cast<qsizetype>(document.spans.size()));
    for (qsizetype i = 0; i < spans.size(); ++i) {
        const CorpusSpan& span = document.spans[static_cast<size_t>(i)];
        const QJsonObject read = spans[i].toObject();
        QCOMPARE(read["key"].toArray()[0].toInt(), span.key[0]);
        QCOMPARE(read["key"].toArray()[1].toInt(), span.key[1]);
        QCOMPARE(read["value"].toArray()[0].toInt(), span.value[0]);
        QCOMPARE(read["value"].toArray()[1].toInt(), span.value[1]);
        QCOMPARE(read["fact"].toInt(), span.fact_idx);
        QCOMPARE(read["fact_kind"].toString().toStdString(), span.fact_kind);
    }
    QCOMPARE(spans[0].toObject()["kind"].toString(), QStringLiteral("fact"));
}

void CorpusTest::badArgumentsAreRefused() {
    const CorpusOptions options;
    QVERIFY_THROWS_EXCEPTION(EngineError, generateDocument(options, 0, 0));
    QVERIFY_THROWS_EXCEPTION(EngineError, generateDocument(options, 0, kMaxCorpusWords + 1));
    CorpusOptions wrong;
    wrong.update_percent = 101;
    QVERIFY_THROWS_EXCEPTION(EngineError, generateDocument(wrong, 0, 50));
}

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::CorpusTest)
#include "corpus_test.moc"
