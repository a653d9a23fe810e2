// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <QScrollArea>
#include <QTimer>

#include "app/gui/run/run_hub.h"
#include "app/gui/theme.h"

class QLabel;

namespace kvlab {

class AccountView;
class FactList;
class TokenChips;

// What is selected in numbers, the pool's account, and what the current step did.
class InspectorPanel : public QScrollArea {
    Q_OBJECT

  public:
    explicit InspectorPanel(RunHub* hub, QWidget* parent = nullptr);
    void setTheme(const Theme& theme, double scale);
    // Shows at once what the next turn of the event loop would.
    void settle();

  private:
    void refreshSoon();
    void refresh();
    void showBlock(BlockId id);
    void showSequence(SequenceId id);
    void showNothing();
    void showStep();

    RunHub* hub_;
    QTimer refresh_timer_;
    QLabel* selection_title_;
    QLabel* hint_;
    FactList* block_facts_;
    FactList* sequence_facts_;
    QLabel* tokens_title_;
    TokenChips* tokens_;
    AccountView* account_;
    QLabel* step_title_;
    FactList* step_facts_;
};

}  // namespace kvlab
