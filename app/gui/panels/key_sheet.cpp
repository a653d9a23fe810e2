// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/panels/key_sheet.h"

#include <QGridLayout>
#include <QKeyEvent>
#include <QLabel>
#include <QPushButton>

namespace kvlab {

KeySheet::KeySheet(QWidget* parent) : QDialog(parent) {
    setWindowTitle(tr("Keys"));
    struct Line {
        QString keys, meaning;
    };
    const Line lines[] = {
        {tr("Space"), tr("play or pause")},
        {tr("← →"), tr("one event back or on")},
        {tr("Shift + ← →"), tr("previous or next event of the selected block or sequence")},
        {tr("Page Up, Page Down or Ctrl + ← →"), tr("one engine step back or on")},
        {tr("Home, End"), tr("start of the run, newest step")},
        {tr("+ −"), tr("faster, slower")},
        {tr("Alt + ← →"), tr("previous or next stop of the lesson")},
        {tr("1 … 9"), tr("that stop of the lesson")},
        {tr("Tab, Shift + Tab"), tr("next or previous control")},
        {tr("Esc"), tr("clear the selection, close the message")},
        {tr("Ctrl + T"), tr("light or dark")},
        {tr("Ctrl + +, Ctrl + −, Ctrl + 0"), tr("larger, smaller, normal size")},
        {tr("F11"), tr("full screen")},
        {tr("Ctrl + L"), tr("tables beside the pictures")},
        {tr("Ctrl + R"), tr("arrange the window as at first")},
        {tr("Ctrl + B"), tr("choose the backend: where the model runs")},
        {tr("Ctrl + K"), tr("the kernel walk of a simt run; there: arrows, comma, full stop")},
        {tr("Ctrl + O"), tr("open a recorded run")},
        {tr("Ctrl + E"), tr("export a figure of this moment")},
        {tr("?"), tr("this page")},
    };
    auto* grid = new QGridLayout(this);
    grid->setContentsMargins(28, 24, 28, 22);
    grid->setHorizontalSpacing(28);
    grid->setVerticalSpacing(7);
    auto* title = new QLabel(tr("Keys"), this);
    title->setProperty("role", "title");
    grid->addWidget(title, 0, 0, 1, 2);
    int row = 1;
    for (const Line& line : lines) {
        auto* keys = new QLabel(line.keys, this);
        keys->setProperty("role", "key");
        grid->addWidget(keys, row, 0);
        grid->addWidget(new QLabel(line.meaning, this), row, 1);
        ++row;
    }
    auto* close = new QPushButton(tr("Close"), this);
    close->setProperty("role", "primary");
    connect(close, &QPushButton::clicked, this, &QDialog::accept);
    grid->addWidget(close, row, 1, Qt::AlignRight);
}

void KeySheet::keyPressEvent(QKeyEvent* event) {
    if (event->text() == QLatin1String("?")) {
        accept();
        return;
    }
    QDialog::keyPressEvent(event);
}

}  // namespace kvlab
