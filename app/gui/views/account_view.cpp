// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/views/account_view.h"

#include <QPainter>

#include "app/gui/paint/chart_painter.h"

namespace kvlab {

AccountView::AccountView(RunHub* hub, QWidget* parent) : CanvasView(hub, parent) {
    setTitles(tr("Pool account"), tr("active + cached + free"));
}

void AccountView::refresh(bool geometry_changed) {
    const PoolAccount account = hub().hasLog() ? accountOf(hub().state()) : PoolAccount();
    const bool full = account.total_blocks > 0 && account.free_blocks + account.cached_blocks == 0;
    if (shows_full_ != full) {
        shows_full_ = full;
        updateGeometry();
    }
    CanvasView::refresh(geometry_changed);
}

void AccountView::paintCanvas(QPainter& painter, const QRectF&) {
    PoolAccount account;
    int block_size = 0;
    int64_t bytes_per_token = 0;
    if (hub().hasLog()) {
        account = accountOf(hub().state());
        block_size = hub().state().block_size;
        const RunInfo& info = hub().log().info();
        bytes_per_token = info.model.kvBytesPerToken(info.cache.kv_dtype);
    }
    paintAccount(painter, contentRect(), account, block_size, bytes_per_token, theme());
}

}  // namespace kvlab
