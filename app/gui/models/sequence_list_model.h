// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <vector>

#include <QAbstractTableModel>

#include "app/gui/run/run_hub.h"

namespace kvlab {

// A row per sequence that has started before the cursor; row i is sequence i.
class SequenceListModel : public QAbstractTableModel {
    Q_OBJECT

  public:
    enum Column { kSequence, kSample, kState, kTokens, kCached, kBlocks, kNumColumns };

    explicit SequenceListModel(RunHub* hub, QObject* parent = nullptr);

    int rowCount(const QModelIndex& parent = {}) const override;
    int columnCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;
    QVariant headerData(int section,
                        Qt::Orientation orientation,
                        int role = Qt::DisplayRole) const override;

    void setActive(bool active);

  private:
    struct Row {
        SequenceId id;
        int sample_idx = 0;
        int num_tokens = 0;
        int kv_len = 0;
        int num_blocks = 0;
        FinishReason finish = FinishReason::kNone;
        bool removed = false;
        PreemptionKind preempted = PreemptionKind::kNone;
        bool operator==(const Row&) const = default;
    };
    void refresh();

    RunHub* hub_;
    std::vector<Row> rows_;
    bool active_ = true;
};

}  // namespace kvlab
