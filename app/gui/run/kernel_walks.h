// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/kernel_walk.h"

namespace kvlab {

using StepWalks = std::vector<std::shared_ptr<const KernelWalk>>;  // by layer

// What the attention launches of one simt run read, by step. Recorded beside the log and not in it:
// a trace holds none.
class KernelWalks {
  public:
    // Of one run, bytes; later steps go unrecorded.
    static constexpr int64_t kMaxBytes = int64_t{192} << 20;

    void add(int64_t step, const StepWalks& walks) { steps_[step] = walks; }
    bool empty() const { return steps_.empty(); }
    // Null: nothing was computed in that step, or nothing recorded.
    const StepWalks* at(int64_t step) const {
        const auto found = steps_.find(step);
        return found == steps_.end() ? nullptr : &found->second;
    }

  private:
    std::map<int64_t, StepWalks> steps_;
};

inline int64_t bytesOf(const KernelWalk& walk) {
    int64_t bytes = sizeof walk;
    for (const AttentionLaunch& launch : walk.attention.launches) {
        for (const AttentionThreadBlock& thread_block : launch.thread_blocks) {
            bytes += static_cast<int64_t>(sizeof thread_block);
            for (const AttentionRun& run : thread_block.runs) {
                bytes +=
                    static_cast<int64_t>(sizeof run + run.reads.capacity() * sizeof(AttentionRead));
            }
        }
    }
    return bytes;
}

}  // namespace kvlab
