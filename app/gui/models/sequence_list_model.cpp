// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/models/sequence_list_model.h"

#include <map>

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
    connect(hub_, &RunHub::logReset, this, &SequenceListModel::reset);
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
    if (!row.id.valid()) {
        switch (index.column()) {
            case kSequence:
                return tr("request %1").arg(formatCount(row.request.value));
            case kState:
                return row.state;
            case kTokens:
                return formatCount(row.num_tokens);
            default:
                return noData();
        }
    }
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

SequenceId SequenceListModel::sequenceAt(int row) const {
    return row >= 0 && row < rowCount() ? rows_[static_cast<size_t>(row)].id : SequenceId();
}

void SequenceListModel::reset() {
    notes_.clear();
    num_steps_read_ = 0;
    refresh();
}

void SequenceListModel::readNotes() {
    const RunLog& log = hub_->log();
    for (; num_steps_read_ < log.numSteps(); ++num_steps_read_) {
        const StepTrace& step = log.step(num_steps_read_);
        for (int e = 0; e < static_cast<int>(step.events.size()); ++e) {
            const Event& event = step.events[static_cast<size_t>(e)];
            const auto note = [&](Note::Kind kind, RequestId request, size_t i) -> Note& {
                notes_.push_back({{num_steps_read_, e, static_cast<int>(i)}, kind, request, 0, {}});
                return notes_.back();
            };
            if (const auto* arrived = std::get_if<RequestsArrived>(&event)) {
                for (size_t i = 0; i < arrived->request.size(); ++i) {
                    note(Note::Kind::kArrived, arrived->request[i], i).prompt_len =
                        arrived->prompt_len[i];
                }
            } else if (const auto* withdrawn = std::get_if<RequestsWithdrawn>(&event)) {
                for (size_t i = 0; i < withdrawn->request.size(); ++i) {
                    note(Note::Kind::kWithdrawn, withdrawn->request[i], i);
                }
            } else if (const auto* started = std::get_if<SequenceStarted>(&event)) {
                note(Note::Kind::kStarted, started->request, 0);
            } else if (const auto* made = std::get_if<DecisionsMade>(&event)) {
                for (size_t i = 0; i < made->kind.size(); ++i) {
                    const bool refused = made->kind[i] == DecisionKind::kRefused;
                    if (made->sequence[i].valid() ||
                        (!refused && made->kind[i] != DecisionKind::kWaiting)) {
                        continue;
                    }
                    // The row names the request itself.
                    const QString said =
                        QString::fromStdString(describeEntry(event, static_cast<int>(i)));
                    note(refused ? Note::Kind::kRefused : Note::Kind::kWaits, made->request[i], i)
                        .why = said.section(QStringLiteral(": "), 1);
                }
            }
        }
    }
}

void SequenceListModel::addRequests(std::vector<Row>& rows) {
    std::map<RequestId, Row> requests;
    std::map<RequestId, QString> why;
    for (const Note& note : notes_) {
        if (!(note.at < hub_->cursor())) {
            break;
        }
        Row& row = requests[note.request];
        row.request = note.request;
        QString& reason = why[note.request];
        switch (note.kind) {
            case Note::Kind::kArrived:
                row.num_tokens = note.prompt_len;
                row.state = tr("waiting, not yet started");
                break;
            case Note::Kind::kWaits:
                reason = note.why;
                row.state = tr("waiting: %1").arg(note.why);
                break;
            case Note::Kind::kRefused:
                reason = note.why;
                row.state = tr("refused: %1").arg(note.why);
                break;
            case Note::Kind::kWithdrawn:
                // A refused request leaves the queue too.
                if (!row.state.startsWith(tr("refused: %1").arg(QString()))) {
                    row.state = reason.isEmpty()
                                    ? tr("cancelled before it started")
                                    : tr("cancelled before it started; it waited: %1").arg(reason);
                }
                break;
            case Note::Kind::kStarted:
                requests.erase(note.request);
                break;
        }
    }
    for (auto& [request, row] : requests) {
        rows.push_back(std::move(row));
    }
}

void SequenceListModel::refresh() {
    if (!active_) {
        return;
    }
    std::vector<Row> rows;
    for (const SequenceState& s : hub_->state().sequences) {
        rows.push_back({s.id,
                        s.request,
                        s.sample_idx,
                        static_cast<int>(s.tokens.size()),
                        s.kv_len,
                        static_cast<int>(s.numHeld()),
                        s.finish,
                        s.removed,
                        s.preempted,
                        {}});
    }
    if (hub_->hasLog()) {
        readNotes();
        addRequests(rows);
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
