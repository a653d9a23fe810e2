// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace kvlab {

// Storage types of weights and of K/V.
enum class DataType : uint8_t { kF32, kF16, kBF16 };

constexpr int dataTypeBytes(DataType type) { return type == DataType::kF32 ? 4 : 2; }

constexpr const char* dataTypeName(DataType type) {
    switch (type) {
        case DataType::kF32:
            return "f32";
        case DataType::kF16:
            return "f16";
        case DataType::kBF16:
            return "bf16";
    }
    return "?";
}

}  // namespace kvlab
