// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <memory>
#include <vector>

#include <QAbstractTableModel>

#include "app/gui/run/run_hub.h"

namespace kvlab {

// The kernel walk as a table: a row per entry of a block table that a thread block read, in the
// order in which they were read, over all thread blocks of a layer's launches in the step on show;
// one row for a thread block that read none.
class KernelWalkModel : public QAbstractTableModel {
    Q_OBJECT

  public:
    enum Column {
        kKernel,
        kThreadBlock,
        kSequence,
        kRows,
        kKvHead,
        kHeads,
        kEntry,
        kKvBlock,
        kPositions,
        kRound,
        kNumColumns
    };

    explicit KernelWalkModel(RunHub* hub, QObject* parent = nullptr);

    int rowCount(const QModelIndex& parent = {}) const override;
    int columnCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;
    QVariant headerData(int section,
                        Qt::Orientation orientation,
                        int role = Qt::DisplayRole) const override;

    void setActive(bool active);
    void setLayer(int layer);
    // What the row names; empty for a thread block that read nothing.
    Selection selectionAt(int row) const;

  private:
    // Into walk_; -1: none.
    struct Row {
        int launch = 0;
        int thread_block = 0;
        int run = -1;
        int read = -1;
    };
    void refresh();
    const AttentionRun* runOf(const Row& row) const;
    const AttentionRead* readOf(const Row& row) const;

    RunHub* hub_;
    std::shared_ptr<const KernelWalk> walk_;
    std::vector<Row> rows_;
    int layer_ = 0;
    bool active_ = true;
};

}  // namespace kvlab
