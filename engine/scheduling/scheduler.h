// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "engine/scheduling/sequence.h"

namespace kvlab {

// What one sequence contributes to a step.
struct ScheduledRows {
    Sequence* sequence = nullptr;
    int num_tokens = 0;         // 1 in decode, a chunk of the prompt in prefill
    bool wants_logits = false;  // decode, or the chunk that completes the prompt
};

// Who runs in the next step. First come, first served: a request enters when its worst case fits
// beside what the running ones may still need; decode rows come first, prompts share what the token
// budget leaves.
class Scheduler {
  public:
    Scheduler(int num_blocks, int token_budget);

    // worst_case_blocks: Engine::worstCaseBlocks of the request, at most num_blocks.
    void enqueue(RequestId id,
                 std::shared_ptr<const EngineRequest> request,
                 int64_t worst_case_blocks);
    // Moves waiting requests into the running set; returns the first sequence of each, in order.
    std::vector<Sequence*> admit();
    // New samples of a running sequence: copies of it with their own ids and sample indices 1 … n
    // - 1.
    std::vector<Sequence*> fork(const Sequence& parent);
    // Rows of the next step, in the order of the running set. `kv_lens` [running] tells how many
    // tokens of each are written.
    std::vector<ScheduledRows> plan(const std::vector<int>& kv_lens) const;
    // Drops finished sequences from the running set; the reservation of a request ends with its
    // last one.
    void remove(SequenceId sequence);
    // Takes a waiting request out of the queue; false when it is not waiting.
    bool cancelWaiting(RequestId request);

    const std::vector<std::unique_ptr<Sequence>>& running() const { return running_; }
    bool hasWaiting() const { return !waiting_.empty(); }

  private:
    struct Waiting {
        RequestId id;
        std::shared_ptr<const EngineRequest> request;
        int64_t blocks = 0;
    };
    struct Reservation {
        int64_t blocks = 0;
        int num_sequences = 0;
    };

    int64_t num_blocks_;
    int token_budget_;
    int64_t reserved_blocks_ = 0;
    int32_t next_sequence_ = 0;
    std::deque<Waiting> waiting_;
    std::vector<std::unique_ptr<Sequence>> running_;  // by sequence id
    std::map<RequestId, Reservation> reservations_;
};

}  // namespace kvlab
