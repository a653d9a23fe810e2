// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <QString>
#include <QWidget>

#include "app/gui/run/run_hub.h"
#include "app/gui/theme.h"
#include "lessons/lesson.h"

class QFrame;
class QGridLayout;
class QLabel;
class QLineEdit;
class QPushButton;
class QScrollArea;

namespace kvlab {

class NumberLabel;
class ProgressSegments;

// What a link in a lesson names: [the tail](kv:block/37), kv:sequence/0, kv:step/101.
struct LessonLink {
    enum class Kind { kBlock, kSequence, kStep } kind;
    int64_t number = 0;
};
std::optional<LessonLink> parseLessonLink(const QString& link);

// Text, prediction and claims of one lesson, stop by stop. It moves nothing itself: links and stops
// leave as signals, only hovering and selecting go to the hub.
class LessonPanel : public QWidget {
    Q_OBJECT

  public:
    explicit LessonPanel(RunHub* hub, QWidget* parent = nullptr);

    void setTheme(const Theme& theme, double scale);
    // Formulas already computed; shows its first stop without stopShown().
    void setLesson(Lesson lesson);
    // A trace was opened instead: its story in Markdown.
    void showRecording(const QString& title, const QString& markdown);
    bool hasLesson() const { return lesson_.has_value(); }
    const Lesson& lesson() const { return *lesson_; }
    int stop() const { return stop_; }
    bool claimsShown() const;

    // What a finished run measured; fills the engine's column.
    void recordRun(const std::string& run_id, const RunMetrics& metrics);

  public slots:
    void goToStop(int stop);
    void nextStop() { goToStop(stop_ + 1); }
    void previousStop() { goToStop(stop_ - 1); }
    void answer();
    void skip();

  signals:
    void stopShown(int stop);
    void stepRequested(qint64 step);
    void lessonRequested();  // from the page of a recording

  private:
    struct Outcome {
        bool skipped = false;
        QString typed;
        double value = 0;
    };
    struct ClaimRow {
        QLabel* text;
        QLabel* unit;
        QLabel* arithmetic;
        NumberLabel* quoted;
        NumberLabel* formula;
        NumberLabel* measured;
        QWidget* rule;
    };

    void buildClaims();
    std::optional<int> openQuestionStop() const;
    void openClaims(const QString& link);
    bool givesAway(const Claim& claim) const;
    void refresh();
    void refreshQuestion();
    void refreshClaims();
    void activateLink(const QString& link);
    void hoverLink(const QString& link);
    QString htmlOf(const QString& markdown) const;
    const LessonStop* currentStop() const;
    const Question* currentQuestion() const;
    const Claim* claimOf(const std::string& id) const;
    QString replyTo(const Question& question, const Outcome& outcome) const;

    RunHub* hub_;
    std::optional<Lesson> lesson_;
    QString recording_title_, recording_text_;
    int stop_ = 0;
    std::map<std::string, Outcome> outcomes_;  // by question id
    Theme theme_;
    double scale_ = 1;

    QScrollArea* scroll_;
    ProgressSegments* progress_;
    QLabel* title_;
    QLabel* body_;
    QFrame* question_card_;
    QLabel* question_text_;
    QLineEdit* input_;
    QLabel* unit_;
    QPushButton* reveal_;
    QPushButton* skip_;
    QLabel* reply_;
    QLabel* claims_title_;
    QLabel* claims_hint_;
    QWidget* claims_;
    QGridLayout* claims_grid_;
    std::vector<ClaimRow> claim_rows_;
    QWidget* footer_;
    QPushButton* back_;
    QPushButton* next_;
    QPushButton* open_lesson_;
};

}  // namespace kvlab
