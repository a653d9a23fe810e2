// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/views/timeline_view.h"

#include <algorithm>
#include <cmath>

#include <QFontMetricsF>
#include <QHelpEvent>
#include <QKeyEvent>
#include <QMouseEvent>
#include <QPainter>
#include <QToolTip>
#include <QWheelEvent>
#include <qcustomplot.h>

#include "app/gui/paint/block_cell_painter.h"
#include "app/gui/provenance.h"

namespace kvlab {

// Above the curve's widget, so that the playhead crosses it; the mouse goes through to the view.
class TimelineView::Overlay : public QWidget {
  public:
    explicit Overlay(TimelineView* view) : QWidget(view), view_(view) {
        setAttribute(Qt::WA_TransparentForMouseEvents);
        setAttribute(Qt::WA_NoSystemBackground);
    }

  protected:
    void paintEvent(QPaintEvent*) override {
        if (!view_->hub().hasLog()) return;
        QPainter painter(this);
        painter.setRenderHint(QPainter::Antialiasing);
        painter.scale(view_->scale(), view_->scale());
        paintPlayhead(painter, view_->scene_.layout, view_->cursorMoment(), view_->theme());
        const QRectF tag = view_->behindTag();
        if (tag.isEmpty()) return;
        painter.setPen(QPen(view_->theme().tag_ink, 1));
        painter.setBrush(view_->theme().tag_fill);
        painter.drawRoundedRect(tag.adjusted(0.5, 0.5, -0.5, -0.5), 4, 4);
        painter.setPen(view_->theme().tag_ink);
        drawCentred(painter, tag, tr("live · %1 behind").arg(countOf(view_->stepsBehind(), "step")),
                    textFont(kTextPoints, true));
    }

  private:
    TimelineView* view_;
};

TimelineView::TimelineView(RunHub* hub, QWidget* parent)
    : CanvasView(hub, parent), plot_(new QCustomPlot(this)), overlay_(new Overlay(this)) {
    setTitles(tr("Timeline"), tr("blocks in use and what each step did"));
    plot_->setAttribute(Qt::WA_TransparentForMouseEvents);
    plot_->setFocusPolicy(Qt::NoFocus);
    plot_->setMinimumSize(0, 0);
    plot_->axisRect()->setAutoMargins(QCP::msNone);
    plot_->axisRect()->setMargins(QMargins(0, 0, 0, 0));
    for (QCPAxis* axis : plot_->axisRect()->axes()) {
        axis->setVisible(false);
        axis->grid()->setVisible(false);
    }
    QCPGraph* graph = plot_->addGraph();
    graph->setLineStyle(QCPGraph::lsStepLeft);
    graph->setAdaptiveSampling(true);
    setFramed(false);
    connect(hub, &RunHub::logReset, this, [this] {
        counts_.clear();
        blocks_in_use_.clear();
        scene_.max_counts = {};
        first_ = last_ = 0;
        refresh(true);
    });
    connect(hub, &RunHub::logGrew, this, [this] { refresh(true); });
    connect(hub, &RunHub::liveChanged, this, [this] { overlay_->update(); });
    refresh(true);
}

int64_t TimelineView::stepsBehind() const {
    return hub().hasLog() ? hub().log().numSteps() - hub().cursor().step : 0;
}

void TimelineView::readLog() {
    if (!hub().hasLog()) {
        counts_.clear();
        blocks_in_use_.clear();
        scene_ = {};
        return;
    }
    const RunLog& log = hub().log();
    for (int64_t s = static_cast<int64_t>(counts_.size()); s < log.numSteps(); ++s) {
        counts_.push_back(laneCounts(log.step(s)));
        if (blocks_in_use_.empty()) blocks_in_use_.push_back(0);
        blocks_in_use_.push_back(static_cast<double>(log.accountAfter(s).active_blocks));
        for (size_t l = 0; l < kNumLanes; ++l) {
            scene_.max_counts[l] = std::max(scene_.max_counts[l], counts_.back()[l]);
        }
    }
    double peak = 1;
    for (const double value : blocks_in_use_) peak = std::max(peak, value);
    scene_.max_blocks = peak * 1.12;
    scene_.counts = &counts_;
    scene_.blocks_in_use = &blocks_in_use_;
}

void TimelineView::layOut() {
    const int64_t num_steps = hub().hasLog() ? hub().log().numSteps() : 0;
    const QRectF content = contentRect().adjusted(8, 4, -2, -2);
    scene_.layout = TimelineLayout(content, num_steps, first_, last_);
    // Whole pixels, so that the curve's widget and the lanes agree on every x.
    plot_->setGeometry(toWidget(scene_.layout.curve()));
    plot_->setVisible(hub().hasLog() && num_steps > 0);
    overlay_->setGeometry(rect());
    overlay_->raise();
}

void TimelineView::replotCurve() {
    if (!plot_->isVisibleTo(this)) return;
    const QRect widget = plot_->geometry();
    QCPGraph* graph = plot_->graph(0);
    QVector<double> moments, values;
    const int64_t count = static_cast<int64_t>(blocks_in_use_.size());
    const int64_t begin =
        std::clamp<int64_t>(static_cast<int64_t>(scene_.layout.first()) - 1, 0, count);
    const int64_t end =
        std::clamp<int64_t>(static_cast<int64_t>(scene_.layout.last()) + 2, 0, count);
    for (int64_t m = begin; m < end; ++m) {
        moments.push_back(static_cast<double>(m));
        values.push_back(blocks_in_use_[static_cast<size_t>(m)]);
    }
    graph->setData(moments, values, true);
    graph->setPen(QPen(theme().accent, 1.6 * scale()));
    graph->setBrush(theme().accent_tint);
    plot_->setBackground(QBrush(theme().panel));
    plot_->xAxis->setRange(scene_.layout.momentAt(widget.left() / scale()),
                           scene_.layout.momentAt((widget.right() + 1) / scale()));
    plot_->yAxis->setRange(0, scene_.max_blocks);
    plot_->replot(QCustomPlot::rpQueuedReplot);
}

void TimelineView::refresh(bool geometry_changed) {
    if (geometry_changed) {
        readLog();
        layOut();
        base_ = QPixmap();
        replotCurve();
        update();
        overlay_->update();
        return;
    }
    // Only the playhead moved.
    const auto strip = [this](double moment) {
        const double x = scene_.layout.xOf(moment), map_x = scene_.layout.minimapX(moment);
        overlay_->update(toWidget(QRectF(x - 8, 0, 16, canvasRect().height())));
        overlay_->update(toWidget(QRectF(map_x - 4, scene_.layout.minimap().top() - 4, 8, 20)));
    };
    strip(shown_moment_);
    shown_moment_ = cursorMoment();
    if (hub().hasLog()) {
        setAccessibleDescription(
            tr("step %1 of %2").arg(hub().cursor().step).arg(hub().log().numSteps()));
    }
    strip(shown_moment_);
    overlay_->update(toWidget(QRectF(scene_.layout.curve().right() - 260, 0, 274, 28)));
    // The number beside the curve.
    update(toWidget(QRectF(0, 0, scene_.layout.curve().left(), scene_.layout.curve().bottom())));
}

double TimelineView::cursorMoment() const {
    if (!hub().hasLog()) return 0;
    const Cursor cursor = hub().cursor();
    double moment = static_cast<double>(cursor.step);
    if (cursor.step < hub().log().numSteps() && (cursor.event > 0 || cursor.entry > 0)) {
        const std::vector<Event>& events = hub().log().step(cursor.step).events;
        if (!events.empty()) {
            double within = cursor.event;
            if (static_cast<size_t>(cursor.event) < events.size()) {
                within += static_cast<double>(cursor.entry) /
                          std::max(1, numEntries(events[static_cast<size_t>(cursor.event)]));
            }
            moment += within / static_cast<double>(events.size());
        }
    }
    return moment;
}

QRectF TimelineView::behindTag() const {
    if (!hub().hasLog() || !hub().isLive() || stepsBehind() <= 0) return {};
    const QFontMetricsF metrics(textFont(kTextPoints, true), const_cast<TimelineView*>(this));
    const double width =
        metrics.horizontalAdvance(tr("live · %1 behind").arg(countOf(stepsBehind(), "step"))) + 16;
    const QRectF curve = scene_.layout.curve();
    return {curve.right() - width, curve.top() + 1, width, 20};
}

void TimelineView::paintCanvas(QPainter& painter, const QRectF& dirty) {
    const double ratio = devicePixelRatioF();
    if (base_.isNull() || base_.size() != (QSizeF(size()) * ratio).toSize()) {
        base_ = QPixmap((QSizeF(size()) * ratio).toSize());
        base_.setDevicePixelRatio(ratio);
        base_.fill(theme().panel);
        QPainter lanes(&base_);
        lanes.setRenderHint(QPainter::Antialiasing);
        lanes.scale(scale(), scale());
        paintTimelineLanes(lanes, scene_, theme());
        paintMinimap(lanes, scene_, theme());
    }
    painter.drawPixmap(dirty, base_,
                       QRectF(dirty.topLeft() * ratio * scale(), dirty.size() * ratio * scale()));
    const QRectF curve = scene_.layout.curve();
    const double left = contentRect().left() + 8;
    const QFont font = textFont(kTextPoints);
    const QFontMetricsF metrics(font, this);
    painter.setFont(font);
    painter.setPen(theme().quiet_ink);
    painter.drawText(QPointF(left, curve.top() + metrics.ascent() + 2), tr("blocks in use"));
    const PoolAccount account = accountOf(hub().state());
    const QFont mono = monoFont(kTextPoints + 0.5);
    const double baseline = curve.top() + metrics.height() + metrics.ascent() + 5;
    const double width = drawNumber(painter, {left, baseline}, formatCount(account.active_blocks),
                                    mono, theme().ink, Provenance::kMeasured);
    painter.setFont(font);
    painter.setPen(theme().quiet_ink);
    painter.drawText(QPointF(left + width + 5, baseline),
                     tr("of %1").arg(formatCount(account.total_blocks)));
    painter.setPen(QPen(theme().hairline, 1));
    painter.drawLine(QPointF(curve.left(), curve.bottom() + 1.5),
                     QPointF(curve.right(), curve.bottom() + 1.5));
}

void TimelineView::scrubTo(QPointF point) {
    const int64_t step = drag_ == Drag::kMinimap ? scene_.layout.minimapStepAt(point.x())
                                                 : scene_.layout.stepAt(point.x());
    hub().setCursor({step, 0, 0});
    // A click outside the zoomed range brings the range along.
    if (drag_ == Drag::kMinimap && first_ < last_) {
        const double middle = static_cast<double>(step) - (last_ - first_) / 2;
        scene_.layout.panned(middle - first_, &first_, &last_);
        refresh(true);
    }
}

bool TimelineView::event(QEvent* event) {
    if (event->type() == QEvent::ToolTip && hub().hasLog()) {
        const auto* help = static_cast<QHelpEvent*>(event);
        const int64_t step =
            static_cast<int64_t>(std::floor(scene_.layout.momentAt(toCanvas(help->pos()).x())));
        if (!scene_.layout.plot().contains(toCanvas(help->pos())) ||
            static_cast<size_t>(step) >= counts_.size()) {
            QToolTip::hideText();
            return true;
        }
        QStringList parts{tr("step %1").arg(formatCount(step))};
        static const char* const kNouns[] = {"block allocated", "sequence forked", "block copied",
                                             "block released", "token written"};
        for (size_t l = 0; l < kNumLanes; ++l) {
            const int count = counts_[static_cast<size_t>(step)][l];
            if (count == 0) continue;
            const QString noun = QLatin1String(kNouns[l]);
            const int space = static_cast<int>(noun.indexOf(QLatin1Char(' ')));
            parts << formatCount(count) + QLatin1Char(' ') + noun.left(space) +
                         (count == 1 ? QString() : QStringLiteral("s")) + noun.mid(space);
        }
        parts << tr("%1 in use after it")
                     .arg(countOf(
                         static_cast<int64_t>(blocks_in_use_[static_cast<size_t>(step) + 1]),
                         "block"));
        QToolTip::showText(help->globalPos(), parts.join(QStringLiteral(" · ")), this);
        return true;
    }
    return CanvasView::event(event);
}

void TimelineView::mousePressEvent(QMouseEvent* event) {
    if (event->button() != Qt::LeftButton || !hub().hasLog()) {
        return CanvasView::mousePressEvent(event);
    }
    if (behindTag().contains(toCanvas(event->position()))) {
        hub().setFollowing(true);
        hub().setCursor(hub().log().end());
        return;
    }
    if (toCanvas(event->position()).x() < scene_.layout.curve().left() - 8) return;
    drag_ = toCanvas(event->position()).y() >= scene_.layout.minimap().top() - 2 ? Drag::kMinimap
                                                                                 : Drag::kPlot;
    scrubTo(toCanvas(event->position()));
}

void TimelineView::mouseMoveEvent(QMouseEvent* event) {
    if (drag_ != Drag::kNone) scrubTo(toCanvas(event->position()));
}

void TimelineView::mouseReleaseEvent(QMouseEvent*) { drag_ = Drag::kNone; }

void TimelineView::zoomBy(double factor, double x) {
    if (!hub().hasLog()) return;
    scene_.layout.zoomed(factor, x, &first_, &last_);
    if (last_ - first_ >= static_cast<double>(hub().log().numSteps()) - 1e-9) first_ = last_ = 0;
    refresh(true);
}

void TimelineView::wheelEvent(QWheelEvent* event) {
    if (!hub().hasLog()) return event->ignore();
    if (event->modifiers() & Qt::ControlModifier) {
        zoomBy(event->angleDelta().y() > 0 ? 0.8 : 1.25, toCanvas(event->position()).x());
    } else if (first_ < last_) {
        const QPoint delta = event->angleDelta();
        const int way = delta.x() != 0 ? delta.x() : delta.y();
        scene_.layout.panned((way > 0 ? -0.1 : 0.1) * (last_ - first_), &first_, &last_);
        refresh(true);
    } else {
        return event->ignore();
    }
    event->accept();
}

void TimelineView::keyPressEvent(QKeyEvent* event) {
    const double x = scene_.layout.xOf(cursorMoment());
    const double span = scene_.layout.last() - scene_.layout.first();
    switch (event->key()) {
        case Qt::Key_W:
            return zoomBy(0.7, x);
        case Qt::Key_S:
            return zoomBy(1.4, x);
        case Qt::Key_A:
        case Qt::Key_D:
            scene_.layout.panned(event->key() == Qt::Key_A ? -0.2 * span : 0.2 * span, &first_,
                                 &last_);
            return refresh(true);
        default:
            CanvasView::keyPressEvent(event);
    }
}

}  // namespace kvlab
