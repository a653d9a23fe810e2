// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/session/generation.h"

namespace kvlab {

// Where a number comes from; shown as solid, dashed, dotted underline and as a mark (DESIGN.md
// section 8).
enum class Provenance { kMeasured, kDerived, kQuoted, kBuiltIn };
const char* provenanceName(Provenance provenance);

// An expected wrong answer and the sentence that meets it.
struct ExpectedAnswer {
    double value = 0;
    std::string reply;
};

// Predict, then reveal.
struct Question {
    std::string id;
    std::string text;      // from the language file
    std::string unit;      // "blocks"
    std::string quantity;  // the claim whose formula holds the right answer
    double tolerance = 0;  // absolute, in `unit`
    std::string reply_right, reply_wrong;
    std::vector<ExpectedAnswer> expected;
};

// A row of "claim, formula, measured".
struct Claim {
    std::string id;
    // Of `measured`; kBuiltIn where the bundled model was trained to show it.
    Provenance provenance = Provenance::kMeasured;
    std::string text;  // paraphrase of the text's claim
    std::string unit;
    std::optional<double> quoted;  // the text's figure; empty: it gives none
    std::string run;               // id of the LessonRun that measures it
    std::string minus_run;  // "": none; else the claim is the difference of the two runs' metric
    std::string metric;     // key of RunMetrics, "tokens_held"; names the formula too
    double tolerance = 0;   // absolute, measured against formula; the text's figure never decides
    // Filled by the runner from engine/sizing (the one place that computes it).
    std::string formula;              // "n·prompt + …" in words
    std::string formula_substituted;  // "2,000 + 8 · 100"
    std::optional<double> formula_value;
    std::optional<double> measured;
    bool pass = false;
};

struct LessonRun {
    std::string id;
    RunConfig config;
    std::optional<RunMetrics> measured;  // filled by the runner
};

// A place in the lesson: text beside the picture.
struct LessonStop {
    std::string id;
    std::string title;
    std::string body;      // Markdown paragraphs; links such as [the shared blocks](kv:block/37)
    std::string run;       // which run the window shows, "" keeps the last
    int64_t step = -1;     // cursor: before this step; -1 leaves it
    std::string question;  // id, "" for none
    bool show_claims = false;  // after the question was answered or skipped
};

struct Lesson {
    std::string id;
    int order = 0;
    std::string title;
    std::vector<LessonRun> runs;
    std::vector<LessonStop> stops;
    std::vector<Question> questions;
    std::vector<Claim> claims;
};

}  // namespace kvlab
