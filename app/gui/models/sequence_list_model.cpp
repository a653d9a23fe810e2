// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/models/sequence_list_model.h"

#include "app/gui/provenance.h"

namespace kvlab {

namespace {

// Numbers stand under each other at the right, and so does what heads them.
QVariant alignmentOf(int column) {
    const bool number =
        column != SequenceListModel::kSequence && column != SequenceListModel::kState;
    return QVariant(Qt::Alignment(Qt::AlignVCenter | (number ? Qt::AlignRight : Qt::AlignLeft)));
}

}  // namespace

SequenceListModel::SequenceListModel(RunHub* hub, QObject* parent)
    : QAbstractTableModel(parent), hub_(hub) {
    connect(hub_, &RunHub::logReset, this, &SequenceListModel::refresh);
    connect(hub_, &RunHub::cursorMoved, this, &SequenceListModel::refresh);
    refresh();
}

int SequenceListModel::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : static_cast<int>(rows_.size());
}

int SequenceListModel::columnCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : kNumColumns;
}

QVariant SequenceListModel::data(const QModelIndex& index, int role) const {
    if (!index.isValid()) {
        return {};
    }
    if (role == Qt::TextAlignmentRole) {
        return alignmentOf(index.column());
    }
    if (role != Qt::DisplayRole) {
        return {};
    }
    const Row& row = rows_[static_cast<size_t>(index.row())];
    switch (index.column()) {
        case kSequence:
            return QString::fromStdString(ownerLetter(row.id));
        case kSample:
            return row.sample_idx;
        case kState:
            if (row.removed) {
                return tr("left the engine");
            }
            if (row.finish == FinishReason::kNone && row.preempted == PreemptionKind::kSwap) {
                return tr("waiting, swapped out");
            }
            if (row.finish == FinishReason::kNone && row.preempted != PreemptionKind::kNone) {
                return tr("waiting, to be computed again");
            }
            if (row.finish == FinishReason::kNone) {
                return row.kv_len == 0 ? tr("waiting") : tr("running");
            }
            return tr("finished: %1")
                .arg(QString::fromUtf8(finishReasonName(row.finish)).replace('_', ' '));
        case kTokens:
            return formatCount(row.num_tokens);
        case kCached:
            return formatCount(row.kv_len);
        case kBlocks:
            return formatCount(row.num_blocks);
        default:
            return {};
    }
}

QVariant SequenceListModel::headerData(int section, Qt::Orientation orientation, int role) const {
    if (orientation == Qt::Horizontal && role == Qt::TextAlignmentRole) {
        return alignmentOf(section);
    }
    if (orientation != Qt::Horizontal || role != Qt::DisplayRole) {
        return {};
    }
    switch (section) {
        case kSequence:
            return tr("Sequence");
        case kSample:
            return tr("Sample");
        case kState:
            return tr("State");
        case kTokens:
            return tr("Tokens");
        case kCached:
            return tr("Tokens with K/V");
        case kBlocks:
            return tr("Blocks");
        default:
            return {};
    }
}

void SequenceListModel::setActive(bool active) {
    active_ = active;
    refresh();
}

void SequenceListModel::refresh() {
    if (!active_) {
        return;
    }
    std::vector<Row> rows;
    for (const SequenceState& s : hub_->state().sequences) {
        rows.push_back({s.id, s.sample_idx, static_cast<int>(s.tokens.size()), s.kv_len,
                        static_cast<int>(s.numHeld()), s.finish, s.removed, s.preempted});
    }
    const int old_count = static_cast<int>(rows_.size());
    const int new_count = static_cast<int>(rows.size());
    if (new_count < old_count) {
        beginRemoveRows({}, new_count, old_count - 1);
        rows_.resize(rows.size());
        endRemoveRows();
    }
    for (int i = 0; i < static_cast<int>(rows_.size()); ++i) {
        Row& row = rows_[static_cast<size_t>(i)];
        if (row != rows[static_cast<size_t>(i)]) {
            row = rows[static_cast<size_t>(i)];
            emit dataChanged(index(i, 0), index(i, kNumColumns - 1));
        }
    }
    if (new_count > old_count) {
        beginInsertRows({}, old_count, new_count - 1);
        rows_ = std::move(rows);
        endInsertRows();
    }
}

}  // namespace kvlab
