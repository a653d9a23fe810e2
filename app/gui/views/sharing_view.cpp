// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/views/sharing_view.h"

#include <QPainter>

namespace kvlab {

SharingView::SharingView(RunHub* hub, QWidget* parent) : CanvasView(hub, parent) {
    setTitles(tr("What sharing saves, to scale"), tr("one cell is one block"));
}

QString SharingView::emptySentence() const {
    const QString sentence = CanvasView::emptySentence();
    if (!sentence.isEmpty()) return sentence;
    return scene_.account.active_blocks == 0 ? tr("No block is held at this moment.") : QString();
}

void SharingView::refresh(bool geometry_changed) {
    if (!hub().hasLog()) {
        scene_ = {};
        update();
        return;
    }
    SharingScene next = sharingScene(hub().state(), contentRect(), contentRect().height() > 190);
    const bool same = !geometry_changed && next.account == scene_.account &&
                      next.num_sequences == scene_.num_sequences && next.held == scene_.held;
    scene_ = std::move(next);
    if (!same) update();
}

void SharingView::paintCanvas(QPainter& painter, const QRectF&) {
    paintSharing(painter, scene_, theme());
}

}  // namespace kvlab
