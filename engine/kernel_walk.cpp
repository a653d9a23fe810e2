// SPDX-License-Identifier: MIT
#include "engine/kernel_walk.h"

#include <string_view>
#include <utility>

namespace kvlab {

KernelWalkCollector::KernelWalkCollector(std::shared_ptr<const KernelWalkListener> listener)
    : listener_(std::move(listener)) {
    if (listener_ == nullptr) return;
    tap_.wants = listener_->wants;
    tap_.on_walk = [this](AttentionWalk walk) { walks_.push_back(std::move(walk)); };
}

AttentionTap* KernelWalkCollector::tapFor(const char* backend) {
    is_active_ = listener_ != nullptr && std::string_view(backend) == "simt";
    return is_active_ ? &tap_ : nullptr;
}

void KernelWalkCollector::tell(const std::vector<SequenceId>& sequences) {
    std::vector<std::shared_ptr<const KernelWalk>> told;
    for (AttentionWalk& walk : walks_) {
        told.push_back(std::make_shared<const KernelWalk>(KernelWalk{std::move(walk), sequences}));
    }
    walks_.clear();
    if (!told.empty()) listener_->on_walks(std::move(told));
}

}  // namespace kvlab
