// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/panels/lesson_panel.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <QGridLayout>
#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QLocale>
#include <QPushButton>
#include <QRegularExpression>
#include <QScrollArea>
#include <QScrollBar>
#include <QTextBlock>
#include <QTextCursor>
#include <QTextDocument>
#include <QVBoxLayout>

#include "app/gui/panels/number_input.h"
#include "app/gui/panels/widgets.h"
#include "app/gui/provenance.h"
#include "app/gui/style_sheet.h"
#include "lessons/lesson_runner.h"

namespace kvlab {

namespace {

// Wide enough for three numbers beside the claim.
constexpr int kMargin = 18;

QString numberText(const std::optional<double>& value) {
    if (!value) {
        return noData();
    }
    const double rounded = std::round(*value);
    if (std::abs(*value - rounded) < 1e-9 && std::abs(rounded) < 9e15) {
        return formatCount(static_cast<int64_t>(rounded));
    }
    QString text = QString::number(*value, 'f', 2);
    while (text.endsWith(QLatin1Char('0'))) {
        text.chop(1);
    }
    if (text.endsWith(QLatin1Char('.'))) {
        text.chop(1);
    }
    const qsizetype point = text.indexOf(QLatin1Char('.'));
    const qsizetype first_digit = *value < 0 ? 1 : 0;
    for (qsizetype at = (point < 0 ? text.size() : point) - 3; at > first_digit; at -= 3) {
        text.insert(at, QLatin1Char(','));
    }
    return text;
}

bool countsWholeThings(const std::string& unit) {
    static const char* const kWhole[] = {"blocks", "tokens",    "slots",
                                         "copies", "sequences", "steps"};
    return std::any_of(std::begin(kWhole), std::end(kWhole),
                       [&](const char* word) { return unit == word; });
}

QLabel* makeTextLabel(QWidget* parent) {
    auto* label = new QLabel(parent);
    label->setWordWrap(true);
    label->setTextFormat(Qt::RichText);
    label->setTextInteractionFlags(Qt::LinksAccessibleByMouse | Qt::LinksAccessibleByKeyboard |
                                   Qt::TextSelectableByMouse);
    label->setFocusPolicy(Qt::TabFocus);
    return label;
}

// A hidden or disabled control hands the keyboard to its neighbour, whose Space is another one.
void letGoOfKeyboard(QWidget* widget) {
    if (widget->hasFocus()) {
        widget->clearFocus();
    }
}

}  // namespace

std::optional<LessonLink> parseLessonLink(const QString& link) {
    static const QRegularExpression kLink(
        QStringLiteral("^kv:(block|sequence|step)/([0-9]{1,9})$"));
    const QRegularExpressionMatch match = kLink.match(link);
    if (!match.hasMatch()) {
        return std::nullopt;
    }
    const QString kind = match.captured(1);
    LessonLink result{LessonLink::Kind::kStep, match.captured(2).toLongLong()};
    if (kind == QLatin1String("block")) {
        result.kind = LessonLink::Kind::kBlock;
    } else if (kind == QLatin1String("sequence")) {
        result.kind = LessonLink::Kind::kSequence;
    }
    return result;
}

LessonPanel::LessonPanel(RunHub* hub, QWidget* parent)
    : QWidget(parent), hub_(hub), theme_(Theme::light()) {
    setObjectName(QStringLiteral("sidePanel"));
    setAttribute(Qt::WA_StyledBackground);
    setAccessibleName(tr("Lesson"));
    auto* outer = new QVBoxLayout(this);
    outer->setContentsMargins(0, 0, 0, 0);
    outer->setSpacing(0);

    scroll_ = new QScrollArea(this);
    scroll_->setObjectName(QStringLiteral("sidePanel"));
    scroll_->setAccessibleName(tr("Lesson text"));
    scroll_->setWidgetResizable(true);
    scroll_->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    scroll_->setFocusPolicy(Qt::TabFocus);
    auto* content = new QWidget(scroll_);
    auto* column = new QVBoxLayout(content);
    column->setContentsMargins(kMargin, 16, kMargin, 12);
    column->setSpacing(10);

    progress_ = new ProgressSegments(content);
    connect(progress_, &ProgressSegments::segmentClicked, this, &LessonPanel::goToStop);
    column->addWidget(progress_);
    title_ = makeLabel({}, "title", content);
    title_->setTextFormat(Qt::PlainText);  // a trace names itself
    title_->setWordWrap(true);
    column->addWidget(title_);
    body_ = makeTextLabel(content);
    body_->setObjectName(QStringLiteral("lessonBody"));
    connect(body_, &QLabel::linkActivated, this, &LessonPanel::activateLink);
    connect(body_, &QLabel::linkHovered, this, &LessonPanel::hoverLink);
    column->addWidget(body_);

    question_card_ = new QFrame(content);
    question_card_->setProperty("role", "question");
    auto* card = new QVBoxLayout(question_card_);
    card->setContentsMargins(14, 12, 14, 12);
    card->setSpacing(9);
    question_text_ = makeTextLabel(question_card_);
    connect(question_text_, &QLabel::linkActivated, this, &LessonPanel::activateLink);
    connect(question_text_, &QLabel::linkHovered, this, &LessonPanel::hoverLink);
    card->addWidget(question_text_);
    auto* entry = new QHBoxLayout;
    entry->setSpacing(7);
    input_ = new QLineEdit(question_card_);
    input_->setAccessibleName(tr("Your prediction"));
    input_->setMaxLength(40);
    input_->setMinimumWidth(60);
    unit_ = makeLabel({}, "quiet", question_card_);
    reveal_ = new QPushButton(tr("Reveal"), question_card_);
    reveal_->setProperty("role", "primary");
    skip_ = new QPushButton(tr("Skip"), question_card_);
    skip_->setProperty("role", "flat");
    skip_->setToolTip(tr("Show the answer without a prediction"));
    entry->addWidget(input_, 1);
    entry->addWidget(unit_);
    entry->addWidget(reveal_);
    card->addLayout(entry);
    card->addWidget(skip_, 0, Qt::AlignRight);
    reply_ = makeTextLabel(question_card_);
    connect(reply_, &QLabel::linkActivated, this, &LessonPanel::activateLink);
    card->addWidget(reply_);
    column->addWidget(question_card_);
    connect(input_, &QLineEdit::returnPressed, this, &LessonPanel::answer);
    connect(reveal_, &QPushButton::clicked, this, &LessonPanel::answer);
    connect(skip_, &QPushButton::clicked, this, &LessonPanel::skip);

    claims_title_ = makeLabel(tr("CLAIM, FORMULA, MEASURED"), "section", content);
    column->addSpacing(4);
    column->addWidget(claims_title_);
    claims_hint_ = makeTextLabel(content);
    connect(claims_hint_, &QLabel::linkActivated, this, &LessonPanel::openClaims);
    column->addWidget(claims_hint_);
    claims_ = new QWidget(content);
    claims_grid_ = new QGridLayout(claims_);
    claims_grid_->setContentsMargins(0, 0, 0, 0);
    claims_grid_->setHorizontalSpacing(10);
    claims_grid_->setVerticalSpacing(3);
    claims_grid_->setColumnStretch(0, 1);
    column->addWidget(claims_);
    open_lesson_ = new QPushButton(tr("Open the best-of-8 lesson"), content);
    open_lesson_->setProperty("role", "primary");
    connect(open_lesson_, &QPushButton::clicked, this, &LessonPanel::lessonRequested);
    column->addWidget(open_lesson_, 0, Qt::AlignLeft);
    column->addStretch(1);
    scroll_->setWidget(content);
    outer->addWidget(scroll_, 1);

    footer_ = new QWidget(this);
    auto* buttons = new QHBoxLayout(footer_);
    buttons->setContentsMargins(kMargin, 8, kMargin, 12);
    back_ = new QPushButton(tr("‹ Back"), footer_);
    next_ = new QPushButton(tr("Next ›"), footer_);
    next_->setProperty("role", "primary");
    back_->setAccessibleName(tr("Previous stop of the lesson"));
    next_->setAccessibleName(tr("Next stop of the lesson"));
    buttons->addWidget(back_);
    buttons->addStretch(1);
    buttons->addWidget(next_);
    outer->addWidget(footer_);
    connect(back_, &QPushButton::clicked, this, &LessonPanel::previousStop);
    connect(next_, &QPushButton::clicked, this, &LessonPanel::nextStop);
    // A click leaves the keyboard where it was, so that Space goes on playing.
    for (QPushButton* button : {reveal_, skip_, open_lesson_, back_, next_}) {
        button->setFocusPolicy(Qt::TabFocus);
    }

    refresh();
}

void LessonPanel::setTheme(const Theme& theme, double scale) {
    theme_ = theme;
    scale_ = scale;
    progress_->setTheme(theme);
    setMinimumWidth(qRound(250 * scale));
    refresh();
    refreshClaims();
}

void LessonPanel::setLesson(Lesson lesson) {
    lesson_ = std::move(lesson);
    stop_ = 0;
    outcomes_.clear();
    buildClaims();
    refresh();
}

void LessonPanel::showRecording(const QString& title, const QString& markdown) {
    lesson_.reset();
    recording_title_ = title;
    recording_text_ = markdown;
    stop_ = 0;
    buildClaims();
    refresh();
}

bool LessonPanel::claimsShown() const {
    const LessonStop* stop = currentStop();
    if (!stop || !stop->show_claims) {
        return false;
    }
    return !openQuestionStop();
}

// The first stop up to this one whose question is open: the table would give its answer away.
std::optional<int> LessonPanel::openQuestionStop() const {
    for (int i = 0; i <= stop_; ++i) {
        const std::string& question = lesson_->stops[static_cast<size_t>(i)].question;
        if (!question.empty() && !outcomes_.contains(question)) {
            return i;
        }
    }
    return std::nullopt;
}

void LessonPanel::openClaims(const QString& link) {
    const std::optional<int> open = openQuestionStop();
    if (open && link == QLatin1String("kv:question/0")) {
        goToStop(*open);
    } else if (open) {
        for (int i = 0; i <= stop_; ++i) {
            const std::string& question = lesson_->stops[static_cast<size_t>(i)].question;
            if (!question.empty()) {
                outcomes_.try_emplace(question, Outcome{true, {}, 0});
            }
        }
        refresh();
    }
}

void LessonPanel::recordRun(const std::string& run_id, const RunMetrics& metrics) {
    if (lesson_) {
        recordMeasurement(*lesson_, run_id, metrics);
        refreshClaims();
    }
}

void LessonPanel::goToStop(int stop) {
    if (!lesson_ || lesson_->stops.empty()) {
        return;
    }
    stop = std::clamp(stop, 0, static_cast<int>(lesson_->stops.size()) - 1);
    stop_ = stop;
    input_->clear();
    refresh();
    scroll_->verticalScrollBar()->setValue(0);
    emit stopShown(stop_);
}

void LessonPanel::answer() {
    const Question* question = currentQuestion();
    if (!question || outcomes_.contains(question->id)) {
        return;
    }
    const auto value = parseNumber(input_->text(), QLocale(), countsWholeThings(question->unit));
    if (!value) {
        reply_->setText(htmlOf(input_->text().trimmed().isEmpty()
                                   ? tr("Type a number first, or skip.")
                                   : tr("That is not a number. Write it as 16,800 or 16 800.")));
        reply_->show();
        input_->setFocus();
        input_->selectAll();
        return;
    }
    outcomes_[question->id] = {false, input_->text().trimmed(), *value};
    refresh();
}

void LessonPanel::skip() {
    if (const Question* question = currentQuestion()) {
        if (!outcomes_.contains(question->id)) {
            outcomes_[question->id] = {true, {}, 0};
            refresh();
        }
    }
}

const LessonStop* LessonPanel::currentStop() const {
    return lesson_ && static_cast<size_t>(stop_) < lesson_->stops.size()
               ? &lesson_->stops[static_cast<size_t>(stop_)]
               : nullptr;
}

const Question* LessonPanel::currentQuestion() const {
    const LessonStop* stop = currentStop();
    if (!stop || stop->question.empty()) {
        return nullptr;
    }
    for (const Question& question : lesson_->questions) {
        if (question.id == stop->question) {
            return &question;
        }
    }
    return nullptr;
}

const Claim* LessonPanel::claimOf(const std::string& id) const {
    for (const Claim& claim : lesson_->claims) {
        if (claim.id == id) {
            return &claim;
        }
    }
    return nullptr;
}

void LessonPanel::refresh() {
    const LessonStop* stop = currentStop();
    progress_->setVisible(lesson_.has_value());
    footer_->setVisible(lesson_.has_value());
    open_lesson_->setVisible(!lesson_.has_value());
    if (stop) {
        const auto count = static_cast<int>(lesson_->stops.size());
        progress_->setProgress(stop_, count);
        title_->setText(QString::fromStdString(stop->title));
        body_->setText(htmlOf(QString::fromStdString(stop->body)));
        if (stop_ == 0) {
            letGoOfKeyboard(back_);
        }
        if (stop_ + 1 >= count) {
            letGoOfKeyboard(next_);
        }
        back_->setEnabled(stop_ > 0);
        next_->setEnabled(stop_ + 1 < count);
    } else {
        title_->setText(shortened(recording_title_, 200, 22));
        body_->setText(htmlOf(recording_text_));
    }
    refreshQuestion();
    refreshClaims();
}

void LessonPanel::refreshQuestion() {
    const Question* question = currentQuestion();
    question_card_->setVisible(question != nullptr);
    if (!question) {
        return;
    }
    question_text_->setText(htmlOf(
        QStringLiteral("**%1** %2").arg(tr("Predict."), QString::fromStdString(question->text))));
    unit_->setText(QString::fromStdString(question->unit));
    const auto outcome = outcomes_.find(question->id);
    const bool resolved = outcome != outcomes_.end();
    if (resolved) {
        for (QWidget* control : std::initializer_list<QWidget*>{input_, reveal_, skip_}) {
            letGoOfKeyboard(control);
        }
    }
    input_->setEnabled(!resolved);
    reveal_->setEnabled(!resolved);
    skip_->setVisible(!resolved);
    reveal_->setText(!resolved                 ? tr("Reveal")
                     : outcome->second.skipped ? tr("Skipped")
                                               : tr("Answered"));
    if (resolved) {
        input_->setText(outcome->second.typed);
        reply_->setText(htmlOf(replyTo(*question, outcome->second)));
    }
    reply_->setVisible(resolved);
}

QString LessonPanel::replyTo(const Question& question, const Outcome& outcome) const {
    const Claim* claim = claimOf(question.quantity);
    QString reply;
    if (!claim || !claim->formula_value) {
        reply = QString::fromStdString(question.reply_right);
    } else {
        const double right = *claim->formula_value;
        if (outcome.skipped) {
            // It tells the way to the number; the other one would praise a guess that was not made.
            reply = QString::fromStdString(question.reply_wrong);
        } else if (std::abs(outcome.value - right) <= question.tolerance + 1e-9) {
            reply = tr("**You said %1.** ").arg(numberText(outcome.value)) +
                    QString::fromStdString(question.reply_right);
        } else {
            std::string text = question.reply_wrong;
            for (const ExpectedAnswer& expected : question.expected) {
                if (std::abs(outcome.value - expected.value) <= question.tolerance + 1e-9) {
                    text = expected.reply;
                }
            }
            reply = tr("**You said %1.** ").arg(numberText(outcome.value)) +
                    QString::fromStdString(text);
        }
        if (!claim->formula_substituted.empty()) {
            reply +=
                QStringLiteral("\n\n`%1 = %2`")
                    .arg(QString::fromStdString(claim->formula_substituted), numberText(right));
        }
    }
    return reply;
}

void LessonPanel::buildClaims() {
    while (QLayoutItem* item = claims_grid_->takeAt(0)) {
        delete item->widget();
        delete item;
    }
    claim_rows_.clear();
    if (!lesson_) {
        return;
    }
    const QString heads[] = {tr("claim"), tr("text"), tr("formula"), tr("engine")};
    const QString meanings[] = {QString(), tr("what the text says: dotted underline, quoted"),
                                tr("what the formula gives: dashed underline, derived"),
                                tr("what this engine counted: solid underline, measured")};
    for (int i = 0; i < 4; ++i) {
        QLabel* head = makeLabel(heads[i], "small", claims_);
        head->setToolTip(meanings[i]);
        claims_grid_->addWidget(head, 0, i, i == 0 ? Qt::AlignLeft : Qt::AlignRight);
    }
    int line = 1;
    for (const Claim& claim : lesson_->claims) {
        ClaimRow row;
        row.rule = makeRule(claims_);
        claims_grid_->addWidget(row.rule, line++, 0, 1, 4);
        row.text = new QLabel(QString::fromStdString(claim.text), claims_);
        row.text->setTextFormat(Qt::PlainText);
        row.text->setWordWrap(true);
        row.arithmetic = makeLabel({}, "formula", claims_);
        row.arithmetic->setWordWrap(true);
        row.arithmetic->setTextInteractionFlags(Qt::TextSelectableByMouse);
        row.quoted = new NumberLabel(claims_);
        row.formula = new NumberLabel(claims_);
        row.measured = new NumberLabel(claims_);
        row.unit = makeLabel(QString::fromStdString(claim.unit), "small", claims_);
        claims_grid_->addWidget(row.text, line, 0, 1, 4);
        claims_grid_->addWidget(row.unit, line + 1, 0);
        int column = 1;
        for (NumberLabel* number : {row.quoted, row.formula, row.measured}) {
            number->setPoints(kSmallPoints);
            claims_grid_->addWidget(number, line + 1, column++, Qt::AlignRight);
        }
        claims_grid_->addWidget(row.arithmetic, line + 2, 0, 1, 4);
        line += 3;
        claim_rows_.push_back(row);
    }
    claims_grid_->addWidget(makeRule(claims_), line, 0, 1, 4);
}

// A row that no stop up to here has shown a run for, or that answers a question still open.
bool LessonPanel::givesAway(const Claim& claim) const {
    bool run_shown = claim.run.empty();
    for (int i = 0; i <= stop_ && !run_shown; ++i) {
        run_shown = lesson_->stops[static_cast<size_t>(i)].run == claim.run;
    }
    return !run_shown ||
           std::any_of(lesson_->questions.begin(), lesson_->questions.end(),
                       [&](const Question& question) {
                           return question.quantity == claim.id && !outcomes_.contains(question.id);
                       });
}

void LessonPanel::refreshClaims() {
    const LessonStop* stop = currentStop();
    const bool wanted = stop && stop->show_claims && !claim_rows_.empty();
    const bool shown = wanted && claimsShown();
    claims_title_->setVisible(wanted);
    claims_hint_->setVisible(wanted && !shown);
    if (wanted && !shown) {
        const std::optional<int> open = openQuestionStop();
        claims_hint_->setText(htmlOf(
            open == stop_ ? tr("The table opens when the question is answered or skipped.")
                          : tr("The table opens when the [question before](kv:question/0) is "
                               "answered. Or [show it now](kv:claims/0).")));
    }
    claims_->setVisible(shown);
    if (!lesson_) {
        return;
    }
    for (size_t i = 0; i < claim_rows_.size(); ++i) {
        const Claim& claim = lesson_->claims[i];
        ClaimRow& row = claim_rows_[i];
        const bool row_shown = shown && !givesAway(claim);
        for (QWidget* part :
             std::initializer_list<QWidget*>{row.text, row.unit, row.arithmetic, row.quoted,
                                             row.formula, row.measured, row.rule}) {
            part->setVisible(row_shown);
        }
        if (!row_shown) {
            continue;
        }
        const QString unit = QString::fromStdString(claim.unit);
        row.quoted->setNumber(numberText(claim.quoted), Provenance::kQuoted);
        row.formula->setNumber(numberText(claim.formula_value), Provenance::kDerived);
        row.measured->setNumber(
            numberText(claim.measured), Provenance::kMeasured,
            claim.measured ? (claim.pass ? QStringLiteral("✓") : QStringLiteral("✗")) : QString());
        row.measured->setMarkColor(claim.pass ? theme_.good : theme_.bad);
        const QString formula = QString::fromStdString(claim.formula);
        const QString substituted = QString::fromStdString(claim.formula_substituted);
        row.arithmetic->setText(substituted.isEmpty() ? QString()
                                                      : QStringLiteral("= ") + substituted);
        row.arithmetic->setToolTip(formula);
        const QString explained =
            tr("%1 = %2 = %3 %4").arg(formula, substituted, numberText(claim.formula_value), unit);
        row.formula->setToolTip(explained);
        row.formula->setAccessibleDescription(explained);
        row.measured->setToolTip(claim.measured ? tr("counted by the engine, %1").arg(unit)
                                                : tr("the run has not finished yet"));
        for (NumberLabel* number : {row.quoted, row.formula, row.measured}) {
            number->setTheme(theme_, scale_);
        }
    }
}

QString LessonPanel::htmlOf(const QString& markdown) const {
    QTextDocument document;
    document.setDefaultFont(textFont(kBodyPoints * scale_));
    document.setMarkdown(markdown, QTextDocument::MarkdownDialectGitHub);
    for (QTextBlock block = document.begin(); block.isValid(); block = block.next()) {
        QTextCursor cursor(block);
        QTextBlockFormat format = block.blockFormat();
        format.setLineHeight(128, QTextBlockFormat::ProportionalHeight);
        const bool last = !block.next().isValid();
        format.setTopMargin(0);
        format.setBottomMargin(
            last || format.hasProperty(QTextFormat::BlockCodeFence) ? 0 : 8 * scale_);
        if (format.hasProperty(QTextFormat::BlockCodeFence)) {
            format.setBackground(theme_.accent_tint);
        }
        cursor.setBlockFormat(format);
        // Gathered first: changing a format may join fragments under the iterator.
        struct Piece {
            int position, length;
            QTextCharFormat format;
        };
        std::vector<Piece> pieces;
        for (auto it = block.begin(); !it.atEnd(); ++it) {
            const QTextFragment fragment = it.fragment();
            pieces.push_back({fragment.position(), fragment.length(), fragment.charFormat()});
        }
        for (const Piece& piece : pieces) {
            QTextCursor over(&document);
            over.setPosition(piece.position);
            over.setPosition(piece.position + piece.length, QTextCursor::KeepAnchor);
            QTextCharFormat change;
            if (piece.format.isAnchor()) {
                change.setForeground(theme_.accent);
                change.setFontUnderline(true);
            }
            if (piece.format.fontFixedPitch()) {
                change.setFontFamilies(monoFont(1).families());
                change.setFontPointSize(kSmallPoints * scale_);
                if (!format.hasProperty(QTextFormat::BlockCodeFence)) {
                    change.setBackground(theme_.accent_tint);
                }
            }
            over.mergeCharFormat(change);
        }
    }
    return document.toHtml();
}

void LessonPanel::hoverLink(const QString& link) {
    Selection selection;
    if (const auto target = parseLessonLink(link)) {
        if (target->kind == LessonLink::Kind::kBlock) {
            selection.block = BlockId(target->number);
        } else if (target->kind == LessonLink::Kind::kSequence) {
            selection.sequence = SequenceId(target->number);
        }
    }
    hub_->hover(selection);
}

void LessonPanel::activateLink(const QString& link) {
    const auto target = parseLessonLink(link);
    if (!target) {
        return;
    }
    Selection selection;
    switch (target->kind) {
        case LessonLink::Kind::kBlock:
            selection.block = BlockId(target->number);
            hub_->lock(selection);
            break;
        case LessonLink::Kind::kSequence:
            selection.sequence = SequenceId(target->number);
            hub_->lock(selection);
            break;
        case LessonLink::Kind::kStep:
            emit stepRequested(target->number);
            break;
    }
}

}  // namespace kvlab
