// SPDX-License-Identifier: MIT
#include "lessons/lesson_runner.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/error.h"
#include "engine/session/session.h"
#include "engine/sizing/kv_size.h"
#include "engine/text_format.h"

namespace kvlab {

namespace {

const LessonRun& findRun(const Lesson& lesson, const std::string& id) {
    for (const LessonRun& run : lesson.runs) {
        if (run.id == id) return run;
    }
    throw EngineError(ErrorKind::kBadArgument, "lesson " + lesson.id + " has no run \"" + id +
                                                   "\"; name one that its lesson.json has");
}

// What the arithmetic says that the run will measure under `metric`.
Quantity formulaOf(const LessonRun& run, const std::string& metric) {
    const GenerationRequest& request = run.config.requests.front();
    // The last sampled token is never fed back, so it has no K/V.
    const SamplesSize size =
        samplesOfOnePrompt(request.prompt_num_tokens.value_or(0), request.max_tokens - 1,
                           request.num_samples, run.config.engine.cache.block_size);
    if (metric == "tokens_unshared") return size.tokens_unshared;
    if (metric == "blocks_held") return size.blocks_held;
    if (metric == "blocks_unshared") return size.blocks_unshared;
    if (metric == "copy_on_write") return size.copy_on_write;
    if (metric == "slots_allocated") return size.slots_allocated;
    if (metric == "slots_unused") return size.slots_unused;
    if (metric == "tokens_held") return size.tokens_held;
    throw EngineError(ErrorKind::kBadArgument, "no formula is known for metric \"" + metric +
                                                   "\"; correct the lesson's claim");
}

int64_t measuredValue(const RunMetrics& metrics, const std::string& metric) {
    if (metric == "tokens_held") return metrics.tokens_held;
    if (metric == "tokens_unshared") return metrics.tokens_unshared;
    if (metric == "blocks_held") return metrics.blocks_held;
    if (metric == "blocks_unshared") return metrics.blocks_unshared;
    if (metric == "copy_on_write") return metrics.copy_on_write;
    if (metric == "slots_allocated") return metrics.slots_allocated;
    if (metric == "slots_unused") return metrics.slots_unused;
    throw EngineError(ErrorKind::kBadArgument,
                      "no metric is called \"" + metric + "\"; correct the lesson's claim");
}

// The substituted formula without its "= value".
std::string expressionOf(const Quantity& quantity) {
    return quantity.substituted.substr(0, quantity.substituted.rfind(" = "));
}

}  // namespace

const char* provenanceName(Provenance provenance) {
    switch (provenance) {
        case Provenance::kMeasured:
            return "measured";
        case Provenance::kDerived:
            return "derived";
        case Provenance::kQuoted:
            return "quoted";
        case Provenance::kBuiltIn:
            return "built_in";
    }
    return "?";
}

void computeFormulas(Lesson& lesson) {
    for (Claim& claim : lesson.claims) {
        const Quantity quantity = formulaOf(findRun(lesson, claim.run), claim.metric);
        claim.formula = quantity.formula;
        claim.formula_substituted = expressionOf(quantity);
        int64_t value = quantity.value;
        if (!claim.minus_run.empty()) {
            const Quantity other = formulaOf(findRun(lesson, claim.minus_run), claim.metric);
            claim.formula = "difference of two runs: " + quantity.formula;
            claim.formula_substituted =
                formatCount(quantity.value) + " − " + formatCount(other.value);
            value -= other.value;
        }
        claim.formula_value = static_cast<double>(value);
    }
}

void recordMeasurement(Lesson& lesson, const std::string& run_id, const RunMetrics& metrics) {
    const auto run = std::find_if(lesson.runs.begin(), lesson.runs.end(),
                                  [&](const LessonRun& r) { return r.id == run_id; });
    if (run == lesson.runs.end()) findRun(lesson, run_id);
    run->measured = metrics;
    for (Claim& claim : lesson.claims) {
        if (claim.run != run_id && claim.minus_run != run_id) continue;
        claim.measured.reset();
        claim.pass = false;
        const LessonRun& first = findRun(lesson, claim.run);
        if (!first.measured) continue;
        int64_t value = measuredValue(*first.measured, claim.metric);
        if (!claim.minus_run.empty()) {
            const LessonRun& second = findRun(lesson, claim.minus_run);
            if (!second.measured) continue;
            value -= measuredValue(*second.measured, claim.metric);
        }
        claim.measured = static_cast<double>(value);
        claim.pass = claim.formula_value &&
                     std::abs(*claim.measured - *claim.formula_value) <= claim.tolerance;
    }
}

void checkLesson(Lesson& lesson,
                 const std::function<void(const std::string& progress)>& on_progress) {
    computeFormulas(lesson);
    for (const LessonRun& run : lesson.runs) {
        SessionCallbacks callbacks;
        if (on_progress) {
            callbacks.on_progress = [&](SessionPhase, double, const std::string& text) {
                on_progress(lesson.id + ", run " + run.id + ": " + text);
            };
        }
        const RunResult result = runToEnd(run.config, callbacks);
        if (result.cancelled) throw EngineError(ErrorKind::kCancelled, "the run was cancelled");
        recordMeasurement(lesson, run.id, result.metrics);
    }
}

}  // namespace kvlab
