// SPDX-License-Identifier: MIT
#include "kernels/cpu/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvlab {

namespace {

// A decode step of a small model is over a hundred jobs of some microseconds, and waking a thread
// takes as long. So threads look for the next job for about 50 µs before they sleep.
constexpr int kSpins = 1000;

void pause() {
#if defined(__x86_64__)
    _mm_pause();
#endif
}

}  // namespace

// `gate` tells a job's state in one word: its number, whether threads may still enter it, and how
// many are inside. A thread that comes late finds the gate closed and needs no waiting for.
//
//   bits 63 … 17: number of the job      16: open      15 … 0: threads inside, without the caller
struct ThreadPool::Impl {
    static constexpr uint64_t kOpen = uint64_t{1} << 16;
    static constexpr uint64_t kInside = kOpen - 1;
    static constexpr int kNumberShift = 17;

    std::vector<std::thread> threads;
    int num_spins = 0;
    // Written while the gate is closed and nobody is inside.
    const std::function<void(int64_t, int64_t)>* work = nullptr;
    int64_t num_items = 0;
    int64_t chunk = 1;

    alignas(64) std::atomic<int64_t> next{0};
    alignas(64) std::atomic<uint64_t> gate{0};

    // For threads that have given up spinning. Who is about to sleep says so first and looks at the
    // gate again; who changes the gate looks for sleepers afterwards. Both in one total order.
    alignas(64) std::mutex mutex;
    std::condition_variable start;
    std::condition_variable done;
    std::atomic<int> num_sleeping{0};
    std::atomic<bool> caller_sleeps{false};
    std::atomic<bool> stopping{false};

    void drain() {
        for (;;) {
            const int64_t begin = next.fetch_add(chunk, std::memory_order_relaxed);
            if (begin >= num_items) return;
            (*work)(begin, std::min(begin + chunk, num_items));
        }
    }

    bool isNew(uint64_t state, uint64_t seen) const {
        return (state & kOpen) != 0 && state >> kNumberShift != seen;
    }

    void waitForJob(uint64_t seen) {
        for (int spin = 0; spin < num_spins; ++spin) {
            if (stopping.load(std::memory_order_relaxed) || isNew(gate.load(), seen)) return;
            pause();
        }
        std::unique_lock lock(mutex);
        ++num_sleeping;
        start.wait(lock, [&] { return stopping.load() || isNew(gate.load(), seen); });
        --num_sleeping;
    }

    void loop() {
        uint64_t seen = 0;
        for (;;) {
            waitForJob(seen);
            if (stopping.load()) return;
            uint64_t state = gate.load();
            if (!isNew(state, seen) || !gate.compare_exchange_strong(state, state + 1)) continue;
            seen = state >> kNumberShift;
            drain();
            if ((gate.fetch_sub(1) & kInside) == 1 && caller_sleeps.load()) {
                std::lock_guard lock(mutex);
                done.notify_one();
            }
        }
    }

    void stop() {
        {
            std::lock_guard lock(mutex);
            stopping = true;
        }
        start.notify_all();
        for (std::thread& thread : threads) thread.join();
    }

    void open() {
        const uint64_t number = (gate.load(std::memory_order_relaxed) >> kNumberShift) + 1;
        gate.store(number << kNumberShift | kOpen);
        if (num_sleeping.load() == 0) return;
        { std::lock_guard lock(mutex); }
        start.notify_all();
    }

    // Returns when nobody is inside.
    void close() {
        gate.fetch_and(~kOpen);
        for (int spin = 0; spin < num_spins; ++spin) {
            if ((gate.load() & kInside) == 0) return;
            pause();
        }
        std::unique_lock lock(mutex);
        caller_sleeps.store(true);
        done.wait(lock, [&] { return (gate.load() & kInside) == 0; });
        caller_sleeps.store(false);
    }
};

ThreadPool::ThreadPool(int num_threads) : impl_(std::make_unique<Impl>()) {
    const int num_cores = static_cast<int>(std::thread::hardware_concurrency());
    if (num_threads <= 0) num_threads = num_cores;
    num_threads = std::clamp(num_threads, 1, 256);
    // With more threads than cores, one that spins keeps one that works from running.
    impl_->num_spins = num_threads <= num_cores ? kSpins : 0;
    impl_->threads.reserve(static_cast<size_t>(num_threads - 1));
    try {
        for (int i = 1; i < num_threads; ++i) {
            impl_->threads.emplace_back([this] { impl_->loop(); });
        }
    } catch (...) {
        impl_->stop();  // those that were granted wait for work
        throw;
    }
}

ThreadPool::~ThreadPool() { impl_->stop(); }

int ThreadPool::numThreads() const { return static_cast<int>(impl_->threads.size()) + 1; }

void ThreadPool::parallelFor(int64_t num_items,
                             int64_t chunk,
                             const std::function<void(int64_t, int64_t)>& fn) {
    chunk = std::max<int64_t>(chunk, 1);
    if (impl_->threads.empty() || num_items <= chunk) {
        if (num_items > 0) fn(0, num_items);
        return;
    }
    impl_->work = &fn;
    impl_->num_items = num_items;
    impl_->chunk = chunk;
    impl_->next.store(0, std::memory_order_relaxed);
    impl_->open();
    impl_->drain();
    impl_->close();
}

}  // namespace kvlab
