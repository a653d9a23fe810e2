// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/layout/thread_route.h"

#include <algorithm>

namespace kvlab {

QPolygonF routeThread(const QRectF& table_cell,
                      double gutter_y,
                      double channel_x,
                      const QRectF& pool_cell,
                      double pool_gap) {
    const double from_x = table_cell.center().x();
    const double to_x = pool_cell.center().x();
    const double above = pool_cell.top() - std::max(pool_gap, 2.0) / 2;
    return QPolygonF({{from_x, table_cell.bottom()},
                      {from_x, gutter_y},
                      {channel_x, gutter_y},
                      {channel_x, above},
                      {to_x, above},
                      {to_x, pool_cell.top()}});
}

}  // namespace kvlab
