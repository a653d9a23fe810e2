// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "app/gui/export/figure.h"
#include "app/gui/paint/kernel_walk_painter.h"
#include "app/gui/views/canvas_view.h"

namespace kvlab {

// A launch of the attention kernel as simt ran it: its grid, and the walk of one thread block
// through the block table, step by step. The table entry and the block of a step become the
// selection, so every other picture shows them. With the focus the arrow keys choose the thread
// block, comma and full stop the step.
class KernelWalkView : public CanvasView {
    Q_OBJECT

  public:
    explicit KernelWalkView(RunHub* hub, QWidget* parent = nullptr);
    QSize sizeHint() const override { return {960, 300}; }
    QSize minimumSizeHint() const override { return {460, 150}; }

    bool hasWalk() const { return scene_.walk != nullptr; }
    const KernelWalkScene& scene() const { return scene_; }
    FigureWalk figure() const { return {shown_, scene_.launch, scene_.thread_block, scene_.step}; }
    int layer() const { return layer_; }
    int numLayers() const;
    int step() const { return scene_.step; }
    int numSteps() const { return static_cast<int>(scene_.steps.size()); }
    void setLayer(int layer);
    void setStep(int step);  // selects its block
    void setThreadBlock(int launch, int index);

  signals:
    void walkChanged();  // another launch, thread block or step, or none

  protected:
    void paintCanvas(QPainter& painter, const QRectF& dirty) override;
    QString emptySentence() const override;
    void refresh(bool geometry_changed) override;
    void selectionRefresh() override {}
    bool event(QEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void keyPressEvent(QKeyEvent* event) override;

  private:
    void lightUp();
    void layOut();
    void moveBy(int dx, int dy);

    KernelWalkScene scene_;
    std::shared_ptr<const KernelWalk> shown_;
    int layer_ = 0;
};

}  // namespace kvlab
