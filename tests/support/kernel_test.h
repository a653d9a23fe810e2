// SPDX-License-Identifier: MIT
#pragma once

// What the tests of single operations share: memory with a poisoned fence around it, and the ways
// to run an operation.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include <QtTest>

#include "kernels/cpu/thread_pool.h"
#include "kernels/execution_context.h"
#include "kernels/simt/simt.h"
#include "tests/support/numbers.h"

namespace kvlab {

// Memory for `count` values between two strips of 0xff bytes: NaN as f32, f16 and bf16, -1 as an
// integer. A kernel that reads beside its input cannot get a right result, and one that writes
// beside its output is found by fenceIsWhole(). Begins 16-byte aligned plus `offset_bytes`.
template <typename T>
class Fenced {
  public:
    explicit Fenced(size_t count, size_t offset_bytes = 0)
        : count_(count),
          offset_(kStrip + offset_bytes),
          memory_((offset_ + count * sizeof(T) + kStrip + 15) / 16) {
        std::memset(memory_.data(), 0xff, memory_.size() * 16);
    }
    explicit Fenced(const std::vector<T>& values, size_t offset_bytes = 0)
        : Fenced(values.size(), offset_bytes) {
        if (count_ > 0) std::memcpy(data(), values.data(), count_ * sizeof(T));
    }

    T* data() { return reinterpret_cast<T*>(bytes() + offset_); }
    size_t size() const { return count_; }
    T& operator[](size_t i) { return data()[i]; }
    void fill(T value) { std::fill_n(data(), count_, value); }
    std::vector<T> values() { return std::vector<T>(data(), data() + count_); }

    bool fenceIsWhole() {
        const auto is_poison = [](std::byte byte) { return byte == std::byte{0xff}; };
        return std::all_of(bytes(), bytes() + offset_, is_poison) &&
               std::all_of(bytes() + offset_ + count_ * sizeof(T), bytes() + memory_.size() * 16,
                           is_poison);
    }

  private:
    struct alignas(16) Sixteen {
        std::byte bytes[16];
    };
    static constexpr size_t kStrip = 256;

    std::byte* bytes() { return reinterpret_cast<std::byte*>(memory_.data()); }

    size_t count_;
    size_t offset_;
    std::vector<Sixteen> memory_;
};

// Runs `operation(context)` on the CPU threads, or through simt in the lane order.
enum class Way { kCpu, kForward, kReverse, kRandom };

constexpr Way kAllWays[] = {Way::kCpu, Way::kForward, Way::kReverse, Way::kRandom};

constexpr const char* wayName(Way way) {
    switch (way) {
        case Way::kCpu:
            return "cpu";
        case Way::kForward:
            return "simt forward";
        case Way::kReverse:
            return "simt reverse";
        case Way::kRandom:
            return "simt random";
    }
    return "?";
}

template <typename Params>
void runOperation(Way way,
                  const Params& params,
                  void (*cpu)(const Params&, ExecutionContext&),
                  void (*simt)(const Params&, ExecutionContext&)) {
    ThreadPool threads(2);
    ExecutionContext context;
    context.threads = &threads;
    if (way == Way::kCpu) return cpu(params, context);
    const simt::ScopedSettings settings({way == Way::kForward   ? simt::LaneOrder::kForward
                                         : way == Way::kReverse ? simt::LaneOrder::kReverse
                                                                : simt::LaneOrder::kRandom,
                                         7});
    simt(params, context);
}

}  // namespace kvlab
