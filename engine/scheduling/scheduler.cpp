// SPDX-License-Identifier: MIT
#include "engine/scheduling/scheduler.h"

#include <algorithm>

#include "engine/error.h"

namespace kvlab {

Scheduler::Scheduler(int num_blocks, int token_budget)
    : num_blocks_(num_blocks), token_budget_(token_budget) {}

void Scheduler::enqueue(RequestId id,
                        std::shared_ptr<const EngineRequest> request,
                        int64_t worst_case_blocks) {
    waiting_.push_back({id, std::move(request), worst_case_blocks});
}

std::vector<Sequence*> Scheduler::admit() {
    std::vector<Sequence*> admitted;
    while (!waiting_.empty() && reserved_blocks_ + waiting_.front().blocks <= num_blocks_) {
        Waiting next = std::move(waiting_.front());
        waiting_.pop_front();
        auto sequence = std::make_unique<Sequence>();
        sequence->id = SequenceId(next_sequence_++);
        sequence->request_id = next.id;
        sequence->tokens = next.request->prompt;
        sequence->request = std::move(next.request);
        reserved_blocks_ += next.blocks;
        reservations_[next.id] = {next.blocks, 1};
        admitted.push_back(sequence.get());
        running_.push_back(std::move(sequence));
    }
    return admitted;
}

std::vector<Sequence*> Scheduler::fork(const Sequence& parent) {
    std::vector<Sequence*> children;
    for (int sample = 1; sample < parent.request->num_samples; ++sample) {
        auto child = std::make_unique<Sequence>(parent);
        child->id = SequenceId(next_sequence_++);
        child->sample_idx = sample;
        ++reservations_[parent.request_id].num_sequences;
        children.push_back(child.get());
        running_.push_back(std::move(child));
    }
    return children;
}

std::vector<ScheduledRows> Scheduler::plan(const std::vector<int>& kv_lens) const {
    int budget = token_budget_;
    std::vector<ScheduledRows> rows(running_.size());
    for (size_t i = 0; i < running_.size(); ++i) {
        rows[i].sequence = running_[i].get();
        // Decode is not held back by the budget: it bounds how much prompt joins a step.
        if (running_[i]->phase == Phase::kDecode) {
            rows[i].num_tokens = 1;
            rows[i].wants_logits = true;
            --budget;
        }
    }
    for (size_t i = 0; i < running_.size(); ++i) {
        if (running_[i]->phase != Phase::kPrefill || budget <= 0) continue;
        const int left = static_cast<int>(running_[i]->tokens.size()) - kv_lens[i];
        rows[i].num_tokens = std::min(left, budget);
        rows[i].wants_logits = rows[i].num_tokens == left;
        budget -= rows[i].num_tokens;
    }
    std::erase_if(rows, [](const ScheduledRows& r) { return r.num_tokens == 0; });
    return rows;
}

void Scheduler::remove(SequenceId sequence) {
    const auto found = std::find_if(running_.begin(), running_.end(),
                                    [&](const auto& running) { return running->id == sequence; });
    KVLAB_CHECK(found != running_.end(), "a sequence that is not running was removed");
    const auto reservation = reservations_.find((*found)->request_id);
    if (--reservation->second.num_sequences == 0) {
        reserved_blocks_ -= reservation->second.blocks;
        reservations_.erase(reservation);
    }
    running_.erase(found);
}

bool Scheduler::cancelWaiting(RequestId request) {
    return std::erase_if(waiting_, [&](const Waiting& waiting) { return waiting.id == request; }) >
           0;
}

}  // namespace kvlab
