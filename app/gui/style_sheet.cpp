// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/style_sheet.h"

#include <QHash>
#include <QRegularExpression>

namespace kvlab {

namespace {

// @name is a colour token, #n# a length in pixels and ~n~ a font size in points, both of which
// follow the scale. Fonts stand here and not in setFont(): a widget with a rule of its own would
// lose the second family.
const char* const kTemplate = R"(
QWidget { color: @ink; }
QLabel, QAbstractButton, QLineEdit, QAbstractItemView, QTabBar, QHeaderView, QMenu, QToolTip {
    font-family: "Inter", "DejaVu Sans"; font-size: ~10.5~pt;
}
QMainWindow, QWidget#page { background: @window; }
QToolTip { background: @panel; color: @ink; border: 1px solid @panel_border; padding: #4#px; }

QWidget#headerBar { background: @panel; border: 0; border-bottom: 1px solid @hairline; }
QWidget#sidePanel, QScrollArea#sidePanel, QScrollArea#sidePanel > QWidget > QWidget { background: @panel; }
QWidget#timelineBar { background: @panel; border: 0; border-top: 1px solid @hairline; }
QFrame[role="card"] { background: @panel; border: 1px solid @panel_border; border-radius: #10#px; }
QFrame[role="question"] { background: @panel; border: 1px solid @accent; border-radius: #8#px; }
QFrame[role="rule"] { background: @hairline; border: 0; max-height: 1px; min-height: 1px; }

QLabel { background: transparent; }
QLabel[role="brand"] { font-weight: 700; font-size: ~11.5~pt; }
QLabel[role="title"] { font-weight: 700; font-size: ~15~pt; }
QLabel[role="quiet"] { color: @quiet_ink; }
QLabel[role="small"] { color: @quiet_ink; font-size: ~9.5~pt; }
QLabel[role="section"] { color: @quiet_ink; font-weight: 600; font-size: ~9~pt; }
QLabel[role="place"] { font-family: "JetBrains Mono", "DejaVu Sans Mono"; font-size: ~11~pt; }
QLabel[role="key"] { font-family: "JetBrains Mono", "DejaVu Sans Mono"; font-size: ~9.5~pt; }
QLabel[role="formula"] {
    font-family: "JetBrains Mono", "DejaVu Sans Mono"; font-size: ~9~pt; color: @quiet_ink;
}
QLabel[role="chip"] { border: 1px solid @panel_border; border-radius: #11#px; padding: #3#px #10#px; font-size: ~9.5~pt; }
QLabel[role="alarm"] { color: @alarm; font-size: ~13~pt; }
QLabel[role="tag"] { background: @tag_fill; color: @tag_ink; border-radius: #4#px; padding: #2#px #6#px; font-size: ~9~pt; font-weight: 600; }

QPushButton, QToolButton {
    background: @panel; color: @ink; border: 1px solid @panel_border; border-radius: #6#px;
    padding: #4#px #11#px; min-height: #18#px;
}
QPushButton:hover, QToolButton:hover { background: @accent_tint; border-color: @accent; }
QPushButton:pressed, QToolButton:pressed { background: @panel_border; }
QPushButton:focus, QToolButton:focus { border: 2px solid @accent; padding: #3#px #10#px; }
QPushButton:disabled, QToolButton:disabled { color: @quiet_ink; border-color: @hairline; background: @panel; }
QPushButton[role="primary"] { background: @accent; color: @accent_ink; border-color: @accent; font-weight: 600; }
QPushButton[role="primary"]:hover { border-color: @ink; }
QPushButton[role="primary"]:focus { border: 2px solid @ink; }
QPushButton[role="primary"]:disabled { background: @accent_tint; color: @quiet_ink; border-color: @accent_tint; }
QPushButton[role="flat"] { border-color: transparent; color: @accent; }
QPushButton[role="flat"]:focus { border: 2px solid @accent; }
QToolButton[role="transport"] { padding: #3#px; min-width: #18#px; }
QToolButton[role="transport"]:focus { padding: #2#px; }
QToolButton[role="play"] { padding: #3#px; min-width: #18#px; background: @accent; border-color: @accent; }
QToolButton[role="play"]:hover { background: @accent; border-color: @ink; }
QToolButton[role="play"]:focus { padding: #2#px; border: 2px solid @ink; }

QLineEdit {
    background: @panel; color: @ink; border: 1px solid @quiet_line; border-radius: #6#px;
    padding: #4#px #8#px; min-height: #18#px; selection-background-color: @accent; selection-color: @accent_ink;
}
QLineEdit:focus { border: 2px solid @accent; padding: #3#px #7#px; }
QLineEdit:disabled { color: @quiet_ink; border-color: @hairline; }

QPushButton[role="choice"] { padding: #2#px #8#px; font-size: ~9.5~pt; }
QPushButton[role="choice"]:focus { padding: #1#px #7#px; }
QPushButton[role="chip"] { border-radius: #11#px; padding: #3#px #10#px; min-height: #14#px; font-size: ~9.5~pt; }
QPushButton[role="chip"]:focus { padding: #2#px #9#px; }
QPushButton::menu-indicator { image: none; width: 0; }

QProgressBar { background: @hairline; border: 0; border-radius: #3#px; max-height: #6#px; min-height: #6#px; }
QProgressBar::chunk { background: @accent; border-radius: #3#px; }

QFrame#banner { background: @accent_tint; border: 0; border-bottom: 1px solid @hairline; }
QFrame#banner[alarm="true"] { border-left: #6#px solid @alarm; }

QScrollArea { border: 0; background: transparent; }
QScrollBar:vertical { background: transparent; width: #10#px; margin: 0; }
QScrollBar:horizontal { background: transparent; height: #10#px; margin: 0; }
QScrollBar::handle { background: @panel_border; border-radius: #4#px; margin: 1px; }
QScrollBar::handle:vertical { min-height: #28#px; }
QScrollBar::handle:horizontal { min-width: #28#px; }
QScrollBar::handle:hover { background: @quiet_line; }
QScrollBar::add-line, QScrollBar::sub-line { width: 0; height: 0; }
QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }

QSplitter::handle { background: transparent; }
QMainWindow::separator { background: @hairline; width: 1px; height: 1px; }
QMainWindow::separator:hover { background: @accent; }
QDockWidget { color: @quiet_ink; }

QTabWidget::pane { border: 0; border-top: 1px solid @hairline; background: @panel; }
QTabWidget, QTabBar { background: @panel; }
QTabBar::tab {
    background: @panel; color: @quiet_ink; border: 0; border-bottom: 2px solid transparent;
    padding: #5#px #12#px;
}
QTabBar::tab:selected { color: @ink; border-bottom-color: @accent; font-weight: 600; }
QTabBar::tab:focus { color: @accent; }
QTableView {
    background: @panel; color: @ink; border: 0; gridline-color: @hairline;
    alternate-background-color: @window;
    selection-background-color: @accent; selection-color: @accent_ink; outline: 0;
}
QTableView::item { padding: 0 #6#px; border: 0; }
QTableView::item:selected { background: @accent; color: @accent_ink; }
QTableView::item:focus { background: @accent_tint; color: @ink; }
QTableView::item:selected:focus { background: @accent; color: @accent_ink; }
QHeaderView { background: @panel; border: 0; }
QHeaderView::section {
    background: @panel; color: @quiet_ink; border: 0; border-bottom: 1px solid @hairline;
    padding: #4#px #8#px; font-weight: 600;
}
QTableCornerButton::section { background: @panel; border: 0; }

QDialog { background: @panel; }
QMenu { background: @panel; color: @ink; border: 1px solid @panel_border; padding: #4#px; }
QMenu::item { padding: #4#px #18#px; }
QMenu::item:disabled { color: @quiet_ink; }
QMenu::item:selected { background: @accent; color: @accent_ink; }
QMenu::item:disabled:selected { background: @accent_tint; color: @ink; }
QMenu::separator { height: 1px; background: @hairline; margin: #4#px #8#px; }
)";

}  // namespace

QString styleSheetOf(const Theme& theme, double scale) {
    const QHash<QString, QColor> tokens{
        {"window", theme.window},
        {"panel", theme.panel},
        {"panel_border", theme.panel_border},
        {"ink", theme.ink},
        {"quiet_ink", theme.quiet_ink},
        {"quiet_line", theme.quiet_line},
        {"hairline", theme.hairline},
        {"accent", theme.accent},
        {"accent_ink", theme.accent_ink},
        {"accent_tint", theme.accent_tint},
        {"alarm", theme.alarm},
        {"tag_fill", theme.tag_fill},
        {"tag_ink", theme.tag_ink},
    };
    const QString source = QString::fromUtf8(kTemplate);
    static const QRegularExpression kPlaceholder(QStringLiteral("@([a-z_]+)|#(\\d+)#|~([0-9.]+)~"));
    QString sheet;
    qsizetype copied = 0;
    for (auto it = kPlaceholder.globalMatch(source); it.hasNext();) {
        const QRegularExpressionMatch match = it.next();
        sheet += source.mid(copied, match.capturedStart() - copied);
        copied = match.capturedEnd();
        if (match.hasCaptured(1)) {
            Q_ASSERT(tokens.contains(match.captured(1)));
            sheet += tokens.value(match.captured(1)).name();
        } else if (match.hasCaptured(2)) {
            sheet += QString::number(qRound(match.captured(2).toInt() * scale));
        } else {
            sheet += QString::number(match.captured(3).toDouble() * scale, 'f', 2);
        }
    }
    return sheet + source.mid(copied);
}

QPalette paletteOf(const Theme& theme) {
    QPalette palette;
    palette.setColor(QPalette::Window, theme.window);
    palette.setColor(QPalette::WindowText, theme.ink);
    palette.setColor(QPalette::Base, theme.panel);
    palette.setColor(QPalette::AlternateBase, theme.window);
    palette.setColor(QPalette::Text, theme.ink);
    palette.setColor(QPalette::PlaceholderText, theme.quiet_ink);
    palette.setColor(QPalette::Button, theme.panel);
    palette.setColor(QPalette::ButtonText, theme.ink);
    palette.setColor(QPalette::Highlight, theme.accent);
    palette.setColor(QPalette::HighlightedText, theme.accent_ink);
    palette.setColor(QPalette::Link, theme.accent);
    palette.setColor(QPalette::LinkVisited, theme.accent);
    palette.setColor(QPalette::ToolTipBase, theme.panel);
    palette.setColor(QPalette::ToolTipText, theme.ink);
    for (const auto role : {QPalette::WindowText, QPalette::Text, QPalette::ButtonText}) {
        palette.setColor(QPalette::Disabled, role, theme.quiet_ink);
    }
    return palette;
}

}  // namespace kvlab
