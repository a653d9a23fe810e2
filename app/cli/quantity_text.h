// SPDX-License-Identifier: MIT
#pragma once

#include "engine/sizing/kv_size.h"

namespace kvlab {

// One line: name, value, formula, formula with numbers.
void printQuantity(const char* name, const Quantity& quantity);

// What fits, a line for each number.
void printCapacity(const Capacity& capacity);
// That layers with windows of different sizes are each counted with blocks of their own, and how
// many sequences of `seq_len` tokens fit in this engine, whose blocks serve all layers.
void printMixedWindows(const Capacity& capacity, int64_t seq_len, int64_t block_size);

}  // namespace kvlab
