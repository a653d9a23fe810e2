// SPDX-License-Identifier: MIT
#include "kernels/simt/fiber.h"

#include <cstdint>
#include <cstdlib>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/simt/sanitizer.h"

namespace kvlab::simt {
namespace {

size_t guardBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

// The two ends of the switch in progress: the one that arrives is not the one that called.
constinit thread_local Fiber* fiber_left = nullptr;
constinit thread_local Fiber* fiber_entered = nullptr;

}  // namespace

FiberStack::FiberStack() {
    const size_t guard = guardBytes();
    void* memory = mmap(nullptr, guard + kBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory, guard, PROT_NONE);
    bottom_ = static_cast<std::byte*>(memory) + guard;
    tsan_fiber_ = KVLAB_TSAN_CREATE();
}

FiberStack::~FiberStack() {
    if (bottom_ == nullptr) return;
    KVLAB_TSAN_DESTROY(tsan_fiber_);
    KVLAB_ASAN_UNPOISON(bottom_, kBytes);
    munmap(bottom_ - guardBytes(), guardBytes() + kBytes);
}

#if !KVLAB_FIBER_UCONTEXT

// kvlabFiberSwitch(save, load): keeps the registers that a call preserves (System V ABI, x86-64) on
// the old stack, its stack pointer in *save, and takes up what lies on the stack `load`. It ends in
// `ret` and not in a jump: a jump would unbalance the processor's return predictor and cost half
// the speed.
extern "C" void kvlabFiberSwitch(void** save, void* load);
asm(R"(
    .text
    .balign 16
    .hidden kvlabFiberSwitch
    .globl kvlabFiberSwitch
    .type kvlabFiberSwitch, @function
kvlabFiberSwitch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size kvlabFiberSwitch, . - kvlabFiberSwitch
)");

#endif

void Fiber::prepare(const FiberStack& stack, Entry entry, void* argument) {
    KVLAB_ASAN_UNPOISON(stack.bottom(), FiberStack::kBytes);  // what an earlier fiber left
    entry_ = entry;
    argument_ = argument;
    stack_bottom_ = stack.bottom();
    stack_bytes_ = FiberStack::kBytes;
    fake_stack_ = nullptr;
    tsan_fiber_ = stack.tsanFiber();
#if KVLAB_FIBER_UCONTEXT
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack.bottom();
    context_.uc_stack.ss_size = FiberStack::kBytes;
    context_.uc_link = nullptr;
    makecontext(&context_, &Fiber::begin, 0);
#else
    // From the top: a null return address for begin() (which ends every stack walk and leaves the
    // stack aligned as after a call), begin() itself for `ret`, six registers.
    auto* top = reinterpret_cast<uintptr_t*>(stack.bottom() + FiberStack::kBytes);
    *--top = 0;
    *--top = reinterpret_cast<uintptr_t>(&Fiber::begin);
    for (int i = 0; i < 6; ++i) *--top = 0;
    stack_pointer_ = top;
#endif
}

void Fiber::begin() {
    Fiber& self = *fiber_entered;
    self.arrived();
    self.entry_(self.argument_);
    std::abort();
}

void Fiber::leave(Fiber& next, [[maybe_unused]] bool is_last) {
    fiber_left = this;
    fiber_entered = &next;
    if (tsan_fiber_ == nullptr) tsan_fiber_ = KVLAB_TSAN_CURRENT();
    KVLAB_ASAN_START_SWITCH(is_last ? nullptr : &fake_stack_, next.stack_bottom_,
                            next.stack_bytes_);
    KVLAB_TSAN_SWITCH(next.tsan_fiber_);
#if KVLAB_FIBER_UCONTEXT
    swapcontext(&context_, &next.context_);
#else
    kvlabFiberSwitch(&stack_pointer_, next.stack_pointer_);
#endif
    arrived();
}

void Fiber::finishTo(Fiber& next) {
    leave(next, true);
    std::abort();
}

void Fiber::arrived() {
    // The bounds learnt are those of the stack just left: so the first flow of all learns its own.
    KVLAB_ASAN_FINISH_SWITCH(fake_stack_, &fiber_left->stack_bottom_, &fiber_left->stack_bytes_);
}

}  // namespace kvlab::simt
