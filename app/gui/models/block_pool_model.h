// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <vector>

#include <QAbstractTableModel>

#include "app/gui/run/run_hub.h"

namespace kvlab {

// Table twin of the pool: row i is block i, for ever, as its cell in the picture.
class BlockPoolModel : public QAbstractTableModel {
    Q_OBJECT

  public:
    enum Column { kBlock, kState, kRefCount, kOwners, kFilled, kNumColumns };

    explicit BlockPoolModel(RunHub* hub, QObject* parent = nullptr);

    int rowCount(const QModelIndex& parent = {}) const override;
    int columnCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;
    QVariant headerData(int section,
                        Qt::Orientation orientation,
                        int role = Qt::DisplayRole) const override;

    // A table nobody sees follows nothing; showing it catches up.
    void setActive(bool active);

  private:
    struct Row {
        BlockState block;
        std::vector<SequenceId> owners;
        bool operator==(const Row&) const = default;
    };
    void reset();
    void refresh();
    std::vector<Row> rowsNow() const;

    RunHub* hub_;
    std::vector<Row> rows_;
    int block_size_ = 0;
    bool active_ = true;
};

}  // namespace kvlab
