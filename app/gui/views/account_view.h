// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include "app/gui/views/canvas_view.h"

namespace kvlab {

// The pool's account, always balanced: active + cached + free = total, in blocks and in token
// slots.
class AccountView : public CanvasView {
    Q_OBJECT

  public:
    explicit AccountView(RunHub* hub, QWidget* parent = nullptr);
    QSize sizeHint() const override { return {260, shows_full_ ? 236 : 212}; }
    QSize minimumSizeHint() const override { return {200, 190}; }

  protected:
    void paintCanvas(QPainter& painter, const QRectF& dirty) override;
    QString emptySentence() const override { return {}; }
    void selectionRefresh() override {}
    void refresh(bool geometry_changed) override;

  private:
    bool shows_full_ = false;  // one line more: "no free block"
};

}  // namespace kvlab
