// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/tensor_type.h"

namespace kvlab {

// Value `index` of a stored tensor in double precision. Written from the description of each block
// format in tensor_type.h, one value at a time and with its own reading of f16: no code in common
// with the paths it checks.
double dequantisedAt(TensorType type, const void* data, int64_t index);

// The first `num_values` of them.
std::vector<double> dequantiseReference(TensorType type, const void* data, int64_t num_values);

}  // namespace kvlab
