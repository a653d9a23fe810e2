// SPDX-License-Identifier: MIT
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/paged_kv_view.h"

namespace kvlab {

// A row of values (one head's K or V of one token) as int8 with one f32 scale:
//
//   scale = max |x| / 127      q = x / scale, to the nearest whole number, ties to even
//   read back: q * scale, off by at most scale / 2 (and, at FLT_MAX itself, perhaps infinite)
//
// Each operation is one correctly rounded f32 operation, so every machine stores the same bits.
// A row of zeros has scale 0. So has one whose largest magnitude is below 127 * FLT_MIN (1.5e-36):
// its scale would be subnormal, too coarse to divide by, so it reads back as zeros.
// A row with a NaN or an infinity has scale NaN and reads back as NaN in every value: a broken
// value must not turn into a plausible one.

// Largest magnitude so far, NaN once a value was NaN; begin with 0.
KVLAB_HOST_DEVICE inline float int8Largest(float so_far, float value) {
    const float magnitude = fabsf(value);
    return magnitude > so_far || magnitude != magnitude ? magnitude : so_far;
}

KVLAB_HOST_DEVICE inline float int8Scale(float largest) {
    if (!(largest <= FLT_MAX)) return NAN;
    return largest < 127.f * FLT_MIN ? 0.f : largest / 127.f;
}

KVLAB_HOST_DEVICE inline int8_t toInt8(float value, float scale) {
    if (!(scale > 0.f)) return 0;
    return static_cast<int8_t>(rintf(value / scale));  // |value / scale| < 127.5
}

// Writes `num_values` values and returns their scale.
inline float storeInt8Row(const float* row, int num_values, int8_t* values) {
    float largest = 0.f;
    for (int d = 0; d < num_values; ++d) largest = int8Largest(largest, row[d]);
    const float scale = int8Scale(largest);
    for (int d = 0; d < num_values; ++d) values[d] = toInt8(row[d], scale);
    return scale;
}

}  // namespace kvlab
