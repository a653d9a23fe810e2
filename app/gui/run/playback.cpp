// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/run/playback.h"

#include <algorithm>
#include <cmath>

#include "app/gui/run/related_entries.h"

namespace kvlab {

Playback::Playback(RunHub* hub, QObject* parent) : QObject(parent), hub_(hub) {
    hub_->setFollowing(false);
    timer_.setTimerType(Qt::PreciseTimer);
    timer_.setInterval(kFrameMs);
    connect(&timer_, &QTimer::timeout, this, &Playback::onTick);
    connect(hub_, &RunHub::logReset, this, [this] { fraction_ = 0; });
}

bool Playback::isWaiting() const { return playing_ && hub_->isLive() && hub_->atEnd(); }

QString Playback::speedText(int speed_idx) {
    const double speed = kSpeeds[std::clamp(speed_idx, 0, kNumSpeeds - 1)];
    if (speed == kLiveSpeed) {
        return tr("live");
    }
    return speed < 1 ? tr("½ step/s") : tr("%1 steps/s").arg(speed);
}

void Playback::setPlaying(bool playing) {
    if (playing_ == playing) {
        return;
    }
    playing_ = playing;
    fraction_ = 0;
    told_ = hub_->cursor();
    hub_->setFollowing(playing_ && speed() == kLiveSpeed);
    if (playing_) {
        clock_.start();
        timer_.start();
    } else {
        timer_.stop();
    }
    emit stateChanged();
}

void Playback::play() {
    if (hub_->atEnd() && !hub_->isLive()) {
        hub_->setCursor(hub_->log().begin());
    }
    emit movedByHand();
    setPlaying(true);
}

void Playback::pause() { setPlaying(false); }

void Playback::togglePlaying() { playing_ ? pause() : play(); }

void Playback::setSpeedIndex(int speed_idx) {
    speed_idx = std::clamp(speed_idx, 0, kNumSpeeds - 1);
    if (speed_idx_ == speed_idx) {
        return;
    }
    speed_idx_ = speed_idx;
    hub_->setFollowing(playing_ && speed() == kLiveSpeed);
    emit stateChanged();
}

void Playback::onTick() {
    const double elapsed_s = static_cast<double>(clock_.nsecsElapsed()) * 1e-9;
    clock_.start();
    // A stalled window does not jump ahead afterwards.
    advance(std::min(elapsed_s, 0.25));
}

void Playback::advance(double elapsed_s) {
    if (!playing_ || !hub_->hasLog()) {
        return;
    }
    const RunLog& log = hub_->log();
    if (speed() == kLiveSpeed) {
        hub_->setCursor(log.end());
    } else {
        Cursor at = hub_->cursor();
        if (at != told_) {
            fraction_ = 0;
        }
        // Inside a step (after single entries by hand) the rest of it is told as from its start.
        fraction_ += elapsed_s * speed();
        const auto whole = static_cast<int64_t>(std::floor(fraction_));
        fraction_ -= static_cast<double>(whole);
        Cursor to = log.clamp({at.step + whole, 0, 0});
        if (whole == 0) {
            to = at;
        }
        if (to >= log.end()) {
            fraction_ = 0;
        } else if (speed() <= kEntrySpeed) {
            const int64_t first = log.entryIndex({to.step, 0, 0});
            const int64_t count = log.entryIndex({to.step + 1, 0, 0}) - first;
            const auto wanted = static_cast<int64_t>(fraction_ * static_cast<double>(count));
            while (to.step < log.numSteps() && log.entryIndex(to) - first < wanted) {
                to = log.nextEntry(to);
            }
        }
        if (to != at) {
            // The ring stands on the last entry told, also when a frame told several.
            const Cursor last = log.previousEntry(to);
            if (speed() <= kEntrySpeed && last >= at) {
                hub_->setCursorAfter(last);
            } else {
                hub_->setCursor(to);
            }
        }
        told_ = hub_->cursor();
    }
    if (hub_->atEnd() && !hub_->isLive()) {
        setPlaying(false);
    } else if (isWaiting() != was_waiting_) {
        was_waiting_ = isWaiting();
        emit stateChanged();
    }
}

// Before each move by hand; false when there is nothing to move in.
bool Playback::takeOver() {
    pause();
    emit movedByHand();
    return hub_->hasLog();
}

void Playback::stepForward() {
    if (takeOver()) {
        hub_->setCursor(hub_->log().nextEntry(hub_->cursor()));
    }
}

void Playback::stepBack() {
    if (takeOver()) {
        hub_->setCursor(hub_->log().previousEntry(hub_->cursor()));
    }
}

void Playback::nextStep() {
    if (takeOver()) {
        hub_->setCursor(hub_->log().nextStep(hub_->cursor()));
    }
}

void Playback::previousStep() {
    if (takeOver()) {
        hub_->setCursor(hub_->log().previousStep(hub_->cursor()));
    }
}

void Playback::nextRelated() {
    const Selection selection = hub_->shown();
    if (!selection.block && !selection.sequence) {
        stepForward();
    } else if (takeOver()) {
        if (const auto entry =
                nextRelatedEntry(hub_->log(), selection, hub_->cursor(), hub_->state())) {
            hub_->setCursorAfter(*entry);
        }
    }
}

void Playback::previousRelated() {
    const Selection selection = hub_->shown();
    if (!selection.block && !selection.sequence) {
        stepBack();
    } else if (takeOver()) {
        // Standing just behind a related entry, that one does not count again.
        const Cursor before = hub_->log().previousEntry(hub_->cursor());
        if (const auto entry = previousRelatedEntry(hub_->log(), selection, before)) {
            hub_->setCursorAfter(*entry);
        } else {
            hub_->setCursor(hub_->log().begin());
        }
    }
}

void Playback::toStart() {
    if (takeOver()) {
        hub_->setCursor(hub_->log().begin());
    }
}

void Playback::toEnd() {
    if (takeOver()) {
        hub_->setCursor(hub_->log().end());
    }
}

void Playback::seek(Cursor cursor) {
    if (takeOver()) {
        hub_->setCursor(cursor);
    }
}

}  // namespace kvlab
