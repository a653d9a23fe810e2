// SPDX-License-Identifier: MIT
#pragma once

// The sanitizers' hooks for fibers and hand-made memory, empty in builds without them.
//
// AddressSanitizer must know on which stack the program is and which memory it may touch.
#if defined(__SANITIZE_ADDRESS__)
#define KVLAB_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KVLAB_ASAN 1
#endif
#endif

#if defined(KVLAB_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define KVLAB_ASAN_POISON(begin, bytes) __asan_poison_memory_region((begin), (bytes))
#define KVLAB_ASAN_UNPOISON(begin, bytes) __asan_unpoison_memory_region((begin), (bytes))
#define KVLAB_ASAN_START_SWITCH(save, bottom, bytes) \
    __sanitizer_start_switch_fiber((save), (bottom), (bytes))
#define KVLAB_ASAN_FINISH_SWITCH(save, bottom, bytes) \
    __sanitizer_finish_switch_fiber((save), (bottom), (bytes))
#else
#define KVLAB_ASAN_POISON(begin, bytes) static_cast<void>(0)
#define KVLAB_ASAN_UNPOISON(begin, bytes) static_cast<void>(0)
#define KVLAB_ASAN_START_SWITCH(save, bottom, bytes) static_cast<void>(0)
#define KVLAB_ASAN_FINISH_SWITCH(save, bottom, bytes) static_cast<void>(0)
#endif

// ThreadSanitizer takes each fiber for a thread. Two of them are ordered by what the kernel says
// (KVLAB_TSAN_RELEASE before, KVLAB_TSAN_ACQUIRE after, the same address) and never by who happened
// to run first. It must not see the scheduler itself, which every fiber runs unordered: those two
// sources are built without -fsanitize=thread and with KVLAB_SIMT_TSAN instead.
#if defined(KVLAB_SIMT_TSAN)
#include <sanitizer/tsan_interface.h>
#define KVLAB_TSAN_CURRENT() __tsan_get_current_fiber()
#define KVLAB_TSAN_CREATE() __tsan_create_fiber(0)
#define KVLAB_TSAN_DESTROY(fiber) __tsan_destroy_fiber(fiber)
#define KVLAB_TSAN_SWITCH(fiber) __tsan_switch_to_fiber((fiber), __tsan_switch_to_fiber_no_sync)
#define KVLAB_TSAN_RELEASE(address) __tsan_release(address)
#define KVLAB_TSAN_ACQUIRE(address) __tsan_acquire(address)
#else
#define KVLAB_TSAN_CURRENT() nullptr
#define KVLAB_TSAN_CREATE() nullptr
#define KVLAB_TSAN_DESTROY(fiber) static_cast<void>(fiber)
#define KVLAB_TSAN_SWITCH(fiber) static_cast<void>(fiber)
#define KVLAB_TSAN_RELEASE(address) static_cast<void>(address)
#define KVLAB_TSAN_ACQUIRE(address) static_cast<void>(address)
#endif
