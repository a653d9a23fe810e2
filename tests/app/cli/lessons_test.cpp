// SPDX-License-Identifier: MIT
#include <QJsonArray>
#include <QTemporaryDir>

#include "engine/model/model_loader.h"
#include "tests/app/cli/cli_test_support.h"

namespace kvlab {

class LessonsTest : public QObject {
    Q_OBJECT

  private slots:
    void initTestCase();
    void listNamesTheLessons();
    void checkSetsFormulaBesideMeasurement();
    void brokenLessonIsNamed();
    void quotedFigureNeverDecides();

  private:
    QTemporaryDir folder_;
    CliEnvironment environment_;
};

void LessonsTest::initTestCase() {
    QVERIFY(folder_.isValid());
    if (!QFile::exists(QString::fromStdString(bundledModelPath()))) {
        // Counting blocks needs no trained model.
        const QString model = folder_.filePath("tiny.gguf");
        writeTinyModel(model);
        environment_.append({"KVLAB_MODEL", model});
    }
}

void LessonsTest::listNamesTheLessons() {
    const CliResult result = runCli({"lessons", "list", "--json"});
    KVLAB_VERIFY_SUCCESS(result);
    const QJsonArray lessons = result.json()["lessons"].toArray();
    QVERIFY(!lessons.isEmpty());
    bool has_best_of_8 = false;
    int last_order = -1;
    for (const QJsonValue& lesson : lessons) {
        QCOMPARE(lesson.toObject().keys(), (QStringList{"id", "order", "title"}));
        QVERIFY(lesson["order"].toInt() >= last_order);
        last_order = lesson["order"].toInt();
        has_best_of_8 = has_best_of_8 || lesson["id"].toString() == "best-of-8";
    }
    QVERIFY(has_best_of_8);
    KVLAB_VERIFY_SUCCESS(runCli({"lessons", "list"}));
}

void LessonsTest::checkSetsFormulaBesideMeasurement() {
    const CliResult result = runCli({"lessons", "check", "best-of-8", "--json"}, environment_);
    KVLAB_VERIFY_SUCCESS(result);
    QMap<QString, QJsonObject> claims;
    for (const QJsonValue& claim : result.json()["claims"].toArray()) {
        for (const char* key :
             {"lesson", "id", "text", "formula", "measured", "pass", "provenance"}) {
            QVERIFY2(claim.toObject().contains(key), key);
        }
        QCOMPARE(claim["lesson"].toString(), "best-of-8");
        QVERIFY2(claim["pass"].toBool(), qPrintable(claim["id"].toString()));
        QCOMPARE(claim["formula"].toDouble(-1), claim["measured"].toDouble(-2));
        claims[claim["id"].toString()] = claim.toObject();
    }
    QCOMPARE(claims["tokens-held"]["measured"].toInt(), 2800);
    QCOMPARE(claims["tokens-unshared"]["measured"].toInt(), 16800);
    QCOMPARE(claims["blocks-held"]["measured"].toInt(), 181);
    QCOMPARE(claims["blocks-unshared"]["measured"].toInt(), 1056);
    QCOMPARE(claims["slots-unused"]["measured"].toInt(), 96);
    QCOMPARE(claims["copies-2001"]["measured"].toInt(), 7);
    QCOMPARE(claims["more-blocks"]["measured"].toInt(-1), 0);
    // The text gives tokens and no blocks.
    QCOMPARE(claims["tokens-held"]["quoted"].toInt(), 2800);
    QVERIFY(claims["blocks-held"]["quoted"].isNull());
}

void LessonsTest::brokenLessonIsNamed() {
    const QString lesson = folder_.filePath("broken/best-of-8");
    QVERIFY(QDir().mkpath(lesson));
    QVERIFY(writeBytes(lesson + "/lesson.json", "{\"id\": \"best-of-8\", \"order\": true}"));
    QVERIFY(writeBytes(lesson + "/en.md", "# Title\n"));
    const CliEnvironment environment = {{"KVLAB_LESSONS", folder_.filePath("broken")}};
    const CliResult result = runCli({"lessons", "list"}, environment);
    KVLAB_VERIFY_REFUSAL(result, 1);
    QVERIFY(result.err.contains("lesson.json") && result.err.contains("order"));
    KVLAB_VERIFY_REFUSAL(runCli({"lessons", "list"}, {{"KVLAB_LESSONS", "/nowhere"}}), 1);
}

void LessonsTest::quotedFigureNeverDecides() {
    const QString lesson = folder_.filePath("failing/short");
    QVERIFY(QDir().mkpath(lesson));
    // The text's figure is wrong by far and must not decide.
    QVERIFY(writeBytes(lesson + "/lesson.json", R"({"id": "short", "order": 1,
        "runs": [{"id": "a", "prompt_tokens": 20, "max_tokens": 3, "ignore_eos": true}],
        "claims": [{"id": "c", "run": "a", "metric": "tokens_held", "unit": "tokens",
                    "quoted": 9999}],
        "questions": [], "stops": [{"id": "s", "run": "a"}]})"));
    QVERIFY(writeBytes(lesson + "/en.md", "# Short\n## stop:s Stop\nText.\n## claim:c\nText.\n"));
    CliEnvironment environment = environment_;
    environment.append({"KVLAB_LESSONS", folder_.filePath("failing")});
    const CliResult result = runCli({"lessons", "check", "--json"}, environment);
    KVLAB_VERIFY_SUCCESS(result);
    const QJsonObject claim = result.json()["claims"].toArray().at(0).toObject();
    QCOMPARE(claim["pass"].toBool(), true);
    QCOMPARE(claim["measured"].toInt(), 22);
}

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::LessonsTest)
#include "lessons_test.moc"
