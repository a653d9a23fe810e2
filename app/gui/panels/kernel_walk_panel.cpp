// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/panels/kernel_walk_panel.h"

#include <QHBoxLayout>
#include <QLabel>
#include <QMenu>
#include <QPushButton>
#include <QScrollArea>
#include <QSignalBlocker>
#include <QSlider>
#include <QStackedLayout>
#include <QToolButton>
#include <QVBoxLayout>

#include "app/gui/panels/icons.h"
#include "app/gui/panels/widgets.h"
#include "app/gui/views/kernel_walk_view.h"

namespace kvlab {

KernelWalkPanel::KernelWalkPanel(RunHub* hub, QWidget* parent)
    : QFrame(parent), hub_(hub), theme_(Theme::light()) {
    setProperty("role", "card");
    auto* column = new QVBoxLayout(this);
    column->setContentsMargins(13, 8, 13, 8);
    column->setSpacing(6);
    auto* head = new QHBoxLayout;
    head->setSpacing(8);
    auto* title = makeLabel(tr("<b>Kernel walk</b>"), "", this);
    head->addWidget(title);
    auto* subtitle =
        makeLabel(tr("which thread block reads what, as recorded in simt"), "small", this);
    subtitle->setMinimumWidth(1);
    subtitle->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
    head->addWidget(subtitle, 1);
    subtitle_ = subtitle;

    controls_ = new QWidget(this);
    auto* row = new QHBoxLayout(controls_);
    row->setContentsMargins(0, 0, 0, 0);
    row->setSpacing(6);
    layer_ = new QPushButton(controls_);
    layer_->setProperty("role", "choice");
    layer_->setMenu(new QMenu(layer_));
    layer_->setFocusPolicy(Qt::TabFocus);
    layer_->setToolTip(tr("Whose launch is shown: all layers of a step were recorded"));
    row->addWidget(layer_);
    const auto make = [&](const QString& name, const QString& key) {
        auto* button = new QToolButton(controls_);
        button->setProperty("role", "transport");
        button->setAccessibleName(name);
        button->setToolTip(key.isEmpty() ? name : tr("%1 (%2)").arg(name, key));
        button->setFocusPolicy(Qt::TabFocus);
        row->addWidget(button);
        return button;
    };
    back_ = make(tr("Table entry before"), QStringLiteral(","));
    play_ = make(tr("Play the walk"), {});
    forward_ = make(tr("Next table entry"), QStringLiteral("."));
    slider_ = new QSlider(Qt::Horizontal, controls_);
    slider_->setFixedWidth(kSliderWidth);
    slider_->setAccessibleName(tr("Step of the walk"));
    slider_->setFocusPolicy(Qt::TabFocus);
    row->addWidget(slider_);
    place_ = makeLabel({}, "small", controls_);
    row->addWidget(place_);
    head->addWidget(controls_);
    column->addLayout(head);

    scroll_ = new QScrollArea(this);
    scroll_->setWidgetResizable(true);
    scroll_->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    scroll_->setFocusPolicy(Qt::NoFocus);
    scroll_->setMinimumHeight(150);
    view_ = new KernelWalkView(hub, scroll_);
    scroll_->setWidget(view_);
    missing_ = new QWidget(this);
    auto* missing = new QVBoxLayout(missing_);
    missing->addStretch(1);
    missing_text_ = makeLabel({}, "quiet", missing_);
    missing_text_->setWordWrap(true);
    missing_text_->setAlignment(Qt::AlignCenter);
    missing->addWidget(missing_text_);
    run_with_simt_ = new QPushButton(tr("Run with simt"), missing_);
    run_with_simt_->setProperty("role", "primary");
    run_with_simt_->setFocusPolicy(Qt::TabFocus);
    missing->addWidget(run_with_simt_, 0, Qt::AlignCenter);
    missing->addStretch(1);
    pages_ = new QStackedLayout;
    pages_->addWidget(scroll_);
    pages_->addWidget(missing_);
    column->addLayout(pages_, 1);

    timer_.setInterval(kPlayMs);
    connect(&timer_, &QTimer::timeout, this, [this] {
        if (!view_->hasWalk() || view_->step() + 1 >= view_->numSteps()) {
            togglePlaying();
            return;
        }
        view_->setStep(view_->step() + 1);
    });
    connect(back_, &QToolButton::clicked, this, [this] { view_->setStep(view_->step() - 1); });
    connect(forward_, &QToolButton::clicked, this, [this] { view_->setStep(view_->step() + 1); });
    connect(play_, &QToolButton::clicked, this, &KernelWalkPanel::togglePlaying);
    connect(slider_, &QSlider::valueChanged, this, [this](int value) { view_->setStep(value); });
    connect(run_with_simt_, &QPushButton::clicked, this, &KernelWalkPanel::simtRequested);
    connect(view_, &KernelWalkView::walkChanged, this, &KernelWalkPanel::refresh);
    refresh();
}

void KernelWalkPanel::setTheme(const Theme& theme, double scale) {
    theme_ = theme;
    scale_ = scale;
    view_->setTheme(theme, scale);
    fitHead();
    back_->setIcon(makeIcon(IconKind::kStepBack, theme.ink, qRound(14 * scale)));
    forward_->setIcon(makeIcon(IconKind::kStepForward, theme.ink, qRound(14 * scale)));
    refresh();
}

void KernelWalkPanel::hideEvent(QHideEvent* event) {
    QFrame::hideEvent(event);
    timer_.stop();
    refresh();
}

void KernelWalkPanel::resizeEvent(QResizeEvent* event) {
    QFrame::resizeEvent(event);
    fitHead();
}

// Where the head is narrow the slider gives way to its words, and half a subtitle says nothing.
void KernelWalkPanel::fitHead() {
    const double width = this->width() / scale_;
    slider_->setFixedWidth(qRound((width < 620 ? kSliderWidth / 2 : kSliderWidth) * scale_));
    subtitle_->setText(width < 760 ? QString()
                                   : tr("which thread block reads what, as recorded in simt"));
}

void KernelWalkPanel::togglePlaying() {
    if (timer_.isActive()) {
        timer_.stop();
    } else if (view_->hasWalk()) {
        if (view_->step() + 1 >= view_->numSteps()) view_->setStep(0);
        timer_.start();
    }
    refresh();
}

void KernelWalkPanel::fillLayers() {
    QMenu* menu = layer_->menu();
    const int count = view_->numLayers();
    if (menu->actions().size() == count) return;
    menu->clear();
    for (int i = 0; i < count; ++i) {
        menu->addAction(tr("layer %1").arg(i), this, [this, i] { view_->setLayer(i); });
    }
}

void KernelWalkPanel::refresh() {
    const bool walks = hub_->walks() != nullptr && !hub_->walks()->empty();
    const bool simt = hub_->hasLog() && hub_->log().info().backend == "simt";
    const bool has_page = walks || simt || !hub_->hasLog();
    pages_->setCurrentWidget(
        has_page && (walks || !simt || hub_->isLive()) ? static_cast<QWidget*>(scroll_) : missing_);
    missing_text_->setText(
        simt
            ? tr("A recording of a simt run holds no kernel walk: run a lesson with simt to see "
                 "it.")
            : tr("This run is not on simt, so nobody saw which thread block read what: run it with "
                 "simt, the CUDA kernels on the CPU, slowly."));
    run_with_simt_->setVisible(!simt);
    const bool shown = view_->hasWalk();
    controls_->setVisible(shown);
    const bool playing = timer_.isActive();
    play_->setIcon(
        makeIcon(playing ? IconKind::kPause : IconKind::kPlay, theme_.ink, qRound(14 * scale_)));
    play_->setAccessibleName(playing ? tr("Pause the walk") : tr("Play the walk"));
    if (!shown) return;
    fillLayers();
    layer_->setText(tr("layer %1  ▾").arg(view_->scene().walk->attention.layer));
    const QSignalBlocker quiet(slider_);
    slider_->setRange(0, view_->numSteps() - 1);
    slider_->setValue(view_->step());
    place_->setText(tr("step %1 of %2").arg(view_->step() + 1).arg(view_->numSteps()));
    back_->setEnabled(view_->step() > 0);
    forward_->setEnabled(view_->step() + 1 < view_->numSteps());
}

}  // namespace kvlab
