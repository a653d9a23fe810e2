// SPDX-License-Identifier: MIT
#include "kernels/simt/simt.h"

#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <QtTest>

#include "kernels/simt/storage_types.h"

using kvlab::simt::LaneOrder;
using kvlab::simt::LaunchError;
using kvlab::simt::ScopedSettings;

namespace {

constexpr uint32_t kFullMask = 0xffffffffu;

__global__ void indicesKernel(int* output) {
    const unsigned thread_block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const unsigned num_threads = blockDim.x * blockDim.y * blockDim.z;
    output[thread_block * num_threads + thread] += static_cast<int>(thread_block * 1000 + thread);
}

// Each thread hands its number to its mirror image; two barriers per round.
template <int kNumThreads>
__global__ void mirrorKernel(int* output, int num_rounds) {
    KVLAB_SHARED(int, values, kNumThreads);
    const int thread = static_cast<int>(threadIdx.x);
    int value = thread;
    for (int i = 0; i < num_rounds; ++i) {
        values[thread] = value;
        __syncthreads();
        value = values[kNumThreads - 1 - thread];
        __syncthreads();
    }
    output[blockIdx.x * kNumThreads + threadIdx.x] = value;
}

__global__ void dynamicSharedKernel(float* output, int count) {
    KVLAB_DYNAMIC_SHARED(float, scratch);
    KVLAB_SHARED(float, other, 4);
    if (threadIdx.x < 4) other[threadIdx.x] = 100.f;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
        scratch[i] = static_cast<float>(i);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = other[3];
        for (int i = 0; i < count; ++i) sum += scratch[i];
        *output = sum;
    }
}

__global__ void readsBeforeWritingKernel(float* floats, int* ints) {
    KVLAB_SHARED(float, poisoned_floats, 8);
    KVLAB_SHARED(int, poisoned_ints, 8);
    KVLAB_DYNAMIC_SHARED(float, poisoned_dynamic);
    floats[blockIdx.x] = poisoned_floats[threadIdx.x] + poisoned_dynamic[0];
    ints[blockIdx.x] = poisoned_ints[threadIdx.x];
    poisoned_floats[threadIdx.x] = 1.f;  // the next thread block must not see it
    poisoned_dynamic[0] = 1.f;
    poisoned_ints[threadIdx.x] = 1;
}

struct WarpResults {
    int xor_sum[64];
    float down[64];
    int up[64];
    int broadcast[64];
    int64_t wide[64];
    int quarter[64];
    uint32_t ballot[64];
    int any[64];
    int all[64];
};

__global__ void warpKernel(WarpResults* r) {
    const int thread = static_cast<int>(threadIdx.x);
    int sum = thread;
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(kFullMask, sum, offset);
    r->xor_sum[thread] = sum;
    r->down[thread] = __shfl_down_sync(kFullMask, static_cast<float>(thread), 4);
    r->up[thread] = __shfl_up_sync(kFullMask, thread, 4);
    r->broadcast[thread] = __shfl_sync(kFullMask, thread, 7);
    r->wide[thread] = __shfl_sync(kFullMask, int64_t{thread} << 40, 3);
    r->quarter[thread] = __shfl_sync(kFullMask, thread, 1, 8);
    r->ballot[thread] = __ballot_sync(kFullMask, thread % 3 == 0);
    r->any[thread] = __any_sync(kFullMask, thread == 40);
    r->all[thread] = __all_sync(kFullMask, thread >= 32);
    __syncwarp();
}

// The two halves of a warp go separate ways, with masks of their own.
__global__ void halvesKernel(int* output) {
    const int thread = static_cast<int>(threadIdx.x);
    int sum = thread;
    if (thread < 16) {
        for (int i = 8; i > 0; i /= 2) sum += __shfl_xor_sync(0x0000ffffu, sum, i);
    } else {
        for (int i = 4; i > 0; i /= 2) sum += __shfl_xor_sync(0xffff0000u, sum, i);
    }
    __syncwarp();
    output[thread] = sum;
}

__global__ void outsideMaskKernel(int* output) {
    if (threadIdx.x < 16) {
        output[threadIdx.x] = __shfl_down_sync(0x0000ffffu, static_cast<int>(threadIdx.x), 8);
    }
}

__global__ void atomicKernel(int* count, unsigned* unsigned_count, float* sum, int* order) {
    const int place = atomicAdd(count, 1);
    atomicAdd(unsigned_count, 2u);
    atomicAdd(sum, 0.5f);
    order[place] = static_cast<int>(threadIdx.x);
}

__global__ void missedBarrierKernel() {
    if (threadIdx.x < 40) __syncthreads();
}

__global__ void twoBarriersKernel() {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}

__global__ void missedShuffleKernel(int* output) {
    if (blockIdx.x == 2 && threadIdx.x == 5) return;
    output[threadIdx.x] = __shfl_xor_sync(kFullMask, static_cast<int>(threadIdx.x), 1);
}

__global__ void failsFromTheThirdOnKernel() {
    if (blockIdx.x >= 3 && threadIdx.x == 0) return;
    __syncthreads();
}

__global__ void maskDisagreementKernel(int* output) {
    const uint32_t mask = threadIdx.x < 16 ? kFullMask : 0xffff0001u;
    output[threadIdx.x] = __shfl_xor_sync(mask, static_cast<int>(threadIdx.x), 1);
}

__global__ void foreignMaskKernel() { __syncwarp(0x0000ffffu); }

__global__ void barrierAgainstShuffleKernel() {
    if (threadIdx.x == 0) {
        __syncthreads();
    } else {
        __syncwarp();
    }
}

struct CountsItself {
    explicit CountsItself(int* count_) : count(count_) { ++*count; }
    ~CountsItself() { --*count; }
    int* count;
};

__global__ void throwingKernel(const std::vector<int>* table, int* alive) {
    const CountsItself counted(alive);
    if (threadIdx.x == 70) (void)table->at(70);
    __syncthreads();
}

__global__ void nestedKernel() { KVLAB_LAUNCH(foreignMaskKernel, 1, 32, 0, nullptr); }

__global__ void tooMuchSharedKernel() {
    KVLAB_SHARED(float, first, 8192);
    KVLAB_SHARED(float, second, 4097);
    first[0] = second[0];
}

template <typename F>
std::string messageOf(F&& launch) {
    try {
        launch();
    } catch (const LaunchError& error) {
        return error.what();
    }
    return "no error";
}

const LaneOrder kOrders[] = {LaneOrder::kForward, LaneOrder::kReverse, LaneOrder::kRandom};

}  // namespace

class SimtTest : public QObject {
    Q_OBJECT

  private slots:
    void everyThreadRunsOnceWithItsIndices() {
        const dim3 grid(3, 2, 2);
        const dim3 thread_block(5, 4, 3);
        for (const LaneOrder order : kOrders) {
            const ScopedSettings settings({order, 1});
            std::vector<int> output(12 * 60, 0);
            KVLAB_LAUNCH(indicesKernel, grid, thread_block, 0, nullptr, output.data());
            for (int i = 0; i < 12 * 60; ++i) QCOMPARE(output[i], i / 60 * 1000 + i % 60);
        }
    }

    void barriersOrderSharedMemory() {
        for (const LaneOrder order : kOrders) {
            const ScopedSettings settings({order, 2});
            std::vector<int> output(2 * 1024);
            KVLAB_LAUNCH((mirrorKernel<1024>), 2, 1024, 0, nullptr, output.data(), 3);
            for (int i = 0; i < 2 * 1024; ++i) QCOMPARE(output[i], 1023 - i % 1024);
            KVLAB_LAUNCH((mirrorKernel<33>), 1, 33, 0, nullptr, output.data(), 2);
            for (int i = 0; i < 33; ++i) QCOMPARE(output[i], i);
        }
    }

    void dynamicSharedMemoryLiesBesideStatic() {
        float output = 0;
        KVLAB_LAUNCH(dynamicSharedKernel, 1, 64, 100 * sizeof(float), nullptr, &output, 100);
        QCOMPARE(output, 100.f + 4950.f);
    }

    void sharedMemoryIsPoisonedBeforeEachThreadBlock() {
        std::vector<float> floats(3, 0.f);
        std::vector<int> ints(3, 0);
        KVLAB_LAUNCH(readsBeforeWritingKernel, 3, 1, 4, nullptr, floats.data(), ints.data());
        for (int i = 0; i < 3; ++i) {
            QVERIFY(std::isnan(floats[i]));
            QCOMPARE(ints[i], -1);
        }
    }

    void warpOperations() {
        for (const LaneOrder order : kOrders) {
            const ScopedSettings settings({order, 3});
            WarpResults r{};
            KVLAB_LAUNCH(warpKernel, 1, 64, 0, nullptr, &r);
            for (int i = 0; i < 64; ++i) {
                const int first = i / 32 * 32;
                QCOMPARE(r.xor_sum[i], i < 32 ? 496 : 496 + 32 * 32);
                QCOMPARE(r.down[i], static_cast<float>(i % 32 < 28 ? i + 4 : i));
                QCOMPARE(r.up[i], i % 32 >= 4 ? i - 4 : i);
                QCOMPARE(r.broadcast[i], first + 7);
                QCOMPARE(r.wide[i], int64_t{first + 3} << 40);
                QCOMPARE(r.quarter[i], i / 8 * 8 + 1);
                QCOMPARE(r.ballot[i], i < 32 ? 0x49249249u : 0x92492492u);
                QCOMPARE(r.any[i], i < 32 ? 0 : 1);
                QCOMPARE(r.all[i], i < 32 ? 0 : 1);
            }
        }
    }

    void halvesOfAWarpMayDiverge() {
        for (const LaneOrder order : kOrders) {
            const ScopedSettings settings({order, 4});
            std::vector<int> output(32);
            KVLAB_LAUNCH(halvesKernel, 1, 32, 0, nullptr, output.data());
            for (int i = 0; i < 32; ++i) {
                QCOMPARE(output[i], i < 16 ? 120 : i < 24 ? 156 : 220);
            }
        }
    }

    void aLaneOutsideTheMaskGivesPoison() {
        std::vector<int> output(16);
        KVLAB_LAUNCH(outsideMaskKernel, 1, 32, 0, nullptr, output.data());
        for (int i = 0; i < 16; ++i) QCOMPARE(output[i], i < 8 ? i + 8 : -1);
    }

    void atomicsAndLaneOrder() {
        std::vector<std::vector<int>> orders;
        for (const auto& [order, seed] : {std::pair{LaneOrder::kForward, 0},
                                          {LaneOrder::kReverse, 0},
                                          {LaneOrder::kRandom, 1},
                                          {LaneOrder::kRandom, 2},
                                          {LaneOrder::kRandom, 1}}) {
            const ScopedSettings settings({order, static_cast<uint64_t>(seed)});
            int count = 0;
            unsigned unsigned_count = 0;
            float sum = 0.f;
            std::vector<int> sequence(96);
            KVLAB_LAUNCH(atomicKernel, 1, 96, 0, nullptr, &count, &unsigned_count, &sum,
                         sequence.data());
            QCOMPARE(count, 96);
            QCOMPARE(unsigned_count, 192u);
            QCOMPARE(sum, 48.f);
            QCOMPARE(std::set<int>(sequence.begin(), sequence.end()).size(), size_t{96});
            orders.push_back(sequence);
        }
        for (int i = 0; i < 96; ++i) {
            QCOMPARE(orders[0][i], i);
            QCOMPARE(orders[1][i], 95 - i);
        }
        QVERIFY(orders[2] != orders[0]);
        QVERIFY(orders[2] != orders[3]);
        QCOMPARE(orders[2], orders[4]);
    }

    void missedBarrierIsADeadlock() {
        const std::string message =
            messageOf([] { KVLAB_LAUNCH(missedBarrierKernel, dim3(2, 3), 64, 0, nullptr); });
        QVERIFY2(message.find("kernel missedBarrierKernel, thread block (0, 0, 0): deadlock: of 64 "
                              "threads 40 wait in __syncthreads at simt_test.cpp:") == 0,
                 message.c_str());
        QVERIFY2(message.find(", 24 have ended") != std::string::npos, message.c_str());
    }

    void differentBarriersAreReported() {
        const std::string message =
            messageOf([] { KVLAB_LAUNCH(twoBarriersKernel, 1, 64, 0, nullptr); });
        QVERIFY2(message.find("thread 32 came to __syncthreads") != std::string::npos,
                 message.c_str());
        QVERIFY2(message.find("while 32 of 64 threads wait") != std::string::npos, message.c_str());
    }

    void missedShuffleNamesItsThreadBlock() {
        std::vector<int> output(64);
        const std::string message =
            messageOf([&] { KVLAB_LAUNCH(missedShuffleKernel, 4, 64, 0, nullptr, output.data()); });
        QVERIFY2(message.find("thread block (2, 0, 0): deadlock: of 64 threads 31 wait in "
                              "__shfl_xor_sync at simt_test.cpp:") != std::string::npos,
                 message.c_str());
        QVERIFY2(message.find("with mask 0xffffffff, 33 have ended") != std::string::npos,
                 message.c_str());
    }

    void aWarpThatIsNotFullHasNoFullMask() {
        const std::string message =
            messageOf([] { KVLAB_LAUNCH(barrierAgainstShuffleKernel, 1, 20, 0, nullptr); });
        QVERIFY2(message.find("of 20 threads 1 wait in __syncthreads") != std::string::npos,
                 message.c_str());
        QVERIFY2(message.find("19 wait in __syncwarp") != std::string::npos, message.c_str());
    }

    void masksMustAgree() {
        std::vector<int> output(32);
        std::string message = messageOf(
            [&] { KVLAB_LAUNCH(maskDisagreementKernel, 1, 32, 0, nullptr, output.data()); });
        QVERIFY2(message.find("thread 16 came to __shfl_xor_sync") != std::string::npos,
                 message.c_str());
        QVERIFY2(message.find("while thread 0 waits at __shfl_xor_sync") != std::string::npos,
                 message.c_str());
        message = messageOf([] { KVLAB_LAUNCH(foreignMaskKernel, 1, 32, 0, nullptr); });
        QVERIFY2(message.find("which leaves out its own lane") != std::string::npos,
                 message.c_str());
    }

    void threadBlocksSpreadOverOsThreads() {
        for (const int num_os_threads : {0, 2, 7}) {
            const ScopedSettings settings({LaneOrder::kRandom, 6, num_os_threads});
            const dim3 grid(5, 4, 3);
            std::vector<int> output(60 * 33, 0);
            KVLAB_LAUNCH(indicesKernel, grid, 33, 0, nullptr, output.data());
            for (int i = 0; i < 60 * 33; ++i) QCOMPARE(output[i], i / 33 * 1000 + i % 33);
            std::vector<int> mirrored(50 * 64);
            KVLAB_LAUNCH((mirrorKernel<64>), 50, 64, 0, nullptr, mirrored.data(), 3);
            for (int i = 0; i < 50 * 64; ++i) QCOMPARE(mirrored[i], 63 - i % 64);
            int count = 0;
            std::vector<int> order(32 * 64);
            unsigned unsigned_count = 0;
            float sum = 0.f;
            KVLAB_LAUNCH(atomicKernel, 32, 64, 0, nullptr, &count, &unsigned_count, &sum,
                         order.data());
            QCOMPARE(count, 32 * 64);
            QCOMPARE(sum, 1024.f);
        }
    }

    // Whichever OS thread is faster: the first thread block that fails is the one that is named.
    void theFirstFailureIsReported() {
        const ScopedSettings settings({LaneOrder::kForward, 0, 4});
        for (int i = 0; i < 20; ++i) {
            const std::string message =
                messageOf([] { KVLAB_LAUNCH(failsFromTheThirdOnKernel, 40, 32, 0, nullptr); });
            QVERIFY2(message.find("thread block (3, 0, 0): deadlock") != std::string::npos,
                     message.c_str());
        }
    }

    void exceptionsComeOutOfTheLaunch() {
        const std::vector<int> table(10);
        for (const LaneOrder order : kOrders) {
            const ScopedSettings settings({order, 5});
            int alive = 0;
            QVERIFY_THROWS_EXCEPTION(
                std::out_of_range, KVLAB_LAUNCH(throwingKernel, 3, 96, 0, nullptr, &table, &alive));
            QCOMPARE(alive, 0);  // the waiting threads were unwound
        }
        std::vector<int> output(64);  // and the next launch is none the worse
        KVLAB_LAUNCH((mirrorKernel<64>), 1, 64, 0, nullptr, output.data(), 1);
        QCOMPARE(output[0], 63);
    }

    void impossibleLaunchesAreRefused() {
        int* const none = nullptr;
        QVERIFY(messageOf([&] {
                    KVLAB_LAUNCH(indicesKernel, 1, 1025, 0, nullptr, none);
                }).find("a thread block of (1025, 1, 1) threads is not possible") !=
                std::string::npos);
        QVERIFY(messageOf([&] {
                    KVLAB_LAUNCH(indicesKernel, dim3(1, 0), 32, 0, nullptr, none);
                }).find("a grid of (1, 0, 1)") != std::string::npos);
        QVERIFY(messageOf([&] {
                    KVLAB_LAUNCH(indicesKernel, dim3(1, 65536), 32, 0, nullptr, none);
                }).find("a grid of") != std::string::npos);
        QVERIFY(messageOf([&] {
                    KVLAB_LAUNCH(indicesKernel, 1, 32, 48 * 1024 + 1, nullptr, none);
                }).find("dynamic shared memory") != std::string::npos);
        QVERIFY(messageOf([] {
                    KVLAB_LAUNCH(tooMuchSharedKernel, 1, 32, 0, nullptr);
                }).find("32768 taken, 16388 more asked for") != std::string::npos);
        QVERIFY(messageOf([] {
                    KVLAB_LAUNCH(nestedKernel, 1, 1, 0, nullptr);
                }).find("from inside a kernel") != std::string::npos);
        QVERIFY(messageOf([] { __syncthreads(); }).find("outside a kernel") != std::string::npos);
    }

    void storageTypesRound() {
        using kvlab::Bfloat16;
        using kvlab::fromFloat;
        using kvlab::Half;
        using kvlab::toFloat;
        QCOMPARE(toFloat(fromFloat<Half>(1.f / 3.f)), 0.333251953125f);
        QCOMPARE(toFloat(fromFloat<Bfloat16>(1.f / 3.f)), 0.333984375f);
        QCOMPARE(toFloat(fromFloat<float>(1.f / 3.f)), 1.f / 3.f);
        QVERIFY(std::isinf(toFloat(fromFloat<Half>(1e6f))));
    }

    void bytesAndAngles() {
        QCOMPARE(__byte_perm(0x33221100u, 0x77665544u, 0x7044u), 0x77004444u);
        QCOMPARE(__byte_perm(0x33221100u, 0x77665544u, 0x3210u), 0x33221100u);
        QCOMPARE(__uint_as_float(0x3fc00000u), 1.5f);
        float sine = 0;
        float cosine = 0;
        sincospif(0.5f, &sine, &cosine);
        QCOMPARE(sine, 1.f);
        QVERIFY(std::abs(cosine) < 1e-7f);
    }
};

QTEST_GUILESS_MAIN(SimtTest)
#include "simt_test.moc"
