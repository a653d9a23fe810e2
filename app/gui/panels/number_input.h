// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <optional>

#include <QLocale>
#include <QString>

namespace kvlab {

// A number as a person writes it: "16,800", "16.800", "16 800", "2,5 GiB". The locale decides what
// a lone comma or point means; groups of three count as groups when the locale's own reading fails
// or the answer is a whole thing such as blocks, which nobody counts in thousandths. A unit behind
// the number is skipped. Empty: not a number.
std::optional<double> parseNumber(const QString& text,
                                  const QLocale& locale,
                                  bool whole_numbers = false);

}  // namespace kvlab
