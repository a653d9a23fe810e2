// SPDX-License-Identifier: MIT
#pragma once

#include "engine/sizing/kv_size.h"

namespace kvlab {

// One line: name, value, formula, formula with numbers.
void printQuantity(const char* name, const Quantity& quantity);

}  // namespace kvlab
