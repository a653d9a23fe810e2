// SPDX-License-Identifier: MIT
#pragma once

// The dialect in which kernels (*_kernel.cuh) are written. nvcc compiles them for the GPU; g++ and
// clang compile the same text for the CPU, where launch() below runs it thread block by thread
// block, every thread a fiber. For checking and for showing, not for speed. README.md in this
// folder has the idea and the limits.
//
// A kernel is plain CUDA but for these, which the host compiler would not read:
//   KVLAB_SHARED(float, tile, 128);        __shared__ float tile[128];
//   KVLAB_DYNAMIC_SHARED(float, scratch);  extern __shared__ float scratch[];
//   KVLAB_LAUNCH((kernel<64>), grid, thread_block, shared_bytes, stream, argument);
//                          kernel<64><<<grid, thread_block, shared_bytes, stream>>>(argument);
//   KVLAB_UNROLL                           #pragma unroll
//   KVLAB_NOTE_IF(condition, kind, …)      nothing; here a note for whoever records the launch
//   KVLAB_LAUNCH_EARLY(…)  as KVLAB_LAUNCH, for a kernel all of whose threads, before they return,
//                          call waitForPredecessors(): on Hopper and later it may start while its
//                          predecessors on the stream still run (programmatic dependent launch,
//                          CUDA C++ Programming Guide). Until that call a kernel reads only what no
//                          kernel on the stream writes, weights, and writes nothing. All threads
//                          of a thread block call it at one place.
// It may use threadIdx, blockIdx, blockDim, gridDim, __syncthreads, __syncwarp, __shfl_sync,
// __shfl_up_sync, __shfl_down_sync, __shfl_xor_sync, __ballot_sync, __any_sync, __all_sync,
// atomicAdd, __ldg, __byte_perm, __uint_as_float, rsqrtf, sincospif and the functions of <cmath>.

#include <cmath>
#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#define KVLAB_UNROLL _Pragma("unroll")
#define KVLAB_SHARED(type, name, count) __shared__ type name[count]
#define KVLAB_DYNAMIC_SHARED(type, name)                                   \
    extern __shared__ __align__(16) unsigned char kvlab_dynamic_shared_[]; \
    type* const name = reinterpret_cast<type*>(kvlab_dynamic_shared_)
#define KVLAB_LAUNCH(kernel, grid, thread_block, shared_bytes, stream, ...)                \
    kernel<<<(grid), (thread_block), (shared_bytes), static_cast<cudaStream_t>(stream)>>>( \
        __VA_ARGS__)
#define KVLAB_NOTE_IF(condition, ...) static_cast<void>(0)
#define KVLAB_LAUNCH_EARLY(kernel, grid, thread_block, shared_bytes, stream, ...) \
    ::kvlab::launchEarly(kernel, (grid), (thread_block), (shared_bytes),          \
                         static_cast<cudaStream_t>(stream) __VA_OPT__(, ) __VA_ARGS__)

namespace kvlab {

// Lets the successor start where it finds room, which it does once all thread blocks have come
// here or ended; then waits until all predecessors have ended and what they wrote is visible.
__device__ __forceinline__ void waitForPredecessors() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Code of an older architecture, PTX for it on a new GPU too, does not wait and so must not start
// early. All kernels of the plugin are built for the same architectures. What fails is left for
// cudaGetLastError, as by <<<>>>.
template <typename... Parameters, typename... Arguments>
void launchEarly(void (*kernel)(Parameters...),
                 dim3 grid,
                 dim3 thread_block,
                 size_t shared_bytes,
                 cudaStream_t stream,
                 Arguments&&... arguments) {
    static const bool waits = [kernel] {
        cudaFuncAttributes attributes;
        return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess &&
               attributes.ptxVersion >= 90;
    }();
    cudaLaunchAttribute early{};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = thread_block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = waits ? 1 : 0;
    static_cast<void>(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...));
}

}  // namespace kvlab

#else

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <vector>

#include "kernels/simt/kernel_use.h"

struct uint3 {
    unsigned x = 0;
    unsigned y = 0;
    unsigned z = 0;
};

struct dim3 {
    unsigned x = 1;
    unsigned y = 1;
    unsigned z = 1;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

// Set at every switch from thread to thread. Variables and not macros, so that a member of that
// name elsewhere stays one.
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;

namespace kvlab::simt {

constexpr int kWarpSize = 32;
constexpr size_t kMaxThreads = 1024;           // of a thread block
constexpr size_t kMaxSharedBytes = 48 * 1024;  // of a thread block, what CUDA grants unasked

// In which order the runnable threads of a thread block get the processor. A kernel without races
// gives the same result in each.
enum class LaneOrder { kForward, kReverse, kRandom };

struct Settings {
    LaneOrder lane_order = LaneOrder::kForward;
    uint64_t seed = 0;       // of kRandom; a failure repeats with the same seed
    int num_os_threads = 1;  // among which the thread blocks of a launch are spread
};

// Of this OS thread's launches.
Settings currentSettings();

// Holds for the launches of this OS thread during the object's life.
class ScopedSettings {
  public:
    explicit ScopedSettings(const Settings& settings);
    ~ScopedSettings();
    ScopedSettings(const ScopedSettings&) = delete;
    ScopedSettings& operator=(const ScopedSettings&) = delete;

  private:
    Settings previous_;
};

// What a thread of a recorded launch told of itself by KVLAB_NOTE_IF; the kernel's header says what
// its kinds and values mean.
struct LaunchNote {
    static constexpr int kMaxValues = 9;
    int32_t kind = 0;
    int32_t thread = 0;  // threadIdx.x
    int32_t value[kMaxValues] = {};
};

struct LaunchRecord {
    std::string kernel;  // as the launch wrote it
    dim3 grid;
    dim3 thread_block;
    size_t shared_bytes = 0;  // of the first thread block, static and dynamic
    // By thread block (x first, then y, then z); within one in the order in which its threads ran.
    std::vector<std::vector<LaunchNote>> notes;
};

// The launches of this OS thread are added to `launches` during the object's life. Without one a
// note costs a look at a variable.
class ScopedRecorder {
  public:
    explicit ScopedRecorder(std::vector<LaunchRecord>* launches);
    ~ScopedRecorder();
    ScopedRecorder(const ScopedRecorder&) = delete;
    ScopedRecorder& operator=(const ScopedRecorder&) = delete;

  private:
    std::vector<LaunchRecord>* previous_;
};

// What stands for the predecessors of an early launch: `hide` is called before each thread block
// begins and takes away what they write, `show` when all its threads wait, and brings it.
struct Predecessor {
    std::function<void()> hide;
    std::function<void()> show;
};

// For the early launches of this OS thread during the object's life, which then run their thread
// blocks one after the other.
class ScopedPredecessor {
  public:
    explicit ScopedPredecessor(const Predecessor* predecessor);
    ~ScopedPredecessor();
    ScopedPredecessor(const ScopedPredecessor&) = delete;
    ScopedPredecessor& operator=(const ScopedPredecessor&) = delete;

  private:
    const Predecessor* previous_;
};

// A launch that cannot be, or threads that cannot meet. The message names kernel, thread block,
// counts.
class LaunchError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// Runs `thread` for every thread of every thread block and returns when all have ended. Throws
// LaunchError, or what a thread threw; the remaining threads are then unwound and the launch is
// over. With several OS threads the first thread block (x, then y, then z) that failed is reported;
// later ones may have run. is_early: a thread that ends without waitForPredecessors() is a failure.
void launch(const char* kernel_name,
            dim3 grid,
            dim3 thread_block,
            size_t shared_bytes,
            const std::function<void()>& thread,
            bool is_early = false);

// One for each kernel that a launch names, from the start of the program on; kernelUses() in
// kernel_use.h lists them.
class KernelCounter {
  public:
    explicit KernelCounter(const std::type_info& tag);
    void count() { num_launches_.fetch_add(1, std::memory_order_relaxed); }
    KernelUse use() const;

  private:
    const std::type_info& tag_;  // a type that the kernel is an argument of
    std::atomic<int64_t> num_launches_ = 0;
};
template <auto kKernel>
struct KernelTag {};
template <auto kKernel>
inline KernelCounter kernel_counter{typeid(KernelTag<kKernel>)};

// By value and evaluated once, as CUDA passes them.
template <auto kKernel, typename... Parameters, typename... Arguments>
void launchKernel(bool is_early,
                  const char* kernel_name,
                  void (*kernel)(Parameters...),
                  dim3 grid,
                  dim3 thread_block,
                  size_t shared_bytes,
                  Arguments&&... arguments) {
    const std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
    kernel_counter<kKernel>.count();
    launch(
        kernel_name, grid, thread_block, shared_bytes, [&] { std::apply(kernel, values); },
        is_early);
}

// --- what the dialect below is made of
// ------------------------------------------------------------

enum class WarpOperation : uint8_t {
    kSync,
    kShfl,
    kShflUp,
    kShflDown,
    kShflXor,
    kBallot,
    kAny,
    kAll
};

struct CallSite {
    const char* file;
    int line;
};

// Of the running thread block; null: nobody records.
extern constinit thread_local std::vector<LaunchNote>* current_notes;

template <typename... Values>
void addNote(int kind, Values... values) {
    static_assert(sizeof...(values) <= LaunchNote::kMaxValues);
    current_notes->push_back(
        {kind, static_cast<int32_t>(threadIdx.x), {static_cast<int32_t>(values)...}});
}

void syncThreadBlock(CallSite site);
void waitForPredecessors(CallSite site);
// Meets the other lanes of `mask` and returns this lane's result.
uint64_t meetWarp(
    WarpOperation operation, uint32_t mask, uint64_t value, int argument, int width, CallSite site);
// The thread block's variable with this key, poisoned with 0xff when the thread block began.
void* sharedVariable(const void* key, size_t bytes, size_t alignment);
void* dynamicSharedMemory();

template <typename Tag>
inline char shared_key = 0;

// `Tag` is the type of a lambda at the place of the declaration: another one for each declaration
// and each instantiation of the kernel around it.
template <typename T, size_t kCount, typename Tag>
T (&sharedArray(Tag))
[kCount] {
    return *static_cast<T(*)[kCount]>(
        sharedVariable(&shared_key<Tag>, sizeof(T[kCount]), alignof(T) < 16 ? 16 : alignof(T)));
}

template <typename T>
T shuffle(WarpOperation operation, uint32_t mask, T value, int argument, int width, CallSite site) {
    static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                  "CUDA shuffles 32- and 64-bit numbers");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = meetWarp(operation, mask, bits, argument, width, site);
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

template <typename T>
T addAtomically(T* address, T value) {
    return std::atomic_ref<T>(*address).fetch_add(value, std::memory_order_relaxed);
}

}  // namespace kvlab::simt

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

#define KVLAB_UNROLL
#define KVLAB_SHARED(type, name, count) \
    type(&name)[count] = ::kvlab::simt::sharedArray<type, (count)>([] {})
#define KVLAB_DYNAMIC_SHARED(type, name) \
    type* const name = static_cast<type*>(::kvlab::simt::dynamicSharedMemory())
#define KVLAB_LAUNCH(kernel, grid, thread_block, shared_bytes, stream, ...) \
    KVLAB_SIMT_LAUNCH(false, kernel, grid, thread_block, shared_bytes, stream, __VA_ARGS__)
#define KVLAB_LAUNCH_EARLY(kernel, grid, thread_block, shared_bytes, stream, ...) \
    KVLAB_SIMT_LAUNCH(true, kernel, grid, thread_block, shared_bytes, stream, __VA_ARGS__)
#define KVLAB_SIMT_LAUNCH(is_early, kernel, grid, thread_block, shared_bytes, stream, ...)  \
    (static_cast<void>(stream),                                                             \
     ::kvlab::simt::launchKernel<kernel>(is_early, #kernel, kernel, (grid), (thread_block), \
                                         (shared_bytes)__VA_OPT__(, ) __VA_ARGS__))

#define KVLAB_NOTE_IF(condition, ...)                         \
    ((::kvlab::simt::current_notes != nullptr && (condition)) \
         ? ::kvlab::simt::addNote(__VA_ARGS__)                \
         : static_cast<void>(0))

// The last two parameters note the place of the call, for messages.
#define KVLAB_SIMT_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(KVLAB_SIMT_SITE) { kvlab::simt::syncThreadBlock({file, line}); }

namespace kvlab {
inline void waitForPredecessors(KVLAB_SIMT_SITE) { simt::waitForPredecessors({file, line}); }
}  // namespace kvlab

inline void __syncwarp(uint32_t mask = 0xffffffffu, KVLAB_SIMT_SITE) {
    kvlab::simt::meetWarp(kvlab::simt::WarpOperation::kSync, mask, 0, 0, 32, {file, line});
}

template <typename T>
T __shfl_sync(uint32_t mask, T value, int source_lane, int width = 32, KVLAB_SIMT_SITE) {
    return kvlab::simt::shuffle(kvlab::simt::WarpOperation::kShfl, mask, value, source_lane, width,
                                {file, line});
}

template <typename T>
T __shfl_up_sync(uint32_t mask, T value, unsigned delta, int width = 32, KVLAB_SIMT_SITE) {
    return kvlab::simt::shuffle(kvlab::simt::WarpOperation::kShflUp, mask, value,
                                static_cast<int>(delta < 32 ? delta : 32), width, {file, line});
}

template <typename T>
T __shfl_down_sync(uint32_t mask, T value, unsigned delta, int width = 32, KVLAB_SIMT_SITE) {
    return kvlab::simt::shuffle(kvlab::simt::WarpOperation::kShflDown, mask, value,
                                static_cast<int>(delta < 32 ? delta : 32), width, {file, line});
}

template <typename T>
T __shfl_xor_sync(uint32_t mask, T value, int lane_mask, int width = 32, KVLAB_SIMT_SITE) {
    return kvlab::simt::shuffle(kvlab::simt::WarpOperation::kShflXor, mask, value, lane_mask, width,
                                {file, line});
}

inline uint32_t __ballot_sync(uint32_t mask, int predicate, KVLAB_SIMT_SITE) {
    return static_cast<uint32_t>(kvlab::simt::meetWarp(kvlab::simt::WarpOperation::kBallot, mask,
                                                       predicate != 0, 0, 32, {file, line}));
}

inline int __any_sync(uint32_t mask, int predicate, KVLAB_SIMT_SITE) {
    return static_cast<int>(kvlab::simt::meetWarp(kvlab::simt::WarpOperation::kAny, mask,
                                                  predicate != 0, 0, 32, {file, line}));
}

inline int __all_sync(uint32_t mask, int predicate, KVLAB_SIMT_SITE) {
    return static_cast<int>(kvlab::simt::meetWarp(kvlab::simt::WarpOperation::kAll, mask,
                                                  predicate != 0, 0, 32, {file, line}));
}

inline int atomicAdd(int* address, int value) { return kvlab::simt::addAtomically(address, value); }
inline unsigned atomicAdd(unsigned* address, unsigned value) {
    return kvlab::simt::addAtomically(address, value);
}
inline float atomicAdd(float* address, float value) {
    return kvlab::simt::addAtomically(address, value);
}

template <typename T>
T __ldg(const T* address) {
    return *address;
}

// Byte i of the result is the byte of (y, x) that hexadecimal digit i of the selector names.
inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
    const uint64_t bytes = uint64_t{y} << 32 | x;
    uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
        result |= static_cast<uint32_t>(bytes >> (8 * (selector >> (4 * i) & 7)) & 0xff) << (8 * i);
    }
    return result;
}

inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }

inline float rsqrtf(float value) { return 1.f / std::sqrt(value); }

// Sine and cosine of pi * value.
inline void sincospif(float value, float* sine, float* cosine) {
    const double angle = 3.14159265358979323846 * static_cast<double>(value);
    *sine = static_cast<float>(std::sin(angle));
    *cosine = static_cast<float>(std::cos(angle));
}

#endif
