// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <iterator>

#include <QElapsedTimer>
#include <QObject>
#include <QString>
#include <QTimer>

#include "app/gui/run/run_hub.h"

namespace kvlab {

// Moves the hub's cursor and nothing else: the engine is never asked to go back. At most one move
// per frame; at slow speeds a step is told entry by entry, at fast ones several steps become one
// move. Playing at the end of a live run waits for its next step; at the end of a finished one it
// stops.
class Playback : public QObject {
    Q_OBJECT

  public:
    static constexpr int kFrameMs = 16;
    // Steps per second, kLiveSpeed for "as fast as the run itself".
    static constexpr double kLiveSpeed = -1;
    static constexpr double kSpeeds[] = {0.5, 1, 2, 4, 8, 16, 32, 64, kLiveSpeed};
    static constexpr int kNumSpeeds = static_cast<int>(std::size(kSpeeds));
    // Up to this speed the entries of a step are told one after the other.
    static constexpr double kEntrySpeed = 2;

    explicit Playback(RunHub* hub, QObject* parent = nullptr);

    bool isPlaying() const { return playing_; }
    bool isWaiting() const;  // playing, but the live run has no further step yet
    int speedIndex() const { return speed_idx_; }
    double speed() const { return kSpeeds[speed_idx_]; }
    static QString speedText(int speed_idx);

    // What a timer tick of this length does; public so that tests need no clock.
    void advance(double elapsed_s);

  public slots:
    void play();
    void pause();
    void togglePlaying();
    void setSpeedIndex(int speed_idx);
    void faster() { setSpeedIndex(speed_idx_ + 1); }
    void slower() { setSpeedIndex(speed_idx_ - 1); }

    // Each pauses first: who steps by hand wants to look.
    void stepForward();  // one entry
    void stepBack();
    void nextStep();  // one engine step
    void previousStep();
    void nextRelated();  // next entry of the selected block or sequence; one entry when nothing is
                         // selected
    void previousRelated();
    void toStart();
    void toEnd();
    void seek(kvlab::Cursor cursor);

  signals:
    void stateChanged();  // playing, waiting or speed
    void movedByHand();   // one of the slots above chose a place

  private:
    void onTick();
    void setPlaying(bool playing);
    bool takeOver();

    RunHub* hub_;
    QTimer timer_;
    QElapsedTimer clock_;
    int speed_idx_ = 4;
    bool playing_ = false;
    bool was_waiting_ = false;
    // Steps told since the cursor's step began, 0 … 1: what is left over between two frames.
    double fraction_ = 0;
    Cursor told_;  // where advance() left the cursor; elsewhere, somebody else moved it
};

}  // namespace kvlab
