// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "app/gui/paint/chart_painter.h"
#include "app/gui/views/canvas_view.h"

namespace kvlab {

// What sharing saves, to scale: blocks that every sequence would hold alone, above the blocks that
// are held.
class SharingView : public CanvasView {
    Q_OBJECT

  public:
    explicit SharingView(RunHub* hub, QWidget* parent = nullptr);
    QSize sizeHint() const override { return {480, 340}; }
    QSize minimumSizeHint() const override { return {300, 210}; }
    const SharingScene& scene() const { return scene_; }

  protected:
    void paintCanvas(QPainter& painter, const QRectF& dirty) override;
    QString emptySentence() const override;
    void refresh(bool geometry_changed) override;
    void selectionRefresh() override {}

  private:
    SharingScene scene_;
};

}  // namespace kvlab
