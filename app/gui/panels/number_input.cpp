// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/panels/number_input.h"

#include <QRegularExpression>

namespace kvlab {

std::optional<double> parseNumber(const QString& text, const QLocale& locale, bool whole_numbers) {
    QString number = text.trimmed();
    number.replace(QChar(0x2212), QLatin1Char('-'));  // typographic minus
    static const QRegularExpression kLeadingNumber(
        QStringLiteral("^([+-]?[0-9][0-9.,'\u2019\\s\u00a0\u202f]*)([^0-9]*)$"));
    const QRegularExpressionMatch match = kLeadingNumber.match(number);
    if (!match.hasMatch()) {
        return std::nullopt;
    }
    number = match.captured(1);
    static const QRegularExpression kSpaces(QStringLiteral("['\u2019\\s\u00a0\u202f]"));
    number.remove(kSpaces);
    while (number.endsWith(QLatin1Char('.')) || number.endsWith(QLatin1Char(','))) {
        number.chop(1);  // end of a sentence
    }

    static const QRegularExpression kGroups(
        QStringLiteral("^[+-]?[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?:\\.[0-9]{3})+)$"));
    const bool looks_grouped = kGroups.match(number).hasMatch();
    bool ok = false;
    if (looks_grouped && whole_numbers) {
        const double value =
            QString(number).remove(QLatin1Char(',')).remove(QLatin1Char('.')).toDouble(&ok);
        return ok ? std::optional<double>(value) : std::nullopt;
    }
    double value = locale.toDouble(number, &ok);
    if (ok) {
        return value;
    }
    if (looks_grouped) {
        value = QString(number).remove(QLatin1Char(',')).remove(QLatin1Char('.')).toDouble(&ok);
    } else if (number.count(QLatin1Char(',')) + number.count(QLatin1Char('.')) <= 1) {
        // One mark that the locale does not take there can only part the fraction.
        value = QString(number).replace(QLatin1Char(','), QLatin1Char('.')).toDouble(&ok);
    }
    return ok ? std::optional<double>(value) : std::nullopt;
}

}  // namespace kvlab
