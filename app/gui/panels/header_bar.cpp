// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/panels/header_bar.h"

#include <algorithm>

#include <QAction>
#include <QActionGroup>
#include <QHBoxLayout>
#include <QLabel>
#include <QMenu>
#include <QPainter>
#include <QProgressBar>
#include <QPushButton>
#include <QStyle>
#include <QVBoxLayout>

#include "app/gui/panels/widgets.h"
#include "app/gui/provenance.h"

namespace kvlab {

namespace {

constexpr int kChipChars = 60;
constexpr int kReasonChars = 110;

QString wordsOf(const DeviceInfo& device) {
    if (!device.available) {
        return HeaderBar::tr("not available: %1").arg(QString::fromStdString(device.reason));
    }
    if (device.backend == "simt") {
        return HeaderBar::tr("the CUDA kernels on the CPU, slowly: to check and to show them");
    }
    QString words = QString::fromStdString(device.name);
    if (device.backend == "cuda" && device.memory_bytes) {
        words += QStringLiteral(" · ") + formatBytes(*device.memory_bytes);
    }
    return words;
}

// Ends in "…" where its text has no room; the tool tip has it all.
class ElidedLabel : public QLabel {
  public:
    using QLabel::QLabel;

  protected:
    void paintEvent(QPaintEvent*) override {
        QPainter painter(this);
        const QRect inside = contentsRect();
        style()->drawItemText(
            &painter, inside, Qt::AlignLeft | Qt::AlignVCenter, palette(), isEnabled(),
            fontMetrics().elidedText(text(), Qt::ElideRight, inside.width()), foregroundRole());
    }
};

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
    place_ = new ElidedLabel(this);
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
    cancel_->setToolTip(tr("Stop the run; what it did so far stays on the timeline"));
    progress_row->addWidget(cancel_);
    row->addWidget(progress_);
    progress_->hide();

    model_chip_ = makeLabel({}, "chip", this);
    model_chip_->setTextFormat(Qt::RichText);
    row->addWidget(model_chip_);
    model_chip_->hide();
    backend_button_ = new QPushButton(this);
    backend_button_->setProperty("role", "chip");
    backend_menu_ = new QMenu(backend_button_);
    backend_menu_->setToolTipsVisible(true);
    backend_menu_->setAccessibleName(tr("Backend"));
    backend_button_->setMenu(backend_menu_);
    row->addWidget(backend_button_);

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
    for (QPushButton* button : {cancel_, backend_button_, theme_button_, open_, export_, keys_}) {
        button->setFocusPolicy(Qt::TabFocus);
    }
    connect(theme_button_, &QPushButton::clicked, this, &HeaderBar::themeToggled);
    connect(open_, &QPushButton::clicked, this, &HeaderBar::openRequested);
    connect(export_, &QPushButton::clicked, this, &HeaderBar::exportRequested);
    connect(keys_, &QPushButton::clicked, this, &HeaderBar::keysRequested);
    connect(cancel_, &QPushButton::clicked, this, &HeaderBar::cancelRequested);
    fillBackendMenu();
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

void HeaderBar::setBackend(const QString& backend, const QString& device, const QString& before) {
    backend_ = shortened(backend, kChipChars);
    device_ = device;
    before_ = before;
    nameBackends();
    fitChips();
}

void HeaderBar::setCpuFallback(bool agreed) {
    cpu_fallback_agreed_ = agreed;
    cpu_fallback_->setChecked(agreed);
}

void HeaderBar::setDevices(const std::vector<DeviceInfo>& devices) {
    devices_ = devices;
    fillBackendMenu();
}

void HeaderBar::setChosenBackend(const QString& name) {
    chosen_backend_ = name;
    // Not filled anew: this may be the answer to one of its own actions.
    for (QAction* action : backend_menu_->actions()) {
        if (action->isCheckable() && action->data().toString() == name && action->isEnabled()) {
            action->setChecked(true);
        }
    }
    fitChips();
}

void HeaderBar::openBackendMenu() { backend_button_->showMenu(); }

void HeaderBar::setKernelWalkShown(bool shown) {
    kernel_walk_shown_ = shown;
    kernel_walk_->setText(shown ? tr("Hide the kernel walk (Ctrl+K)")
                                : tr("Show the kernel walk (Ctrl+K)"));
}

void HeaderBar::fillBackendMenu() {
    backend_menu_->clear();
    delete backend_menu_->findChild<QActionGroup*>();
    auto* group = new QActionGroup(backend_menu_);
    const auto add = [&](const QString& name, const QString& words, bool available) {
        QAction* action = backend_menu_->addAction(QString());
        action->setData(name);
        action->setProperty("words", words);
        action->setCheckable(true);
        action->setEnabled(available);
        action->setChecked(available && name == chosen_backend_);
        group->addAction(action);
        connect(action, &QAction::triggered, this, [this, name] { emit backendChosen(name); });
    };
    add(QStringLiteral("auto"), tr("a GPU if there is one; else, or when it fails, the CPU"), true);
    for (const DeviceInfo& device : devices_) {
        add(QString::fromStdString(device.backend), wordsOf(device), device.available);
    }
    if (devices_.empty()) {
        add(QStringLiteral("cuda"), tr("looking for a GPU…"), false);
    }
    nameBackends();
    backend_menu_->addSeparator();
    cpu_fallback_ = backend_menu_->addAction(tr("When a GPU fails, go on on the CPU unasked"));
    cpu_fallback_->setData(QStringLiteral("cpu fallback"));
    cpu_fallback_->setToolTip(
        plainToolTip(tr("For runs with cuda. Without it the run ends there, and you are asked.")));
    cpu_fallback_->setCheckable(true);
    cpu_fallback_->setChecked(cpu_fallback_agreed_);
    connect(cpu_fallback_, &QAction::triggered, this, &HeaderBar::cpuFallbackChosen);
    kernel_walk_ = backend_menu_->addAction(QString(), this, &HeaderBar::kernelWalkRequested);
    kernel_walk_->setData(QStringLiteral("kernel walk"));
    setKernelWalkShown(kernel_walk_shown_);
}

// Each with what it is here, and with its part in the run on show.
void HeaderBar::nameBackends() {
    for (QAction* action : backend_menu_->actions()) {
        const QVariant words = action->property("words");
        if (!words.isValid()) {
            continue;
        }
        const QString name = action->data().toString();
        QString text = tr("%1 – %2").arg(name, words.toString());
        if (name == backend_.toLower()) {
            text += before_.isEmpty() ? tr(" · this run") : tr(" · this run, %1").arg(before_);
        } else if (before_.startsWith(name, Qt::CaseInsensitive)) {
            text += tr(" · failed in this run");
        }
        action->setText(shortened(text, kReasonChars));
        action->setToolTip(plainToolTip(text));
        action->setStatusTip(text);
    }
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

// What does not fit is left out whole, shape before name: a chip cut in half says nothing. The
// backend stays, because it is a control, but may lose its first word.
void HeaderBar::fitChips() {
    const QString backend = backend_.isEmpty() ? chosen_backend_ : backend_;
    QStringList told;
    if (!before_.isEmpty()) told << tr("%1, where it failed").arg(before_);
    if (!device_.isEmpty()) told << device_;
    if (backend.compare(QLatin1String("simt"), Qt::CaseInsensitive) == 0) {
        told << tr("the CUDA kernels on the CPU, slowly");
    }
    told << (told.isEmpty() ? tr("Where the model runs (Ctrl+B)")
                            : tr("where the model runs (Ctrl+B)"));
    backend_button_->setToolTip(plainToolTip(told.join(QStringLiteral(" · "))));
    backend_button_->setAccessibleName(
        before_.isEmpty()
            ? tr("Backend %1: choose where the model runs").arg(backend)
            : tr("Backend %1, %2: choose where the model runs").arg(backend, before_));
    const QString short_backend = tr("backend %1 ▾").arg(backend);
    const QString long_backend =
        before_.isEmpty() ? short_backend : tr("backend %1 · %2 ▾").arg(backend, before_);
    const QString short_text = tr("model <b>%1</b>").arg(model_name_.toHtmlEscaped());
    const QString long_text = short_text + QStringLiteral(" · ") + model_shape_.toHtmlEscaped();
    const auto fits = [this](bool with_model) {
        int needed = 32 + brand_->sizeHint().width() + 20 +
                     place_->fontMetrics().horizontalAdvance(place_->text());
        for (const QPushButton* button : {backend_button_, theme_button_, open_, export_, keys_}) {
            needed += button->sizeHint().width() + 10;
        }
        needed += progress_shown_ ? progress_->sizeHint().width() + 10 : 0;
        needed += with_model ? model_chip_->sizeHint().width() + 10 : 0;
        return needed + 24 <= width();
    };
    backend_button_->setText(long_backend);
    bool model = !model_name_.isEmpty();
    if (model) {
        model_chip_->setText(long_text);
        if (!fits(true)) model_chip_->setText(short_text);
        model = fits(true);
    }
    for (const QString& shorter : {short_backend, tr("%1 ▾").arg(shortened(backend, 12))}) {
        if (!fits(model)) {
            backend_button_->setText(shorter);
        }
    }
    model_chip_->setVisible(model);
}

}  // namespace kvlab
