// SPDX-License-Identifier: MIT
#include "kernels/reference/dequantise_reference.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace kvlab {
namespace {

// A binary floating-point number of 16 bits by the definition of IEEE 754; bfloat16 differs only in
// where exponent and fraction meet.
double small(const uint8_t* bytes, int exponent_bits) {
    const int bits = bytes[0] + 256 * bytes[1];
    const int fraction_bits = 15 - exponent_bits;
    const int fraction = bits % (1 << fraction_bits);
    const int exponent = (bits >> fraction_bits) % (1 << exponent_bits);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const double sign = bits >= 0x8000 ? -1. : 1.;
    if (exponent == (1 << exponent_bits) - 1) {
        return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                             : sign * std::numeric_limits<double>::infinity();
    }
    const double significand = std::ldexp(fraction, -fraction_bits) + (exponent == 0 ? 0. : 1.);
    return sign * std::ldexp(significand, (exponent == 0 ? 1 : exponent) - bias);
}

double half(const uint8_t* bytes) { return small(bytes, 5); }

double signedByte(uint8_t byte) { return byte < 128 ? byte : byte - 256; }

int nibble(uint8_t byte, bool high) { return high ? byte / 16 : byte % 16; }

double q4K(const uint8_t* block, int at) {
    const uint8_t* packed = block + 4;
    const int group = at / 32;
    // Groups 0-3 keep six bits in one byte; of groups 4-7 the low four share a byte of their own
    // and the high two sit on top of groups 0-3.
    int scale = 0;
    int minimum = 0;
    if (group < 4) {
        scale = packed[group] % 64;
        minimum = packed[4 + group] % 64;
    } else {
        scale = nibble(packed[4 + group], false) + 16 * (packed[group - 4] / 64);
        minimum = nibble(packed[4 + group], true) + 16 * (packed[group] / 64);
    }
    const uint8_t* quanta = block + 16 + 32 * (at / 64);
    return half(block) * scale * nibble(quanta[at % 32], at % 64 >= 32) - half(block + 2) * minimum;
}

double q6K(const uint8_t* block, int at) {
    const int in_half = at % 128;
    const uint8_t low_bits = block[64 * (at / 128) + in_half % 64];
    const uint8_t high_bits = block[128 + 32 * (at / 128) + in_half % 32];
    const int quantum =
        nibble(low_bits, in_half >= 64) + 16 * ((high_bits >> (in_half / 32 * 2)) % 4);
    return half(block + 208) * signedByte(block[192 + at / 16]) * (quantum - 32);
}

}  // namespace

double dequantisedAt(TensorType type, const void* data, int64_t index) {
    const int block_values = tensorBlockValues(type);
    const uint8_t* block =
        static_cast<const uint8_t*>(data) + index / block_values * tensorBlockBytes(type);
    const int at = static_cast<int>(index % block_values);
    switch (type) {
        case TensorType::kF32: {
            float value;
            std::memcpy(&value, block, sizeof value);
            return value;
        }
        case TensorType::kF16:
            return half(block);
        case TensorType::kBF16:
            return small(block, 8);
        case TensorType::kQ8_0:
            return half(block) * signedByte(block[2 + at]);
        case TensorType::kQ4_0:
            return half(block) * (nibble(block[2 + at % 16], at >= 16) - 8);
        case TensorType::kQ4_K:
            return q4K(block, at);
        case TensorType::kQ6_K:
            return q6K(block, at);
    }
    return 0.;
}

std::vector<double> dequantiseReference(TensorType type, const void* data, int64_t num_values) {
    std::vector<double> values;
    values.reserve(static_cast<size_t>(num_values));
    for (int64_t i = 0; i < num_values; ++i) values.push_back(dequantisedAt(type, data, i));
    return values;
}

}  // namespace kvlab
