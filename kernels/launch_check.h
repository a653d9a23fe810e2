// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace kvlab {

// What a launcher demands of its parameters, on the host: require(condition, "what is wrong")
// throws std::invalid_argument, which names the operation.
class LaunchCheck {
  public:
    explicit constexpr LaunchCheck(const char* operation) : operation_(operation) {}
    void operator()(bool condition, const char* what) const {
        if (!condition) throw std::invalid_argument(std::string(operation_) + ": " + what);
    }

  private:
    const char* operation_;
};

inline bool isAligned(const void* address, uintptr_t bytes) {
    return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

}  // namespace kvlab
