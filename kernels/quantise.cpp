// SPDX-License-Identifier: MIT
#include "kernels/quantise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/half.h"

namespace kvlab {
namespace {

// Nearest whole number in [low, high]; 0 for a scale of 0.
int nearest(float value, float scale, int low, int high) {
    if (scale == 0.f) return std::clamp(0, low, high);
    return static_cast<int>(std::clamp(std::nearbyint(value / scale), static_cast<float>(low),
                                       static_cast<float>(high)));
}

// Stores `value` as f16 and returns what a reader will see.
float putHalf(uint8_t* target, float value) {
    const uint16_t half = floatToHalf(value);
    std::memcpy(target, &half, sizeof half);
    return halfToFloat(half);
}

float extremeOf(const float* values, int count) {
    float extreme = 0.f;
    for (int i = 0; i < count; ++i) {
        if (std::abs(values[i]) > std::abs(extreme)) extreme = values[i];
    }
    return extreme;
}

void quantiseQ8_0(const float* values, uint8_t* block) {
    const float d = putHalf(block, std::abs(extremeOf(values, 32)) / 127.f);
    for (int i = 0; i < 32; ++i) {
        block[2 + i] = static_cast<uint8_t>(nearest(values[i], d, -128, 127));
    }
}

// The value of largest magnitude takes -8, the one quantum without a mirror image.
void quantiseQ4_0(const float* values, uint8_t* block) {
    const float d = putHalf(block, extremeOf(values, 32) / -8.f);
    for (int i = 0; i < 16; ++i) {
        const int low = nearest(values[i], d, -8, 7) + 8;
        const int high = nearest(values[i + 16], d, -8, 7) + 8;
        block[2 + i] = static_cast<uint8_t>(low | high << 4);
    }
}

void quantiseQ4_K(const float* values, uint8_t* block) {
    float step[8];
    float minimum[8];  // subtracted, so at least 0
    for (int group = 0; group < 8; ++group) {
        const auto [low, high] =
            std::minmax_element(values + 32 * group, values + 32 * (group + 1));
        minimum[group] = std::max(0.f, -*low);
        step[group] = std::max(0.f, *high + minimum[group]) / 15.f;
    }
    const float d = putHalf(block, *std::max_element(step, step + 8) / 63.f);
    const float dmin = putHalf(block + 2, *std::max_element(minimum, minimum + 8) / 63.f);
    uint8_t* packed =
        block + 4;  // 0-3: scales 0-3, 4-7: minima 0-3, both with 2 bits of 4-7 on top
    uint8_t* quanta = block + 16;
    for (int group = 0; group < 8; ++group) {
        const int scale = nearest(step[group], d, 0, 63);
        const int offset = nearest(minimum[group], dmin, 0, 63);
        if (group < 4) {
            packed[group] |= static_cast<uint8_t>(scale);
            packed[group + 4] |= static_cast<uint8_t>(offset);
        } else {
            packed[group + 4] |= static_cast<uint8_t>((scale & 15) | (offset & 15) << 4);
            packed[group - 4] |= static_cast<uint8_t>(scale >> 4 << 6);
            packed[group] |= static_cast<uint8_t>(offset >> 4 << 6);
        }
        const float width = d * static_cast<float>(scale);
        const float base = dmin * static_cast<float>(offset);
        for (int i = 0; i < 32; ++i) {
            const int quantum = nearest(values[32 * group + i] + base, width, 0, 15);
            quanta[32 * (group / 2) + i] |= static_cast<uint8_t>(quantum << 4 * (group % 2));
        }
    }
}

void quantiseQ6_K(const float* values, uint8_t* block) {
    float step[16];
    for (int group = 0; group < 16; ++group) {
        step[group] = extremeOf(values + 16 * group, 16) / -32.f;
    }
    const float d = putHalf(block + 208, extremeOf(step, 16) / -128.f);
    for (int group = 0; group < 16; ++group) {
        const int scale = nearest(step[group], d, -128, 127);
        block[192 + group] = static_cast<uint8_t>(scale);
        const float width = d * static_cast<float>(scale);
        for (int i = 0; i < 16; ++i) {
            const int index = 16 * group + i;
            const int quantum = nearest(values[index], width, -32, 31) + 32;
            const int half = index / 128;          // of the block
            const int quarter = index % 128 / 32;  // of the half
            const int lane = index % 32;
            block[64 * half + 32 * (quarter % 2) + lane] |=
                static_cast<uint8_t>((quantum & 15) << 4 * (quarter / 2));
            block[128 + 32 * half + lane] |= static_cast<uint8_t>(quantum >> 4 << 2 * quarter);
        }
    }
}

}  // namespace

std::vector<std::byte> quantise(TensorType type, const float* values, int64_t num_values) {
    std::vector<std::byte> stored(static_cast<size_t>(tensorBytes(type, num_values)));
    const int block_values = tensorBlockValues(type);
    for (int64_t i = 0; i < num_values; i += block_values) {
        auto* block = reinterpret_cast<uint8_t*>(stored.data() + tensorBytes(type, i));
        switch (type) {
            case TensorType::kF32:
                std::memcpy(block, values + i, sizeof(float));
                break;
            case TensorType::kF16:
                putHalf(block, values[i]);
                break;
            case TensorType::kBF16: {
                const uint16_t bits = floatToBfloat16(values[i]);
                std::memcpy(block, &bits, sizeof bits);
                break;
            }
            case TensorType::kQ8_0:
                quantiseQ8_0(values + i, block);
                break;
            case TensorType::kQ4_0:
                quantiseQ4_0(values + i, block);
                break;
            case TensorType::kQ4_K:
                quantiseQ4_K(values + i, block);
                break;
            case TensorType::kQ6_K:
                quantiseQ6_K(values + i, block);
                break;
        }
    }
    return stored;
}

}  // namespace kvlab
