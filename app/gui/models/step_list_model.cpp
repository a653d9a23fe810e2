// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/models/step_list_model.h"

#include <limits>

#include "app/gui/provenance.h"

namespace kvlab {

namespace {

// Numbers stand under each other at the right, and so does what heads them.
QVariant alignmentOf(int column) {
    const bool number = column == StepListModel::kStep;
    return QVariant(Qt::Alignment(Qt::AlignVCenter | (number ? Qt::AlignRight : Qt::AlignLeft)));
}

// Item views count rows in int.
int rowsOf(const RunHub& hub) {
    if (!hub.hasLog()) {
        return 0;
    }
    const int64_t entries = hub.log().entryIndex(hub.log().end());
    return static_cast<int>(std::min<int64_t>(entries, std::numeric_limits<int>::max()));
}

}  // namespace

StepListModel::StepListModel(RunHub* hub, QObject* parent)
    : QAbstractTableModel(parent), hub_(hub) {
    connect(hub_, &RunHub::logReset, this, &StepListModel::reset);
    connect(hub_, &RunHub::logGrew, this, &StepListModel::grow);
    reset();
}

int StepListModel::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : num_rows_;
}

int StepListModel::columnCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : kNumColumns;
}

Cursor StepListModel::cursorOf(int row) const {
    const RunLog& log = hub_->log();
    // The last step whose first entry is not behind the row.
    int64_t low = 0;
    int64_t high = log.numSteps();
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (log.entryIndex({middle, 0, 0}) <= row) {
            low = middle;
        } else {
            high = middle;
        }
    }
    int64_t rest = row - log.entryIndex({low, 0, 0});
    Cursor at{low, 0, 0};
    for (const Event& event : log.step(low).events) {
        const int count = numEntries(event);
        if (rest < count) {
            at.entry = static_cast<int>(rest);
            break;
        }
        rest -= count;
        ++at.event;
    }
    return at;
}

int StepListModel::currentRow() const {
    return hub_->hasLog() ? static_cast<int>(hub_->log().entryIndex(hub_->cursor())) - 1 : -1;
}

QVariant StepListModel::data(const QModelIndex& index, int role) const {
    if (!index.isValid() || !hub_->hasLog()) {
        return {};
    }
    if (role == Qt::TextAlignmentRole) {
        return alignmentOf(index.column());
    }
    if (role != Qt::DisplayRole) {
        return {};
    }
    const Cursor at = cursorOf(index.row());
    const Event& event = hub_->log().step(at.step).events[static_cast<size_t>(at.event)];
    switch (index.column()) {
        case kStep:
            return formatCount(at.step);
        case kEvent:
            return QString::fromUtf8(eventName(event)).replace('_', ' ');
        case kText: {
            QString text = QString::fromStdString(describeEntry(event, at.entry));
            if (const auto* sampled = std::get_if<TokensSampled>(&event)) {
                const std::string& piece =
                    hub_->log().piece(sampled->token[static_cast<size_t>(at.entry)]);
                text += QStringLiteral(" “%1”").arg(QString::fromStdString(piece));
            }
            return text;
        }
        default:
            return {};
    }
}

QVariant StepListModel::headerData(int section, Qt::Orientation orientation, int role) const {
    if (orientation == Qt::Horizontal && role == Qt::TextAlignmentRole) {
        return alignmentOf(section);
    }
    if (orientation != Qt::Horizontal || role != Qt::DisplayRole) {
        return {};
    }
    switch (section) {
        case kStep:
            return tr("Step");
        case kEvent:
            return tr("Event");
        case kText:
            return tr("What happened");
        default:
            return {};
    }
}

void StepListModel::reset() {
    beginResetModel();
    num_rows_ = rowsOf(*hub_);
    endResetModel();
}

void StepListModel::grow() {
    const int num_rows = rowsOf(*hub_);
    if (num_rows > num_rows_) {
        beginInsertRows({}, num_rows_, num_rows - 1);
        num_rows_ = num_rows;
        endInsertRows();
    }
}

}  // namespace kvlab
