// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QString>
#include <QWidget>

#include "app/gui/theme.h"

class QLabel;
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
    void setBackend(const QString& backend, const QString& device);
    void showProgress(const QString& text, double fraction);  // fraction < 0: unknown
    void hideProgress();

  signals:
    void themeToggled();
    void exportRequested();
    void openRequested();
    void keysRequested();
    void cancelRequested();

  protected:
    void resizeEvent(QResizeEvent* event) override;

  private:
    void fitChips();

    QLabel* brand_;
    QLabel* place_;
    QLabel* model_chip_;
    QLabel* backend_chip_;
    QWidget* progress_;
    QLabel* progress_text_;
    QProgressBar* progress_bar_;
    QPushButton* cancel_;
    QPushButton* theme_button_;
    QPushButton* open_;
    QPushButton* export_;
    QPushButton* keys_;
    QString model_name_, model_shape_;
    bool progress_shown_ = false;
};

}  // namespace kvlab
