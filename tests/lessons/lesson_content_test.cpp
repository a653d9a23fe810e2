// SPDX-License-Identifier: MIT
#include <set>

#include <QDir>
#include <QFile>
#include <QRegularExpression>
#include <QTemporaryDir>
#include <QTest>

#include "engine/model/gguf_writer.h"
#include "engine/model/model_loader.h"
#include "engine/model/weights.h"
#include "engine/session/session.h"
#include "engine/trace/run_log.h"
#include "lessons/lesson_loader.h"
#include "lessons/lesson_runner.h"

namespace kvlab {

// Every lesson that ships: its texts, its links, its questions, and a whole play on the CPU.
class LessonContentTest : public QObject {
    Q_OBJECT

  private slots:
    void initTestCase();
    void lessonsCanBeRead();
    void stopsAreShort();
    void questionsCanGoWrong();
    void everyClaimPasses();
    void stopsAndLinksExistInTheirRuns();

  private:
    QTemporaryDir folder_;
    std::vector<Lesson> lessons_;
};

void LessonContentTest::initTestCase() {
    QVERIFY(folder_.isValid());
    // The shipped content, not what the environment points to.
    lessons_ = loadLessons(KVLAB_SOURCE_DIR "/lessons/content", "en");
    if (QFile::exists(QString::fromStdString(bundledModelPath()))) return;
    ModelConfig config;
    config.name = "tiny";
    config.architecture = "llama";
    config.num_layers = 1;
    config.num_heads = 2;
    config.num_kv_heads = 1;
    config.head_dim = 8;
    config.rope_dim = 8;
    config.embedding_dim = 16;
    config.feed_forward_dim = 32;
    config.vocab_size = 320;
    config.context_len = 4096;
    const QString model = folder_.filePath("tiny.gguf");
    writeModelGguf(*ModelWeights::random(config, 1, true, DataType::kF32), model.toStdString());
    qputenv("KVLAB_MODEL", model.toUtf8());
}

void LessonContentTest::lessonsCanBeRead() {
    QVERIFY(!lessons_.empty());
    std::set<int> orders;
    for (const Lesson& lesson : lessons_) {
        QVERIFY2(orders.insert(lesson.order).second, "two lessons have the same place");
        QVERIFY(!lesson.title.empty());
        QVERIFY(lesson.stops.size() >= 3);
    }
}

void LessonContentTest::stopsAreShort() {
    for (const Lesson& lesson : lessons_) {
        for (const LessonStop& stop : lesson.stops) {
            // A link's target is not read.
            QString text = QString::fromStdString(stop.body);
            text.replace(QRegularExpression(R"(\]\(kv:[^)]*\))"), "");
            const auto words = text.split(QRegularExpression(R"(\s+)"), Qt::SkipEmptyParts);
            QVERIFY2(words.size() <= 90, qPrintable(QStringLiteral("stop %1 has %2 words")
                                                        .arg(QString::fromStdString(stop.id))
                                                        .arg(words.size())));
        }
    }
}

void LessonContentTest::questionsCanGoWrong() {
    for (Lesson& lesson : lessons_) {
        computeFormulas(lesson);
        for (const Question& question : lesson.questions) {
            QVERIFY2(!question.expected.empty(), question.id.c_str());
            const Claim* answer = nullptr;
            for (const Claim& claim : lesson.claims) {
                if (claim.id == question.quantity) answer = &claim;
            }
            QVERIFY(answer && answer->formula_value);
            for (const ExpectedAnswer& expected : question.expected) {
                QVERIFY2(std::abs(expected.value - *answer->formula_value) > question.tolerance,
                         "an expected wrong answer is right");
            }
            int times_asked = 0;
            for (const LessonStop& stop : lesson.stops) times_asked += stop.question == question.id;
            QCOMPARE(times_asked, 1);
        }
    }
}

void LessonContentTest::everyClaimPasses() {
    for (Lesson& lesson : lessons_) {
        checkLesson(lesson);
        for (const Claim& claim : lesson.claims) {
            QVERIFY2(claim.measured.has_value(), claim.id.c_str());
            QVERIFY2(claim.pass, qPrintable(QStringLiteral("%1: formula %2, measured %3")
                                                .arg(QString::fromStdString(claim.id))
                                                .arg(claim.formula_value.value_or(-1))
                                                .arg(*claim.measured)));
        }
    }
}

void LessonContentTest::stopsAndLinksExistInTheirRuns() {
    static const QRegularExpression link_pattern(R"(\[[^\]]*\]\(([^)]*)\))");
    static const QRegularExpression target_pattern(R"(^kv:(block|sequence|step)/(\d+)$)");
    for (const Lesson& lesson : lessons_) {
        std::map<std::string, RunLog> logs;
        for (const LessonRun& run : lesson.runs) {
            RunInfo info;
            SessionCallbacks callbacks;
            callbacks.on_started = [&](std::shared_ptr<const RunInfo> started) {
                logs.emplace(run.id, RunLog(*started));
            };
            callbacks.on_step = [&](std::shared_ptr<const StepTrace> step) {
                logs.at(run.id).append(std::move(step));
            };
            runToEnd(run.config, callbacks);
        }
        std::string run;
        int64_t step = 0;
        for (const LessonStop& stop : lesson.stops) {
            if (!stop.run.empty()) run = stop.run;
            if (stop.step >= 0) step = stop.step;
            QVERIFY2(logs.count(run) == 1, stop.id.c_str());
            const RunLog& log = logs.at(run);
            QVERIFY2(step <= log.numSteps(), stop.id.c_str());
            const CacheState state = log.stateAt({step, 0, 0});
            auto links = link_pattern.globalMatch(QString::fromStdString(stop.body));
            while (links.hasNext()) {
                const QString target = links.next().captured(1);
                const QRegularExpressionMatch match = target_pattern.match(target);
                QVERIFY2(match.hasMatch(), qPrintable(target));
                const auto number = static_cast<size_t>(match.captured(2).toLongLong());
                if (match.captured(1) == "block") {
                    QVERIFY2(number < state.blocks.size() && state.blocks[number].ref_count > 0,
                             qPrintable(QString::fromStdString(stop.id) + ": " + target));
                } else if (match.captured(1) == "sequence") {
                    QVERIFY2(number < state.sequences.size() && !state.sequences[number].removed,
                             qPrintable(QString::fromStdString(stop.id) + ": " + target));
                } else {
                    QVERIFY2(number < static_cast<size_t>(log.numSteps()), qPrintable(target));
                }
            }
        }
    }
}

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::LessonContentTest)
#include "lesson_content_test.moc"
