// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/models/block_table_model.h"

#include <algorithm>

#include "app/gui/provenance.h"

namespace kvlab {

namespace {

// Numbers stand under each other at the right, and so does what heads them.
QVariant alignmentOf(int column) {
    const bool number = column >= BlockTableModel::kLogical;
    return QVariant(Qt::Alignment(Qt::AlignVCenter | (number ? Qt::AlignRight : Qt::AlignLeft)));
}

}  // namespace

BlockTableModel::BlockTableModel(RunHub* hub, QObject* parent)
    : QAbstractTableModel(parent), hub_(hub) {
    connect(hub_, &RunHub::logReset, this, [this] {
        sequence_ = SequenceId(0);
        refresh();
        emit sequenceChanged();
    });
    connect(hub_, &RunHub::cursorMoved, this, &BlockTableModel::refresh);
    connect(hub_, &RunHub::selectionChanged, this, &BlockTableModel::refresh);
    refresh();
}

int BlockTableModel::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : static_cast<int>(rows_.size());
}

int BlockTableModel::columnCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : kNumColumns;
}

QVariant BlockTableModel::data(const QModelIndex& index, int role) const {
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
    const bool left = !row.block.valid() && !row.host_block.valid();
    const int first = index.row() * block_size_;
    switch (index.column()) {
        case kLogical:
            return index.row();
        case kBlock:
            if (left) return tr("left the window");
            return row.block.valid() ? QVariant(row.block.value)
                                     : QVariant(tr("host %1").arg(row.host_block.value));
        case kRefCount:
            return left ? QVariant(noData()) : QVariant(row.ref_count);
        case kFilled:
            if (left) return noData();
            return tr("%1 of %2").arg(row.num_filled).arg(block_size_);
        case kPositions:
            return tr("%1 to %2").arg(formatCount(first)).arg(formatCount(first + block_size_ - 1));
        default:
            return {};
    }
}

QVariant BlockTableModel::headerData(int section, Qt::Orientation orientation, int role) const {
    if (orientation == Qt::Horizontal && role == Qt::TextAlignmentRole) {
        return alignmentOf(section);
    }
    if (orientation != Qt::Horizontal || role != Qt::DisplayRole) {
        return {};
    }
    switch (section) {
        case kLogical:
            return tr("Logical block");
        case kBlock:
            return tr("Block");
        case kRefCount:
            return tr("References");
        case kFilled:
            return tr("Slots filled");
        case kPositions:
            return tr("Positions");
        default:
            return {};
    }
}

void BlockTableModel::setActive(bool active) {
    active_ = active;
    refresh();
}

std::vector<BlockTableModel::Row> BlockTableModel::rowsNow() const {
    const CacheState& state = hub_->state();
    std::vector<Row> rows;
    const auto idx = static_cast<size_t>(sequence_.value);
    if (idx < state.sequences.size()) {
        const SequenceState& sequence = state.sequences[idx];
        for (size_t i = 0; i < sequence.table.size(); ++i) {
            const BlockId id = sequence.table[i];
            if (i < static_cast<size_t>(sequence.num_left)) {
                rows.push_back({});
                continue;
            }
            const HostBlockId host_id = id.valid() ? HostBlockId() : sequence.host_table[i];
            const BlockState& block = id.valid()
                                          ? state.blocks[static_cast<size_t>(id.value)]
                                          : state.host_blocks[static_cast<size_t>(host_id.value)];
            rows.push_back({id, host_id, block.ref_count, block.num_filled});
        }
    }
    return rows;
}

void BlockTableModel::refresh() {
    if (!active_) {
        return;
    }
    block_size_ = hub_->state().block_size;
    const std::optional<SequenceId> chosen = hub_->shown().sequence;
    const bool other = chosen && *chosen != sequence_;
    if (other) {
        sequence_ = *chosen;
    }
    std::vector<Row> rows = rowsNow();
    const int old_count = static_cast<int>(rows_.size());
    const int new_count = static_cast<int>(rows.size());
    if (new_count < old_count) {
        beginRemoveRows({}, new_count, old_count - 1);
        rows_.resize(rows.size());
        endRemoveRows();
    }
    int first = -1;
    int last = -1;
    for (size_t i = 0; i < rows_.size(); ++i) {
        if (rows[i] != rows_[i]) {
            first = first < 0 ? static_cast<int>(i) : first;
            last = static_cast<int>(i);
            rows_[i] = rows[i];
        }
    }
    if (first >= 0) {
        emit dataChanged(index(first, 0), index(last, kNumColumns - 1));
    }
    if (new_count > old_count) {
        beginInsertRows({}, old_count, new_count - 1);
        rows_ = std::move(rows);
        endInsertRows();
    }
    if (other) {
        emit sequenceChanged();
    }
}

}  // namespace kvlab
