// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <optional>

#include <QPointF>
#include <QString>
#include <QWidget>

#include "app/gui/run/run_hub.h"
#include "app/gui/theme.h"

class QPainter;

namespace kvlab {

// What the instruments share: a card with a title, the empty state in one sentence, the hub's
// signals.
class CanvasView : public QWidget {
    Q_OBJECT

  public:
    CanvasView(RunHub* hub, QWidget* parent);
    // `scale` magnifies the whole picture, text and cells alike.
    void setTheme(const Theme& theme, double scale = 1);
    // A card with border and title; off where a dock already shows them.
    void setFramed(bool framed);
    bool isFramed() const { return framed_; }
    QString title() const { return title_; }
    // What lies under a point of the widget.
    virtual Selection selectionAt(QPointF) const { return {}; }

  protected:
    // `brief` stands in for the subtitle where that has no room.
    void setTitles(const QString& title, const QString& subtitle, const QString& brief = {});
    RunHub& hub() const { return *hub_; }
    const Theme& theme() const { return theme_; }
    // Pictures are laid out and painted in canvas units: pixels of the widget divided by the scale.
    double scale() const { return scale_; }
    QRectF canvasRect() const { return {0, 0, width() / scale_, height() / scale_}; }
    QPointF toCanvas(QPointF widget_point) const { return widget_point / scale_; }
    QRect toWidget(const QRectF& canvas_rect) const;
    // Hovers what lies there, and again whenever the moment changes under the resting mouse; none:
    // the mouse has left, or the keyboard has taken over.
    void hoverAt(std::optional<QPointF> widget_point);
    void forgetMouse() { mouse_.reset(); }
    // Inside the card, below the title.
    QRectF contentRect() const;
    QRectF headerRect() const;

    void paintEvent(QPaintEvent* event) override;
    void resizeEvent(QResizeEvent* event) override;
    void changeEvent(QEvent* event) override;
    void focusInEvent(QFocusEvent* event) override;
    void focusOutEvent(QFocusEvent* event) override;

    virtual void paintCanvas(QPainter& painter, const QRectF& dirty) = 0;
    // One sentence instead of the picture; "" when there is something to show.
    virtual QString emptySentence() const;
    // Words at the right end of the title line.
    virtual QString headerNote() const { return {}; }
    // Data, size or theme changed: lay out anew. Repaints everything unless overridden.
    virtual void refresh(bool geometry_changed);
    virtual void selectionRefresh() { refresh(false); }

  private:
    RunHub* hub_;
    Theme theme_;
    QString title_, subtitle_, brief_subtitle_;
    std::optional<QPointF> mouse_;  // resting on this view
    double scale_ = 1;
    bool framed_ = true;
};

}  // namespace kvlab
