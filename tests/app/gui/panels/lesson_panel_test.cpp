// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/panels/lesson_panel.h"

#include <algorithm>

#include <QLabel>
#include <QLineEdit>
#include <QLocale>
#include <QPushButton>
#include <QSignalSpy>
#include <QTextDocumentFragment>
#include <QtTest>

#include "app/gui/panels/number_input.h"
#include "app/gui/panels/widgets.h"
#include "tests/support/log_builder.h"

namespace kvlab {

class LessonPanelTest : public QObject {
    Q_OBJECT

    static Lesson smallLesson() {
        Lesson lesson;
        lesson.id = "small";
        lesson.order = 6;
        lesson.title = "Small";
        LessonRun run;
        run.id = "r";
        GenerationRequest request;
        request.prompt_num_tokens = 2000;
        request.num_samples = 8;
        request.max_tokens = 101;
        run.config.requests.push_back(request);
        lesson.runs.push_back(run);
        Claim claim;
        claim.id = "held";
        claim.text = "Blocks in use.";
        claim.unit = "blocks";
        claim.run = "r";
        claim.metric = "blocks_held";
        claim.formula = "prompt / 16 + …";
        claim.formula_substituted = "125 + 8 · 7";
        claim.formula_value = 181;
        lesson.claims.push_back(claim);
        Question question;
        question.id = "q";
        question.text = "How many blocks?";
        question.unit = "blocks";
        question.quantity = "held";
        question.reply_right = "Right so.";
        question.reply_wrong = "Not so.";
        question.expected = {{175, "Round up per draft."}};
        lesson.questions.push_back(question);
        LessonStop first;
        first.title = "First";
        first.body = "Look at [block 37](kv:block/37) and [step 4](kv:step/4).";
        first.run = "r";
        LessonStop second;
        second.title = "Second";
        second.body = "Guess.";
        second.run = "r";
        second.step = 5;
        second.question = "q";
        second.show_claims = true;
        lesson.stops = {first, second};
        return lesson;
    }

    static QString allText(const QWidget& panel) {
        QStringList texts;
        for (const QLabel* label : panel.findChildren<QLabel*>()) {
            if (label->isVisibleTo(&panel)) {
                texts << QTextDocumentFragment::fromHtml(label->text()).toPlainText();
            }
        }
        return texts.join('\n');
    }

    static bool hasNumber(const QWidget& panel, const QString& number) {
        for (const NumberLabel* label : panel.findChildren<NumberLabel*>()) {
            if (label->isVisibleTo(&panel) && label->text() == number) {
                return true;
            }
        }
        return false;
    }

  private slots:
    void readsNumbersAsPeopleWriteThem_data() {
        QTest::addColumn<QString>("text");
        QTest::addColumn<QString>("locale");
        QTest::addColumn<bool>("whole");
        QTest::addColumn<double>("value");
        QTest::addColumn<bool>("good");
        QTest::newRow("plain") << "181"
                               << "en_US" << true << 181.0 << true;
        QTest::newRow("English group") << "16,800"
                                       << "en_US" << true << 16800.0 << true;
        QTest::newRow("German group") << "16.800"
                                      << "de_DE" << true << 16800.0 << true;
        QTest::newRow("Russian group") << "16 800"
                                       << "ru_RU" << true << 16800.0 << true;
        QTest::newRow("no-break group")
            << QString::fromUtf8("16\u00a0800") << "ru_RU" << false << 16800.0 << true;
        QTest::newRow("Swiss group") << "16'800"
                                     << "de_CH" << true << 16800.0 << true;
        QTest::newRow("German group, English reader") << "16.800"
                                                      << "en_US" << true << 16800.0 << true;
        QTest::newRow("English group, German reader") << "16,800"
                                                      << "de_DE" << true << 16800.0 << true;
        QTest::newRow("English fraction") << "2.5 GiB"
                                          << "en_US" << false << 2.5 << true;
        QTest::newRow("German fraction") << "2,5 GiB"
                                         << "de_DE" << false << 2.5 << true;
        QTest::newRow("millions") << "1,056,000"
                                  << "en_US" << true << 1056000.0 << true;
        QTest::newRow("unit") << "181 blocks"
                              << "en_US" << true << 181.0 << true;
        QTest::newRow("negative") << QString::fromUtf8("\u22125") << "en_US" << false << -5.0
                                  << true;
        QTest::newRow("empty") << ""
                               << "en_US" << true << 0.0 << false;
        QTest::newRow("words") << "many"
                               << "en_US" << true << 0.0 << false;
        QTest::newRow("two numbers") << "3 to 4x5"
                                     << "en_US" << true << 0.0 << false;
    }
    void readsNumbersAsPeopleWriteThem() {
        QFETCH(QString, text);
        QFETCH(QString, locale);
        QFETCH(bool, whole);
        QFETCH(double, value);
        QFETCH(bool, good);
        const auto parsed = parseNumber(text, QLocale(locale), whole);
        QCOMPARE(parsed.has_value(), good);
        if (good) {
            QCOMPARE(*parsed, value);
        }
    }

    void knowsItsLinks() {
        QCOMPARE(parseLessonLink("kv:block/37")->number, 37);
        QVERIFY(parseLessonLink("kv:step/101")->kind == LessonLink::Kind::kStep);
        QVERIFY(parseLessonLink("kv:sequence/0")->kind == LessonLink::Kind::kSequence);
        QVERIFY(!parseLessonLink("kv:block/"));
        QVERIFY(!parseLessonLink("kv:block/99999999999"));
        QVERIFY(!parseLessonLink("https://example.org"));
    }

    void linksLightUpAndAskForSteps() {
        RunHub hub;
        hub.setLog(scriptedLog(), false);
        LessonPanel panel(&hub);
        panel.setTheme(Theme::light(), 1);
        panel.setLesson(smallLesson());
        QSignalSpy steps(&panel, &LessonPanel::stepRequested);
        auto* body = panel.findChild<QLabel*>("lessonBody");
        QVERIFY(body);
        emit body->linkHovered("kv:block/37");
        QVERIFY(hub.shown().block == BlockId(37));
        emit body->linkHovered("");
        QVERIFY(hub.shown().empty());
        emit body->linkActivated("kv:sequence/2");
        QVERIFY(hub.locked().sequence == SequenceId(2));
        emit body->linkActivated("kv:step/4");
        QCOMPARE(steps.count(), 1);
        QCOMPARE(steps.first().first().toLongLong(), 4);
    }

    void keepsTheAnswerUntilThePrediction() {
        RunHub hub;
        LessonPanel panel(&hub);
        panel.setTheme(Theme::light(), 1);
        panel.setLesson(smallLesson());
        panel.resize(320, 800);
        panel.show();
        QSignalSpy shown(&panel, &LessonPanel::stopShown);
        panel.nextStop();
        QCOMPARE(shown.count(), 1);
        QVERIFY(!panel.claimsShown());
        QVERIFY(!hasNumber(panel, "181"));
        QVERIFY(!allText(panel).contains("181"));

        auto* input = panel.findChild<QLineEdit*>();
        input->setText("lots");
        panel.answer();
        QVERIFY(!panel.claimsShown());
        QVERIFY(allText(panel).contains("not a number"));
        input->setText("175");
        panel.answer();
        QVERIFY(panel.claimsShown());
        QVERIFY(allText(panel).contains("You said 175."));
        QVERIFY(allText(panel).contains("Round up per draft."));
        QVERIFY(allText(panel).contains("125 + 8 · 7 = 181"));
        QVERIFY(hasNumber(panel, "181"));
        // Going away and back keeps the outcome.
        panel.previousStop();
        QVERIFY(!panel.claimsShown());
        panel.nextStop();
        QVERIFY(panel.claimsShown());
        QCOMPARE(input->text(), QString("175"));
        QVERIFY(!input->isEnabled());
    }

    void repliesByAnswer_data() {
        QTest::addColumn<QString>("typed");
        QTest::addColumn<QString>("reply");
        QTest::newRow("right") << "181"
                               << "Right so.";
        QTest::newRow("expected") << "175"
                                  << "Round up per draft.";
        QTest::newRow("other") << "12"
                               << "Not so.";
    }
    void repliesByAnswer() {
        QFETCH(QString, typed);
        QFETCH(QString, reply);
        RunHub hub;
        LessonPanel panel(&hub);
        panel.setLesson(smallLesson());
        panel.goToStop(1);
        panel.findChild<QLineEdit*>()->setText(typed);
        panel.answer();
        QVERIFY(allText(panel).contains(reply));
    }

    void hugeAnswersReadAsNumbers() {
        RunHub hub;
        LessonPanel panel(&hub);
        panel.setLesson(smallLesson());
        panel.goToStop(1);
        panel.findChild<QLineEdit*>()->setText("99999999999999999999");
        panel.answer();
        QVERIFY2(allText(panel).contains("You said 100,000,000,000,000,000,000. Not so."),
                 qPrintable(allText(panel)));
    }

    void aTracesTextsStayText() {
        RunHub hub;
        LessonPanel panel(&hub);
        const QString title = QStringLiteral("<b>A</b> ") + QString(4000, 'x');
        panel.showRecording(title, plainMarkdown("<img src=x> **[a](kv:block/1)**"));
        const auto labels = panel.findChildren<QLabel*>();
        const auto shown = std::find_if(labels.begin(), labels.end(), [](const QLabel* label) {
            return label->text().startsWith("<b>A</b>");
        });
        QVERIFY(shown != labels.end());
        QCOMPARE((*shown)->textFormat(), Qt::PlainText);
        QVERIFY((*shown)->text().size() < 60);
        QVERIFY2(allText(panel).contains("<img src=x> **[a](kv:block/1)**"),
                 qPrintable(allText(panel)));
        QVERIFY(!panel.findChild<QLabel*>("lessonBody")->text().contains("<a href"));
        QCOMPARE(shortened(QString(1 << 20, 'm'), 60).size(), 60);
        QCOMPARE(shortened("a  b\nc", 60), QString("a b c"));
        QCOMPARE(shortened(QString::fromUtf8("pass\u202eword\u0007"), 60), QString("password"));
    }

    void skippingShowsTheAnswerToo() {
        RunHub hub;
        LessonPanel panel(&hub);
        panel.setLesson(smallLesson());
        panel.goToStop(1);
        panel.skip();
        QVERIFY(panel.claimsShown());
        QVERIFY(allText(panel).contains("125 + 8 · 7 = 181"));
    }

    void fillsTheEngineColumnWhenTheRunHasFinished() {
        RunHub hub;
        LessonPanel panel(&hub);
        panel.setTheme(Theme::light(), 1);
        panel.setLesson(smallLesson());
        panel.goToStop(1);
        panel.skip();
        const auto count = [&] {
            int found = 0;
            for (const NumberLabel* label : panel.findChildren<NumberLabel*>()) {
                found += label->isVisibleTo(&panel) && label->text() == "181" ? 1 : 0;
            }
            return found;
        };
        QCOMPARE(count(), 1);
        RunMetrics metrics;
        metrics.blocks_held = 181;
        panel.recordRun("r", metrics);
        QCOMPARE(count(), 2);
        QVERIFY(panel.lesson().claims.front().pass);
    }

    void showsARecordingWithoutALesson() {
        RunHub hub;
        LessonPanel panel(&hub);
        panel.showRecording("A trace", "Two **words**.");
        QVERIFY(!panel.hasLesson());
        QVERIFY(!panel.claimsShown());
        QVERIFY(allText(panel).contains("Two words."));
        panel.nextStop();
        panel.answer();
        panel.skip();
    }
};

}  // namespace kvlab

QTEST_MAIN(kvlab::LessonPanelTest)
#include "lesson_panel_test.moc"
