// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/ids.h"
#include "kernels/paged_attention/attention_walk.h"

namespace kvlab {

// What one layer's attention launch of a step read, recorded from a run of the CUDA kernel through
// kernels/simt.
struct KernelWalk {
    AttentionWalk attention;
    std::vector<SequenceId> sequences;  // by AttentionRun::seq_idx
};

// Who wants to see them; a run on another backend tells nothing. Both are called on the run thread.
struct KernelWalkListener {
    std::function<bool(int layer)> wants;
    // All layers of a step that were wanted, before the step itself is told.
    std::function<void(std::vector<std::shared_ptr<const KernelWalk>>)> on_walks;
};

// Collects them for one executor.
class KernelWalkCollector {
  public:
    explicit KernelWalkCollector(std::shared_ptr<const KernelWalkListener> listener);
    // Null where there is no listener, or the backend's kernels do not run in simt.
    AttentionTap* tapFor(const char* backend);
    // The step has ended; its rows were of these sequences.
    void tell(const std::vector<SequenceId>& sequences);
    bool isActive() const { return is_active_; }

  private:
    std::shared_ptr<const KernelWalkListener> listener_;
    AttentionTap tap_;
    std::vector<AttentionWalk> walks_;
    bool is_active_ = false;
};

}  // namespace kvlab
