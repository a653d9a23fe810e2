// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QTabWidget>

#include "app/gui/run/run_hub.h"

class QAbstractItemModel;
class QTableView;

namespace kvlab {

class BlockPoolModel;
class BlockTableModel;
class KernelWalkModel;
class SequenceListModel;
class StepListModel;

// The pictures once more as tables: for screen readers, for searching, and for exact reading.
class TablesPanel : public QTabWidget {
    Q_OBJECT

  public:
    explicit TablesPanel(RunHub* hub, QWidget* parent = nullptr);
    void setScale(double scale);
    void setWalkLayer(int layer);  // of the kernel walk's table

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
    void showWalkTab();

    RunHub* hub_;
    SequenceListModel* sequences_;
    BlockTableModel* block_table_;
    BlockPoolModel* pool_;
    StepListModel* steps_;
    KernelWalkModel* walk_;
    QTableView* walk_view_;
    QTableView* steps_view_;
    QTableView* table_view_;
};

}  // namespace kvlab
