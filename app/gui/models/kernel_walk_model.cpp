// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/models/kernel_walk_model.h"

#include <algorithm>

#include "app/gui/paint/kernel_walk_painter.h"
#include "app/gui/provenance.h"

namespace kvlab {

namespace {

QVariant alignmentOf(int column) {
    const bool number = column > KernelWalkModel::kSequence;
    return QVariant(Qt::Alignment(Qt::AlignVCenter | (number ? Qt::AlignRight : Qt::AlignLeft)));
}

// Of [begin, end).
QString rangeOf(int begin, int end) {
    return end - begin == 1
               ? formatCount(begin)
               : QStringLiteral("%1 to %2").arg(formatCount(begin), formatCount(end - 1));
}

}  // namespace

KernelWalkModel::KernelWalkModel(RunHub* hub, QObject* parent)
    : QAbstractTableModel(parent), hub_(hub) {
    connect(hub_, &RunHub::logReset, this, &KernelWalkModel::refresh);
    connect(hub_, &RunHub::cursorMoved, this, &KernelWalkModel::refresh);
    connect(hub_, &RunHub::walksChanged, this, &KernelWalkModel::refresh);
    refresh();
}

int KernelWalkModel::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : static_cast<int>(rows_.size());
}

int KernelWalkModel::columnCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : kNumColumns;
}

const AttentionRun* KernelWalkModel::runOf(const Row& row) const {
    return row.run < 0 ? nullptr
                       : &walk_->attention.launches[static_cast<size_t>(row.launch)]
                              .thread_blocks[static_cast<size_t>(row.thread_block)]
                              .runs[static_cast<size_t>(row.run)];
}

const AttentionRead* KernelWalkModel::readOf(const Row& row) const {
    return row.read < 0 ? nullptr : &runOf(row)->reads[static_cast<size_t>(row.read)];
}

QVariant KernelWalkModel::data(const QModelIndex& index, int role) const {
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
    const AttentionLaunch& launch = walk_->attention.launches[static_cast<size_t>(row.launch)];
    const AttentionThreadBlock& thread_block =
        launch.thread_blocks[static_cast<size_t>(row.thread_block)];
    if (index.column() == kKernel) {
        return kernelName(launch.kernel);
    }
    if (index.column() == kThreadBlock) {
        return QStringLiteral("(%1, %2, %3)")
            .arg(thread_block.x)
            .arg(thread_block.y)
            .arg(thread_block.z);
    }
    const AttentionRun* run = runOf(row);
    if (run == nullptr) {
        return noData();
    }
    const AttentionRead* read = readOf(row);
    switch (index.column()) {
        case kSequence:
            return QString::fromStdString(
                ownerLetter(walk_->sequences[static_cast<size_t>(run->seq_idx)]));
        case kRows:
            return rangeOf(run->row_begin, run->row_end);
        case kKvHead:
            return formatCount(run->kv_head);
        case kHeads:
            return rangeOf(run->first_head, run->first_head + run->num_heads);
        case kEntry:
            return read == nullptr ? tr("none read") : formatCount(read->block_idx);
        case kKvBlock:
            return read == nullptr ? noData() : formatCount(read->block);
        case kPositions:
            return read == nullptr ? noData() : rangeOf(read->begin, read->end);
        case kRound:
            return read == nullptr ? noData() : formatCount(read->round);
        default:
            return {};
    }
}

QVariant KernelWalkModel::headerData(int section, Qt::Orientation orientation, int role) const {
    if (orientation == Qt::Horizontal && role == Qt::TextAlignmentRole) {
        return alignmentOf(section);
    }
    if (orientation != Qt::Horizontal || role != Qt::DisplayRole) {
        return {};
    }
    switch (section) {
        case kKernel:
            return tr("Kernel");
        case kThreadBlock:
            return tr("Thread block (x, y, z)");
        case kSequence:
            return tr("Sequence");
        case kRows:
            return tr("Rows");
        case kKvHead:
            return tr("KV head");
        case kHeads:
            return tr("Query heads");
        case kEntry:
            return tr("Table entry");
        case kKvBlock:
            return tr("KV block");
        case kPositions:
            return tr("Positions");
        case kRound:
            return tr("Round");
        default:
            return {};
    }
}

void KernelWalkModel::setActive(bool active) {
    active_ = active;
    refresh();
}

void KernelWalkModel::setLayer(int layer) {
    layer_ = layer;
    refresh();
}

Selection KernelWalkModel::selectionAt(int row) const {
    Selection selection;
    if (row < 0 || row >= rowCount()) {
        return selection;
    }
    const AttentionRun* run = runOf(rows_[static_cast<size_t>(row)]);
    const AttentionRead* read = readOf(rows_[static_cast<size_t>(row)]);
    if (run != nullptr) {
        selection.sequence = walk_->sequences[static_cast<size_t>(run->seq_idx)];
    }
    if (read != nullptr) {
        selection.block = BlockId(read->block);
        selection.position = read->begin;
    }
    return selection;
}

void KernelWalkModel::refresh() {
    if (!active_) {
        return;
    }
    const KernelWalks* walks = hub_->walks();
    const auto step = hub_->hasLog() ? hub_->currentStep() : std::nullopt;
    const StepWalks* at = walks != nullptr && step ? walks->at(*step) : nullptr;
    std::shared_ptr<const KernelWalk> walk;
    if (at != nullptr && !at->empty()) {
        walk = (*at)[static_cast<size_t>(std::clamp(layer_, 0, static_cast<int>(at->size()) - 1))];
    }
    if (walk == walk_) {
        return;
    }
    beginResetModel();
    walk_ = std::move(walk);
    rows_.clear();
    for (int l = 0; walk_ && l < static_cast<int>(walk_->attention.launches.size()); ++l) {
        const auto& blocks = walk_->attention.launches[static_cast<size_t>(l)].thread_blocks;
        for (int b = 0; b < static_cast<int>(blocks.size()); ++b) {
            const auto& runs = blocks[static_cast<size_t>(b)].runs;
            bool any = false;
            for (int r = 0; r < static_cast<int>(runs.size()); ++r) {
                const auto& reads = runs[static_cast<size_t>(r)].reads;
                for (int i = 0; i < static_cast<int>(reads.size()); ++i) {
                    rows_.push_back({l, b, r, i});
                    any = true;
                }
            }
            if (!any) {
                rows_.push_back({l, b, runs.empty() ? -1 : 0, -1});
            }
        }
    }
    endResetModel();
}

}  // namespace kvlab
