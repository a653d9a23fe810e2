// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/panels/header_bar.h"

#include <algorithm>

#include <QHBoxLayout>
#include <QLabel>
#include <QProgressBar>
#include <QPushButton>
#include <QVBoxLayout>

#include "app/gui/panels/widgets.h"

namespace kvlab {

namespace {

constexpr int kChipChars = 60;

}  // namespace

HeaderBar::HeaderBar(QWidget* parent) : QWidget(parent) {
    setObjectName(QStringLiteral("headerBar"));
    setAttribute(Qt::WA_StyledBackground);
    auto* row = new QHBoxLayout(this);
    row->setContentsMargins(16, 7, 16, 7);
    row->setSpacing(10);
    brand_ = makeLabel(tr("KV Lab"), "brand", this);
    row->addWidget(brand_);
    row->addWidget(makeLabel(QStringLiteral("›"), "quiet", this));
    place_ = new QLabel(this);
    place_->setMinimumWidth(80);
    place_->setTextFormat(Qt::PlainText);
    place_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
    row->addWidget(place_, 1);

    progress_ = new QWidget(this);
    auto* progress_row = new QHBoxLayout(progress_);
    progress_row->setContentsMargins(0, 0, 0, 0);
    progress_row->setSpacing(8);
    auto* progress_column = new QVBoxLayout;
    progress_column->setSpacing(3);
    progress_text_ = makeLabel({}, "small", progress_);
    progress_text_->setTextFormat(Qt::PlainText);
    progress_bar_ = new QProgressBar(progress_);
    progress_bar_->setTextVisible(false);
    progress_bar_->setMinimumWidth(200);
    progress_bar_->setAccessibleName(tr("Progress of the run"));
    progress_column->addWidget(progress_text_);
    progress_column->addWidget(progress_bar_);
    progress_row->addLayout(progress_column);
    cancel_ = new QPushButton(tr("Cancel"), progress_);
    cancel_->setToolTip(tr("Stop the run after its current step"));
    progress_row->addWidget(cancel_);
    row->addWidget(progress_);
    progress_->hide();

    model_chip_ = makeLabel({}, "chip", this);
    model_chip_->setTextFormat(Qt::RichText);
    row->addWidget(model_chip_);
    backend_chip_ = makeLabel({}, "chip", this);
    backend_chip_->setTextFormat(Qt::RichText);
    row->addWidget(backend_chip_);
    model_chip_->hide();
    backend_chip_->hide();

    theme_button_ = new QPushButton(this);
    open_ = new QPushButton(tr("Open trace…"), this);
    export_ = new QPushButton(tr("Export"), this);
    keys_ = new QPushButton(tr("Keys"), this);
    theme_button_->setToolTip(tr("Switch between light and dark (Ctrl+T)"));
    open_->setToolTip(tr("Open a recorded run (Ctrl+O)"));
    export_->setToolTip(tr("Save a figure of this moment (Ctrl+E)"));
    keys_->setToolTip(tr("Show all keys (?)"));
    for (QPushButton* button : {theme_button_, open_, export_, keys_}) {
        row->addWidget(button);
    }
    for (QPushButton* button : {cancel_, theme_button_, open_, export_, keys_}) {
        button->setFocusPolicy(Qt::TabFocus);
    }
    connect(theme_button_, &QPushButton::clicked, this, &HeaderBar::themeToggled);
    connect(open_, &QPushButton::clicked, this, &HeaderBar::openRequested);
    connect(export_, &QPushButton::clicked, this, &HeaderBar::exportRequested);
    connect(keys_, &QPushButton::clicked, this, &HeaderBar::keysRequested);
    connect(cancel_, &QPushButton::clicked, this, &HeaderBar::cancelRequested);
}

void HeaderBar::setTheme(const Theme& theme) {
    theme_button_->setText(theme.kind == ThemeKind::kLight ? tr("Dark") : tr("Light"));
    fitChips();
}

void HeaderBar::setPlace(const QString& place) {
    place_->setText(shortened(place, 120));
    place_->setToolTip(plainToolTip(place));
}

void HeaderBar::setModel(const QString& name, const QString& shape) {
    model_name_ = shortened(name, kChipChars);
    model_shape_ = shape;
    model_chip_->setToolTip(plainToolTip(tr("model %1 · %2").arg(name, shape)));
    fitChips();
}

void HeaderBar::setBackend(const QString& backend, const QString& device) {
    backend_chip_->setText(
        tr("backend <b>%1</b>").arg(shortened(backend, kChipChars).toHtmlEscaped()));
    backend_chip_->setToolTip(plainToolTip(device));
    fitChips();
}

void HeaderBar::showProgress(const QString& text, double fraction) {
    progress_text_->setText(shortened(text, 60));
    progress_bar_->setRange(0, fraction < 0 ? 0 : 1000);
    progress_bar_->setValue(static_cast<int>(std::clamp(fraction, 0.0, 1.0) * 1000));
    if (!progress_shown_) {
        progress_shown_ = true;
        progress_->show();
        fitChips();
    }
}

void HeaderBar::hideProgress() {
    if (progress_shown_) {
        progress_shown_ = false;
        progress_->hide();
        fitChips();
    }
}

void HeaderBar::resizeEvent(QResizeEvent* event) {
    QWidget::resizeEvent(event);
    fitChips();
}

// What does not fit is left out whole, shape before name before backend: a chip cut in half says
// nothing.
void HeaderBar::fitChips() {
    if (model_name_.isEmpty()) {
        model_chip_->hide();
        backend_chip_->hide();
        return;
    }
    const QString short_text = tr("model <b>%1</b>").arg(model_name_.toHtmlEscaped());
    const QString long_text = short_text + QStringLiteral(" · ") + model_shape_.toHtmlEscaped();
    const auto needed = [this](bool model, bool backend) {
        int width = 32 + brand_->sizeHint().width() + 20 +
                    place_->fontMetrics().horizontalAdvance(place_->text());
        for (const QPushButton* button : {theme_button_, open_, export_, keys_}) {
            width += button->sizeHint().width() + 10;
        }
        width += progress_shown_ ? progress_->sizeHint().width() + 10 : 0;
        width += model ? model_chip_->sizeHint().width() + 10 : 0;
        width += backend && !backend_chip_->text().isEmpty()
                     ? backend_chip_->sizeHint().width() + 10
                     : 0;
        return width + 24;
    };
    model_chip_->setText(long_text);
    bool model = true;
    bool backend = true;
    if (needed(true, true) > width()) {
        model_chip_->setText(short_text);
    }
    if (needed(model, backend) > width()) {
        backend = false;
    }
    if (needed(model, backend) > width()) {
        model = false;
    }
    model_chip_->setVisible(model);
    backend_chip_->setVisible(backend && !backend_chip_->text().isEmpty());
}

}  // namespace kvlab
