// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <vector>

#include <QHash>

#include "app/gui/layout/sequence_text_layout.h"
#include "app/gui/views/canvas_view.h"

namespace kvlab {

// The text of every sequence, token by token over its slots: ticks where a block begins, a ring
// around the token that was sampled and has no K/V yet.
class SequenceTextView : public CanvasView {
    Q_OBJECT

  public:
    explicit SequenceTextView(RunHub* hub, QWidget* parent = nullptr);
    QSize sizeHint() const override { return {480, 340}; }
    QSize minimumSizeHint() const override { return {280, 130}; }
    Selection selectionAt(QPointF point) const override;

  protected:
    void paintCanvas(QPainter& painter, const QRectF& dirty) override;
    QString emptySentence() const override;
    void refresh(bool geometry_changed) override;
    void selectionRefresh() override { update(); }
    bool event(QEvent* event) override;
    void mouseMoveEvent(QMouseEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void leaveEvent(QEvent* event) override;
    void wheelEvent(QWheelEvent* event) override;

  private:
    struct Row {
        SequenceId sequence;
        QRectF badge;
        SequenceTextLayout text;
    };
    struct Word {
        QString text;
        TokenExtent extent;
    };
    const Word& wordOf(TokenId token) const;

    std::vector<Row> rows_;
    int num_hidden_ = 0;
    int first_row_ = 0;
    int skip_last_ = 0;  // tokens scrolled away
    mutable QHash<int, Word> words_;
};

}  // namespace kvlab
