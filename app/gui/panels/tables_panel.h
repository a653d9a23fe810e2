// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QTabWidget>

#include "app/gui/run/run_hub.h"

class QAbstractItemModel;
class QTableView;

namespace kvlab {

class BlockPoolModel;
class BlockTableModel;
class SequenceListModel;
class StepListModel;

// The pictures once more as tables: for screen readers, for searching, and for exact reading.
class TablesPanel : public QTabWidget {
    Q_OBJECT

  public:
    explicit TablesPanel(RunHub* hub, QWidget* parent = nullptr);
    void setScale(double scale);

  signals:
    void cursorRequested(kvlab::Cursor cursor);

  protected:
    void showEvent(QShowEvent* event) override;
    void hideEvent(QHideEvent* event) override;

  private:
    QTableView* addTable(QAbstractItemModel* model, const QString& name);
    void setActive(bool active);
    void followCursor();
    void nameTableTab();

    RunHub* hub_;
    SequenceListModel* sequences_;
    BlockTableModel* block_table_;
    BlockPoolModel* pool_;
    StepListModel* steps_;
    QTableView* steps_view_;
    QTableView* table_view_;
};

}  // namespace kvlab
