// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/views/kernel_walk_view.h"

#include <algorithm>
#include <cmath>

#include <QKeyEvent>
#include <QMouseEvent>
#include <QScrollArea>
#include <QScrollBar>

namespace kvlab {

KernelWalkView::KernelWalkView(RunHub* hub, QWidget* parent) : CanvasView(hub, parent) {
    setTitles(tr("Kernel walk"), tr("which thread block reads what, as recorded"));
    setFramed(false);
    connect(hub, &RunHub::walksChanged, this, [this] { refresh(true); });
}

QString KernelWalkView::emptySentence() const {
    const QString sentence = CanvasView::emptySentence();
    if (!sentence.isEmpty()) return sentence;
    if (scene_.walk != nullptr) return {};
    if (hub().isLive() && hub().log().numSteps() == 0) {
        return tr(
            "The first step is being computed, slowly: simt runs the CUDA kernels on the CPU. "
            "Its walk appears when the step has ended; the line at the top says how far it "
            "is.");
    }
    return hub().currentStep()
               ? tr("In this step no attention was recorded: nothing was computed in it, or it is "
                    "beyond what is kept of a long run.")
               : tr("Go to a step: the walk is that of the step on show.");
}

int KernelWalkView::numLayers() const {
    const KernelWalks* walks = hub().walks();
    const auto step = hub().hasLog() ? hub().currentStep() : std::nullopt;
    const StepWalks* at = walks != nullptr && step ? walks->at(*step) : nullptr;
    return at != nullptr ? static_cast<int>(at->size()) : 0;
}

void KernelWalkView::refresh(bool) {
    const KernelWalks* walks = hub().walks();
    const auto step = hub().hasLog() ? hub().currentStep() : std::nullopt;
    const StepWalks* at = walks != nullptr && step ? walks->at(*step) : nullptr;
    shown_ =
        at != nullptr && !at->empty()
            ? (*at)[static_cast<size_t>(std::clamp(layer_, 0, static_cast<int>(at->size()) - 1))]
            : nullptr;
    scene_.walk = shown_.get();
    scene_.steps.clear();
    if (scene_.walk != nullptr && !scene_.walk->attention.launches.empty()) {
        // The same place in another step, as far as it is there.
        scene_.launch = std::clamp(scene_.launch, 0,
                                   static_cast<int>(scene_.walk->attention.launches.size()) - 1);
        scene_.thread_block =
            std::clamp(scene_.thread_block, 0,
                       static_cast<int>(scene_.chosenLaunch().thread_blocks.size()) - 1);
        scene_.steps = walkSteps(scene_.chosen());
        scene_.step = std::clamp(scene_.step, 0, numSteps() - 1);
        layOut();
    } else {
        scene_.walk = nullptr;
        setMinimumHeight(0);
    }
    update();
    emit walkChanged();
}

// In a scroll area the picture is as high as its words want; whether they fit is asked of the area
// without its bars, so that a bar does not decide over itself.
void KernelWalkView::layOut() {
    auto* area =
        parentWidget() ? qobject_cast<QScrollArea*>(parentWidget()->parentWidget()) : nullptr;
    if (area == nullptr) {
        layOutKernelWalk(scene_, contentRect());
        return;
    }
    const QSizeF room = QSizeF(area->maximumViewportSize()) / scale();
    const QRectF inside = QRectF(QPointF(), room).adjusted(2, 2, -2, -2);
    const double bar = area->verticalScrollBar()->sizeHint().width() / scale();
    const double height = layOutKernelWalkWhole(scene_, inside, inside.width() - bar) + 4;
    setMinimumHeight(height > room.height() ? static_cast<int>(std::ceil(height * scale())) : 0);
    setAccessibleDescription(walkStepWords(scene_) + QStringLiteral(". ") +
                             walkLessonWords(scene_));
}

void KernelWalkView::paintCanvas(QPainter& painter, const QRectF&) {
    paintKernelWalk(painter, scene_, theme());
}

void KernelWalkView::setLayer(int layer) {
    layer_ = layer;
    refresh(false);
}

void KernelWalkView::setStep(int step) {
    if (!hasWalk()) return;
    scene_.step = std::clamp(step, 0, numSteps() - 1);
    refresh(false);
    lightUp();
}

void KernelWalkView::setThreadBlock(int launch, int index) {
    if (!hasWalk()) return;
    scene_.launch = launch;
    scene_.thread_block = index;
    scene_.step = 0;
    refresh(false);
    lightUp();
}

void KernelWalkView::lightUp() {
    const WalkStep& step = scene_.steps[static_cast<size_t>(scene_.step)];
    Selection selection;
    if (step.run != nullptr) {
        selection.sequence = SequenceId(scene_.ownerOf(*step.run));
        if (step.read != nullptr) {
            selection.block = BlockId(step.read->block);
            selection.position = step.read->begin;
        }
    }
    hub().lock(selection);
}

bool KernelWalkView::event(QEvent* event) {
    if (event->type() == QEvent::ShortcutOverride && hasFocus()) {
        switch (static_cast<QKeyEvent*>(event)->key()) {
            case Qt::Key_Left:
            case Qt::Key_Right:
            case Qt::Key_Up:
            case Qt::Key_Down:
            case Qt::Key_Comma:
            case Qt::Key_Period:
                event->accept();
                return true;
            default:
                break;
        }
    }
    return CanvasView::event(event);
}

void KernelWalkView::mousePressEvent(QMouseEvent* event) {
    if (event->button() != Qt::LeftButton || !hasWalk()) return CanvasView::mousePressEvent(event);
    const QPointF point = toCanvas(event->position());
    const KernelGridLayout::Hit hit = scene_.grid.hitTest(point);
    if (hit.launch >= 0) return setThreadBlock(hit.launch, hit.index);
    const int step = scene_.strip.stepAt(point);
    if (step >= 0) setStep(step);
}

// dx along x and, past its end, the parts of the context; dy along the heads.
void KernelWalkView::moveBy(int dx, int dy) {
    if (!hasWalk()) return;
    const AttentionLaunch& launch = scene_.chosenLaunch();
    int x = scene_.chosen().x;
    int y = scene_.chosen().y;
    int z = scene_.chosen().z;
    if (dx != 0) {
        const int column =
            std::clamp(x * launch.grid_z + z + dx, 0, launch.grid_x * launch.grid_z - 1);
        x = column / launch.grid_z;
        z = column % launch.grid_z;
    }
    int to = scene_.launch;
    if (y + dy >= 0 && y + dy < launch.grid_y) {
        y += dy;
    } else {
        const int next = to + dy;
        if (next < 0 || next >= static_cast<int>(scene_.walk->attention.launches.size())) return;
        return setThreadBlock(next, 0);
    }
    setThreadBlock(to, (z * launch.grid_y + y) * launch.grid_x + x);
}

void KernelWalkView::keyPressEvent(QKeyEvent* event) {
    switch (event->key()) {
        case Qt::Key_Left:
            return moveBy(-1, 0);
        case Qt::Key_Right:
            return moveBy(1, 0);
        case Qt::Key_Up:
            return moveBy(0, -1);
        case Qt::Key_Down:
            return moveBy(0, 1);
        case Qt::Key_Comma:
            return setStep(scene_.step - 1);
        case Qt::Key_Period:
            return setStep(scene_.step + 1);
        default:
            break;
    }
    CanvasView::keyPressEvent(event);
}

}  // namespace kvlab
