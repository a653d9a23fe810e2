// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>

namespace kvlab {

// Where times come from: the machine's clock, or a caller's for runs without a model, whose steps
// take the time that a cost model says.
class Clock {
  public:
    virtual ~Clock() = default;
    virtual double nowMs() const = 0;  // since some fixed moment, never backwards
};

class SteadyClock : public Clock {
  public:
    double nowMs() const override {
        using Duration = std::chrono::duration<double, std::milli>;
        return Duration(std::chrono::steady_clock::now().time_since_epoch()).count();
    }
};

class ManualClock : public Clock {
  public:
    double nowMs() const override { return now_ms_; }
    void advance(double ms) { now_ms_ += ms; }
    void set(double ms) { now_ms_ = ms; }

  private:
    double now_ms_ = 0;
};

}  // namespace kvlab
