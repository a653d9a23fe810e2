// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QPolygonF>
#include <QRectF>

namespace kvlab {

// The thread from a table cell to its physical block: right angles only, in gutters only.
//
//   [37]            ┌──────┐
//    └───────────┐  │     [block 37]
//     gutter     └──┘  gap above the block's pool row
//              channel
QPolygonF routeThread(const QRectF& table_cell,
                      double gutter_y,
                      double channel_x,
                      const QRectF& pool_cell,
                      double pool_gap);

}  // namespace kvlab
