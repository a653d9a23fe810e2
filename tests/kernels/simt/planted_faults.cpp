// SPDX-License-Identifier: MIT
//
// Kernels with a fault each, and the proof that a run through simt reports it: by the scheduler in
// every build, by ThreadSanitizer or AddressSanitizer where they are built in.
//
//   planted_faults FAULT         runs that kernel; ends as the report makes it end
//   planted_faults check FAULT   runs itself so and reads the report: exit 0 if it names the fault
//                                and the place, 1 if not, 77 (skipped) without the sanitizer
//
// Links no Qt, which ThreadSanitizer does not understand.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>
#include <vector>

#include "kernels/simt/sanitizer.h"
#include "kernels/simt/simt.h"

#if defined(__SANITIZE_THREAD__)
#define KVLAB_HAS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KVLAB_HAS_TSAN 1
#endif
#endif
#if !defined(KVLAB_HAS_TSAN)
#define KVLAB_HAS_TSAN 0
#endif
#if defined(KVLAB_ASAN)
constexpr bool kHasAsan = true;
#else
constexpr bool kHasAsan = false;
#endif

namespace {

constexpr int kThreads = 64;
constexpr unsigned kBeside = 1;

// Each `k…Line` is the line that the report must name.

constexpr int kRaceLine = __LINE__ + 2;
__global__ void raceKernel(int* output) {
    output[0] = static_cast<int>(threadIdx.x);  // all threads, in no order
}

constexpr int kThreadBlockRaceLine = __LINE__ + 2;
__global__ void threadBlockRaceKernel(int* output) {
    if (threadIdx.x == 0) *output = *output + 1;  // should be atomicAdd
}

constexpr int kMissingBarrierLine = __LINE__ + 5;
__global__ void missingBarrierKernel(int* output) {
    KVLAB_SHARED(int, values, kThreads);
    values[threadIdx.x] = static_cast<int>(threadIdx.x);
    // __syncthreads() is missing
    output[threadIdx.x] = values[kThreads - 1 - static_cast<int>(threadIdx.x)];
}

// The second round's writes are not ordered after the first round's reads: a barrier that is there,
// but too few of them.
constexpr int kMissingSecondBarrierLine = __LINE__ + 4;
__global__ void missingSecondBarrierKernel(int* output) {
    KVLAB_SHARED(int, values, kThreads);
    for (int round = 0; round < 3; ++round) {
        values[threadIdx.x] = static_cast<int>(threadIdx.x) + round;
        __syncthreads();
        output[threadIdx.x] += values[kThreads - 1 - static_cast<int>(threadIdx.x)];
    }
}

// A shuffle brings lanes together and orders none of their memory.
constexpr int kMissingWarpBarrierLine = __LINE__ + 5;
__global__ void missingWarpBarrierKernel(int* output) {
    KVLAB_SHARED(int, values, kThreads);
    values[threadIdx.x] = static_cast<int>(threadIdx.x);
    const int other = __shfl_xor_sync(0xffffffffu, static_cast<int>(threadIdx.x), 1);
    output[threadIdx.x] = values[other];  // __syncwarp() is missing
}

constexpr int kDeadlockLine = __LINE__ + 2;
__global__ void deadlockKernel() {
    if (threadIdx.x < 40) __syncthreads();
}

// Through a pointer, so that UBSan, which knows the size of arrays, does not come first.
constexpr int kSharedOverrunLine = __LINE__ + 4;
__global__ void sharedOverrunKernel(int* output) {
    KVLAB_SHARED(int, values, kThreads);
    int* const beside = values + 1;
    beside[threadIdx.x] = static_cast<int>(threadIdx.x);  // the last one is too far
    __syncthreads();
    output[threadIdx.x] = values[threadIdx.x];
}

constexpr int kGlobalOverrunLine = __LINE__ + 3;
__global__ void globalOverrunKernel(int* output) {
    const unsigned beside = threadIdx.x + kBeside;
    output[beside] = 1;
}

// No fault: barriers, warp barriers, atomics, early ends, shared memory used again by the next
// thread block. A sanitizer that reports this one is wrong.
__global__ void rightKernel(int* output, int* sum) {
    KVLAB_SHARED(int, values, kThreads);
    KVLAB_DYNAMIC_SHARED(int, scratch);
    const int thread = static_cast<int>(threadIdx.x);
    int mine = thread;
    for (int round = 0; round < 5; ++round) {
        values[thread] = mine;
        __syncthreads();
        mine = values[(thread + 33) % kThreads];
        __syncthreads();
    }
    for (int round = 0; round < 100; ++round) {
        scratch[thread] = mine;
        __syncwarp();
        mine = scratch[thread ^ 1] + 1;
        __syncwarp();
    }
    if (thread % 3 == 0) atomicAdd(sum, 1);
    output[static_cast<int>(blockIdx.x) * kThreads + thread] = mine;
}

enum class Reporter { kScheduler, kThreadSanitizer, kAddressSanitizer, kNobody };

struct Fault {
    const char* name;
    Reporter reporter;
    const char* report;  // what it must say
    int line;            // of this file, that it must name; 0: none
};

const Fault kFaults[] = {
    {"none", Reporter::kNobody, "ended well", 0},
    {"race", Reporter::kThreadSanitizer, "ThreadSanitizer: data race", kRaceLine},
    {"thread_block_race", Reporter::kThreadSanitizer, "ThreadSanitizer: data race",
     kThreadBlockRaceLine},
    {"missing_barrier", Reporter::kThreadSanitizer, "ThreadSanitizer: data race",
     kMissingBarrierLine},
    {"missing_second_barrier", Reporter::kThreadSanitizer, "ThreadSanitizer: data race",
     kMissingSecondBarrierLine},
    {"missing_warp_barrier", Reporter::kThreadSanitizer, "ThreadSanitizer: data race",
     kMissingWarpBarrierLine},
    {"deadlock", Reporter::kScheduler,
     "kernel deadlockKernel, thread block (0, 0, 0): deadlock: of 64 threads 40 wait in "
     "__syncthreads",
     kDeadlockLine},
    {"shared_overrun", Reporter::kAddressSanitizer, "AddressSanitizer: use-after-poison",
     kSharedOverrunLine},
    {"global_overrun", Reporter::kAddressSanitizer, "AddressSanitizer: heap-buffer-overflow",
     kGlobalOverrunLine},
};

int run(const std::string& fault) {
    std::vector<int> output(fault == "none" ? 8 * kThreads : kThreads);
    int* const data = output.data();
    int sum = 0;
    kvlab::simt::Settings settings;
    // Two OS threads where thread blocks matter, so that they are ordered by nothing.
    if (fault == "none" || fault == "thread_block_race") settings.num_os_threads = 2;
    const kvlab::simt::ScopedSettings scoped(settings);
    try {
        if (fault == "none") {
            KVLAB_LAUNCH(rightKernel, 8, kThreads, kThreads * sizeof(int), nullptr, data, &sum);
            if (sum != 8 * 22) std::printf("the sum is %d\n", sum);
        } else if (fault == "race") {
            KVLAB_LAUNCH(raceKernel, 1, kThreads, 0, nullptr, data);
        } else if (fault == "thread_block_race") {
            KVLAB_LAUNCH(threadBlockRaceKernel, 2000, kThreads, 0, nullptr, data);
        } else if (fault == "missing_barrier") {
            KVLAB_LAUNCH(missingBarrierKernel, 1, kThreads, 0, nullptr, data);
        } else if (fault == "missing_second_barrier") {
            KVLAB_LAUNCH(missingSecondBarrierKernel, 1, kThreads, 0, nullptr, data);
        } else if (fault == "missing_warp_barrier") {
            KVLAB_LAUNCH(missingWarpBarrierKernel, 1, kThreads, 0, nullptr, data);
        } else if (fault == "deadlock") {
            KVLAB_LAUNCH(deadlockKernel, 1, kThreads, 0, nullptr);
        } else if (fault == "shared_overrun") {
            KVLAB_LAUNCH(sharedOverrunKernel, 1, kThreads, 0, nullptr, data);
        } else if (fault == "global_overrun") {
            KVLAB_LAUNCH(globalOverrunKernel, 1, kThreads, 0, nullptr, data);
        } else {
            std::fprintf(stderr, "planted_faults: there is no fault '%s'\n", fault.c_str());
            return 2;
        }
    } catch (const kvlab::simt::LaunchError& error) {
        std::printf("%s\n", error.what());
        return 1;
    }
    std::printf("ended well\n");
    return 0;
}

int check(const std::string& name) {
    for (const Fault& fault : kFaults) {
        if (name != fault.name) continue;
        const char* missing = nullptr;
        if (fault.reporter == Reporter::kThreadSanitizer && !KVLAB_HAS_TSAN) {
            missing = "ThreadSanitizer";
        } else if (fault.reporter == Reporter::kAddressSanitizer && !kHasAsan) {
            missing = "AddressSanitizer";
        }
        if (missing != nullptr) {
            std::printf("SKIPPED: %s: this build has no %s\n", fault.name, missing);
            return 77;
        }
        char self[4096];
        const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
        if (length <= 0) return 1;
        self[length] = '\0';
        std::fflush(stdout);
        FILE* const child = popen(("'" + std::string(self) + "' " + name + " 2>&1").c_str(), "r");
        if (child == nullptr) return 1;
        std::string output;
        char buffer[4096];
        for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, child)) > 0;) {
            output.append(buffer, n);
        }
        const int status = pclose(child);
        const std::string place = "planted_faults.cpp:" + std::to_string(fault.line);
        const bool is_fault = fault.reporter != Reporter::kNobody;
        const bool found = output.find(fault.report) != std::string::npos &&
                           (fault.line == 0 || output.find(place) != std::string::npos) &&
                           (status != 0) == is_fault &&
                           (is_fault || output.find("Sanitizer") == std::string::npos);
        std::printf("%s\n%s: %s\n", output.c_str(), fault.name,
                    found ? "reported as it should be" : "NOT reported as it should be");
        return found ? 0 : 1;
    }
    std::fprintf(stderr, "planted_faults: there is no fault '%s'\n", name.c_str());
    return 2;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 3 && std::strcmp(argv[1], "check") == 0) return check(argv[2]);
    if (argc == 2) return run(argv[1]);
    std::fprintf(stderr, "usage: planted_faults [check] FAULT\n");
    return 2;
}
