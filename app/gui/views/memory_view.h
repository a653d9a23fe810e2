// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QVariantAnimation>

#include "app/gui/paint/memory_painter.h"
#include "app/gui/views/canvas_view.h"

namespace kvlab {

// Block tables → physical pool, in one picture, because a thread joins them. Hover previews, click
// locks; with the focus the arrow keys walk the pool, Enter locks, Esc clears.
class MemoryView : public CanvasView {
    Q_OBJECT

  public:
    explicit MemoryView(RunHub* hub, QWidget* parent = nullptr);
    QSize sizeHint() const override { return {960, 420}; }
    QSize minimumSizeHint() const override { return {460, 220}; }

    Selection selectionAt(QPointF point) const override;
    const MemoryScene& scene() const { return scene_; }
    // Off: a copy shows its end state at once.
    void setMotion(bool motion) { motion_ = motion; }

  protected:
    void paintCanvas(QPainter& painter, const QRectF& dirty) override;
    QString emptySentence() const override;
    QString headerNote() const override;
    void refresh(bool geometry_changed) override { rebuild(geometry_changed, true); }
    void selectionRefresh() override { rebuild(false, false); }
    bool event(QEvent* event) override;
    void mouseMoveEvent(QMouseEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void leaveEvent(QEvent* event) override;
    void wheelEvent(QWheelEvent* event) override;
    void keyPressEvent(QKeyEvent* event) override;

  private:
    void rebuild(bool geometry_changed, bool state_changed);
    void walk(int dx, int dy);
    bool hasCached() const;

    MemoryScene scene_;
    BlockCellSprites sprites_;
    int first_row_ = 0;
    bool had_picture_ = false;
    bool motion_ = true;
    QVariantAnimation copy_animation_;
};

}  // namespace kvlab
