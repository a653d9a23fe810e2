// SPDX-License-Identifier: MIT
#include "lessons/lesson_loader.h"

#include <QDir>
#include <QFile>
#include <QJsonArray>
#include <QJsonDocument>
#include <QJsonObject>
#include <QTemporaryDir>
#include <QTest>

#include "engine/error.h"

namespace kvlab {

class LessonLoaderTest : public QObject {
    Q_OBJECT

  private slots:
    void init();
    void everyFieldArrives();
    void defaultsAreTheCommandLines();
    void lessonsComeInOrder();
    void environmentNamesTheFolder();
    void badFields_data();
    void badFields();
    void badJson_data();
    void badJson();
    void badTexts_data();
    void badTexts();
    void truncatedFilesAreRefused();
    void flippedBytesNeverCrash();
    void missingFilesAreNamed();
    void idsStayInTheFolder_data();
    void idsStayInTheFolder();

  private:
    void write(const QString& name, const QByteArray& bytes);
    // Message of the error that loading throws; "" when it succeeds.
    QString problem(const std::string& id = "sample", const std::string& language = "en");

    std::unique_ptr<QTemporaryDir> folder_;
};

QByteArray validJson() {
    return R"({
  "id": "sample", "order": 3,
  "runs": [{"id": "a", "prompt_tokens": 20, "max_tokens": 5, "samples": 2, "ignore_eos": true,
            "temperature": 0.5, "top_k": 3, "top_p": 0.9, "seed": 7, "block_size": 4, "num_blocks": 99,
            "kv_dtype": "int8", "token_budget": 64},
           {"id": "b", "prompt_tokens": 21, "max_tokens": 5}],
  "claims": [{"id": "held", "run": "a", "minus_run": "b", "metric": "tokens_held",
              "unit": "tokens", "quoted": 24.5, "tolerance": 0.5, "provenance": "built_in"},
             {"id": "blocks", "run": "b", "metric": "blocks_held", "unit": "blocks"}],
  "questions": [{"id": "q", "quantity": "held", "unit": "tokens", "tolerance": 1,
                 "expected": [{"value": 175}, {"value": 2.5}, {"value": 100000}]}],
  "stops": [{"id": "one", "run": "a", "step": 4, "question": "q", "show_claims": true},
            {"id": "two"}]
})";
}

QByteArray validText() {
    return "<!-- SPDX-License-Identifier: CC-BY-4.0 -->\n"
           "# A title\n"
           "## stop:one First stop\nLook at [block 1](kv:block/1).\n\nAgain.\n"
           "## stop:two Second stop\nText.\n"
           "## question:q\nHow many?\n"
           "### right\nYes.\n### wrong\nNo.\n### answer:175\nClose.\n### answer:2.5\nHalf.\n"
           "### answer:100000\nFar.\n"
           "## claim:held\nThey hold.\n## claim:blocks\nBlocks.\n";
}

void LessonLoaderTest::init() {
    folder_ = std::make_unique<QTemporaryDir>();
    QVERIFY(folder_->isValid());
    QVERIFY(QDir(folder_->path()).mkdir("sample"));
    write("lesson.json", validJson());
    write("en.md", validText());
}

void LessonLoaderTest::write(const QString& name, const QByteArray& bytes) {
    QFile file(folder_->filePath("sample/" + name));
    QVERIFY(file.open(QIODevice::WriteOnly));
    QCOMPARE(file.write(bytes), bytes.size());
}

QString LessonLoaderTest::problem(const std::string& id, const std::string& language) {
    try {
        loadLesson(folder_->path().toStdString(), id, language);
        return "";
    } catch (const EngineError& error) {
        return QString::fromUtf8(error.what());
    }
}

void LessonLoaderTest::everyFieldArrives() {
    const Lesson lesson = loadLesson(folder_->path().toStdString(), "sample", "en");
    QCOMPARE(lesson.id, std::string("sample"));
    QCOMPARE(lesson.order, 3);
    QCOMPARE(lesson.title, std::string("A title"));
    QCOMPARE(lesson.runs.size(), size_t(2));
    const RunConfig& run = lesson.runs[0].config;
    const GenerationRequest& request = run.requests.at(0);
    QCOMPARE(*request.prompt_num_tokens, 20);
    QCOMPARE(request.max_tokens, 5);
    QCOMPARE(request.num_samples, 2);
    QVERIFY(request.ignore_eos);
    QCOMPARE(request.sampling.temperature, 0.5f);
    QCOMPARE(request.sampling.top_k, 3);
    QCOMPARE(request.sampling.top_p, 0.9f);
    QCOMPARE(request.sampling.seed, uint64_t(7));
    QCOMPARE(request.corpus_seed, uint64_t(7));
    QCOMPARE(run.engine.cache.block_size, 4);
    QCOMPARE(run.engine.cache.num_blocks, 99);
    QVERIFY(run.engine.cache.kv_dtype == DataType::kInt8);
    QCOMPARE(run.engine.token_budget, 64);

    QCOMPARE(lesson.claims.size(), size_t(2));
    const Claim& claim = lesson.claims[0];
    QCOMPARE(claim.run, std::string("a"));
    QCOMPARE(claim.minus_run, std::string("b"));
    QCOMPARE(claim.metric, std::string("tokens_held"));
    QCOMPARE(claim.unit, std::string("tokens"));
    QCOMPARE(*claim.quoted, 24.5);
    QCOMPARE(claim.tolerance, 0.5);
    QVERIFY(claim.provenance == Provenance::kBuiltIn);
    QCOMPARE(claim.text, std::string("They hold."));
    QVERIFY(!lesson.claims[1].quoted);

    const Question& question = lesson.questions.at(0);
    QCOMPARE(question.quantity, std::string("held"));
    QCOMPARE(question.text, std::string("How many?"));
    QCOMPARE(question.reply_right, std::string("Yes."));
    QCOMPARE(question.reply_wrong, std::string("No."));
    QCOMPARE(question.expected.at(0).value, 175.0);
    QCOMPARE(question.expected.at(0).reply, std::string("Close."));
    QCOMPARE(question.expected.at(1).reply, std::string("Half."));
    QCOMPARE(question.expected.at(2).reply, std::string("Far."));

    const LessonStop& stop = lesson.stops.at(0);
    QCOMPARE(stop.title, std::string("First stop"));
    QCOMPARE(stop.body, std::string("Look at [block 1](kv:block/1).\n\nAgain."));
    QCOMPARE(stop.run, std::string("a"));
    QCOMPARE(stop.step, int64_t(4));
    QCOMPARE(stop.question, std::string("q"));
    QVERIFY(stop.show_claims);
    QCOMPARE(lesson.stops.at(1).run, std::string());
    QCOMPARE(lesson.stops.at(1).step, int64_t(-1));
}

void LessonLoaderTest::defaultsAreTheCommandLines() {
    const Lesson lesson = loadLesson(folder_->path().toStdString(), "sample", "en");
    const RunConfig& run = lesson.runs.at(1).config;
    QCOMPARE(run.engine.cache.block_size, 16);
    QCOMPARE(run.engine.cache.num_blocks, 0);
    QVERIFY(run.engine.cache.kv_dtype == DataType::kF16);
    QCOMPARE(run.engine.token_budget, 512);
    QCOMPARE(run.engine.cache.num_blocks, 0);
    QCOMPARE(run.requests.at(0).num_samples, 1);
    QCOMPARE(run.requests.at(0).sampling.temperature, 0.f);
    QCOMPARE(run.requests.at(0).sampling.top_p, 1.f);
}

void LessonLoaderTest::lessonsComeInOrder() {
    QVERIFY(QDir(folder_->path()).mkdir("early"));
    write("../early/lesson.json",
          validJson().replace("\"sample\"", "\"early\"").replace("3,", "1,"));
    write("../early/en.md", validText());
    QVERIFY(QDir(folder_->path()).mkdir("pictures"));  // no lesson.json: no lesson
    const std::vector<Lesson> lessons = loadLessons(folder_->path().toStdString(), "en");
    QCOMPARE(lessons.size(), size_t(2));
    QCOMPARE(lessons[0].id, std::string("early"));
    QCOMPARE(lessons[1].id, std::string("sample"));
    QVERIFY_EXCEPTION_THROWN(loadLessons("/nowhere/at/all", "en"), EngineError);
}

void LessonLoaderTest::environmentNamesTheFolder() {
    qputenv("KVLAB_LESSONS", folder_->path().toUtf8());
    QCOMPARE(lessonsFolder(), folder_->path().toStdString());
    qunsetenv("KVLAB_LESSONS");
    QVERIFY(QFile::exists(QString::fromStdString(lessonsFolder()) + "/best-of-8/lesson.json"));
}

void LessonLoaderTest::badFields_data() {
    QTest::addColumn<QString>("place");  // "" top, or an array whose first object is changed
    QTest::addColumn<QString>("field");
    QTest::addColumn<QJsonValue>("value");  // undefined: the field is removed
    const auto row = [](const char* place, const char* field, const QJsonValue& value) {
        QTest::addRow("%s.%s = %s", place, field,
                      QJsonDocument(QJsonArray{value}).toJson(QJsonDocument::Compact).constData())
            << QString(place) << QString(field) << value;
    };
    const QJsonValue removed(QJsonValue::Undefined);
    for (const char* field : {"id", "order", "runs", "claims", "questions", "stops"}) {
        row("", field, removed);
        row("", field, QJsonValue());
        row("", field, true);
        row("", field, 1.5);
    }
    row("", "id", "another");
    row("", "id", "../sample");
    row("", "order", -1);
    row("", "order", 1e12);
    row("", "order", "3");
    row("", "author", "me");
    row("", "runs", QJsonArray());
    row("", "stops", QJsonArray());
    row("", "stops", QJsonArray{1});
    QJsonArray many;
    for (int i = 0; i < 101; ++i) many.append(QJsonObject{{"id", QString::number(i)}});
    row("", "stops", many);

    for (const char* field : {"id", "prompt_tokens", "max_tokens"}) row("runs", field, removed);
    row("runs", "id", "");
    row("runs", "id", "A");
    row("runs", "id", QString(41, 'a'));
    row("runs", "id", "b");  // stands there twice
    for (const char* field : {"prompt_tokens", "max_tokens", "samples", "block_size", "num_blocks",
                              "token_budget", "top_k", "seed"}) {
        row("runs", field, -1);
        row("runs", field, 1.5);
        row("runs", field, 1e18 * 100);
        row("runs", field, "5");
        row("runs", field, QJsonValue());
    }
    row("runs", "prompt_tokens", 0);
    row("runs", "max_tokens", 0);
    row("runs", "samples", 0);
    row("runs", "samples", 257);
    row("runs", "block_size", 0);
    row("runs", "block_size", 257);
    row("runs", "token_budget", 0);
    row("runs", "ignore_eos", 1);
    row("runs", "temperature", -1);
    row("runs", "temperature", "hot");
    row("runs", "top_p", 0);
    row("runs", "top_p", 1.1);
    row("runs", "kv_dtype", "f8");
    row("runs", "kv_dtype", 16);
    row("runs", "tempreature", 1);

    for (const char* field : {"id", "run", "metric", "unit"}) row("claims", field, removed);
    row("claims", "run", "c");
    row("claims", "minus_run", "c");
    row("claims", "metric", "tokens_dreamt");
    row("claims", "metric", "");
    row("claims", "unit", 5);
    row("claims", "unit", QString(201, 'x'));
    row("claims", "quoted", "16,800");
    row("claims", "quoted", 1e300);
    row("claims", "tolerance", -0.1);
    row("claims", "provenance", "guessed");
    row("claims", "id", "blocks");
    row("claims", "pass", true);

    for (const char* field : {"id", "quantity", "unit"}) row("questions", field, removed);
    row("questions", "quantity", "nothing");
    row("questions", "tolerance", -1);
    row("questions", "expected", 175);
    row("questions", "expected", QJsonArray{175});
    row("questions", "expected", QJsonArray{QJsonObject{}});
    row("questions", "expected", QJsonArray{QJsonObject{{"value", "175"}}});
    row("questions", "expected", QJsonArray{QJsonObject{{"value", 175}, {"reply", "no"}}});
    row("questions", "expected", QJsonArray{QJsonObject{{"value", 176}}});  // has no text
    row("questions", "answer", 5);

    row("stops", "id", removed);
    row("stops", "id", "three");
    row("stops", "run", "c");
    row("stops", "step", -2);
    row("stops", "step", 0.5);
    row("stops", "step", 1e15);
    row("stops", "question", "r");
    row("stops", "show_claims", "yes");
    row("stops", "title", "text belongs to en.md");
}

void LessonLoaderTest::badFields() {
    QFETCH(QString, place);
    QFETCH(QString, field);
    QFETCH(QJsonValue, value);
    QJsonObject lesson = QJsonDocument::fromJson(validJson()).object();
    const auto change = [&](QJsonObject& object) {
        if (value.isUndefined()) {
            object.remove(field);
        } else {
            object[field] = value;
        }
    };
    if (place.isEmpty()) {
        change(lesson);
    } else {
        QJsonArray entries = lesson[place].toArray();
        QJsonObject first = entries[0].toObject();
        change(first);
        entries[0] = first;
        lesson[place] = entries;
    }
    write("lesson.json", QJsonDocument(lesson).toJson());
    const QString message = problem();
    QVERIFY2(message.contains("lesson.json") || message.contains("en.md"), qPrintable(message));
    // Where a text is missing the message names the section, otherwise the field.
    QVERIFY2(message.contains(field) || message.contains("section"), qPrintable(message));
    QVERIFY2(message.contains("; "), qPrintable(message));  // what to do
    QVERIFY(!message.contains('\n'));
}

void LessonLoaderTest::badJson_data() {
    QTest::addColumn<QByteArray>("bytes");
    QTest::newRow("empty") << QByteArray();
    QTest::newRow("zero bytes") << QByteArray(1000, '\0');
    QTest::newRow("no object") << QByteArray("[1, 2]");
    QTest::newRow("null") << QByteArray("null");
    QTest::newRow("open") << QByteArray("{\"id\": \"sample\"");
    QTest::newRow("trailing") << validJson() + "}";
    QTest::newRow("comment") << "// hello\n" + validJson();
    QTest::newRow("deep arrays") << QByteArray(500'000, '[');
    QTest::newRow("deep objects") << QByteArray("{\"a\":").repeated(100'000);
    QTest::newRow("too large") << validJson() + QByteArray(1 << 20, ' ');
    QTest::newRow("not UTF-8") << validJson().replace("sample", "s\xff\xfeple");
    QTest::newRow("huge number") << validJson().replace("\"order\": 3", "\"order\": 1e999");
    QTest::newRow("beyond 64 bits")
        << validJson().replace("\"order\": 3", "\"order\": 18446744073709551615");
    QTest::newRow("nan") << validJson().replace("\"order\": 3", "\"order\": NaN");
    QTest::newRow("field twice") << validJson().replace("\"order\": 3",
                                                        "\"order\": 3, \"order\": 4");
    QTest::newRow("nested field twice")
        << validJson().replace("\"seed\": 7", "\"seed\": 7, \"seed\": 8");
}

void LessonLoaderTest::badJson() {
    QFETCH(QByteArray, bytes);
    write("lesson.json", bytes);
    const QString message = problem();
    QVERIFY2(message.contains("lesson.json"), qPrintable(message));
    QVERIFY(!message.contains('\n'));
}

void LessonLoaderTest::badTexts_data() {
    QTest::addColumn<QByteArray>("text");
    QTest::newRow("empty") << QByteArray();
    QTest::newRow("no title") << validText().replace("# A title\n", "");
    QTest::newRow("two titles") << validText() + "# Another\n";
    QTest::newRow("stop without title") << validText().replace("stop:one First stop", "stop:one");
    QTest::newRow("stop without text") << validText().replace("Text.", "");
    QTest::newRow("missing stop") << validText().replace("## stop:two", "## stop:three");
    QTest::newRow("extra section") << validText() + "## claim:extra\nText.\n";
    QTest::newRow("extra answer") << validText().replace("### right",
                                                         "### answer:9\nNo.\n### right");
    QTest::newRow("section twice") << validText() + "## claim:held\nAgain.\n";
    QTest::newRow("missing reply") << validText().replace("### wrong", "### maybe");
    QTest::newRow("reply outside a question") << validText() + "### right\nYes.\n";
    QTest::newRow("text before the title") << "Hello\n" + validText();
    QTest::newRow("not UTF-8") << validText().replace("They", "\xc3(");
    QTest::newRow("zero byte") << validText() + QByteArray(1, '\0');
    QTest::newRow("too large") << validText() + QByteArray(1 << 20, 'x');
    QTest::newRow("many sections") << [] {
        QByteArray text = validText();
        for (int i = 0; i < 2000; ++i) text += "## s" + QByteArray::number(i) + "\n";
        return text;
    }();
}

void LessonLoaderTest::badTexts() {
    QFETCH(QByteArray, text);
    write("en.md", text);
    const QString message = problem();
    QVERIFY2(message.contains("en.md"), qPrintable(message));
    QVERIFY(!message.contains('\n'));
}

void LessonLoaderTest::truncatedFilesAreRefused() {
    const QByteArray json = validJson();
    for (qsizetype size = 0; size < json.size() - 1; ++size) {
        write("lesson.json", json.left(size));
        QVERIFY2(!problem().isEmpty(), qPrintable(QString::number(size)));
    }
}

void LessonLoaderTest::flippedBytesNeverCrash() {
    for (const char* name : {"lesson.json", "en.md"}) {
        const QByteArray bytes = QByteArray(name) == "en.md" ? validText() : validJson();
        for (qsizetype at = 0; at < bytes.size(); ++at) {
            QByteArray flipped = bytes;
            flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
            write(name, flipped);
            // Some flips give another valid lesson; all others give one sentence.
            QVERIFY(!problem().contains('\n'));
        }
        write(name, bytes);
    }
}

void LessonLoaderTest::missingFilesAreNamed() {
    QVERIFY(problem("sample", "de").contains("de.md"));
    QVERIFY(QFile::remove(folder_->filePath("sample/en.md")));
    QVERIFY(problem().contains("en.md"));
    QVERIFY(QDir(folder_->path()).mkdir("sample/en.md"));
    QVERIFY(problem().contains("en.md"));
    QVERIFY(QFile::remove(folder_->filePath("sample/lesson.json")));
    QVERIFY(problem().contains("lesson.json"));
    QVERIFY(problem("nothing").contains("nothing"));
}

void LessonLoaderTest::idsStayInTheFolder_data() {
    QTest::addColumn<QString>("id");
    for (const char* id : {"", ".", "..", "../sample", "/etc", "sample/", "sample/../sample",
                           "SAMPLE", "-sample", "sam ple", "sample\n"}) {
        QTest::addRow("\"%s\"", QByteArray(id).replace('\n', "\\n").constData()) << id;
    }
}

void LessonLoaderTest::idsStayInTheFolder() {
    QFETCH(QString, id);
    QVERIFY(!problem(id.toStdString()).isEmpty());
    QVERIFY(!problem("sample", id.toStdString()).isEmpty());
}

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::LessonLoaderTest)
#include "lesson_loader_test.moc"
