// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QFrame>
#include <QTimer>

#include "app/gui/run/run_hub.h"
#include "app/gui/theme.h"

class QLabel;
class QPushButton;
class QScrollArea;
class QSlider;
class QStackedLayout;
class QToolButton;

namespace kvlab {

class KernelWalkView;

// The kernel walk with its controls; or, for a run of another backend, the sentence that says how
// to get it.
class KernelWalkPanel : public QFrame {
    Q_OBJECT

  public:
    static constexpr int kPlayMs = 450, kSliderWidth = 150;  // ms; px

    explicit KernelWalkPanel(RunHub* hub, QWidget* parent = nullptr);
    void setTheme(const Theme& theme, double scale);
    KernelWalkView& view() { return *view_; }
    bool isPlaying() const { return timer_.isActive(); }

  signals:
    void simtRequested();

  protected:
    void hideEvent(QHideEvent* event) override;
    void resizeEvent(QResizeEvent* event) override;

  private:
    void refresh();
    void fitHead();
    void togglePlaying();
    void fillLayers();

    RunHub* hub_;
    QScrollArea* scroll_;
    KernelWalkView* view_;
    QLabel* subtitle_;
    QWidget* controls_;
    QPushButton* layer_;
    QToolButton* back_;
    QToolButton* play_;
    QToolButton* forward_;
    QSlider* slider_;
    QLabel* place_;
    QWidget* missing_;
    QLabel* missing_text_;
    QPushButton* run_with_simt_;
    QStackedLayout* pages_;
    QTimer timer_;
    Theme theme_;
    double scale_ = 1;
};

}  // namespace kvlab
