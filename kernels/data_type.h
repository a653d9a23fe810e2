// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#if defined(__CUDACC__)
#define KVLAB_HOST_DEVICE __host__ __device__
#else
#define KVLAB_HOST_DEVICE
#endif

namespace kvlab {

// Storage types of weights and of K/V; kInt8 of K/V only, with a scale per row (int8_row.h).
enum class DataType : uint8_t { kF32, kF16, kBF16, kInt8 };

constexpr std::array kKvDataTypes = {DataType::kF32, DataType::kF16, DataType::kBF16,
                                     DataType::kInt8};

// Bytes of one value.
constexpr int dataTypeBytes(DataType type) {
    return type == DataType::kF32 ? 4 : type == DataType::kInt8 ? 1 : 2;
}

// Bytes of one head's K, or V, of one token: int8 adds its f32 scale.
constexpr int64_t kvRowBytes(DataType type, int64_t head_dim) {
    return head_dim * dataTypeBytes(type) + (type == DataType::kInt8 ? 4 : 0);
}

constexpr const char* dataTypeName(DataType type) {
    switch (type) {
        case DataType::kF32:
            return "f32";
        case DataType::kF16:
            return "f16";
        case DataType::kBF16:
            return "bf16";
        case DataType::kInt8:
            return "int8";
    }
    return "?";
}

// The reverse; nothing for any other text.
constexpr std::optional<DataType> dataTypeFromName(std::string_view name) {
    for (const DataType type : kKvDataTypes) {
        if (name == dataTypeName(type)) return type;
    }
    return std::nullopt;
}

}  // namespace kvlab
