// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <vector>

#include <QColor>
#include <QFrame>
#include <QLabel>
#include <QString>
#include <QStringList>
#include <QWidget>

#include "app/gui/theme.h"
#include "lessons/lesson.h"

namespace kvlab {

// Small pieces that the panels share.

QLabel* makeLabel(const QString& text, const char* role, QWidget* parent);
QFrame* makeRule(QWidget* parent);
void setRole(QWidget* widget, const char* role);

// Texts that a file brings along: one line of at most `max_chars`, no word longer than
// `max_word_chars` (a label cannot break one).
QString shortened(const QString& text, int max_chars, int max_word_chars = 60);
// As a tool tip and in Markdown, where it stays the text it is whatever marks it holds.
QString plainToolTip(const QString& text);
QString plainMarkdown(const QString& text);

// A number with the underline that says where it comes from, and its formula as tool tip.
class NumberLabel : public QWidget {
    Q_OBJECT

  public:
    explicit NumberLabel(QWidget* parent = nullptr);

    // `mark` follows the number without an underline: a tick, a unit.
    void setNumber(const QString& text, Provenance provenance, const QString& mark = {});
    void setMarkColor(const QColor& color);
    void setPoints(double points) { points_ = points; }  // before setTheme
    void setTheme(const Theme& theme, double scale);
    QString text() const { return text_; }

    QSize sizeHint() const override;
    // Narrower ones are elided; the tool tip has it all.
    QSize minimumSizeHint() const override;

  protected:
    void paintEvent(QPaintEvent* event) override;

  private:
    QString text_, mark_;
    Provenance provenance_ = Provenance::kMeasured;
    QColor ink_, mark_color_;
    QFont font_;
    double points_ = 10.5;
};

// Rows "name … value" with hairlines between them.
class FactList : public QWidget {
    Q_OBJECT

  public:
    FactList(const QStringList& names, QWidget* parent = nullptr);

    void setFact(int row,
                 const QString& value,
                 Provenance provenance,
                 const QString& explanation = {});
    void setName(int row, const QString& name);
    void setTheme(const Theme& theme, double scale);

  private:
    struct Row {
        QLabel* name;
        NumberLabel* value;
    };
    std::vector<Row> rows_;
};

// Token texts as chips that wrap.
class TokenChips : public QWidget {
    Q_OBJECT

  public:
    explicit TokenChips(QWidget* parent = nullptr);
    void setTokens(const QStringList& tokens);
    void setTheme(const Theme& theme, double scale);

    bool hasHeightForWidth() const override { return true; }
    int heightForWidth(int width) const override;
    QSize sizeHint() const override;

  protected:
    void paintEvent(QPaintEvent* event) override;

  private:
    std::vector<QRectF> chipRects(double width) const;

    QStringList tokens_;
    QFont font_;
    QColor ink_, fill_;
};

// One segment per stop; those up to the shown one are filled.
class ProgressSegments : public QWidget {
    Q_OBJECT

  public:
    explicit ProgressSegments(QWidget* parent = nullptr);
    void setProgress(int current, int count);
    void setTheme(const Theme& theme);
    QSize sizeHint() const override { return {120, 6}; }

  signals:
    void segmentClicked(int idx);

  protected:
    void paintEvent(QPaintEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;

  private:
    int current_ = 0;
    int count_ = 0;
    QColor done_, open_;
};

}  // namespace kvlab
