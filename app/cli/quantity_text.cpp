// SPDX-License-Identifier: MIT
#include "app/cli/quantity_text.h"

#include <cstdio>

#include "engine/text_format.h"

namespace kvlab {

void printQuantity(const char* name, const Quantity& quantity) {
    const std::string shown = quantity.unit == "B"
                                  ? formatBytes(quantity.value)
                                  : formatCount(quantity.value) + " " + quantity.unit;
    std::printf("%-20s %-18s %s, with numbers %s\n", name, shown.c_str(), quantity.formula.c_str(),
                quantity.substituted.c_str());
}

}  // namespace kvlab
