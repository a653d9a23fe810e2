// SPDX-License-Identifier: MIT
#include "kernels/cpu/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace kvlab {

struct ThreadPool::Impl {
    std::vector<std::thread> threads;
    std::mutex mutex;
    std::condition_variable start;
    std::condition_variable done;
    const std::function<void(int64_t, int64_t)>* work = nullptr;
    int64_t num_items = 0;
    int64_t chunk = 1;
    std::atomic<int64_t> next{0};
    uint64_t generation = 0;
    int num_busy = 0;
    bool stopping = false;

    void drain() {
        for (;;) {
            const int64_t begin = next.fetch_add(chunk, std::memory_order_relaxed);
            if (begin >= num_items) return;
            (*work)(begin, std::min(begin + chunk, num_items));
        }
    }

    void loop() {
        uint64_t seen = 0;
        std::unique_lock lock(mutex);
        for (;;) {
            start.wait(lock, [&] { return stopping || generation != seen; });
            if (stopping) return;
            seen = generation;
            lock.unlock();
            drain();
            lock.lock();
            if (--num_busy == 0) done.notify_one();
        }
    }
};

ThreadPool::ThreadPool(int num_threads) : impl_(std::make_unique<Impl>()) {
    if (num_threads <= 0) num_threads = static_cast<int>(std::thread::hardware_concurrency());
    num_threads = std::clamp(num_threads, 1, 256);
    impl_->threads.reserve(static_cast<size_t>(num_threads - 1));
    for (int i = 1; i < num_threads; ++i) impl_->threads.emplace_back([this] { impl_->loop(); });
}

ThreadPool::~ThreadPool() {
    {
        std::lock_guard lock(impl_->mutex);
        impl_->stopping = true;
    }
    impl_->start.notify_all();
    for (std::thread& thread : impl_->threads) thread.join();
}

int ThreadPool::numThreads() const { return static_cast<int>(impl_->threads.size()) + 1; }

void ThreadPool::parallelFor(int64_t num_items,
                             int64_t chunk,
                             const std::function<void(int64_t, int64_t)>& fn) {
    chunk = std::max<int64_t>(chunk, 1);
    if (impl_->threads.empty() || num_items <= chunk) {
        if (num_items > 0) fn(0, num_items);
        return;
    }
    {
        std::lock_guard lock(impl_->mutex);
        impl_->work = &fn;
        impl_->num_items = num_items;
        impl_->chunk = chunk;
        impl_->next.store(0, std::memory_order_relaxed);
        impl_->num_busy = static_cast<int>(impl_->threads.size());
        ++impl_->generation;
    }
    impl_->start.notify_all();
    impl_->drain();
    std::unique_lock lock(impl_->mutex);
    impl_->done.wait(lock, [&] { return impl_->num_busy == 0; });
}

}  // namespace kvlab
