// SPDX-License-Identifier: MIT
#include "app/cli/bench/machine_speed.h"

#include <algorithm>
#include <atomic>
#include <unistd.h>

#include "app/cli/bench/bench.h"
#include "app/cli/bench/bench_math.h"
#include "kernels/cpu/vector_paths.h"

namespace kvlab {

namespace {

constexpr int64_t kPieceBytes = 1 << 20;  // of the buffer, for one thread at a time
constexpr int kItemsPerThread = 8;        // so that threads end together

// Four times the last cache, but not more than an eighth of the memory.
int64_t largeBuffer() {
    const int64_t cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const int64_t memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
    const int64_t bytes = std::clamp<int64_t>(4 * cache, 512 << 20, int64_t{4} << 30);
    return std::max<int64_t>(std::min(bytes, memory / 8) / kPieceBytes, 1) * kPieceBytes;
}

}  // namespace

MachineSpeed::MachineSpeed(int num_threads, bool quick)
    : threads_(num_threads),
      rounds_per_item_(quick ? 1000 : 400'000),
      buffer_bytes_(quick ? 2 * kPieceBytes : largeBuffer()),
      buffer_(new std::byte[static_cast<size_t>(buffer_bytes_)]()) {}

double MachineSpeed::multiplyAddsPerSecond() {
    const VectorPaths& paths = vectorPaths();
    const int64_t num_items = int64_t{kItemsPerThread} * numThreads();
    std::atomic<bool> odd{false};  // keeps the results alive
    const double ms = elapsedMs([&] {
        threads_.parallelFor(num_items, 1, [&](int64_t begin, int64_t end) {
            for (int64_t item = begin; item < end; ++item) {
                if (paths.multiplyAddLoop(rounds_per_item_) < 0.f) odd = true;
            }
        });
    });
    return static_cast<double>(num_items * rounds_per_item_ * paths.multiply_adds_a_round) * 1000 /
           ms;
}

double MachineSpeed::bytesPerSecond() {
    const VectorPaths& paths = vectorPaths();
    std::atomic<bool> odd{false};
    const double ms = elapsedMs([&] {
        threads_.parallelFor(buffer_bytes_ / kPieceBytes, 4, [&](int64_t begin, int64_t end) {
            const int64_t num_bytes = (end - begin) * kPieceBytes;
            if (paths.readLoop(buffer_.get() + begin * kPieceBytes, num_bytes) < 0.f) odd = true;
        });
    });
    return static_cast<double>(buffer_bytes_) * 1000 / ms;
}

BenchResult benchMachine(const BenchContext& context) {
    MachineSpeed one(1, context.quick);
    MachineSpeed& all = context.machine();
    std::vector<double> one_rate, all_rate, one_read, all_read;
    for (int round = 0; round < context.rounds(); ++round) {
        one_rate.push_back(one.multiplyAddsPerSecond());
        all_rate.push_back(all.multiplyAddsPerSecond());
        one_read.push_back(one.bytesPerSecond());
        all_read.push_back(all.bytesPerSecond());
    }
    return {"machine",
            "1e9/s",
            {{"multiply_adds_1_thread", median(one_rate) / 1e9},
             {"multiply_adds", median(all_rate) / 1e9},
             {"bytes_read_1_thread", median(one_read) / 1e9},
             {"bytes_read", median(all_read) / 1e9}},
            {{"multiply_adds_to_1_thread", median(all_rate) / median(one_rate), {}, {}},
             {"bytes_read_to_1_thread", median(all_read) / median(one_read), {}, {}}},
            context.rounds()};
}

}  // namespace kvlab
