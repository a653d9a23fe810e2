// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/cpu/thread_pool.h"

namespace kvlab {

// What this machine reaches at best with the engine's own vector instructions and number of
// threads: the floors that the other benches are held against.
class MachineSpeed {
  public:
    // num_threads 0: one per core. `quick`: a small buffer, a moment of work.
    MachineSpeed(int num_threads, bool quick);

    int numThreads() const { return threads_.numThreads(); }
    int64_t bufferBytes() const { return buffer_bytes_; }
    // Multiply-adds a second on registers alone.
    double multiplyAddsPerSecond();
    // Bytes a second of a read of a buffer from one end to the other, far above the caches.
    double bytesPerSecond();

  private:
    ThreadPool threads_;
    int64_t rounds_per_item_;
    int64_t buffer_bytes_;
    std::unique_ptr<std::byte[]> buffer_;
};

}  // namespace kvlab
