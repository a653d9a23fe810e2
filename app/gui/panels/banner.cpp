// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/panels/banner.h"

#include <QAccessible>
#include <QHBoxLayout>
#include <QLabel>
#include <QPushButton>
#include <QStyle>

#include "app/gui/panels/widgets.h"

namespace kvlab {

Banner::Banner(QWidget* parent) : QFrame(parent) {
    setObjectName(QStringLiteral("banner"));
    auto* row = new QHBoxLayout(this);
    row->setContentsMargins(16, 6, 16, 6);
    row->setSpacing(10);
    sign_ = new QLabel(this);
    text_ = new QLabel(this);
    text_->setWordWrap(true);
    text_->setTextFormat(Qt::PlainText);
    text_->setTextInteractionFlags(Qt::TextSelectableByMouse);
    action_ = new QPushButton(this);
    action_->setProperty("role", "primary");
    action_->setFocusPolicy(Qt::TabFocus);
    connect(action_, &QPushButton::clicked, this, &Banner::actionRequested);
    close_ = new QPushButton(tr("Close"), this);
    close_->setFocusPolicy(Qt::TabFocus);
    connect(close_, &QPushButton::clicked, this, &QWidget::hide);
    row->addWidget(sign_);
    row->addWidget(text_, 1);
    row->addWidget(action_);
    row->addWidget(close_);
    hide();
}

void Banner::showMessage(const QString& message, bool alarm, const QString& action) {
    sign_->setText(alarm ? QStringLiteral("⬣") : QStringLiteral("ℹ"));
    sign_->setAccessibleName(alarm ? tr("Problem") : tr("Note"));
    const QString shown = shortened(message, 600);
    text_->setText(shown);
    setAccessibleName(shown);
    action_->setText(action);
    action_->setVisible(!action.isEmpty());
    setRole(sign_, alarm ? "alarm" : "quiet");
    setProperty("alarm", alarm);
    style()->unpolish(this);
    style()->polish(this);
    show();
    QAccessibleEvent event(this, QAccessible::Alert);
    QAccessible::updateAccessibility(&event);
}

QString Banner::message() const { return isHidden() ? QString() : text_->text(); }

}  // namespace kvlab
