// SPDX-License-Identifier: MIT
#include "kernels/simt/simt.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "kernels/simt/fiber.h"
#include "kernels/simt/sanitizer.h"

constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local dim3 blockDim{};
constinit thread_local dim3 gridDim{};

namespace kvlab::simt {
namespace {

// Thrown into the threads that still wait when a launch has failed, so that their stacks unwind.
struct Abandoned {};

const char* operationName(WarpOperation operation) {
    switch (operation) {
        case WarpOperation::kSync:
            return "__syncwarp";
        case WarpOperation::kShfl:
            return "__shfl_sync";
        case WarpOperation::kShflUp:
            return "__shfl_up_sync";
        case WarpOperation::kShflDown:
            return "__shfl_down_sync";
        case WarpOperation::kShflXor:
            return "__shfl_xor_sync";
        case WarpOperation::kBallot:
            return "__ballot_sync";
        case WarpOperation::kAny:
            return "__any_sync";
        case WarpOperation::kAll:
            return "__all_sync";
    }
    return "?";
}

std::string siteText(CallSite site) {
    const char* slash = std::strrchr(site.file, '/');
    return std::string(slash != nullptr ? slash + 1 : site.file) + ":" + std::to_string(site.line);
}

std::string maskText(uint32_t mask) {
    char text[16];
    std::snprintf(text, sizeof text, "0x%08x", mask);
    return text;
}

// splitmix64: the same order on every machine, which the standard's distributions do not promise.
uint64_t nextRandom(uint64_t& state) {
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// The shared memory of one thread block. Every variable has a strip around it that AddressSanitizer
// watches, and everything is 0xff (NaN, -1) until the kernel writes it.
class SharedMemory {
  public:
    SharedMemory() : arena_(std::make_unique<std::byte[]>(kArenaBytes)) {
        std::memset(arena_.get(), 0xff, kArenaBytes);
        KVLAB_ASAN_POISON(arena_.get(), kArenaBytes);
    }
    ~SharedMemory() { KVLAB_ASAN_UNPOISON(arena_.get(), kArenaBytes); }

    void beginThreadBlock(size_t dynamic_bytes) {
        KVLAB_ASAN_UNPOISON(arena_.get(), end_);
        std::memset(arena_.get(), 0xff, end_);
        KVLAB_ASAN_POISON(arena_.get(), end_);
        variables_.clear();
        end_ = 0;
        used_bytes_ = 0;
        dynamic_ = find(this, dynamic_bytes, 16);
    }

    void* dynamic() const { return dynamic_; }

    // Null when a thread block would have more than kMaxSharedBytes.
    void* find(const void* key, size_t bytes, size_t alignment) {
        for (const Variable& variable : variables_) {
            if (variable.key == key) return variable.address;
        }
        if (used_bytes_ + bytes > kMaxSharedBytes || variables_.size() == kMaxVariables)
            return nullptr;
        used_bytes_ += bytes;
        const auto begin = reinterpret_cast<uintptr_t>(arena_.get());
        const uintptr_t address =
            (begin + end_ + kStripBytes + alignment - 1) / alignment * alignment;
        end_ = address - begin + bytes;
        KVLAB_ASAN_UNPOISON(reinterpret_cast<void*>(address), bytes);
        variables_.push_back({key, reinterpret_cast<void*>(address)});
        return variables_.back().address;
    }

    size_t usedBytes() const { return used_bytes_; }

  private:
    struct Variable {
        const void* key;
        void* address;
    };
    static constexpr size_t kMaxVariables = 64;
    static constexpr size_t kStripBytes = 32;
    static constexpr size_t kArenaBytes = kMaxSharedBytes + kMaxVariables * (kStripBytes + 256);

    std::unique_ptr<std::byte[]> arena_;
    std::vector<Variable> variables_;
    void* dynamic_ = nullptr;
    size_t end_ = 0;
    size_t used_bytes_ = 0;
};

enum class ThreadState : uint8_t { kReady, kAtBarrier, kInWarp, kDone };

// Stacks are kept when a launch is over: a decode step is hundreds of launches.
class StackPool {
  public:
    std::vector<FiberStack> take(size_t count) {
        std::vector<FiberStack> taken;
        {
            const std::lock_guard lock(mutex_);
            while (taken.size() < count && !stacks_.empty()) {
                taken.push_back(std::move(stacks_.back()));
                stacks_.pop_back();
            }
        }
        while (taken.size() < count) taken.emplace_back();
        return taken;
    }
    void giveBack(std::vector<FiberStack> stacks) {
        const std::lock_guard lock(mutex_);
        for (FiberStack& stack : stacks) stacks_.push_back(std::move(stack));
    }

  private:
    std::mutex mutex_;
    std::vector<FiberStack> stacks_;
};

StackPool& stackPool() {
    static StackPool pool;
    return pool;
}

// What the OS threads of one launch share: the next thread block to run, and the first that failed.
struct Progress {
    uint64_t num_thread_blocks = 0;
    std::atomic<uint64_t> next{0};
    std::atomic<uint64_t> failed{~uint64_t{0}};
    std::mutex mutex;
    std::exception_ptr error;
    LaunchRecord* record = nullptr;

    void fail(uint64_t thread_block) {
        const std::lock_guard lock(mutex);
        if (thread_block >= failed) return;
        failed = thread_block;
        error = std::current_exception();
    }
};

// An OS thread's part in a launch.
class Launch {
  public:
    Launch(const char* kernel_name,
           dim3 grid,
           dim3 thread_block,
           size_t shared_bytes,
           const std::function<void()>& thread,
           bool is_early,
           const Predecessor* predecessor,
           const Settings& settings);
    ~Launch();
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;

    // Takes thread blocks until there are none left or one has failed.
    void run(Progress& progress);
    void syncThreadBlock(CallSite site);
    void waitForPredecessors(CallSite site);
    uint64_t meetWarp(WarpOperation operation,
                      uint32_t mask,
                      uint64_t value,
                      int argument,
                      int width,
                      CallSite site);
    SharedMemory& sharedMemory() { return shared_; }
    [[noreturn]] void fail(const std::string& what) const;

  private:
    struct Thread {
        Fiber fiber;
        Launch* launch = nullptr;
        uint3 index;
        int rank = 0;  // place in the order of running
        ThreadState state = ThreadState::kReady;
        bool has_waited = false;  // for the kernel's predecessors
        // What it waits for.
        CallSite site{};
        WarpOperation operation = WarpOperation::kSync;
        uint32_t mask = 0;
        uint64_t value = 0;
        int argument = 0;
        int width = 0;
        uint64_t result = 0;
    };

    // Lanes of one warp that came to the same operation and wait until all of `mask` are there.
    struct Meeting {
        WarpOperation operation;
        uint32_t mask;
        uint32_t arrived;
        char* order;  // for ThreadSanitizer
    };

    static void threadEntry(void* thread);
    void runThreadBlock(uint3 index);
    void orderThreads();
    void makeReady(Thread& thread);
    Thread* nextReady();
    void switchFrom(Fiber& from, Thread* next);
    void wait(Thread& self);
    void releaseWarp(int warp, uint32_t mask);
    void abandon();
    std::string deadlockText() const;
    int threadId(const Thread& thread) const { return static_cast<int>(&thread - threads_.data()); }

    const char* kernel_name_;
    const dim3 grid_;
    const dim3 thread_block_;
    const size_t dynamic_shared_bytes_;
    const std::function<void()>& thread_;
    const bool is_early_;
    const Predecessor* const predecessor_;  // of an early launch, or none
    const Settings settings_;
    const int num_threads_;

    Fiber scheduler_;
    std::vector<Thread> threads_;
    std::vector<uint16_t> thread_of_rank_;
    std::vector<uint64_t> ready_;                      // a bit per rank
    std::vector<std::vector<Meeting>> warp_meetings_;  // by warp; nearly always one or none
    std::vector<FiberStack> stacks_;
    Thread* running_ = nullptr;
    uint3 block_index_;
    int num_at_barrier_ = 0;
    int num_done_ = 0;
    uint64_t random_ = 0;
    bool is_hidden_ = false;  // what the predecessor writes
    bool abandoning_ = false;
    std::exception_ptr error_;
    SharedMemory shared_;

    // Addresses by which ThreadSanitizer learns who is ordered after whom. A thread that runs ahead
    // comes to the next barrier before a slower one has left this one; with one address for both,
    // the slower one would be taken to have seen all that the faster one wrote in between, and a
    // missing barrier would go unnoticed. Two are enough for __syncthreads; meetings of warps can
    // be further apart.
    struct alignas(8) OrderAddress {
        char address;
    };
    static constexpr size_t kNumMeetings = 64;
    OrderAddress begin_order_{};
    OrderAddress end_order_{};
    OrderAddress barrier_orders_[2]{};
    size_t barrier_count_ = 0;
    std::vector<OrderAddress> meeting_orders_;  // [num_warps, kNumMeetings]
    std::vector<size_t> meeting_counts_;        // [num_warps]
};

constinit thread_local Launch* current_launch = nullptr;
constinit thread_local Settings current_settings{};
constinit thread_local const Predecessor* current_predecessor = nullptr;
constinit thread_local std::vector<LaunchRecord>* current_recorder = nullptr;

Launch::Launch(const char* kernel_name,
               dim3 grid,
               dim3 thread_block,
               size_t shared_bytes,
               const std::function<void()>& thread,
               bool is_early,
               const Predecessor* predecessor,
               const Settings& settings)
    : kernel_name_(kernel_name),
      grid_(grid),
      thread_block_(thread_block),
      dynamic_shared_bytes_(shared_bytes),
      thread_(thread),
      is_early_(is_early),
      predecessor_(predecessor),
      settings_(settings),
      num_threads_(static_cast<int>(thread_block.x * thread_block.y * thread_block.z)),
      threads_(static_cast<size_t>(num_threads_)),
      thread_of_rank_(threads_.size()),
      ready_((threads_.size() + 63) / 64),
      warp_meetings_((threads_.size() + kWarpSize - 1) / kWarpSize),
      stacks_(stackPool().take(threads_.size())),
      meeting_orders_(warp_meetings_.size() * kNumMeetings),
      meeting_counts_(warp_meetings_.size()) {
    size_t i = 0;
    for (unsigned z = 0; z < thread_block.z; ++z) {
        for (unsigned y = 0; y < thread_block.y; ++y) {
            for (unsigned x = 0; x < thread_block.x; ++x, ++i) {
                threads_[i].launch = this;
                threads_[i].index = {x, y, z};
            }
        }
    }
    current_launch = this;
    gridDim = grid;
    blockDim = thread_block;
}

Launch::~Launch() {
    current_launch = nullptr;
    stackPool().giveBack(std::move(stacks_));
}

void Launch::fail(const std::string& what) const {
    throw LaunchError("kernel " + std::string(kernel_name_) + ", thread block (" +
                      std::to_string(block_index_.x) + ", " + std::to_string(block_index_.y) +
                      ", " + std::to_string(block_index_.z) + "): " + what);
}

void Launch::run(Progress& progress) {
    for (;;) {
        const uint64_t i = progress.next++;
        if (i >= progress.num_thread_blocks || i > progress.failed) return;
        try {
            if (progress.record != nullptr) current_notes = &progress.record->notes[i];
            runThreadBlock({static_cast<unsigned>(i % grid_.x),
                            static_cast<unsigned>(i / grid_.x % grid_.y),
                            static_cast<unsigned>(i / grid_.x / grid_.y)});
            if (progress.record != nullptr && i == 0) {
                progress.record->shared_bytes = shared_.usedBytes();
            }
            current_notes = nullptr;
        } catch (...) {
            current_notes = nullptr;
            progress.fail(i);
            return;
        }
    }
}

void Launch::runThreadBlock(uint3 index) {
    block_index_ = index;
    blockIdx = index;
    num_at_barrier_ = 0;
    num_done_ = 0;
    shared_.beginThreadBlock(dynamic_shared_bytes_);
    if (predecessor_ != nullptr) {
        predecessor_->hide();
        is_hidden_ = true;
    }
    orderThreads();
    for (size_t i = 0; i < threads_.size(); ++i) {
        threads_[i].has_waited = false;
        threads_[i].fiber.prepare(stacks_[i], &Launch::threadEntry, &threads_[i]);
        makeReady(threads_[i]);
    }
    KVLAB_TSAN_RELEASE(&begin_order_);
    switchFrom(scheduler_, nextReady());
    KVLAB_TSAN_ACQUIRE(&end_order_);
    // Back here: all are done, one has thrown, or nobody can go on.
    if (error_ == nullptr && num_done_ < num_threads_) {
        try {
            fail(deadlockText());
        } catch (...) {
            error_ = std::current_exception();
        }
    }
    if (error_ != nullptr) {
        abandon();
        std::rethrow_exception(error_);
    }
}

void Launch::orderThreads() {
    std::iota(thread_of_rank_.begin(), thread_of_rank_.end(), uint16_t{0});
    if (settings_.lane_order == LaneOrder::kReverse) {
        std::reverse(thread_of_rank_.begin(), thread_of_rank_.end());
    } else if (settings_.lane_order == LaneOrder::kRandom) {
        random_ = settings_.seed;
        for (const unsigned part : {block_index_.x, block_index_.y, block_index_.z}) {
            random_ = nextRandom(random_) + part;
        }
        for (size_t i = thread_of_rank_.size(); i > 1; --i) {
            std::swap(thread_of_rank_[i - 1], thread_of_rank_[nextRandom(random_) % i]);
        }
    }
    for (size_t rank = 0; rank < thread_of_rank_.size(); ++rank) {
        threads_[thread_of_rank_[rank]].rank = static_cast<int>(rank);
    }
}

void Launch::makeReady(Thread& thread) {
    thread.state = ThreadState::kReady;
    ready_[static_cast<size_t>(thread.rank) / 64] |= uint64_t{1} << (thread.rank % 64);
}

// Takes the first in the order, in random order the first from a random place on; null: nobody can
// run.
Launch::Thread* Launch::nextReady() {
    const size_t num_words = ready_.size();
    size_t word = 0;
    uint64_t from = ~uint64_t{0};
    if (settings_.lane_order == LaneOrder::kRandom) {
        const uint64_t start = nextRandom(random_) % threads_.size();
        word = start / 64;
        from = ~uint64_t{0} << (start % 64);
    }
    // One word more than there are: the first one's lower bits come last.
    for (size_t i = 0; i <= num_words; ++i) {
        const uint64_t candidates = ready_[word] & from;
        if (candidates != 0) {
            const int bit = std::countr_zero(candidates);
            ready_[word] &= ~(uint64_t{1} << bit);
            return &threads_[thread_of_rank_[word * 64 + static_cast<size_t>(bit)]];
        }
        from = ~uint64_t{0};
        word = word + 1 == num_words ? 0 : word + 1;
    }
    return nullptr;
}

void Launch::switchFrom(Fiber& from, Thread* next) {
    running_ = next;
    if (next == nullptr) {
        from.switchTo(scheduler_);
    } else if (&next->fiber != &from) {
        threadIdx = next->index;
        from.switchTo(next->fiber);
    }
}

// Straight to the next thread and not through the scheduler, which would double the switches.
void Launch::wait(Thread& self) {
    switchFrom(self.fiber, nextReady());
    if (abandoning_) throw Abandoned{};
}

void Launch::threadEntry(void* argument) {
    Thread& self = *static_cast<Thread*>(argument);
    Launch& launch = *self.launch;
    KVLAB_TSAN_ACQUIRE(&launch.begin_order_);
    try {
        if (!launch.abandoning_) {
            launch.thread_();
            if (launch.is_early_ && !self.has_waited) {
                launch.fail("thread " + std::to_string(launch.threadId(self)) +
                            " ended without waitForPredecessors, in an early launch");
            }
        }
    } catch (const Abandoned&) {
    } catch (...) {
        if (launch.error_ == nullptr) launch.error_ = std::current_exception();
    }
    KVLAB_TSAN_RELEASE(&launch.end_order_);
    self.state = ThreadState::kDone;
    ++launch.num_done_;
    Thread* next = launch.error_ == nullptr && !launch.abandoning_ ? launch.nextReady() : nullptr;
    launch.running_ = next;
    if (next == nullptr) self.fiber.finishTo(launch.scheduler_);
    threadIdx = next->index;
    self.fiber.finishTo(next->fiber);
}

// Resumes every thread that has not ended; each throws out of its wait and comes back here.
void Launch::abandon() {
    abandoning_ = true;
    std::fill(ready_.begin(), ready_.end(), 0);
    for (Thread& thread : threads_) {
        while (thread.state != ThreadState::kDone) switchFrom(scheduler_, &thread);
    }
    KVLAB_TSAN_ACQUIRE(&end_order_);
}

void Launch::syncThreadBlock(CallSite site) {
    Thread& self = *running_;
    if (abandoning_) throw Abandoned{};
    for (int i = 0; num_at_barrier_ > 0 && i < num_threads_; ++i) {
        const Thread& other = threads_[static_cast<size_t>(i)];
        if (other.state != ThreadState::kAtBarrier) continue;
        if (other.site.line != site.line || std::strcmp(other.site.file, site.file) != 0) {
            fail("thread " + std::to_string(threadId(self)) + " came to __syncthreads at " +
                 siteText(site) + " while " + std::to_string(num_at_barrier_) + " of " +
                 std::to_string(num_threads_) + " threads wait at the one at " +
                 siteText(other.site));
        }
        break;  // the others came past the same check
    }
    OrderAddress& order = barrier_orders_[barrier_count_ % 2];
    KVLAB_TSAN_RELEASE(&order);
    self.state = ThreadState::kAtBarrier;
    self.site = site;
    if (++num_at_barrier_ == num_threads_) {
        num_at_barrier_ = 0;
        ++barrier_count_;
        for (Thread& thread : threads_) makeReady(thread);
    }
    wait(self);
    KVLAB_TSAN_ACQUIRE(&order);
}

// Not a barrier on a GPU, and so no barrier for ThreadSanitizer either, unless someone hides
// memory.
void Launch::waitForPredecessors(CallSite site) {
    running_->has_waited = true;
    if (predecessor_ == nullptr) return;
    syncThreadBlock(site);
    if (!is_hidden_) return;
    is_hidden_ = false;
    predecessor_->show();
}

uint64_t Launch::meetWarp(WarpOperation operation,
                          uint32_t mask,
                          uint64_t value,
                          int argument,
                          int width,
                          CallSite site) {
    Thread& self = *running_;
    if (abandoning_) throw Abandoned{};
    const int lane = threadId(self) % kWarpSize;
    const int warp = threadId(self) / kWarpSize;
    const auto describe = [&] {
        return "thread " + std::to_string(threadId(self)) + " came to " + operationName(operation) +
               " at " + siteText(site) + " with mask " + maskText(mask);
    };
    if ((mask >> lane & 1u) == 0) fail(describe() + ", which leaves out its own lane");
    if (width < 1 || width > kWarpSize || !std::has_single_bit(static_cast<unsigned>(width))) {
        fail(describe() + " and width " + std::to_string(width) +
             "; it must be a power of two to 32");
    }
    std::vector<Meeting>& meetings = warp_meetings_[static_cast<size_t>(warp)];
    auto meeting = std::find_if(meetings.begin(), meetings.end(), [&](const Meeting& m) {
        return m.mask == mask && m.operation == operation;
    });
    if (meeting == meetings.end()) {
        for (const Meeting& other : meetings) {
            // A lane there that is named here, and this lane named there: each waits for the other.
            const uint32_t both = other.arrived & mask;
            if (both == 0 || (other.mask >> lane & 1u) == 0) continue;
            const Thread& blocked =
                threads_[static_cast<size_t>(warp * kWarpSize + std::countr_zero(both))];
            fail(describe() + " while thread " + std::to_string(threadId(blocked)) + " waits at " +
                 operationName(other.operation) + " at " + siteText(blocked.site) + " with mask " +
                 maskText(other.mask));
        }
        const size_t count = meeting_counts_[static_cast<size_t>(warp)]++ % kNumMeetings;
        meeting = meetings.insert(
            meetings.end(),
            Meeting{operation, mask, 0,
                    &meeting_orders_[static_cast<size_t>(warp) * kNumMeetings + count].address});
    }
    // Shuffles and votes order no memory (CUDA C++ Programming Guide, warp shuffle functions).
    char* const order = operation == WarpOperation::kSync ? meeting->order : nullptr;
    if (order != nullptr) KVLAB_TSAN_RELEASE(order);
    meeting->arrived |= 1u << lane;
    self.state = ThreadState::kInWarp;
    self.operation = operation;
    self.mask = mask;
    self.value = value;
    self.argument = argument;
    self.width = width;
    self.site = site;
    if (meeting->arrived == mask) {
        meetings.erase(meeting);
        releaseWarp(warp, mask);
    }
    wait(self);
    if (order != nullptr) KVLAB_TSAN_ACQUIRE(order);
    return self.result;
}

// The last lane works out the results of all: a lane that runs ahead to its next operation cannot
// overwrite what a slower one has yet to read.
void Launch::releaseWarp(int warp, uint32_t mask) {
    Thread* const lanes = &threads_[static_cast<size_t>(warp * kWarpSize)];
    uint32_t votes = 0;
    for (int i = 0; i < kWarpSize; ++i) {
        if ((mask >> i & 1u) != 0 && lanes[i].value != 0) votes |= 1u << i;
    }
    for (int i = 0; i < kWarpSize; ++i) {
        if ((mask >> i & 1u) == 0) continue;
        Thread& lane = lanes[i];
        const int first = i / lane.width * lane.width;  // of the lane's segment
        const int last = first + lane.width - 1;
        int source = i;
        switch (lane.operation) {
            case WarpOperation::kSync:
                break;
            case WarpOperation::kShfl:
                source = first + (lane.argument & (lane.width - 1));
                break;
            case WarpOperation::kShflUp:
                source = i - lane.argument;
                break;
            case WarpOperation::kShflDown:
                source = i + lane.argument;
                break;
            case WarpOperation::kShflXor:
                source = i ^ lane.argument;
                break;
            case WarpOperation::kBallot:
                lane.result = votes;
                break;
            case WarpOperation::kAny:
                lane.result = votes != 0;
                break;
            case WarpOperation::kAll:
                lane.result = votes == mask;
                break;
        }
        if (lane.operation >= WarpOperation::kShfl && lane.operation <= WarpOperation::kShflXor) {
            // As on the GPU: past the segment's end a lane gets its own value. (An xor may reach an
            // earlier segment.) The value of a lane outside the mask is undefined there, poison
            // here.
            const bool outside =
                source > last || source < (lane.operation == WarpOperation::kShflXor ? 0 : first);
            if (outside) source = i;
            lane.result = (mask >> source & 1u) != 0 ? lanes[source].value : ~uint64_t{0};
        }
        makeReady(lane);
    }
}

std::string Launch::deadlockText() const {
    struct Group {
        std::string place;
        int count = 0;
    };
    std::vector<Group> groups;
    for (const Thread& thread : threads_) {
        if (thread.state == ThreadState::kDone) continue;
        std::string place;
        if (thread.state == ThreadState::kAtBarrier) {
            place = "__syncthreads at " + siteText(thread.site);
        } else {
            place = std::string(operationName(thread.operation)) + " at " + siteText(thread.site) +
                    " with mask " + maskText(thread.mask);
        }
        const auto known = std::find_if(groups.begin(), groups.end(),
                                        [&](const Group& group) { return group.place == place; });
        if (known != groups.end()) {
            ++known->count;
        } else {
            groups.push_back({place, 1});
        }
    }
    std::string text = "deadlock: of " + std::to_string(num_threads_) + " threads ";
    for (const Group& group : groups) {
        text += std::to_string(group.count) + " wait in " + group.place + ", ";
    }
    return text + std::to_string(num_done_) + " have ended";
}

Launch& currentLaunch(const char* what) {
    if (current_launch == nullptr) {
        throw LaunchError(std::string(what) + " outside a kernel: use KVLAB_LAUNCH");
    }
    return *current_launch;
}

}  // namespace

constinit thread_local std::vector<LaunchNote>* current_notes = nullptr;

ScopedRecorder::ScopedRecorder(std::vector<LaunchRecord>* launches) : previous_(current_recorder) {
    current_recorder = launches;
}

ScopedRecorder::~ScopedRecorder() { current_recorder = previous_; }

Settings currentSettings() { return current_settings; }

ScopedSettings::ScopedSettings(const Settings& settings) : previous_(current_settings) {
    current_settings = settings;
}

ScopedSettings::~ScopedSettings() { current_settings = previous_; }

ScopedPredecessor::ScopedPredecessor(const Predecessor* predecessor)
    : previous_(current_predecessor) {
    current_predecessor = predecessor;
}

ScopedPredecessor::~ScopedPredecessor() { current_predecessor = previous_; }

namespace {

// Counters exist before main and for as long as their library.
struct KernelCounters {
    std::mutex mutex;
    std::vector<const KernelCounter*> all;
};
KernelCounters& kernelCounters() {
    static KernelCounters counters;
    return counters;
}

}  // namespace

KernelCounter::KernelCounter(const std::type_info& tag) : tag_(tag) {
    KernelCounters& counters = kernelCounters();
    const std::lock_guard lock(counters.mutex);
    counters.all.push_back(this);
}

KernelUse KernelCounter::use() const {
    // kvlab::simt::KernelTag<&(void kvlab::kernel<true>(Params))>, or, of a kernel that is no
    // template, kvlab::simt::KernelTag<&kvlab::kernel>
    int status = 0;
    char* const text = abi::__cxa_demangle(tag_.name(), nullptr, nullptr, &status);
    std::string name = text != nullptr ? text : tag_.name();
    std::free(text);
    if (const size_t begin = name.find("<&"); begin != std::string::npos) {
        name.erase(0, begin + 2);
        if (name.starts_with("(void ")) name.erase(0, 6);
        // Up to the parameters or the tag's own bracket; parentheses within brackets are casts of
        // enumerations.
        int depth = 0;
        for (size_t i = 0; i < name.size(); ++i) {
            if (name[i] == '<') ++depth;
            if (name[i] == '>') --depth;
            if (depth < 0 ||
                (name[i] == '(' && depth == 0 && name.compare(i, 11, "(anonymous ") != 0)) {
                name.erase(i);
                break;
            }
        }
    }
    return {std::move(name), num_launches_.load(std::memory_order_relaxed)};
}

std::vector<KernelUse> kernelUses() {
    KernelCounters& counters = kernelCounters();
    const std::lock_guard lock(counters.mutex);
    std::vector<KernelUse> uses;
    for (const KernelCounter* const counter : counters.all) uses.push_back(counter->use());
    std::sort(uses.begin(), uses.end(),
              [](const KernelUse& a, const KernelUse& b) { return a.name < b.name; });
    return uses;
}

void launch(const char* kernel_name,
            dim3 grid,
            dim3 thread_block,
            size_t shared_bytes,
            const std::function<void()>& thread,
            bool is_early) {
    const auto refuse = [&](const std::string& why) {
        throw LaunchError("kernel " + std::string(kernel_name) + ": " + why);
    };
    const auto text = [](dim3 d) {
        return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) +
               ")";
    };
    if (current_launch != nullptr) refuse("launched from inside a kernel, which is not supported");
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 ||
        grid.z > 65535) {
        refuse("a grid of " + text(grid) + " thread blocks is not possible");
    }
    const uint64_t num_threads = uint64_t{thread_block.x} * thread_block.y * thread_block.z;
    if (num_threads == 0 || num_threads > kMaxThreads || thread_block.z > 64) {
        refuse("a thread block of " + text(thread_block) + " threads is not possible");
    }
    if (shared_bytes > kMaxSharedBytes) {
        refuse(std::to_string(shared_bytes) +
               " bytes of dynamic shared memory are too many; at most " +
               std::to_string(kMaxSharedBytes));
    }
    Progress progress;
    progress.num_thread_blocks = uint64_t{grid.x} * grid.y * grid.z;
    if (current_recorder != nullptr) {
        progress.record = &current_recorder->emplace_back();
        progress.record->kernel = kernel_name;
        progress.record->grid = grid;
        progress.record->thread_block = thread_block;
        progress.record->notes.resize(progress.num_thread_blocks);
    }
    const Predecessor* const predecessor = is_early ? current_predecessor : nullptr;
    const auto run = [&, settings = current_settings] {
        Launch(kernel_name, grid, thread_block, shared_bytes, thread, is_early, predecessor,
               settings)
            .run(progress);
    };
    std::vector<std::thread> helpers;
    const uint64_t num_os_threads =
        predecessor != nullptr
            ? 1
            : std::min<uint64_t>(
                  progress.num_thread_blocks,
                  static_cast<uint64_t>(std::max(current_settings.num_os_threads, 1)));
    try {
        while (helpers.size() + 1 < num_os_threads) {
            helpers.emplace_back([&] {
                try {
                    run();
                } catch (...) {  // no memory for stacks
                    progress.fail(0);
                }
            });
        }
        run();
    } catch (...) {
        progress.fail(0);
    }
    for (std::thread& helper : helpers) helper.join();
    if (progress.error != nullptr) std::rethrow_exception(progress.error);
}

void syncThreadBlock(CallSite site) { currentLaunch("__syncthreads").syncThreadBlock(site); }

void waitForPredecessors(CallSite site) {
    currentLaunch("waitForPredecessors").waitForPredecessors(site);
}

uint64_t meetWarp(WarpOperation operation,
                  uint32_t mask,
                  uint64_t value,
                  int argument,
                  int width,
                  CallSite site) {
    return currentLaunch(operationName(operation))
        .meetWarp(operation, mask, value, argument, width, site);
}

void* sharedVariable(const void* key, size_t bytes, size_t alignment) {
    Launch& launch = currentLaunch("shared memory");
    void* const address = launch.sharedMemory().find(key, bytes, alignment);
    if (address == nullptr) {
        launch.fail(
            "more shared memory than the " + std::to_string(kMaxSharedBytes) +
            " bytes of a thread block: " + std::to_string(launch.sharedMemory().usedBytes()) +
            " taken, " + std::to_string(bytes) + " more asked for");
    }
    return address;
}

void* dynamicSharedMemory() { return currentLaunch("shared memory").sharedMemory().dynamic(); }

}  // namespace kvlab::simt
