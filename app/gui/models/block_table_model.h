// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <vector>

#include <QAbstractTableModel>

#include "app/gui/run/run_hub.h"

namespace kvlab {

// Table twin of one sequence's block table: row i is its logical block i. The sequence is the
// selected one, else the last one that was, else A.
class BlockTableModel : public QAbstractTableModel {
    Q_OBJECT

  public:
    enum Column { kLogical, kBlock, kRefCount, kFilled, kPositions, kNumColumns };

    explicit BlockTableModel(RunHub* hub, QObject* parent = nullptr);

    int rowCount(const QModelIndex& parent = {}) const override;
    int columnCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;
    QVariant headerData(int section,
                        Qt::Orientation orientation,
                        int role = Qt::DisplayRole) const override;

    SequenceId sequence() const { return sequence_; }
    BlockId blockAt(int row) const { return rows_[static_cast<size_t>(row)].block; }
    void setActive(bool active);

  signals:
    void sequenceChanged();

  private:
    struct Row {
        BlockId block;           // not valid(): on the host, or it left the sliding window
        HostBlockId host_block;  // not valid() either: it left
        int ref_count = 0;
        int num_filled = 0;
        bool operator==(const Row&) const = default;
    };
    void refresh();
    std::vector<Row> rowsNow() const;

    RunHub* hub_;
    SequenceId sequence_{0};
    std::vector<Row> rows_;
    int block_size_ = 0;
    bool active_ = true;
};

}  // namespace kvlab
