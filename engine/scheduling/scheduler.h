// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/cache/kv_cache_manager.h"
#include "engine/scheduling/sequence.h"
#include "engine/trace/trace_recorder.h"

namespace kvlab {

// What one sequence contributes to a step.
struct ScheduledRows {
    Sequence* sequence = nullptr;
    int num_tokens = 0;         // 1 in decode, a chunk of the prompt in prefill
    bool wants_logits = false;  // decode, or the chunk that completes the prompt
};

// One step as planned: blocks are taken, copies are listed in their order, nothing is written yet.
struct StepPlan {
    std::vector<ScheduledRows> rows;
    std::vector<BlockTransfer> transfers;
    std::vector<Sequence*> admitted;   // started in this step
    std::vector<RequestId> preempted;  // one entry a sequence
    int num_prefill_tokens = 0;
    int num_decode_tokens = 0;
    int num_recomputed_tokens = 0;
};

// Who runs in the next step: continuous batching with chunked prefill under a token budget.
//
//   queue    by priority, then arrival; a preempted sequence stands where its request stood
//   admit    the head of the queue while its tokens' blocks fit beside the watermark and what
//            running prompts still need; nobody overtakes the head
//   rows     every decoding sequence one, then prompts in chunks, block by block
//   preempt  when a sequence finds no block: the last in line among the running ones gives way,
//            swapped to the host or to be computed again; and lower priorities give way to a head
//            that goes first
//
// Progress: a request that cannot fit alone is refused when submitted, and for the first in line
// everything else gives way: orphans move to the host, running sequences are preempted, and
// swapped-out ones give up what they still hold on the device. So the first always runs.
class Scheduler {
  public:
    Scheduler(const EngineConfig& config, KvCacheManager& cache, TraceRecorder& recorder);

    void enqueue(RequestId id, std::shared_ptr<const EngineRequest> request);
    // Sequences that finished before leave; returns them.
    std::vector<std::unique_ptr<Sequence>> releaseFinished();
    // Ends all sequences of the request. kWaiting: it had none and left the queue. kNothing: it had
    // ended, or never was.
    enum class Cancelled { kNothing, kWaiting, kRunning };
    Cancelled cancel(RequestId request);
    StepPlan schedule();

    // One more sequence that shares all blocks of `parent` (paged).
    Sequence* fork(Sequence& parent, int sample_idx);
    // The samples 1 … n - 1 of a request whose prompt is complete. Paged: they share its blocks.
    // Slab: each gets a run and a copy (listed in `transfers`) while there are runs; the others
    // join the queue and prefill the prompt themselves. Returns those that run.
    std::vector<Sequence*> forkSamples(Sequence& parent, std::vector<BlockTransfer>& transfers);
    void finish(Sequence& sequence, FinishReason reason);
    // The device's pool is gone, and with it what was planned: every sequence that runs or is
    // swapped out keeps its tokens and no block, and is computed again. Returns the requests of
    // those that ran, one entry a sequence.
    std::vector<RequestId> recomputeAll();

    // By key: who goes first comes first.
    const std::vector<std::unique_ptr<Sequence>>& running() const { return running_; }
    const std::map<Sequence::Key, std::unique_ptr<Sequence>>& waiting() const { return waiting_; }
    bool hasWork() const;  // something waits, or runs and is not finished
    int64_t numPreemptions() const { return num_preemptions_; }
    // Slab: the head of the queue waits because no free run is long enough.
    bool isHeldUpByRuns() const;

  private:
    struct Need {
        int64_t blocks = 0;
        bool fits = false;
        DecisionReason reason = DecisionReason::kFits;
        int64_t free = 0;     // not promised
        int64_t reserve = 0;  // of these, not to be had
    };

    Need needOf(const Sequence& head) const;
    int64_t promisedBlocks() const;
    // Running sequences that can go on without the head's request: with none, the head need not
    // wait for a reserve.
    bool othersRun(RequestId request) const;
    void makeRoomForPriority();
    void planDecode(StepPlan& plan);
    void admit(StepPlan& plan);
    void planPrefill(StepPlan& plan);
    void start(StepPlan& plan, std::unique_ptr<Sequence> sequence, const Need& need);
    // Frees blocks until the sequence can append num_tokens; false when nobody is left to give way.
    bool makeRoom(Sequence& sequence, int num_tokens);
    Sequence* lastRunningAfter(const Sequence& sequence) const;
    // A running sequence that will free its blocks by itself; beams only go on together.
    bool anyGoesOnWithout(const Sequence& head) const;
    // Something more important than `sequence` runs.
    bool runsBefore(const Sequence& sequence) const;
    // The least important swapped-out sequence gives up its blocks and is computed again, for one
    // that needs `needed` blocks where `free` are to be had.
    bool dropLastSwapped(int64_t needed, int64_t free);
    void dropSwapped(Sequence& sequence, DecisionReason reason, int64_t blocks, int64_t free);
    // A running sequence leaves for the queue. kSwap: the host pool has room.
    void stopRunning(Sequence& sequence, PreemptionKind kind);
    // With its whole request when it is a beam: beams only go on together.
    void preempt(Sequence& victim, DecisionReason reason, int64_t blocks_needed);
    void preemptOne(Sequence& victim, DecisionReason reason, int64_t blocks_needed);
    bool beamsAreReady(RequestId request) const;
    int tokensToPrefill(const Sequence& sequence) const;
    int64_t kvLen(const Sequence& sequence) const;
    void insertRunning(std::unique_ptr<Sequence> sequence);
    std::unique_ptr<Sequence> takeRunning(const Sequence& sequence);
    // A wait, unless the log has it with this reason since the sequence joined the queue.
    void tellWait(Sequence& sequence, Decision wait);
    // Nobody is admitted in a step in which somebody gave way.
    void tellHeadWhereOthersGaveWay();
    void tellBehindHead(const std::vector<Sequence::Key>& joined);
    bool gaveWayInThisStep(const Sequence& sequence) const;
    void tell(DecisionKind kind,
              DecisionReason reason,
              const Sequence& sequence,
              int64_t needed,
              int64_t free,
              int64_t reserve = 0);

    const int token_budget_;
    const PreemptionKind preempt_;
    int64_t watermark_;  // blocks
    int block_size_;
    KvCacheManager& cache_;
    TraceRecorder& recorder_;
    int32_t next_sequence_ = 0;
    int64_t num_preemptions_ = 0;
    int budget_ = 0;  // tokens left in this step
    // A sequence gave way in this step for want of blocks: how many were wanted, and how many free.
    std::optional<std::pair<int64_t, int64_t>> gave_way_;
    std::vector<Sequence::Key> joined_;  // the queue, since schedule() last looked
    std::vector<BlockTransfer> transfers_;
    std::vector<RequestId> preempted_;
    std::map<Sequence::Key, std::unique_ptr<Sequence>> waiting_;
    std::vector<std::unique_ptr<Sequence>> running_;  // by key
    std::map<RequestId, int> priorities_;             // of requests that have not ended
    std::map<RequestId, int> num_alive_;              // sequences, waiting ones included
    bool has_finished_ = false;                       // among the running ones
};

}  // namespace kvlab
