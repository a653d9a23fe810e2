// SPDX-License-Identifier: MIT
#pragma once

// AddressSanitizer's hooks for fibers and hand-made memory, empty in builds without it.
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
