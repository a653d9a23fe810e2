// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QFrame>

class QLabel;
class QPushButton;

namespace kvlab {

// One plain sentence under the header: what went wrong, where, what to do.
class Banner : public QFrame {
    Q_OBJECT

  public:
    explicit Banner(QWidget* parent = nullptr);
    // With an `action` the banner offers it as a button.
    void showMessage(const QString& message, bool alarm, const QString& action = {});
    QString message() const;

  signals:
    void actionRequested();

  private:
    QLabel* sign_;
    QLabel* text_;
    QPushButton* action_;
    QPushButton* close_;
};

}  // namespace kvlab
