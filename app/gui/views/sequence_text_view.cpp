// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/views/sequence_text_view.h"

#include <algorithm>
#include <cmath>

#include <QFontMetricsF>
#include <QHelpEvent>
#include <QMouseEvent>
#include <QPainter>
#include <QToolTip>
#include <QWheelEvent>

#include "app/gui/paint/block_cell_painter.h"
#include "app/gui/provenance.h"

namespace kvlab {
namespace {

constexpr double kLine = 27, kMinLine = 20, kChip = 22, kBadge = 22, kBadgeGap = 10, kFooter = 22;
constexpr double kChipPoints = kTextPoints;
constexpr int kMaxLines = 12;
// Prompt tokens shown beyond the last that has K/V, while prefill is on its way.
constexpr int kBeyondPrefill = 12;

}  // namespace

SequenceTextView::SequenceTextView(RunHub* hub, QWidget* parent) : CanvasView(hub, parent) {
    setTitles(tr("Samples"), tr("each token sits over its slot; block boundaries are ticks"),
              tr("each token over its slot"));
    refresh(true);
}

QString SequenceTextView::emptySentence() const {
    const QString sentence = CanvasView::emptySentence();
    if (!sentence.isEmpty()) return sentence;
    return hub().state().sequences.empty() ? tr("The first step starts a sequence.") : QString();
}

const SequenceTextView::Word& SequenceTextView::wordOf(TokenId token) const {
    const auto at = words_.constFind(token.value);
    if (at != words_.constEnd()) return *at;
    Word word;
    QString piece = QString::fromStdString(hub().log().piece(token));
    piece.replace(QChar(0x2581), QLatin1Char(' '));
    word.extent.starts_word = piece.isEmpty() || piece.front().isSpace();
    const QString bare = piece.trimmed();
    word.text = !bare.isEmpty()                     ? bare
                : piece.contains(QLatin1Char('\n')) ? QStringLiteral("⏎")
                : piece.isEmpty()                   ? QStringLiteral("#%1").arg(token.value)
                                                    : QStringLiteral("␣");
    if (word.text.size() > 24) word.text = word.text.left(23) + QStringLiteral("…");
    const QFontMetricsF metrics(textFont(kChipPoints), const_cast<SequenceTextView*>(this));
    word.extent.text_width = metrics.horizontalAdvance(word.text);
    return *words_.insert(token.value, word);
}

void SequenceTextView::refresh(bool geometry_changed) {
    // A new log may use the same token ids for other pieces.
    if (geometry_changed) words_.clear();
    rows_.clear();
    num_hidden_ = 0;
    update();
    if (!hub().hasLog() || hub().state().sequences.empty()) {
        skip_last_ = 0;
        first_row_ = 0;
        return;
    }
    const CacheState& state = hub().state();
    const QRectF content = contentRect().adjusted(0, 2, 0, -kFooter);
    const int num_sequences = static_cast<int>(state.sequences.size());
    const int num_lines_fit = std::max(1, static_cast<int>(content.height() / kLine));
    // Many sequences get lower lines before some of them are left out.
    const int num_rows =
        std::min(num_sequences, std::max(1, static_cast<int>(content.height() / kMinLine)));
    num_hidden_ = num_sequences - num_rows;
    first_row_ = std::clamp(first_row_, 0, num_hidden_);
    const int lines = std::clamp(num_lines_fit / num_sequences, 1, kMaxLines);
    // A little air between sequences of several lines.
    const double pitch =
        std::min(lines * kLine + (lines > 1 ? 18 : 7), content.height() / num_rows);
    SequenceTextMetrics metrics;
    // Narrow views cannot afford to scroll four tokens at once.
    metrics.stride = content.width() < 340 ? 1 : content.width() < 420 ? 2 : 4;
    metrics.line_height = std::min(kLine, pitch);
    metrics.chip_height = std::min(kChip, pitch - 2);
    for (int i = 0; i < num_rows; ++i) {
        const SequenceState& sequence = state.sequences[static_cast<size_t>(first_row_ + i)];
        const double top = content.top() + i * pitch;
        Row row;
        row.sequence = sequence.id;
        const double badge = std::min(kBadge, pitch - 3);
        row.badge = QRectF(content.left(), top + (metrics.line_height - badge) / 2, badge, badge);
        const double left = content.left() + kBadge + kBadgeGap;
        const int num_tokens = static_cast<int>(sequence.tokens.size());
        const int num_shown = sequence.kv_len < sequence.prompt_len && !sequence.removed
                                  ? std::min(num_tokens, sequence.kv_len + kBeyondPrefill)
                                  : num_tokens;
        row.text = SequenceTextLayout(
            QRectF(left, top, content.right() - left, lines * metrics.line_height), num_shown,
            state.block_size, metrics,
            [&](int position) {
                return wordOf(sequence.tokens[static_cast<size_t>(position)]).extent;
            },
            skip_last_);
        rows_.push_back(std::move(row));
    }
}

void SequenceTextView::paintCanvas(QPainter& painter, const QRectF&) {
    const CacheState& state = hub().state();
    const Selection& shown = hub().shown();
    const QFont font = textFont(kChipPoints);
    const QFontMetricsF metrics(font, this);
    for (const Row& row : rows_) {
        const SequenceState& sequence = state.sequences[static_cast<size_t>(row.sequence.value)];
        paintOwnerBadge(painter, row.badge, row.sequence.value, theme());
        if (shown.sequence == row.sequence && !shown.block) {
            paintSelectionRing(painter, row.badge, theme());
        }
        if (row.text.isElided()) {
            painter.setPen(theme().quiet_ink);
            drawCentred(painter, row.text.elisionRect(), QStringLiteral("…"), font);
        }
        for (const TextChip& chip : row.text.chips()) {
            const size_t position = static_cast<size_t>(chip.position);
            const bool has_kv = chip.position < sequence.kv_len;
            const bool sampled = chip.position >= sequence.prompt_len;
            const size_t idx = position / static_cast<size_t>(std::max(state.block_size, 1));
            const bool looked_at =
                (shown.block && idx < sequence.table.size() &&
                 sequence.table[idx] == *shown.block) ||
                (shown.sequence == row.sequence && shown.position == chip.position);
            const QRectF edge = chip.rect.adjusted(0.5, 0.5, -0.5, -0.5);
            const bool newest =
                sampled && !has_kv && !sequence.removed && position + 1 == sequence.tokens.size();
            painter.setPen(
                QPen(newest || looked_at ? theme().accent : theme().hairline, newest ? 2.0 : 1.0));
            painter.setBrush(looked_at          ? QBrush(theme().accent_tint)
                             : has_kv || newest ? QBrush(theme().window)
                                                : QBrush(Qt::NoBrush));
            painter.drawRoundedRect(newest ? edge.adjusted(0.5, 0.5, -0.5, -0.5) : edge, 4, 4);
            painter.setPen(sampled ? theme().ink : theme().quiet_ink);
            const Word& word = wordOf(sequence.tokens[position]);
            const QString text =
                word.extent.text_width <= chip.rect.width()
                    ? word.text
                    : metrics.elidedText(word.text, Qt::ElideRight, chip.rect.width() - 4);
            // The x-height is centred: most words have no capitals.
            painter.setFont(font);
            painter.drawText(QPointF(chip.rect.center().x() - metrics.horizontalAdvance(text) / 2,
                                     chip.rect.center().y() + metrics.capHeight() / 2 - 0.5),
                             text);
            if (chip.block_begins) {
                const double x = std::floor(chip.rect.left() - 4);
                painter.fillRect(QRectF(x, chip.rect.top() - 2, 2, chip.rect.height() + 4),
                                 theme().ink);
            }
        }
    }
    const QRectF content = contentRect();
    QString news;  // what is out of sight
    if (skip_last_ > 0) {
        news += tr("%1 newer below  ·  ").arg(countOf(skip_last_, "token"));
    }
    if (num_hidden_ > 0) {
        news += tr("showing %1 of %2  ·  ")
                    .arg(rows_.size())
                    .arg(countOf(static_cast<int64_t>(state.sequences.size()), "sequence"));
    }
    // The longest that fits whole; the meaning of the marks gives way to what is out of sight.
    QString words;
    for (const QString& key :
         {tr("ring: sampled, no K/V yet  ·  tick: a block begins"),
          tr("ring: no K/V yet  ·  tick: new block"), tr("ring: no K/V yet"), QString()}) {
        words = news + key;
        if (key.isEmpty() && !news.isEmpty()) {
            words.chop(5);  // the dot that would part it from more
        }
        if (metrics.horizontalAdvance(words) <= content.width()) break;
    }
    painter.setFont(font);
    painter.setPen(theme().quiet_ink);
    painter.drawText(QRectF(content.left(), content.bottom() - kFooter + 4, content.width(), 18),
                     Qt::AlignVCenter | Qt::AlignLeft,
                     metrics.elidedText(words, Qt::ElideRight, content.width()));
}

Selection SequenceTextView::selectionAt(QPointF widget_point) const {
    const QPointF point = toCanvas(widget_point);
    Selection selection;
    for (const Row& row : rows_) {
        if (row.badge.contains(point)) {
            selection.sequence = row.sequence;
            return selection;
        }
        const int position = row.text.positionAt(point);
        if (position < 0) continue;
        const CacheState& state = hub().state();
        const auto& table = state.sequences[static_cast<size_t>(row.sequence.value)].table;
        selection.sequence = row.sequence;
        selection.position = position;
        const size_t idx = static_cast<size_t>(position / std::max(state.block_size, 1));
        if (idx < table.size() && table[idx].valid()) selection.block = table[idx];
        return selection;
    }
    return selection;
}

bool SequenceTextView::event(QEvent* event) {
    if (event->type() != QEvent::ToolTip) return CanvasView::event(event);
    const auto* help = static_cast<QHelpEvent*>(event);
    const Selection at = selectionAt(help->pos());
    if (!at.position) {
        QToolTip::hideText();
        return true;
    }
    const CacheState& state = hub().state();
    const SequenceState& sequence = state.sequences[static_cast<size_t>(at.sequence->value)];
    const int idx = *at.position / state.block_size, offset = *at.position % state.block_size;
    QString text =
        tr("%1 · position %2 = logical block %3, offset %4")
            .arg(QString::fromStdString(ownerLetter(sequence.id)), formatCount(*at.position))
            .arg(idx)
            .arg(offset);
    if (*at.position >= sequence.kv_len) {
        text += tr(" · no K/V");
    } else if (at.block) {
        text += tr(" · slot %1 × %2 + %3 = %4")
                    .arg(at.block->value)
                    .arg(state.block_size)
                    .arg(offset)
                    .arg(formatCount(int64_t{at.block->value} * state.block_size + offset));
    }
    QToolTip::showText(help->globalPos(), text, this);
    return true;
}

void SequenceTextView::mouseMoveEvent(QMouseEvent* event) { hoverAt(event->position()); }

void SequenceTextView::mousePressEvent(QMouseEvent* event) {
    if (event->button() != Qt::LeftButton) return CanvasView::mousePressEvent(event);
    const Selection selection = selectionAt(event->position());
    hub().lock(selection == hub().locked() ? Selection() : selection);
}

void SequenceTextView::leaveEvent(QEvent*) { hoverAt({}); }

void SequenceTextView::wheelEvent(QWheelEvent* event) {
    if (!hub().hasLog()) return event->ignore();
    const bool back = event->angleDelta().y() > 0;
    if (num_hidden_ > 0 && !(event->modifiers() & Qt::ShiftModifier)) {
        first_row_ = std::clamp(first_row_ + (back ? -1 : 1), 0, num_hidden_);
    } else {
        size_t longest = 0;
        for (const SequenceState& sequence : hub().state().sequences) {
            longest = std::max(longest, sequence.tokens.size());
        }
        skip_last_ =
            std::clamp(skip_last_ + (back ? 4 : -4), 0, std::max(0, static_cast<int>(longest) - 8));
    }
    refresh(false);
    event->accept();
}

}  // namespace kvlab
