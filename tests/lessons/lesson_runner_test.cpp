// SPDX-License-Identifier: MIT
#include "lessons/lesson_runner.h"

#include <QTest>

#include "engine/error.h"

namespace kvlab {

class LessonRunnerTest : public QObject {
    Q_OBJECT

  private slots:
    void formulasComeFromTheRun();
    void copiedTokensCountInThePool();
    void measurementDecides();
    void toleranceIsAbsolute();
    void differenceWaitsForBothRuns();
    void unknownNamesAreRefused();
};

LessonRun makeRun(const std::string& id, int prompt_len, int samples, int max_tokens) {
    LessonRun run;
    run.id = id;
    GenerationRequest request;
    request.prompt_num_tokens = prompt_len;
    request.num_samples = samples;
    request.max_tokens = max_tokens;
    run.config.requests.push_back(request);
    return run;
}

Claim makeClaim(const std::string& id, const std::string& run, const std::string& metric) {
    Claim claim;
    claim.id = id;
    claim.run = run;
    claim.metric = metric;
    return claim;
}

Lesson bestOfEight() {
    Lesson lesson;
    lesson.id = "test";
    lesson.runs = {makeRun("2000", 2000, 8, 101), makeRun("2001", 2001, 8, 101)};
    return lesson;
}

void LessonRunnerTest::formulasComeFromTheRun() {
    Lesson lesson = bestOfEight();
    const std::vector<std::pair<const char*, double>> expected = {
        {"tokens_held", 2800},     {"tokens_unshared", 16800}, {"blocks_held", 181},
        {"blocks_unshared", 1056}, {"slots_allocated", 2896},  {"slots_unused", 96},
        {"copy_on_write", 0}};
    for (const auto& [metric, value] : expected) {
        lesson.claims.push_back(makeClaim(metric, "2000", metric));
    }
    computeFormulas(lesson);
    for (size_t i = 0; i < expected.size(); ++i) {
        const Claim& claim = lesson.claims[i];
        QVERIFY(claim.formula_value.has_value());
        QCOMPARE(*claim.formula_value, expected[i].second);
        QVERIFY(!claim.formula.empty());
        QVERIFY(!claim.formula_substituted.empty());
        QVERIFY2(claim.formula_substituted.find(" = ") == std::string::npos,
                 claim.formula_substituted.c_str());
        QVERIFY(!claim.measured);
        QVERIFY(!claim.pass);
    }
    QCOMPARE(QString::fromStdString(lesson.claims[0].formula_substituted), "2,000 + 8 · 100");
}

void LessonRunnerTest::copiedTokensCountInThePool() {
    Lesson lesson = bestOfEight();
    lesson.claims = {makeClaim("held", "2001", "tokens_held"),
                     makeClaim("copies", "2001", "copy_on_write"),
                     makeClaim("blocks", "2001", "blocks_held")};
    computeFormulas(lesson);
    QCOMPARE(*lesson.claims[0].formula_value, 2001 + 8 * 100 + 7.0);
    QCOMPARE(*lesson.claims[1].formula_value, 7.0);
    QCOMPARE(*lesson.claims[2].formula_value, 181.0);
}

void LessonRunnerTest::measurementDecides() {
    Lesson lesson = bestOfEight();
    lesson.claims = {makeClaim("held", "2000", "tokens_held")};
    // The text's figure is another one and changes nothing.
    lesson.claims[0].quoted = 5;
    computeFormulas(lesson);
    RunMetrics metrics;
    metrics.tokens_held = 2799;
    recordMeasurement(lesson, "2000", metrics);
    QCOMPARE(*lesson.claims[0].measured, 2799.0);
    QVERIFY(!lesson.claims[0].pass);
    metrics.tokens_held = 2800;
    recordMeasurement(lesson, "2000", metrics);
    QVERIFY(lesson.claims[0].pass);
    // Another run's measurement is not this claim's.
    metrics.tokens_held = 1;
    recordMeasurement(lesson, "2001", metrics);
    QVERIFY(lesson.claims[0].pass);
}

void LessonRunnerTest::toleranceIsAbsolute() {
    Lesson lesson = bestOfEight();
    lesson.claims = {makeClaim("held", "2000", "tokens_held")};
    lesson.claims[0].tolerance = 2;
    computeFormulas(lesson);
    RunMetrics metrics;
    metrics.tokens_held = 2798;
    recordMeasurement(lesson, "2000", metrics);
    QVERIFY(lesson.claims[0].pass);
    metrics.tokens_held = 2797;
    recordMeasurement(lesson, "2000", metrics);
    QVERIFY(!lesson.claims[0].pass);
}

void LessonRunnerTest::differenceWaitsForBothRuns() {
    Lesson lesson = bestOfEight();
    lesson.claims = {makeClaim("more", "2001", "blocks_held")};
    lesson.claims[0].minus_run = "2000";
    computeFormulas(lesson);
    QCOMPARE(*lesson.claims[0].formula_value, 0.0);
    RunMetrics metrics;
    metrics.blocks_held = 181;
    recordMeasurement(lesson, "2001", metrics);
    QVERIFY(!lesson.claims[0].measured);
    QVERIFY(!lesson.claims[0].pass);
    recordMeasurement(lesson, "2000", metrics);
    QCOMPARE(*lesson.claims[0].measured, 0.0);
    QVERIFY(lesson.claims[0].pass);
}

void LessonRunnerTest::unknownNamesAreRefused() {
    Lesson lesson = bestOfEight();
    QVERIFY_EXCEPTION_THROWN(recordMeasurement(lesson, "1999", {}), EngineError);
    lesson.claims = {makeClaim("a", "1999", "tokens_held")};
    QVERIFY_EXCEPTION_THROWN(computeFormulas(lesson), EngineError);
    lesson.claims = {makeClaim("a", "2000", "tokens_dreamt")};
    QVERIFY_EXCEPTION_THROWN(computeFormulas(lesson), EngineError);
}

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::LessonRunnerTest)
#include "lesson_runner_test.moc"
