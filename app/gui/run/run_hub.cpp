// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/run/run_hub.h"

#include <algorithm>
#include <utility>

#include "engine/error.h"

namespace kvlab {

RunHub::RunHub(QObject* parent) : QObject(parent) {}

void RunHub::setLog(std::shared_ptr<RunLog> log, bool live) {
    log_ = std::move(log);
    cursor_ = {};
    last_applied_.reset();
    state_ = log_ ? log_->stateAt({}) : CacheState{};
    hovered_ = {};
    locked_ = {};
    live_ = live && log_ != nullptr;
    log_end_ = LogEnd::kWhole;
    waiting_for_.clear();
    emit logReset();
    emit liveChanged();
    emit selectionChanged();
    emit cursorMoved();
}

void RunHub::setWalks(std::shared_ptr<const KernelWalks> walks) {
    walks_ = std::move(walks);
    emit walksChanged();
}

bool RunHub::appendStep(std::shared_ptr<const StepTrace> step) { return appendSteps({&step, 1}); }

bool RunHub::appendSteps(std::span<const std::shared_ptr<const StepTrace>> steps) {
    if (!log_ || steps.empty()) {
        return true;
    }
    const bool was_at_end = atEnd();
    QString damage;
    bool grew = false;
    for (const auto& step : steps) {
        try {
            log_->append(step);
            grew = true;
        } catch (const EngineError& error) {
            damage = QString::fromUtf8(error.what());
            break;
        }
    }
    if (grew) {
        emit logGrew();
        if (was_at_end && following_) {
            moveTo(log_->end(), std::nullopt);
        }
    }
    if (!damage.isEmpty()) {
        setLive(false);
        emit logDamaged(damage);
        return false;
    }
    return true;
}

void RunHub::setLive(bool live) {
    if (live_ != live) {
        live_ = live;
        emit liveChanged();
    }
}

void RunHub::setLogEnd(LogEnd end) {
    if (log_end_ != end) {
        log_end_ = end;
        emit logEndChanged();
    }
}

void RunHub::setWaitingFor(const QString& sentence) {
    if (waiting_for_ != sentence) {
        waiting_for_ = sentence;
        emit waitingChanged();
    }
}

void RunHub::setFollowing(bool following) { following_ = following; }

void RunHub::setCursor(Cursor cursor) {
    if (!log_) {
        return;
    }
    const Cursor to = log_->clamp(cursor);
    if (to == cursor_) {
        return;
    }
    std::optional<Cursor> applied;
    if (to > cursor_) {
        const bool one_entry = to == log_->nextEntry(cursor_);
        const bool whole_event =
            cursor_.entry == 0 && to.entry == 0 &&
            ((to.step == cursor_.step && to.event == cursor_.event + 1) ||
             (to.step == cursor_.step + 1 && to.event == 0 && cursor_.step < log_->numSteps() &&
              cursor_.event + 1 == static_cast<int>(log_->step(cursor_.step).events.size())));
        if (one_entry || whole_event) {
            applied = log_->previousEntry(to);
        }
    }
    moveTo(to, applied);
}

void RunHub::setCursorAfter(Cursor entry) {
    if (!log_) {
        return;
    }
    const Cursor at = log_->clamp(entry);
    const Cursor to = log_->nextEntry(at);
    if (to != at) {
        moveTo(to, at);
    }
}

void RunHub::moveTo(Cursor cursor, std::optional<Cursor> applied) {
    if (cursor == cursor_ && applied == last_applied_) {
        return;
    }
    if (cursor != cursor_) {
        log_->advance(state_, cursor_, cursor);
        cursor_ = cursor;
    }
    last_applied_ = applied;
    emit cursorMoved();
}

std::optional<int64_t> RunHub::currentStep() const {
    if (!log_) {
        return std::nullopt;
    }
    const bool inside = cursor_.event > 0 || cursor_.entry > 0;
    const int64_t step = inside ? cursor_.step : cursor_.step - 1;
    return step >= 0 && step < log_->numSteps() ? std::optional<int64_t>(step) : std::nullopt;
}

void RunHub::hover(const Selection& selection) {
    if (hovered_ == selection) {
        return;
    }
    hovered_ = selection;
    // A locked selection hides what is hovered, so nothing changed for the views.
    if (locked_.empty()) {
        emit selectionChanged();
    }
}

void RunHub::lock(const Selection& selection) {
    if (locked_ == selection) {
        return;
    }
    locked_ = selection;
    emit selectionChanged();
}

}  // namespace kvlab
