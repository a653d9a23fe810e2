// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/models/block_pool_model.h"

#include <algorithm>

#include "app/gui/provenance.h"

namespace kvlab {

namespace {

// Numbers stand under each other at the right, and so does what heads them.
QVariant alignmentOf(int column) {
    const bool number = column != BlockPoolModel::kState && column != BlockPoolModel::kOwners;
    return QVariant(Qt::Alignment(Qt::AlignVCenter | (number ? Qt::AlignRight : Qt::AlignLeft)));
}

}  // namespace

BlockPoolModel::BlockPoolModel(RunHub* hub, QObject* parent)
    : QAbstractTableModel(parent), hub_(hub) {
    connect(hub_, &RunHub::logReset, this, &BlockPoolModel::reset);
    connect(hub_, &RunHub::cursorMoved, this, &BlockPoolModel::refresh);
    reset();
}

int BlockPoolModel::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : static_cast<int>(rows_.size());
}

int BlockPoolModel::columnCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : kNumColumns;
}

QVariant BlockPoolModel::data(const QModelIndex& index, int role) const {
    if (!index.isValid()) {
        return {};
    }
    const Row& row = rows_[static_cast<size_t>(index.row())];
    if (role == Qt::TextAlignmentRole) {
        return alignmentOf(index.column());
    }
    if (role != Qt::DisplayRole) {
        return {};
    }
    switch (index.column()) {
        case kBlock:
            return index.row();
        case kState:
            if (row.block.ref_count > 1) {
                return tr("shared");
            }
            if (row.block.ref_count == 1) {
                return tr("one owner");
            }
            return row.block.index_count > 0 ? tr("cached") : tr("free");
        case kRefCount:
            return row.block.ref_count;
        case kOwners: {
            QString letters;
            for (const SequenceId owner : row.owners) {
                letters +=
                    (letters.isEmpty() ? "" : " ") + QString::fromStdString(ownerLetter(owner));
            }
            return letters.isEmpty() ? QStringLiteral("–") : letters;
        }
        case kFilled:
            return tr("%1 of %2").arg(row.block.num_filled).arg(block_size_);
        default:
            return {};
    }
}

QVariant BlockPoolModel::headerData(int section, Qt::Orientation orientation, int role) const {
    if (orientation == Qt::Horizontal && role == Qt::TextAlignmentRole) {
        return alignmentOf(section);
    }
    if (orientation != Qt::Horizontal || role != Qt::DisplayRole) {
        return {};
    }
    switch (section) {
        case kBlock:
            return tr("Block");
        case kState:
            return tr("State");
        case kRefCount:
            return tr("References");
        case kOwners:
            return tr("Owners");
        case kFilled:
            return tr("Slots filled");
        default:
            return {};
    }
}

void BlockPoolModel::setActive(bool active) {
    active_ = active;
    refresh();
}

std::vector<BlockPoolModel::Row> BlockPoolModel::rowsNow() const {
    const CacheState& state = hub_->state();
    std::vector<Row> rows(state.blocks.size());
    for (size_t i = 0; i < rows.size(); ++i) {
        rows[i].block = state.blocks[i];
    }
    for (const SequenceState& sequence : state.sequences) {
        for (const BlockId block : sequence.table) {
            if (block.valid()) rows[static_cast<size_t>(block.value)].owners.push_back(sequence.id);
        }
    }
    return rows;
}

void BlockPoolModel::reset() {
    beginResetModel();
    rows_ = rowsNow();
    block_size_ = hub_->state().block_size;
    endResetModel();
}

void BlockPoolModel::refresh() {
    if (!active_) {
        return;
    }
    std::vector<Row> rows = rowsNow();
    if (rows.size() != rows_.size()) {
        reset();
        return;
    }
    int first = -1;
    int last = -1;
    for (size_t i = 0; i < rows.size(); ++i) {
        if (rows[i] != rows_[i]) {
            first = first < 0 ? static_cast<int>(i) : first;
            last = static_cast<int>(i);
        }
    }
    rows_ = std::move(rows);
    if (first >= 0) {
        emit dataChanged(index(first, 0), index(last, kNumColumns - 1));
    }
}

}  // namespace kvlab
