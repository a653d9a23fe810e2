// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>

namespace kvlab {

// Fixed set of threads for the CPU kernels. Work items are independent: which thread runs which
// item never changes a result (DESIGN.md section 3, batch invariance).
class ThreadPool {
  public:
    // `num_threads` includes the calling thread, at most 256; 0: one per core. Throws
    // std::system_error where the system does not grant them.
    explicit ThreadPool(int num_threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int numThreads() const;
    // Runs fn(begin, end) over [0, num_items) in chunks of `chunk` items and returns when all are
    // done. Not reentrant. `fn` must not throw.
    void parallelFor(int64_t num_items,
                     int64_t chunk,
                     const std::function<void(int64_t begin, int64_t end)>& fn);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace kvlab
