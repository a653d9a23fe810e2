// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QAbstractTableModel>

#include "app/gui/run/run_hub.h"

namespace kvlab {

// The log as a list: a row per entry, in order, the whole run whatever the cursor. Text is made
// when it is asked for, so a long log costs nothing until it is scrolled.
class StepListModel : public QAbstractTableModel {
    Q_OBJECT

  public:
    enum Column { kStep, kEvent, kText, kNumColumns };

    explicit StepListModel(RunHub* hub, QObject* parent = nullptr);

    int rowCount(const QModelIndex& parent = {}) const override;
    int columnCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;
    QVariant headerData(int section,
                        Qt::Orientation orientation,
                        int role = Qt::DisplayRole) const override;

    // Where the row's entry stands in the log.
    Cursor cursorOf(int row) const;
    // Row of the entry before the cursor; -1 at the start.
    int currentRow() const;

  private:
    void reset();
    void grow();

    RunHub* hub_;
    int num_rows_ = 0;
};

}  // namespace kvlab
