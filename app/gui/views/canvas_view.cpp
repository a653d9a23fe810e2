// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/views/canvas_view.h"

#include <algorithm>

#include <QEvent>
#include <QFontMetricsF>
#include <QPaintEvent>
#include <QPainter>

namespace kvlab {
namespace {

constexpr double kPadding = 13, kHeader = 26, kTitlePoints = 10;

}  // namespace

CanvasView::CanvasView(RunHub* hub, QWidget* parent)
    : QWidget(parent), hub_(hub), theme_(Theme::light()) {
    setMouseTracking(true);
    // Not by click: the arrow keys step through the run until someone tabs into a picture.
    setFocusPolicy(Qt::TabFocus);
    setAttribute(Qt::WA_OpaquePaintEvent);
    connect(hub, &RunHub::logReset, this, [this] { refresh(true); });
    connect(hub, &RunHub::cursorMoved, this, [this] { refresh(false); });
    connect(hub, &RunHub::waitingChanged, this, [this] { update(); });
    // Queued: every view has the new state before the selection changes under it.
    connect(
        hub, &RunHub::cursorMoved, this,
        [this] {
            if (mouse_) hub_->hover(selectionAt(*mouse_));
        },
        Qt::QueuedConnection);
    connect(hub, &RunHub::selectionChanged, this, [this] { selectionRefresh(); });
}

void CanvasView::setTheme(const Theme& theme, double scale) {
    theme_ = theme;
    scale_ = std::clamp(scale, 0.5, 4.0);
    refresh(true);
    update();
}

void CanvasView::setFramed(bool framed) {
    framed_ = framed;
    refresh(true);
    update();
}

void CanvasView::setTitles(const QString& title, const QString& subtitle, const QString& brief) {
    title_ = title;
    subtitle_ = subtitle;
    brief_subtitle_ = brief;
    setAccessibleName(title);
    setAccessibleDescription(subtitle);
}

QRect CanvasView::toWidget(const QRectF& canvas_rect) const {
    return QRectF(canvas_rect.topLeft() * scale_, canvas_rect.size() * scale_).toAlignedRect();
}

QRectF CanvasView::headerRect() const {
    if (!framed_) return {};
    return QRectF(kPadding, 9, canvasRect().width() - 2 * kPadding, kHeader - 4);
}

QRectF CanvasView::contentRect() const {
    const QRectF all = canvasRect();
    if (!framed_) return all.adjusted(2, 2, -2, -2);
    return all.adjusted(kPadding, 9 + kHeader, -kPadding, -kPadding + 2);
}

QString CanvasView::emptySentence() const {
    if (hub_->hasLog()) return {};
    return hub_->waitingFor().isEmpty()
               ? QStringLiteral("Nothing runs yet: start a lesson, or open a trace.")
               : hub_->waitingFor();
}

void CanvasView::refresh(bool) { update(); }

void CanvasView::paintEvent(QPaintEvent* event) {
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    painter.fillRect(event->rect(), framed_ ? theme_.window : theme_.panel);
    painter.scale(scale_, scale_);
    if (framed_) {
        painter.setPen(QPen(theme_.panel_border, 1));
        painter.setBrush(theme_.panel);
        painter.drawRoundedRect(canvasRect().adjusted(0.5, 0.5, -0.5, -0.5), 10, 10);
        const QRectF header = headerRect();
        const QFont title_font = textFont(kTitlePoints, true);
        const QFont small_font = textFont(kTextPoints);
        const QFontMetricsF title_metrics(title_font, this), small_metrics(small_font, this);
        const double baseline = header.center().y() + title_metrics.capHeight() / 2;
        double x = header.left();
        painter.setFont(title_font);
        painter.setPen(theme_.ink);
        painter.drawText(QPointF(x, baseline),
                         title_metrics.elidedText(title_, Qt::ElideRight, header.width()));
        x += title_metrics.horizontalAdvance(title_) + 12;
        const QString note = headerNote();
        double right = header.right();
        if (!note.isEmpty()) {
            const QString shown =
                small_metrics.elidedText(note, Qt::ElideRight, std::max(0.0, right - x));
            right -= small_metrics.horizontalAdvance(shown);
            painter.setFont(small_font);
            painter.setPen(theme_.ink);
            painter.drawText(QPointF(right, baseline), shown);
            right -= 16;
        }
        // Whole or not at all.
        for (const QString& subtitle : {subtitle_, brief_subtitle_}) {
            if (small_metrics.horizontalAdvance(subtitle) <= right - x) {
                painter.setFont(small_font);
                painter.setPen(theme_.quiet_ink);
                painter.drawText(QPointF(x, baseline), subtitle);
                break;
            }
        }
    }
    const QString empty = emptySentence();
    if (!empty.isEmpty()) {
        painter.setFont(textFont(kTextPoints + 1));
        painter.setPen(theme_.quiet_ink);
        painter.drawText(contentRect(), Qt::AlignCenter | Qt::TextWordWrap, empty);
    } else {
        const QRectF dirty = event->rect();
        paintCanvas(painter, QRectF(dirty.topLeft() / scale_, dirty.size() / scale_));
    }
    if (hasFocus()) {
        painter.setOpacity(1);
        painter.setBrush(Qt::NoBrush);
        painter.setPen(QPen(theme_.accent, 2));
        painter.drawRoundedRect(canvasRect().adjusted(1, 1, -1, -1), 10, 10);
    }
}

void CanvasView::hoverAt(std::optional<QPointF> widget_point) {
    mouse_ = widget_point;
    hub_->hover(mouse_ ? selectionAt(*mouse_) : Selection());
}

void CanvasView::resizeEvent(QResizeEvent* event) {
    QWidget::resizeEvent(event);
    refresh(true);
}

void CanvasView::changeEvent(QEvent* event) {
    QWidget::changeEvent(event);
    if (event->type() == QEvent::FontChange) refresh(true);
}

void CanvasView::focusInEvent(QFocusEvent* event) {
    QWidget::focusInEvent(event);
    update();
}

void CanvasView::focusOutEvent(QFocusEvent* event) {
    QWidget::focusOutEvent(event);
    update();
}

}  // namespace kvlab
