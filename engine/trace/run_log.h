// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/trace/event.h"
#include "engine/trace/state.h"

namespace kvlab {

// A place in the log: everything before it has happened. {s, 0, 0} is the moment before step s,
// which is the moment after step s - 1; {0, 0, 0} is the empty pool.
struct Cursor {
    int64_t step = 0;
    int event = 0;
    int entry = 0;
    auto operator<=>(const Cursor&) const = default;
};

// The growing log of one run with keyframes of its fold, at most kKeyframeInterval steps apart.
// What a keyframe holds depends on what is in use, not on the size of the pool or the length of the
// run: the blocks that are not free, the free queue as runs of neighbours, and the sequences that
// have not left. Those that have, whose texts no longer change, stand once in the last state. Not
// thread-safe: each reader (the window, a command) owns one and appends the steps it receives.
class RunLog {
  public:
    static constexpr int kKeyframeInterval = 256;

    explicit RunLog(RunInfo info);

    // Steps arrive in order, step numbers 0, 1, …. Throws EngineError(kBadFile) when an event
    // contradicts the state, in which case the log is as it was before the call.
    void append(std::shared_ptr<const StepTrace> step);

    const RunInfo& info() const { return info_; }
    int64_t numSteps() const { return static_cast<int64_t>(steps_.size()); }
    const StepTrace& step(int64_t idx) const { return *steps_[static_cast<size_t>(idx)]; }
    // Text of a token named in the log; "" when it never was.
    const std::string& piece(TokenId token) const;

    Cursor begin() const { return {}; }
    Cursor end() const { return {numSteps(), 0, 0}; }
    // One entry further or back, normalised; stays at the ends.
    Cursor nextEntry(Cursor at) const;
    Cursor previousEntry(Cursor at) const;
    Cursor nextStep(Cursor at) const { return clamp({at.step + 1, 0, 0}); }
    Cursor previousStep(Cursor at) const;
    Cursor clamp(Cursor at) const;
    // Entries between the start and the cursor (for sliders).
    int64_t entryIndex(Cursor at) const;

    // The fold up to the cursor: nearest keyframe, then forward.
    CacheState stateAt(Cursor at) const;
    // Moves `state` from `from` to `to`, forward entry by entry when that is nearer than a
    // keyframe.
    void advance(CacheState& state, Cursor from, Cursor to) const;
    // State after the last step.
    const CacheState& lastState() const { return last_; }
    // Account after each step, [num_steps]; for the timeline's curve.
    const PoolAccount& accountAfter(int64_t step) const {
        return accounts_[static_cast<size_t>(step)];
    }

    int64_t keyframeBytes() const;  // memory of all keyframes

  private:
    // A pool whose blocks are mostly free.
    struct PackedPool {
        int num_blocks = 0;
        std::vector<std::pair<int32_t, BlockState>> in_use;  // by block id
        std::vector<std::pair<int32_t, int32_t>> free_runs;  // first block and length, in turn
    };
    struct Keyframe {
        PackedPool pool, host_pool;
        size_t num_sequences = 0;
        CacheState rest;  // without pools; of its sequences those that had not left
    };
    template <class IdType>
    static PackedPool packed(const std::vector<BlockState>& blocks,
                             const FreeQueue<IdType>& free_queue);
    template <class IdType>
    static void unpack(const PackedPool& pool,
                       std::vector<BlockState>& blocks,
                       FreeQueue<IdType>& free_queue);
    // Of last_, which is as it was afterwards.
    Keyframe makeKeyframe();
    // The whole state; `latest` has the sequences that had left.
    static CacheState restored(const Keyframe& keyframe, const std::vector<SequenceState>& latest);

    RunInfo info_;
    std::vector<std::shared_ptr<const StepTrace>> steps_;
    std::vector<int64_t> entries_before_;  // [num_steps + 1]
    std::vector<Keyframe> keyframes_;      // before step i * kKeyframeInterval
    std::vector<PoolAccount> accounts_;
    std::unordered_map<TokenId, std::string> pieces_;
    CacheState last_;
};

}  // namespace kvlab
