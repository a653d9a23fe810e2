// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <vector>

#include <QPixmap>

#include "app/gui/paint/chart_painter.h"
#include "app/gui/views/canvas_view.h"

class QCustomPlot;

namespace kvlab {

// The run on one line: blocks in use, what each step did, the playhead, the whole run as a minimap.
// Drag scrubs, Ctrl+wheel or W and S zoom, A and D move.
class TimelineView : public CanvasView {
    Q_OBJECT

  public:
    explicit TimelineView(RunHub* hub, QWidget* parent = nullptr);
    QSize sizeHint() const override { return {1200, 164}; }
    QSize minimumSizeHint() const override { return {420, 150}; }
    const TimelineLayout& timelineLayout() const { return scene_.layout; }
    int64_t stepsBehind() const;

  protected:
    void paintCanvas(QPainter& painter, const QRectF& dirty) override;
    void refresh(bool geometry_changed) override;
    void selectionRefresh() override {}
    bool event(QEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void mouseMoveEvent(QMouseEvent* event) override;
    void mouseReleaseEvent(QMouseEvent* event) override;
    void wheelEvent(QWheelEvent* event) override;
    void keyPressEvent(QKeyEvent* event) override;

  private:
    class Overlay;
    void readLog();
    void layOut();
    void replotCurve();
    double cursorMoment() const;
    QRectF behindTag() const;
    void scrubTo(QPointF point);
    void zoomBy(double factor, double x);

    QCustomPlot* plot_;
    Overlay* overlay_;
    TimelineScene scene_;
    std::vector<LaneCounts> counts_;
    std::vector<double> blocks_in_use_;
    QPixmap base_;  // lanes, axis, minimap: a moving playhead repaints only a strip of it
    double first_ = 0, last_ = 0;  // visible moments; equal: the whole run
    double shown_moment_ = -1;
    enum class Drag { kNone, kPlot, kMinimap } drag_ = Drag::kNone;
};

}  // namespace kvlab
