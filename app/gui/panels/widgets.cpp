// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/panels/widgets.h"

#include <algorithm>
#include <cmath>

#include <QFontMetricsF>
#include <QHBoxLayout>
#include <QMouseEvent>
#include <QPainter>
#include <QRegularExpression>
#include <QStyle>
#include <QVBoxLayout>

#include "app/gui/provenance.h"
#include "app/gui/style_sheet.h"

namespace kvlab {

void setRole(QWidget* widget, const char* role) {
    widget->setProperty("role", QLatin1String(role));
    widget->style()->unpolish(widget);
    widget->style()->polish(widget);
}

QLabel* makeLabel(const QString& text, const char* role, QWidget* parent) {
    auto* label = new QLabel(text, parent);
    label->setProperty("role", QLatin1String(role));
    return label;
}

QFrame* makeRule(QWidget* parent) {
    auto* rule = new QFrame(parent);
    rule->setProperty("role", QLatin1String("rule"));
    return rule;
}

QString shortened(const QString& text, int max_chars, int max_word_chars) {
    // Cut first: the text may be a megabyte long.
    QString start = text.left(2 * max_chars + 1);
    const bool cut = text.size() > start.size();
    // Controls would show as boxes or turn the direction of what follows.
    static const QRegularExpression kControls(
        QStringLiteral("[\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{7f}-\\x{9f}"
                       "\\x{200e}\\x{200f}\\x{202a}-\\x{202e}\\x{2066}-\\x{2069}]"));
    start.remove(kControls);
    QStringList words = start.split(QRegularExpression(QStringLiteral("\\s+")), Qt::SkipEmptyParts);
    for (QString& word : words) {
        if (word.size() > max_word_chars) {
            word = word.left(max_word_chars - 1) + QStringLiteral("…");
        }
    }
    QString line = words.join(QLatin1Char(' '));
    if (line.size() > max_chars || cut) {
        line = line.left(max_chars - 1);
        if (!line.endsWith(QStringLiteral("…"))) {
            line += QStringLiteral("…");
        }
    }
    return line;
}

QString plainToolTip(const QString& text) {
    return text.isEmpty() ? QString()
                          : QStringLiteral("<qt>%1</qt>").arg(shortened(text, 300).toHtmlEscaped());
}

QString plainMarkdown(const QString& text) {
    QString escaped;
    for (const QChar c : shortened(text, 60, 24)) {
        if (c.unicode() < 128 && c.isPrint() && !c.isLetterOrNumber() && !c.isSpace()) {
            escaped += QLatin1Char('\\');
        }
        escaped += c;
    }
    return escaped;
}

// --- NumberLabel
// ----------------------------------------------------------------------------------

NumberLabel::NumberLabel(QWidget* parent) : QWidget(parent), font_(monoFont(kBodyPoints)) {
    setSizePolicy(QSizePolicy::Preferred, QSizePolicy::Fixed);
    text_ = noData();
}

void NumberLabel::setNumber(const QString& text, Provenance provenance, const QString& mark) {
    if (text_ == text && provenance_ == provenance && mark_ == mark) {
        return;
    }
    const bool resized = text_.size() != text.size() || mark_.size() != mark.size();
    text_ = text;
    mark_ = mark;
    provenance_ = provenance;
    setAccessibleName(
        text == noData()
            ? tr("no data")
            : tr("%1 %2, %3").arg(text, mark, QString::fromUtf8(provenanceName(provenance))));
    if (resized) {
        updateGeometry();
    }
    update();
}

void NumberLabel::setMarkColor(const QColor& color) {
    mark_color_ = color;
    update();
}

void NumberLabel::setTheme(const Theme& theme, double scale) {
    ink_ = theme.ink;
    if (!mark_color_.isValid()) {
        mark_color_ = theme.ink;
    }
    font_ = monoFont(points_ * scale);
    updateGeometry();
    update();
}

QSize NumberLabel::sizeHint() const {
    const QFontMetricsF metrics(font_);
    const QString all = mark_.isEmpty() ? text_ : text_ + QLatin1Char(' ') + mark_;
    return {static_cast<int>(std::ceil(metrics.horizontalAdvance(all))) + 1,
            static_cast<int>(std::ceil(metrics.height() * 1.25))};
}

QSize NumberLabel::minimumSizeHint() const {
    const QSize wanted = sizeHint();
    return {std::min(wanted.width(), fontMetrics().averageCharWidth() * 8), wanted.height()};
}

void NumberLabel::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    const QFontMetricsF metrics(font_);
    const QString tail = mark_.isEmpty() ? QString() : QLatin1Char(' ') + mark_;
    const QString text =
        metrics.elidedText(text_, Qt::ElideRight, this->width() - metrics.horizontalAdvance(tail));
    const double width = metrics.horizontalAdvance(text);
    const double x = this->width() - width - metrics.horizontalAdvance(tail) - 0.5;
    const double y = (height() - metrics.height()) / 2 + metrics.ascent() - 1;
    drawNumber(painter, {x, y}, text, font_, ink_, provenance_);
    painter.setPen(mark_color_);
    painter.drawText(QPointF(x + width, y), tail);
}

// --- FactList
// -------------------------------------------------------------------------------------

FactList::FactList(const QStringList& names, QWidget* parent) : QWidget(parent) {
    auto* column = new QVBoxLayout(this);
    column->setContentsMargins(0, 0, 0, 0);
    column->setSpacing(4);
    for (const QString& name : names) {
        Row row;
        row.name = new QLabel(name, this);
        row.value = new NumberLabel(this);
        row.value->setPoints(kSmallPoints);
        row.name->setBuddy(row.value);
        auto* line = new QHBoxLayout;
        line->setSpacing(8);
        line->addWidget(row.name);
        line->addStretch(1);
        line->addWidget(row.value);
        column->addLayout(line);
        column->addWidget(makeRule(this));
        rows_.push_back(row);
    }
}

void FactList::setName(int row, const QString& name) {
    rows_[static_cast<size_t>(row)].name->setText(name);
}

void FactList::setFact(int row,
                       const QString& value,
                       Provenance provenance,
                       const QString& explanation) {
    NumberLabel* label = rows_[static_cast<size_t>(row)].value;
    label->setNumber(value.isEmpty() ? noData() : value, provenance);
    label->setToolTip(explanation);
    label->setAccessibleDescription(explanation);
}

void FactList::setTheme(const Theme& theme, double scale) {
    for (Row& row : rows_) {
        row.value->setTheme(theme, scale);
    }
}

// --- TokenChips
// -----------------------------------------------------------------------------------

TokenChips::TokenChips(QWidget* parent) : QWidget(parent), font_(monoFont(kSmallPoints)) {
    QSizePolicy policy(QSizePolicy::Preferred, QSizePolicy::Minimum);
    policy.setHeightForWidth(true);
    setSizePolicy(policy);
}

void TokenChips::setTokens(const QStringList& tokens) {
    if (tokens_ == tokens) {
        return;
    }
    tokens_ = tokens;
    setAccessibleName(tokens.isEmpty() ? tr("no tokens") : tokens.join(QLatin1Char(' ')));
    updateGeometry();
    update();
}

void TokenChips::setTheme(const Theme& theme, double scale) {
    font_ = monoFont(kSmallPoints * scale);
    ink_ = theme.ink;
    fill_ = theme.accent_tint;
    updateGeometry();
    update();
}

std::vector<QRectF> TokenChips::chipRects(double width) const {
    const QFontMetricsF metrics(font_);
    const double height = metrics.height() + 6;
    std::vector<QRectF> rects;
    double x = 0;
    double y = 0;
    for (const QString& token : tokens_) {
        const double w = std::min(metrics.horizontalAdvance(token) + 10, width);
        if (x > 0 && x + w > width) {
            x = 0;
            y += height + 5;
        }
        rects.emplace_back(x, y, w, height);
        x += w + 5;
    }
    return rects;
}

int TokenChips::heightForWidth(int width) const {
    const std::vector<QRectF> rects = chipRects(width);
    return rects.empty() ? 0 : static_cast<int>(std::ceil(rects.back().bottom()));
}

QSize TokenChips::sizeHint() const { return {200, heightForWidth(std::max(width(), 120))}; }

void TokenChips::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    painter.setFont(font_);
    const QFontMetricsF metrics(font_);
    const std::vector<QRectF> rects = chipRects(width());
    for (size_t i = 0; i < rects.size(); ++i) {
        painter.setPen(Qt::NoPen);
        painter.setBrush(fill_);
        painter.drawRoundedRect(rects[i], 3, 3);
        painter.setPen(ink_);
        painter.drawText(
            rects[i], Qt::AlignCenter,
            metrics.elidedText(tokens_[static_cast<int>(i)], Qt::ElideRight, rects[i].width() - 6));
    }
}

// --- ProgressSegments
// -----------------------------------------------------------------------------

ProgressSegments::ProgressSegments(QWidget* parent) : QWidget(parent) {
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
    setCursor(Qt::PointingHandCursor);
}

void ProgressSegments::setProgress(int current, int count) {
    current_ = current;
    count_ = count;
    setAccessibleName(tr("stop %1 of %2").arg(current + 1).arg(count));
    setToolTip(accessibleName());
    update();
}

void ProgressSegments::setTheme(const Theme& theme) {
    done_ = theme.accent;
    open_ = theme.hairline;
    update();
}

void ProgressSegments::paintEvent(QPaintEvent*) {
    if (count_ == 0) {
        return;
    }
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    painter.setPen(Qt::NoPen);
    const double gap = 4;
    const double width = (this->width() - gap * (count_ - 1)) / count_;
    for (int i = 0; i < count_; ++i) {
        painter.setBrush(i <= current_ ? done_ : open_);
        painter.drawRoundedRect(QRectF(i * (width + gap), 1, width, height() - 2), 2, 2);
    }
}

void ProgressSegments::mousePressEvent(QMouseEvent* event) {
    if (count_ > 0 && width() > 0) {
        const double share = event->position().x() / width();
        emit segmentClicked(std::clamp(static_cast<int>(share * count_), 0, count_ - 1));
    }
}

}  // namespace kvlab
