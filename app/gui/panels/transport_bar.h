// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QWidget>

#include "app/gui/run/playback.h"
#include "app/gui/theme.h"

class QLabel;
class QPushButton;
class QToolButton;

namespace kvlab {

// The buttons at the left of the timeline; they never move.
class TransportBar : public QWidget {
    Q_OBJECT

  public:
    TransportBar(RunHub* hub, Playback* playback, QWidget* parent = nullptr);
    void setTheme(const Theme& theme, double scale);

  private:
    void refresh();
    void refreshPlaying();

    RunHub* hub_;
    Playback* playback_;
    Theme theme_;
    double scale_ = 1;
    QToolButton* to_start_;
    QToolButton* back_;
    QToolButton* play_;
    QToolButton* forward_;
    QToolButton* to_end_;
    QLabel* place_;
    QLabel* event_;
    QPushButton* speed_;
};

}  // namespace kvlab
