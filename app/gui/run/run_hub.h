// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <memory>
#include <optional>
#include <span>

#include <QObject>
#include <QString>

#include "app/gui/run/kernel_walks.h"
#include "engine/trace/run_log.h"

namespace kvlab {

// What the reader points at. Hover previews, click locks, Esc clears; every view lights up the same
// thing.
struct Selection {
    std::optional<BlockId> block;
    std::optional<SequenceId> sequence;
    std::optional<int> position;  // token position in `sequence`
    bool empty() const { return !block && !sequence && !position; }
    bool operator==(const Selection&) const = default;
};

// What stands at the end of a log that no longer grows.
enum class LogEnd { kWhole, kStopped, kUnreadable };

// The one shared UI state: log, cursor, folded state, selection. Views are functions of it and hold
// no engine pointer; they repaint on its signals. A live run grows the log while the cursor may
// stay in the past.
class RunHub : public QObject {
    Q_OBJECT

  public:
    explicit RunHub(QObject* parent = nullptr);

    bool hasLog() const { return log_ != nullptr; }
    const RunLog& log() const { return *log_; }
    Cursor cursor() const { return cursor_; }
    const CacheState& state() const { return state_; }  // folded up to cursor()
    bool atEnd() const { return log_ && cursor_ == log_->end(); }
    bool isLive() const { return live_; }  // a run is still adding steps
    LogEnd logEnd() const { return log_end_; }
    // What the first log waits for, one sentence; "" when nothing is on its way.
    const QString& waitingFor() const { return waiting_for_; }

    // What the attention kernel read, step by step; null or empty unless the run is on simt.
    const KernelWalks* walks() const { return walks_.get(); }
    void setWalks(std::shared_ptr<const KernelWalks> walks);

    // Locked selection, else the hovered one.
    const Selection& shown() const { return locked_.empty() ? hovered_ : locked_; }
    const Selection& locked() const { return locked_; }

    void setLog(std::shared_ptr<RunLog> log, bool live);  // cursor to the start, nothing selected
    void setLogEnd(LogEnd end);                           // kWhole with every new log
    void setWaitingFor(const QString& sentence);          // ends with the next log
    // Adds a step of the live run; follows it when the cursor stood at the end and following() is
    // on. A step that contradicts the log is left out, ends the live run and is told by
    // logDamaged(); false then.
    bool appendStep(std::shared_ptr<const StepTrace> step);
    // The same for the steps of one frame: one logGrew() and at most one cursorMoved() for all of
    // them.
    bool appendSteps(std::span<const std::shared_ptr<const StepTrace>> steps);
    void setLive(bool live);
    bool following() const { return following_; }
    void setFollowing(bool following);
    void setCursor(Cursor cursor);
    // To the moment just after this entry, with lastApplied() set to it however far the way was.
    void setCursorAfter(Cursor entry);
    void hover(const Selection& selection);
    void lock(const Selection& selection);  // an empty one clears

    // Entry that the last forward move of one entry or event applied, for "being written now" rings
    // (the last entry of a whole event); none after a jump. Index into
    // log().step(step).events[event].
    std::optional<Cursor> lastApplied() const { return last_applied_; }

    // The step that "this step" means in every view: the one the cursor is inside of, else the one
    // it stands behind; none before the first.
    std::optional<int64_t> currentStep() const;

  signals:
    void logReset();
    void logGrew();
    void cursorMoved();
    void selectionChanged();
    void liveChanged();
    void logEndChanged();
    void waitingChanged();
    void logDamaged(const QString& message);
    void walksChanged();

  private:
    void moveTo(Cursor cursor, std::optional<Cursor> applied);

    std::shared_ptr<RunLog> log_;
    std::shared_ptr<const KernelWalks> walks_;
    CacheState state_;
    Cursor cursor_;
    Selection hovered_, locked_;
    std::optional<Cursor> last_applied_;
    bool live_ = false;
    LogEnd log_end_ = LogEnd::kWhole;
    QString waiting_for_;
    bool following_ = true;
};

}  // namespace kvlab
