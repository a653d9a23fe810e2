// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/panels/transport_bar.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QMenu>
#include <QPushButton>
#include <QToolButton>
#include <QVBoxLayout>

#include "app/gui/panels/icons.h"
#include "app/gui/panels/widgets.h"
#include "app/gui/provenance.h"

namespace kvlab {

namespace {

QString endWords(LogEnd end) {
    switch (end) {
        case LogEnd::kWhole:
            return TransportBar::tr("end of the run");
        case LogEnd::kStopped:
            return TransportBar::tr("where the run stopped");
        case LogEnd::kUnreadable:
            return TransportBar::tr("end of what is readable");
    }
    return {};
}

}  // namespace

TransportBar::TransportBar(RunHub* hub, Playback* playback, QWidget* parent)
    : QWidget(parent), hub_(hub), playback_(playback), theme_(Theme::light()) {
    auto* column = new QVBoxLayout(this);
    column->setContentsMargins(16, 12, 8, 10);
    column->setSpacing(6);
    auto* buttons = new QHBoxLayout;
    buttons->setSpacing(5);
    const auto make = [&](const QString& name, const QString& key, void (Playback::*slot)()) {
        auto* button = new QToolButton(this);
        button->setProperty("role", "transport");
        button->setAccessibleName(name);
        button->setToolTip(tr("%1 (%2)").arg(name, key));
        // A click does not take the keyboard away from the picture.
        button->setFocusPolicy(Qt::TabFocus);
        connect(button, &QToolButton::clicked, playback_, slot);
        buttons->addWidget(button);
        return button;
    };
    to_start_ = make(tr("To the start"), tr("Home"), &Playback::toStart);
    back_ = make(tr("One step back"), tr("Page Up"), &Playback::previousStep);
    play_ = make(tr("Play"), tr("Space"), &Playback::togglePlaying);
    play_->setProperty("role", "play");
    forward_ = make(tr("One step on"), tr("Page Down"), &Playback::nextStep);
    to_end_ = make(tr("To the end"), tr("End"), &Playback::toEnd);
    buttons->addStretch(1);
    column->addLayout(buttons);

    place_ = makeLabel({}, "place", this);
    column->addWidget(place_);
    event_ = makeLabel({}, "small", this);
    column->addWidget(event_);
    speed_ = new QPushButton(this);
    speed_->setProperty("role", "choice");
    speed_->setAccessibleName(tr("Speed"));
    speed_->setToolTip(tr("Speed of playing (+ and −)"));
    speed_->setFocusPolicy(Qt::TabFocus);
    auto* speeds = new QMenu(speed_);
    for (int i = 0; i < Playback::kNumSpeeds; ++i) {
        speeds->addAction(Playback::speedText(i), playback_,
                          [this, i] { playback_->setSpeedIndex(i); });
    }
    speed_->setMenu(speeds);
    auto* speed_row = new QHBoxLayout;
    speed_row->setSpacing(8);
    speed_row->addWidget(speed_);
    speed_row->addStretch(1);
    column->addLayout(speed_row);
    column->addStretch(1);

    connect(playback_, &Playback::stateChanged, this, &TransportBar::refreshPlaying);
    connect(hub_, &RunHub::cursorMoved, this, &TransportBar::refresh);
    connect(hub_, &RunHub::logGrew, this, &TransportBar::refresh);
    connect(hub_, &RunHub::logReset, this, &TransportBar::refresh);
    connect(hub_, &RunHub::liveChanged, this, &TransportBar::refresh);
    connect(hub_, &RunHub::logEndChanged, this, &TransportBar::refresh);
    refreshPlaying();
    refresh();
}

void TransportBar::setTheme(const Theme& theme, double scale) {
    theme_ = theme;
    scale_ = scale;
    const int size = qRound(16 * scale);
    to_start_->setIcon(makeIcon(IconKind::kToStart, theme.ink, size));
    back_->setIcon(makeIcon(IconKind::kStepBack, theme.ink, size));
    forward_->setIcon(makeIcon(IconKind::kStepForward, theme.ink, size));
    to_end_->setIcon(makeIcon(IconKind::kToEnd, theme.ink, size));
    for (QToolButton* button : {to_start_, back_, play_, forward_, to_end_}) {
        button->setIconSize({size, size});
    }
    setFixedWidth(qRound(208 * scale));
    refreshPlaying();
}

void TransportBar::refreshPlaying() {
    const bool playing = playback_->isPlaying();
    play_->setIcon(makeIcon(playing ? IconKind::kPause : IconKind::kPlay, theme_.accent_ink,
                            qRound(16 * scale_)));
    play_->setAccessibleName(playing ? tr("Pause") : tr("Play"));
    play_->setToolTip(playing ? tr("Pause (Space)") : tr("Play (Space)"));
    speed_->setText(Playback::speedText(playback_->speedIndex()) + QStringLiteral("  ▾"));
    refresh();
}

void TransportBar::refresh() {
    if (!hub_->hasLog()) {
        place_->setText(tr("step %1 / %1").arg(noData()));
        event_->setText(tr("no run yet"));
        return;
    }
    const RunLog& log = hub_->log();
    const Cursor at = hub_->cursor();
    place_->setText(tr("step %1 / %2").arg(formatCount(at.step), formatCount(log.numSteps())));
    if (at.step < log.numSteps() && (at.event > 0 || at.entry > 0)) {
        const int64_t first = log.entryIndex({at.step, 0, 0});
        event_->setText(tr("event %1 of %2 in it")
                            .arg(log.entryIndex(at) - first)
                            .arg(log.entryIndex({at.step + 1, 0, 0}) - first));
    } else if (playback_->isWaiting()) {
        event_->setText(tr("waiting for the run"));
    } else if (at == log.begin()) {
        event_->setText(tr("the empty pool"));
    } else if (hub_->atEnd()) {
        event_->setText(hub_->isLive() ? tr("newest step") : endWords(hub_->logEnd()));
    } else {
        event_->setText(tr("between two steps"));
    }
}

}  // namespace kvlab
