// SPDX-License-Identifier: MIT
#include "engine/trace/trace_recorder.h"

#include <utility>

namespace kvlab {

// The open event when it is of this kind, else a new one.
template <class Kind>
Kind& TraceRecorder::current() {
    if (step_.events.empty() || !std::holds_alternative<Kind>(step_.events.back())) {
        step_.events.emplace_back(Kind{});
    }
    return std::get<Kind>(step_.events.back());
}

void TraceRecorder::nameToken(TokenId token) {
    if (piece_of_ && named_.insert(token).second)
        step_.new_pieces.emplace_back(token, piece_of_(token));
}

void TraceRecorder::sequenceStarted(SequenceId sequence,
                                    RequestId request,
                                    int sample_idx,
                                    const std::vector<TokenId>& prompt) {
    for (const TokenId token : prompt) nameToken(token);
    step_.events.emplace_back(SequenceStarted{sequence, request, sample_idx, prompt});
}

void TraceRecorder::sequenceForked(SequenceId parent, SequenceId child, int sample_idx) {
    SequencesForked& event = current<SequencesForked>();
    event.parent.push_back(parent);
    event.child.push_back(child);
    event.sample_idx.push_back(sample_idx);
}

void TraceRecorder::blockAllocated(SequenceId sequence, int block_idx, BlockId block) {
    BlocksAllocated& event = current<BlocksAllocated>();
    event.sequence.push_back(sequence);
    event.block_idx.push_back(block_idx);
    event.block.push_back(block);
}

void TraceRecorder::blockCopied(
    SequenceId sequence, int block_idx, BlockId source, BlockId target, int num_slots) {
    BlocksCopied& event = current<BlocksCopied>();
    event.sequence.push_back(sequence);
    event.block_idx.push_back(block_idx);
    event.source.push_back(source);
    event.target.push_back(target);
    event.num_slots.push_back(num_slots);
}

void TraceRecorder::tokensWritten(SequenceId sequence, int first_position, int num_tokens) {
    TokensWritten& event = current<TokensWritten>();
    event.sequence.push_back(sequence);
    event.first_position.push_back(first_position);
    event.num_tokens.push_back(num_tokens);
}

void TraceRecorder::tokenSampled(SequenceId sequence, TokenId token, float log_probability) {
    nameToken(token);
    TokensSampled& event = current<TokensSampled>();
    event.sequence.push_back(sequence);
    event.token.push_back(token);
    event.log_probability.push_back(log_probability);
}

void TraceRecorder::sequenceFinished(SequenceId sequence, FinishReason reason) {
    SequencesFinished& event = current<SequencesFinished>();
    event.sequence.push_back(sequence);
    event.reason.push_back(reason);
}

void TraceRecorder::blockReleased(SequenceId sequence, int block_idx, BlockId block) {
    BlocksReleased& event = current<BlocksReleased>();
    event.sequence.push_back(sequence);
    event.block_idx.push_back(block_idx);
    event.block.push_back(block);
}

void TraceRecorder::sequenceRemoved(SequenceId sequence) {
    current<SequencesRemoved>().sequence.push_back(sequence);
}

void TraceRecorder::requestArrived(
    RequestId request, int priority, int prompt_len, int num_samples, int max_tokens) {
    RequestsArrived& event = current<RequestsArrived>();
    event.request.push_back(request);
    event.priority.push_back(priority);
    event.prompt_len.push_back(prompt_len);
    event.num_samples.push_back(num_samples);
    event.max_tokens.push_back(max_tokens);
}

void TraceRecorder::requestWithdrawn(RequestId request) {
    current<RequestsWithdrawn>().request.push_back(request);
}

void TraceRecorder::decided(const Decision& decision) {
    DecisionsMade& event = current<DecisionsMade>();
    event.kind.push_back(decision.kind);
    event.reason.push_back(decision.reason);
    event.request.push_back(decision.request);
    event.sequence.push_back(decision.sequence);
    event.blocks_needed.push_back(decision.blocks_needed);
    event.blocks_free.push_back(decision.blocks_free);
    event.watermark.push_back(decision.watermark);
    event.priority.push_back(decision.priority);
    event.tokens_needed.push_back(decision.tokens_needed);
    event.tokens_free.push_back(decision.tokens_free);
    event.head.push_back(decision.head);
}

void TraceRecorder::tokensCopied(SequenceId source, SequenceId target, int num_tokens) {
    TokensCopied& event = current<TokensCopied>();
    event.source.push_back(source);
    event.target.push_back(target);
    event.num_tokens.push_back(num_tokens);
}

void TraceRecorder::sequencePreempted(SequenceId sequence, PreemptionKind kind) {
    SequencesPreempted& event = current<SequencesPreempted>();
    event.sequence.push_back(sequence);
    event.kind.push_back(kind);
}

void TraceRecorder::blockSwappedOut(int block_idx, BlockId block, HostBlockId host_block) {
    BlocksSwappedOut& event = current<BlocksSwappedOut>();
    event.block_idx.push_back(block_idx);
    event.block.push_back(block);
    event.host_block.push_back(host_block);
}

void TraceRecorder::blockSwappedIn(int block_idx, HostBlockId host_block, BlockId block) {
    BlocksSwappedIn& event = current<BlocksSwappedIn>();
    event.block_idx.push_back(block_idx);
    event.host_block.push_back(host_block);
    event.block.push_back(block);
}

void TraceRecorder::sequenceResumed(SequenceId sequence) {
    current<SequencesResumed>().sequence.push_back(sequence);
}

void TraceRecorder::blockLeftWindow(SequenceId sequence, int block_idx, BlockId block) {
    BlocksLeftWindow& event = current<BlocksLeftWindow>();
    event.sequence.push_back(sequence);
    event.block_idx.push_back(block_idx);
    event.block.push_back(block);
}

void TraceRecorder::hostBlockReleased(SequenceId sequence, int block_idx, HostBlockId host_block) {
    HostBlocksReleased& event = current<HostBlocksReleased>();
    event.sequence.push_back(sequence);
    event.block_idx.push_back(block_idx);
    event.host_block.push_back(host_block);
}

std::shared_ptr<const StepTrace> TraceRecorder::seal(const StepStats& stats) {
    step_.step = next_step_++;
    step_.stats = stats;
    return std::make_shared<const StepTrace>(std::exchange(step_, StepTrace{}));
}

}  // namespace kvlab
