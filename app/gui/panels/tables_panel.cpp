// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/panels/tables_panel.h"

#include <QHeaderView>
#include <QTabBar>
#include <QTableView>

#include "app/gui/models/block_pool_model.h"
#include "app/gui/models/block_table_model.h"
#include "app/gui/models/kernel_walk_model.h"
#include "app/gui/models/sequence_list_model.h"
#include "app/gui/models/step_list_model.h"
#include "app/gui/theme.h"

namespace kvlab {

TablesPanel::TablesPanel(RunHub* hub, QWidget* parent) : QTabWidget(parent), hub_(hub) {
    setAccessibleName(tr("Tables"));
    setDocumentMode(true);
    tabBar()->setDrawBase(false);
    sequences_ = new SequenceListModel(hub, this);
    block_table_ = new BlockTableModel(hub, this);
    pool_ = new BlockPoolModel(hub, this);
    steps_ = new StepListModel(hub, this);

    QTableView* sequences_view = addTable(sequences_, tr("Sequences"));
    // Few rows, so their widths are known at once and do not jump while stepping.
    sequences_view->horizontalHeader()->setSectionResizeMode(QHeaderView::ResizeToContents);
    sequences_view->horizontalHeader()->setStretchLastSection(false);
    table_view_ = addTable(block_table_, tr("Block table"));
    QTableView* pool_view = addTable(pool_, tr("Pool"));
    steps_view_ = addTable(steps_, tr("Events"));
    walk_ = new KernelWalkModel(hub, this);
    walk_view_ = addTable(walk_, tr("Kernel walk"));

    connect(sequences_view, &QTableView::clicked, this, [this](const QModelIndex& index) {
        const SequenceId sequence = sequences_->sequenceAt(index.row());
        if (!sequence.valid()) return;  // a request has nothing in the pictures yet
        Selection selection;
        selection.sequence = sequence;
        hub_->lock(selection);
    });
    connect(table_view_, &QTableView::clicked, this, [this](const QModelIndex& index) {
        Selection selection;
        selection.sequence = block_table_->sequence();
        selection.block = block_table_->blockAt(index.row());
        hub_->lock(selection);
    });
    connect(pool_view, &QTableView::clicked, this, [this](const QModelIndex& index) {
        Selection selection;
        selection.block = BlockId(index.row());
        hub_->lock(selection);
    });
    connect(walk_view_, &QTableView::clicked, this,
            [this](const QModelIndex& index) { hub_->lock(walk_->selectionAt(index.row())); });
    // Enter does what a click does.
    for (QTableView* view : {sequences_view, table_view_, pool_view, steps_view_, walk_view_}) {
        connect(view, &QTableView::activated, view, &QTableView::clicked);
    }
    connect(steps_view_, &QTableView::clicked, this, [this](const QModelIndex& index) {
        emit cursorRequested(hub_->log().nextEntry(steps_->cursorOf(index.row())));
    });
    connect(block_table_, &BlockTableModel::sequenceChanged, this, &TablesPanel::nameTableTab);
    connect(hub_, &RunHub::cursorMoved, this, &TablesPanel::followCursor);
    connect(this, &QTabWidget::currentChanged, this, &TablesPanel::followCursor);
    connect(hub_, &RunHub::walksChanged, this, &TablesPanel::showWalkTab);
    connect(hub_, &RunHub::logReset, this, &TablesPanel::showWalkTab);
    nameTableTab();
    showWalkTab();
    setActive(false);
}

QTableView* TablesPanel::addTable(QAbstractItemModel* model, const QString& name) {
    auto* view = new QTableView(this);
    view->setModel(model);
    view->setAccessibleName(name);
    view->setSelectionBehavior(QAbstractItemView::SelectRows);
    view->setSelectionMode(QAbstractItemView::SingleSelection);
    view->setEditTriggers(QAbstractItemView::NoEditTriggers);
    view->setAlternatingRowColors(true);
    view->setShowGrid(false);
    view->setWordWrap(false);
    view->setTabKeyNavigation(false);
    view->verticalHeader()->hide();
    view->horizontalHeader()->setStretchLastSection(true);
    view->horizontalHeader()->setHighlightSections(false);
    view->horizontalHeader()->setDefaultSectionSize(130);
    addTab(view, name);
    return view;
}

void TablesPanel::setScale(double scale) {
    for (QTableView* view : findChildren<QTableView*>()) {
        view->verticalHeader()->setDefaultSectionSize(qRound(26 * scale));
        view->horizontalHeader()->setDefaultSectionSize(qRound(124 * scale));
    }
}

void TablesPanel::showEvent(QShowEvent* event) {
    QTabWidget::showEvent(event);
    setActive(true);
    followCursor();
}

void TablesPanel::hideEvent(QHideEvent* event) {
    QTabWidget::hideEvent(event);
    setActive(false);
}

void TablesPanel::setActive(bool active) {
    sequences_->setActive(active);
    block_table_->setActive(active);
    pool_->setActive(active);
    walk_->setActive(active);
}

void TablesPanel::setWalkLayer(int layer) { walk_->setLayer(layer); }

// Only a run on simt has one.
void TablesPanel::showWalkTab() {
    const bool simt = hub_->hasLog() && hub_->log().info().backend == "simt";
    setTabVisible(indexOf(walk_view_),
                  hub_->walks() != nullptr && (simt || !hub_->walks()->empty()));
}

void TablesPanel::followCursor() {
    if (isVisible() && currentWidget() == steps_view_) {
        const int row = steps_->currentRow();
        if (row >= 0 && row < steps_->rowCount()) {
            steps_view_->selectRow(row);
        } else {
            steps_view_->clearSelection();
        }
    }
}

void TablesPanel::nameTableTab() {
    setTabText(
        indexOf(table_view_),
        tr("Block table of %1").arg(QString::fromStdString(ownerLetter(block_table_->sequence()))));
}

}  // namespace kvlab
