// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/tensor_type.h"

namespace kvlab {

// `values` [num_values] stored as `type`: what tests and generated models are written with. Plain
// types round to nearest even. Q8_0 and Q4_0 take the scale from the value of largest magnitude;
// Q4_K and Q6_K fit each group to its range and round the group scales to their 6 or 8 bits, with
// no search for a better fit: valid, and near the best, but not what a careful quantiser ships.
//
// num_values must be a multiple of tensorBlockValues(type), the values finite and below the range
// of f16 times the largest quantum; nothing is checked.
std::vector<std::byte> quantise(TensorType type, const float* values, int64_t num_values);

}  // namespace kvlab
