// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QDialog>

namespace kvlab {

// All keys on one page. Closes on any of ?, Esc, Enter.
class KeySheet : public QDialog {
    Q_OBJECT

  public:
    explicit KeySheet(QWidget* parent = nullptr);

  protected:
    void keyPressEvent(QKeyEvent* event) override;
};

}  // namespace kvlab
