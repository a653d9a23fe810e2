// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_set>

#include "engine/trace/event.h"

namespace kvlab {

// One entry of DecisionsMade.
struct Decision {
    DecisionKind kind = DecisionKind::kWaiting;
    DecisionReason reason = DecisionReason::kFits;
    RequestId request;
    SequenceId sequence;
    int64_t blocks_needed = 0;
    int64_t blocks_free = 0;
    int64_t watermark = 0;
    int priority = 0;
    int64_t tokens_needed = 0;
    int64_t tokens_free = 0;
    RequestId head;
};

// Collects what happens during a step and seals it. Runs of equal kind become one event with
// arrays.
class TraceRecorder {
  public:
    // Text of a token, for the pieces of tokens that a step names first; may be empty.
    void setPieceSource(std::function<std::string(TokenId)> piece_of) {
        piece_of_ = std::move(piece_of);
    }

    void sequenceStarted(SequenceId sequence,
                         RequestId request,
                         int sample_idx,
                         const std::vector<TokenId>& prompt);
    void sequenceForked(SequenceId parent, SequenceId child, int sample_idx);
    void blockAllocated(SequenceId sequence, int block_idx, BlockId block);
    void blockCopied(
        SequenceId sequence, int block_idx, BlockId source, BlockId target, int num_slots);
    void tokensWritten(SequenceId sequence, int first_position, int num_tokens);
    void tokenSampled(SequenceId sequence, TokenId token, float log_probability);
    void sequenceFinished(SequenceId sequence, FinishReason reason);
    void blockReleased(SequenceId sequence, int block_idx, BlockId block);
    void sequenceRemoved(SequenceId sequence);
    void requestArrived(
        RequestId request, int priority, int prompt_len, int num_samples, int max_tokens);
    void requestWithdrawn(RequestId request);
    void decided(const Decision& decision);
    void tokensCopied(SequenceId source, SequenceId target, int num_tokens);
    void sequencePreempted(SequenceId sequence, PreemptionKind kind);
    void blockSwappedOut(int block_idx, BlockId block, HostBlockId host_block);
    void blockSwappedIn(int block_idx, HostBlockId host_block, BlockId block);
    void sequenceResumed(SequenceId sequence);
    void blockLeftWindow(SequenceId sequence, int block_idx, BlockId block);
    void hostBlockReleased(SequenceId sequence, int block_idx, HostBlockId host_block);

    bool isEmpty() const { return step_.events.empty(); }  // nothing happened since the last seal
    // The step since the last seal. Step numbers count from 0.
    std::shared_ptr<const StepTrace> seal(const StepStats& stats);

  private:
    template <class Kind>
    Kind& current();
    void nameToken(TokenId token);

    std::function<std::string(TokenId)> piece_of_;
    std::unordered_set<TokenId> named_;
    StepTrace step_;
    int64_t next_step_ = 0;
};

}  // namespace kvlab
