// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <vector>

#include <QString>
#include <QWidget>

#include "app/gui/theme.h"
#include "engine/backend/devices.h"

class QAction;
class QLabel;
class QMenu;
class QProgressBar;
class QPushButton;

namespace kvlab {

// Name of the room, what runs on what, and the few buttons; a run's progress appears in its middle,
// so that nothing below ever moves.
class HeaderBar : public QWidget {
    Q_OBJECT

  public:
    explicit HeaderBar(QWidget* parent = nullptr);

    void setTheme(const Theme& theme);
    void setPlace(const QString& place);  // "Lesson 6 · Best of 8"
    void setModel(const QString& name, const QString& shape);
    // What the run on show ran on; "" for all: none yet. `before`: what it ran on until that failed
    // and `backend` took over, "CUDA until step 3"; `device` is then that one's.
    void setBackend(const QString& backend, const QString& device, const QString& before = {});
    // What the backend menu offers beside "auto"; what cannot be used here is shown with its
    // reason. Empty: still looked for.
    void setDevices(const std::vector<DeviceInfo>& devices);
    // The one that runs are started with: auto, cpu, simt, cuda.
    void setChosenBackend(const QString& name);
    void setCpuFallback(bool agreed);
    void openBackendMenu();
    void setKernelWalkShown(bool shown);
    QMenu* backendMenu() { return backend_menu_; }
    void showProgress(const QString& text, double fraction);  // fraction < 0: unknown
    void hideProgress();

  signals:
    void themeToggled();
    void exportRequested();
    void openRequested();
    void keysRequested();
    void cancelRequested();
    void backendChosen(const QString& name);
    void cpuFallbackChosen(bool agreed);
    void kernelWalkRequested();  // to be shown, or hidden again

  protected:
    void resizeEvent(QResizeEvent* event) override;

  private:
    void fitChips();
    void fillBackendMenu();
    void nameBackends();

    QLabel* brand_;
    QLabel* place_;
    QLabel* model_chip_;
    QPushButton* backend_button_;
    QMenu* backend_menu_;
    QWidget* progress_;
    QLabel* progress_text_;
    QProgressBar* progress_bar_;
    QPushButton* cancel_;
    QPushButton* theme_button_;
    QPushButton* open_;
    QPushButton* export_;
    QPushButton* keys_;
    QString model_name_, model_shape_, backend_, device_, before_;
    QString chosen_backend_ = QStringLiteral("auto");
    std::vector<DeviceInfo> devices_;
    QAction* kernel_walk_ = nullptr;
    QAction* cpu_fallback_ = nullptr;
    bool kernel_walk_shown_ = false;
    bool cpu_fallback_agreed_ = false;
    bool progress_shown_ = false;
};

}  // namespace kvlab
