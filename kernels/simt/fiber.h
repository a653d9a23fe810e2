// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

#if !defined(__x86_64__) || defined(KVLAB_SIMT_UCONTEXT)
#define KVLAB_FIBER_UCONTEXT 1
#include <ucontext.h>
#else
#define KVLAB_FIBER_UCONTEXT 0
#endif

namespace kvlab::simt {

// Memory for a fiber to run on, with a page below it that may not be touched: running over the end
// is a crash at the place and not a silently broken neighbour.
class FiberStack {
  public:
    static constexpr size_t kBytes = 256 * 1024;  // address space; pages come when first touched

    FiberStack();
    ~FiberStack();
    FiberStack(FiberStack&& other) noexcept
        : bottom_(other.bottom_), tsan_fiber_(other.tsan_fiber_) {
        other.bottom_ = nullptr;
    }
    FiberStack(const FiberStack&) = delete;
    FiberStack& operator=(const FiberStack&) = delete;

    std::byte* bottom() const { return bottom_; }
    void* tsanFiber() const { return tsan_fiber_; }

  private:
    std::byte* bottom_ = nullptr;
    // What runs on this stack is one thread to ThreadSanitizer, whose threads are costly to make.
    void* tsan_fiber_ = nullptr;
};

// A flow of control that gives the processor away only where it says so. On x86-64 a switch is a
// dozen instructions of our own; elsewhere ucontext does it, about ten times slower.
//
// A default-constructed Fiber stands for the flow that is running already: switch away from it
// first.
class Fiber {
  public:
    using Entry = void (*)(void* argument);

    // Makes the next switch to this fiber call entry(argument) on `stack`. `entry` must end in
    // finishTo() and not return.
    void prepare(const FiberStack& stack, Entry entry, void* argument);

    void switchTo(Fiber& next) { leave(next, false); }
    // The last switch of a fiber; its stack may be reused afterwards.
    [[noreturn]] void finishTo(Fiber& next);

  private:
    static void begin();
    void leave(Fiber& next, bool is_last);
    void arrived();

#if KVLAB_FIBER_UCONTEXT
    ucontext_t context_;
#else
    void* stack_pointer_ = nullptr;
#endif
    Entry entry_ = nullptr;
    void* argument_ = nullptr;
    // For AddressSanitizer, which must know on which stack the program is.
    const void* stack_bottom_ = nullptr;
    size_t stack_bytes_ = 0;
    void* fake_stack_ = nullptr;
    void* tsan_fiber_ = nullptr;
};

}  // namespace kvlab::simt
