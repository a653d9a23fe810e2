// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <vector>

#include <QAbstractTableModel>

#include "app/gui/run/run_hub.h"

namespace kvlab {

// A row per sequence that has started before the cursor; row i is sequence i. Below them a row per
// request that has not: it waits, was refused, or was withdrawn, with the reason of the "why" log.
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
    // Not valid(): the row is a request without a sequence.
    SequenceId sequenceAt(int row) const;

  private:
    struct Row {
        SequenceId id;  // not valid(): of a request
        RequestId request;
        int sample_idx = 0;
        int num_tokens = 0;
        int kv_len = 0;
        int num_blocks = 0;
        FinishReason finish = FinishReason::kNone;
        bool removed = false;
        PreemptionKind preempted = PreemptionKind::kNone;
        QString state;  // of a request
        bool operator==(const Row&) const = default;
    };
    // What the log says of a request before it has a sequence; found once, when the log grows.
    struct Note {
        enum class Kind { kArrived, kWaits, kRefused, kWithdrawn, kStarted };
        Cursor at;
        Kind kind;
        RequestId request;
        int prompt_len = 0;
        QString why;
    };
    void reset();
    void refresh();
    void readNotes();
    void addRequests(std::vector<Row>& rows);

    RunHub* hub_;
    std::vector<Row> rows_;
    std::vector<Note> notes_;
    int64_t num_steps_read_ = 0;
    bool active_ = true;
};

}  // namespace kvlab
