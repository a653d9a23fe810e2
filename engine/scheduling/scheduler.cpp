// SPDX-License-Identifier: MIT
#include "engine/scheduling/scheduler.h"

#include <algorithm>
#include <utility>

#include "engine/error.h"

namespace kvlab {

Scheduler::Scheduler(const EngineConfig& config, KvCacheManager& cache, TraceRecorder& recorder)
    : token_budget_(config.token_budget),
      preempt_(config.preempt),
      watermark_(static_cast<int64_t>(config.watermark * config.cache.num_blocks)),
      block_size_(config.cache.block_size),
      cache_(cache),
      recorder_(recorder) {}

void Scheduler::enqueue(RequestId id, std::shared_ptr<const EngineRequest> request) {
    auto sequence = std::make_unique<Sequence>();
    sequence->request_id = id;
    sequence->request = std::move(request);
    priorities_[id] = sequence->request->priority;
    num_alive_[id] = 1;
    const Sequence::Key key = sequence->key();
    joined_.push_back(key);
    waiting_.emplace(key, std::move(sequence));
}

bool Scheduler::hasWork() const {
    return !waiting_.empty() || std::any_of(running_.begin(), running_.end(), [](const auto& s) {
        return s->phase != Phase::kFinished;
    });
}

void Scheduler::finish(Sequence& sequence, FinishReason reason) {
    sequence.phase = Phase::kFinished;
    sequence.finish = reason;
    has_finished_ = true;
    recorder_.sequenceFinished(sequence.id, reason);
}

std::vector<std::unique_ptr<Sequence>> Scheduler::releaseFinished() {
    std::vector<std::unique_ptr<Sequence>> left;
    if (!has_finished_) return left;
    for (std::unique_ptr<Sequence>& sequence : running_) {
        if (sequence->phase == Phase::kFinished) left.push_back(std::move(sequence));
    }
    std::erase(running_, nullptr);
    has_finished_ = false;
    for (const auto& sequence : left) cache_.release(sequence->id);
    for (const auto& sequence : left) {
        recorder_.sequenceRemoved(sequence->id);
        if (--num_alive_[sequence->request_id] == 0) {
            num_alive_.erase(sequence->request_id);
            priorities_.erase(sequence->request_id);
        }
    }
    return left;
}

Scheduler::Cancelled Scheduler::cancel(RequestId request) {
    const auto priority = priorities_.find(request);
    if (priority == priorities_.end()) return Cancelled::kNothing;
    bool started = false;
    for (const auto& sequence : running_) {
        if (sequence->request_id != request) continue;
        started = true;
        if (sequence->phase != Phase::kFinished) finish(*sequence, FinishReason::kCancelled);
    }
    auto at = waiting_.lower_bound({-priority->second, request, INT32_MIN, SequenceId()});
    while (at != waiting_.end() && at->second->request_id == request) {
        std::unique_ptr<Sequence> sequence = std::move(at->second);
        at = waiting_.erase(at);
        if (sequence->id.valid()) {
            started = true;
            finish(*sequence, FinishReason::kCancelled);
            insertRunning(std::move(sequence));
        } else {
            // A sample that found no slab leaves no trace; a request does.
            if (sequence->sample_idx == 0) recorder_.requestWithdrawn(request);
            --num_alive_[request];
        }
    }
    if (num_alive_[request] == 0) {
        num_alive_.erase(request);
        priorities_.erase(request);
    }
    return started ? Cancelled::kRunning : Cancelled::kWaiting;
}

int64_t Scheduler::kvLen(const Sequence& sequence) const {
    return cache_.table(sequence.id).kv_len;
}

// A beam that is computed again stops before its last token: that one goes with the other beams'.
int Scheduler::tokensToPrefill(const Sequence& sequence) const {
    const int total = static_cast<int>(sequence.tokens.size());
    const int hold_back = sequence.isBeam() && sequence.num_sampled > 0 ? 1 : 0;
    return total - hold_back - static_cast<int>(kvLen(sequence));
}

int64_t Scheduler::promisedBlocks() const {
    if (cache_.isSlab()) return 0;
    int64_t promised = 0;
    for (const auto& sequence : running_) {
        if (sequence->phase == Phase::kPrefill) {
            promised += cache_.blocksToReach(sequence->id, tokensToPrefill(*sequence));
        }
    }
    return promised;
}

bool Scheduler::othersRun(RequestId request) const {
    return std::any_of(running_.begin(), running_.end(), [&](const auto& s) {
        return s->phase != Phase::kFinished && s->request_id != request;
    });
}

bool Scheduler::runsBefore(const Sequence& sequence) const {
    return std::any_of(running_.begin(), running_.end(), [&](const auto& s) {
        return s->phase != Phase::kFinished && s->key() < sequence.key();
    });
}

bool Scheduler::anyGoesOnWithout(const Sequence& head) const {
    return std::any_of(running_.begin(), running_.end(), [&](const auto& s) {
        const bool waits_for_head = s->isBeam() && s->request_id == head.request_id;
        return s->phase != Phase::kFinished && !waits_for_head;
    });
}

Scheduler::Need Scheduler::needOf(const Sequence& head) const {
    Need need;
    need.free = cache_.pool().numFree() - promisedBlocks();
    if (cache_.isSlab()) {
        need.blocks = cache_.config().runBlocks(head.request->longestLen());
        need.fits = cache_.canTakeRun(need.blocks);
        need.reason = need.fits                 ? DecisionReason::kFits
                      : need.free < need.blocks ? DecisionReason::kNoFreeBlocks
                                                : DecisionReason::kNoFreeRun;
        return need;
    }
    if (head.preempted == PreemptionKind::kSwap) {
        // And room for the row that it goes on with.
        need.blocks = cache_.blocksToResume(head.id) + (kvLen(head) % block_size_ == 0 ? 1 : 0);
    } else {
        const int64_t num_tokens =
            head.id.valid() ? static_cast<int64_t>(head.tokens.size()) : head.request->promptLen();
        need.blocks = cache_.config().mostBlocks(num_tokens);
    }
    need.reserve = othersRun(head.request_id) ? watermark_ : 0;
    need.fits = need.blocks <= need.free - need.reserve;
    need.reason = need.fits ? DecisionReason::kFits : DecisionReason::kNoFreeBlocks;
    return need;
}

bool Scheduler::isHeldUpByRuns() const {
    return cache_.isSlab() && !waiting_.empty() && !needOf(*waiting_.begin()->second).fits;
}

void Scheduler::tell(DecisionKind kind,
                     DecisionReason reason,
                     const Sequence& sequence,
                     int64_t needed,
                     int64_t free,
                     int64_t reserve) {
    recorder_.decided({kind, reason, sequence.request_id, sequence.id, needed,
                       std::max<int64_t>(free, 0), reserve, sequence.request->priority});
}

void Scheduler::tellWait(Sequence& sequence, Decision wait) {
    const uint32_t bit = 1U << static_cast<unsigned>(wait.reason);
    if (sequence.told_waits & bit) return;
    sequence.told_waits |= bit;
    wait.kind = DecisionKind::kWaiting;
    wait.request = sequence.request_id;
    wait.sequence = sequence.id;
    wait.blocks_free = std::max<int64_t>(wait.blocks_free, 0);
    wait.priority = sequence.request->priority;
    recorder_.decided(wait);
}

// Its entry in the log says already why it does not run.
bool Scheduler::gaveWayInThisStep(const Sequence& sequence) const {
    return std::find(joined_.begin(), joined_.end(), sequence.key()) != joined_.end();
}

void Scheduler::tellHeadWhereOthersGaveWay() {
    if (waiting_.empty() || gaveWayInThisStep(*waiting_.begin()->second)) return;
    Decision wait;
    wait.reason = DecisionReason::kNeededByOther;
    std::tie(wait.blocks_needed, wait.blocks_free) = *gave_way_;
    tellWait(*waiting_.begin()->second, wait);
}

void Scheduler::tellBehindHead(const std::vector<Sequence::Key>& joined) {
    if (waiting_.empty()) return;
    const Sequence& head = *waiting_.begin()->second;
    for (const Sequence::Key& key : joined) {
        const auto at = waiting_.find(key);
        if (at == waiting_.end() || at->second.get() == &head) continue;
        if (gaveWayInThisStep(*at->second)) continue;
        const Need need = needOf(*at->second);
        Decision wait;
        wait.reason = DecisionReason::kBehindOther;
        wait.blocks_needed = need.blocks;
        wait.blocks_free = need.free;
        wait.watermark = need.reserve;
        wait.head = head.request_id;
        tellWait(*at->second, wait);
    }
}

void Scheduler::insertRunning(std::unique_ptr<Sequence> sequence) {
    const Sequence::Key key = sequence->key();
    const auto place = std::lower_bound(running_.begin(), running_.end(), key,
                                        [](const auto& s, const auto& k) { return s->key() < k; });
    running_.insert(place, std::move(sequence));
}

std::unique_ptr<Sequence> Scheduler::takeRunning(const Sequence& sequence) {
    const auto place = std::find_if(running_.rbegin(), running_.rend(),
                                    [&](const auto& s) { return s.get() == &sequence; });
    KVLAB_CHECK(place != running_.rend(), "a sequence that does not run gave way");
    std::unique_ptr<Sequence> taken = std::move(*place);
    running_.erase(std::next(place).base());
    return taken;
}

Sequence* Scheduler::lastRunningAfter(const Sequence& sequence) const {
    for (auto at = running_.rbegin(); at != running_.rend(); ++at) {
        Sequence& candidate = **at;
        if (candidate.key() <= sequence.key()) return nullptr;
        const bool same_beams = sequence.isBeam() && candidate.request_id == sequence.request_id;
        if (candidate.phase != Phase::kFinished && !same_beams) return &candidate;
    }
    return nullptr;
}

bool Scheduler::dropLastSwapped(int64_t needed, int64_t free) {
    for (auto at = waiting_.rbegin(); at != waiting_.rend(); ++at) {
        Sequence& sequence = *at->second;
        if (sequence.preempted != PreemptionKind::kSwap) continue;
        dropSwapped(sequence, DecisionReason::kNeededByOther, needed, free);
        return true;
    }
    return false;
}

void Scheduler::dropSwapped(Sequence& sequence,
                            DecisionReason reason,
                            int64_t blocks,
                            int64_t free) {
    tell(DecisionKind::kDropped, reason, sequence, blocks, free);
    sequence.recompute_len = std::max(sequence.recompute_len, static_cast<int>(kvLen(sequence)));
    cache_.drop(sequence.id);
    sequence.preempted = PreemptionKind::kRecompute;
    sequence.phase = Phase::kPrefill;
}

void Scheduler::stopRunning(Sequence& sequence, PreemptionKind kind) {
    if (kind == PreemptionKind::kSwap) {
        cache_.swapOut(sequence.id, transfers_);
    } else {
        sequence.recompute_len =
            std::max(sequence.recompute_len, static_cast<int>(kvLen(sequence)));
        cache_.drop(sequence.id);
        sequence.phase = Phase::kPrefill;
    }
    sequence.preempted = kind;
    sequence.told_waits = 0;
    ++num_preemptions_;
    preempted_.push_back(sequence.request_id);
    const Sequence::Key key = sequence.key();
    joined_.push_back(key);
    waiting_.emplace(key, takeRunning(sequence));
}

std::vector<RequestId> Scheduler::recomputeAll() {
    const auto held = [&](const Sequence& s) { return cache_.table(s.id).numHeld(); };
    for (const auto& [key, sequence] : waiting_) {
        if (sequence->preempted != PreemptionKind::kSwap) continue;
        dropSwapped(*sequence, DecisionReason::kDeviceFailed, held(*sequence),
                    cache_.pool().numFree());
    }
    std::vector<Sequence*> alive;
    for (const auto& sequence : running_) {
        if (sequence->phase != Phase::kFinished) alive.push_back(sequence.get());
    }
    for (Sequence* const sequence : alive) {
        tell(DecisionKind::kPreempted, DecisionReason::kDeviceFailed, *sequence, held(*sequence),
             cache_.pool().numFree());
        stopRunning(*sequence, PreemptionKind::kRecompute);
    }
    return std::exchange(preempted_, {});
}

void Scheduler::preemptOne(Sequence& victim, DecisionReason reason, int64_t blocks_needed) {
    tell(DecisionKind::kPreempted, reason, victim, blocks_needed, cache_.pool().numFree());
    PreemptionKind kind = preempt_;
    if (kind == PreemptionKind::kSwap) {
        const int64_t to_move = cache_.blocksToSwapOut(victim.id);
        if (to_move > cache_.hostPool().numFree()) {
            tell(DecisionKind::kDropped, DecisionReason::kHostPoolFull, victim, to_move,
                 cache_.hostPool().numFree());
            kind = PreemptionKind::kRecompute;
        }
    }
    stopRunning(victim, kind);
}

void Scheduler::preempt(Sequence& victim, DecisionReason reason, int64_t blocks_needed) {
    if (!victim.isBeam()) return preemptOne(victim, reason, blocks_needed);
    std::vector<Sequence*> beams;
    for (const auto& sequence : running_) {
        if (sequence->request_id == victim.request_id && sequence->phase != Phase::kFinished) {
            beams.push_back(sequence.get());
        }
    }
    for (auto at = beams.rbegin(); at != beams.rend(); ++at) {
        preemptOne(**at, reason, blocks_needed);
    }
}

bool Scheduler::makeRoom(Sequence& sequence, int num_tokens) {
    for (;;) {
        // What others give up may also make a copy unnecessary.
        const int64_t needed = cache_.blocksToAppend(sequence.id, num_tokens);
        if (cache_.pool().numFree() >= needed) return true;
        if (cache_.moveOrphans(needed, transfers_)) return true;
        if (Sequence* victim = lastRunningAfter(sequence)) {
            gave_way_ = {needed, cache_.pool().numFree()};
            preempt(*victim, DecisionReason::kNeededByOther, needed);
        } else if ((cache_.numOrphans() == 0 && runsBefore(sequence)) ||
                   !dropLastSwapped(needed, cache_.pool().numFree())) {
            // Nothing that waits holds a block of its own: the sequence itself gives way.
            return false;
        }
    }
}

bool Scheduler::beamsAreReady(RequestId request) const {
    int count = 0;
    for (const auto& sequence : running_) {
        if (sequence->request_id != request || sequence->phase == Phase::kFinished) continue;
        if (sequence->phase != Phase::kDecode) return false;
        ++count;
    }
    const auto waits =
        waiting_.lower_bound({-priorities_.at(request), request, INT32_MIN, SequenceId()});
    return count > 0 && (waits == waiting_.end() || waits->second->request_id != request);
}

void Scheduler::makeRoomForPriority() {
    // What finished sequences hold is free in the next step.
    if (waiting_.empty() || running_.empty() || has_finished_) return;
    const Sequence& head = *waiting_.begin()->second;
    const auto givesWay = [&](const Sequence& s) {
        return s.phase != Phase::kFinished && s.request->priority < head.request->priority;
    };
    Need need = needOf(head);
    if (need.fits) return;
    int64_t held = need.free;
    bool others_stay = false;
    std::vector<SequenceId> victims;
    for (const auto& sequence : running_) {
        if (givesWay(*sequence)) {
            held += cache_.table(sequence->id).numHeld();
            victims.push_back(sequence->id);
        } else {
            others_stay |= sequence->request_id != head.request_id;
        }
    }
    // Nobody gives way in vain.
    const int64_t reserve = others_stay && !cache_.isSlab() ? watermark_ : 0;
    if (held < need.blocks + reserve) return;
    if (cache_.isSlab() && !cache_.canTakeRunAfter(need.blocks, victims)) return;
    while (!need.fits) {
        const auto victim = std::find_if(running_.rbegin(), running_.rend(),
                                         [&](const auto& s) { return givesWay(*s); });
        if (victim == running_.rend()) return;
        preempt(**victim, DecisionReason::kHigherPriority, need.blocks);
        need = needOf(head);
    }
}

void Scheduler::planDecode(StepPlan& plan) {
    for (size_t i = 0; i < running_.size();) {
        Sequence& sequence = *running_[i];
        ++i;
        if (sequence.phase != Phase::kDecode) continue;
        if (sequence.isBeam() && !beamsAreReady(sequence.request_id)) continue;
        if (makeRoom(sequence, 1)) {
            cache_.prepareAppend(sequence.id, 1, transfers_);
            plan.rows.push_back({&sequence, 1, true});
            continue;
        }
        const int64_t needed = cache_.blocksToAppend(sequence.id, 1);
        gave_way_ = {needed, cache_.pool().numFree()};
        const Sequence::Key key = sequence.key();
        preempt(sequence, DecisionReason::kNeededByOther, needed);
        // Beams before it left the running set too.
        i = static_cast<size_t>(
            std::lower_bound(running_.begin(), running_.end(), key,
                             [](const auto& s, const auto& k) { return s->key() < k; }) -
            running_.begin());
    }
    // Beams that were planned before one of them had to give way.
    std::erase_if(plan.rows, [](const ScheduledRows& rows) {
        return rows.sequence->preempted != PreemptionKind::kNone;
    });
    budget_ -= static_cast<int>(plan.rows.size());
}

void Scheduler::start(StepPlan& plan, std::unique_ptr<Sequence> sequence, const Need& need) {
    const bool is_new = !sequence->id.valid();
    if (is_new) {
        tell(DecisionKind::kAdmitted, need.reason, *sequence, need.blocks, need.free, need.reserve);
        sequence->id = SequenceId(next_sequence_++);
        sequence->tokens = sequence->request->prompt;
        sequence->tokens.resize(static_cast<size_t>(sequence->request->promptLen()), TokenId(0));
        sequence->forked = sequence->sample_idx > 0;
        recorder_.sequenceStarted(sequence->id, sequence->request_id, sequence->sample_idx,
                                  sequence->tokens);
        cache_.add(sequence->id, need.blocks);
        plan.admitted.push_back(sequence.get());
    } else {
        tell(DecisionKind::kResumed, need.reason, *sequence, need.blocks, need.free, need.reserve);
        cache_.resume(sequence->id, transfers_);
        sequence->preempted = PreemptionKind::kNone;
    }
    sequence->told_waits = 0;
    Sequence& started = *sequence;
    insertRunning(std::move(sequence));
    if (started.phase == Phase::kDecode && !started.isBeam() &&
        cache_.blocksToAppend(started.id, 1) <= cache_.pool().numFree()) {
        cache_.prepareAppend(started.id, 1, transfers_);
        plan.rows.push_back({&started, 1, true});
        --budget_;
    }
}

void Scheduler::admit(StepPlan& plan) {
    int pending = 0;  // prompt tokens of running sequences, first in line for the budget
    for (const auto& sequence : running_) {
        if (sequence->phase == Phase::kPrefill) pending += tokensToPrefill(*sequence);
    }
    while (!waiting_.empty()) {
        Sequence& head = *waiting_.begin()->second;
        const Need need = needOf(head);
        Decision wait;
        wait.reason = need.reason;
        wait.blocks_needed = need.blocks;
        wait.blocks_free = need.free;
        wait.watermark = need.reserve;
        if (budget_ <= pending) {
            wait.reason = DecisionReason::kTokenBudget;
            wait.tokens_needed = pending;
            wait.tokens_free = std::max(0, budget_);
            tellWait(head, wait);
            return;
        }
        // What finished sequences hold is free in the next step.
        if (!need.fits && !has_finished_ && !anyGoesOnWithout(head) && !cache_.isSlab()) {
            // Only those that wait hold blocks; they must not hold up the first in line.
            const int64_t promised = cache_.pool().numFree() - need.free;
            if (cache_.moveOrphans(need.blocks + promised, transfers_) ||
                dropLastSwapped(need.blocks, need.free)) {
                continue;
            }
        }
        if (!need.fits) {
            tellWait(head, wait);
            return;
        }
        std::unique_ptr<Sequence> sequence = std::move(waiting_.begin()->second);
        waiting_.erase(waiting_.begin());
        start(plan, std::move(sequence), need);
        if (head.phase == Phase::kPrefill) pending += tokensToPrefill(head);
    }
}

void Scheduler::planPrefill(StepPlan& plan) {
    Decision wait;  // of a prompt that gets no row
    wait.tokens_free = std::max(0, budget_);
    for (size_t i = 0; i < running_.size(); ++i) {
        Sequence& sequence = *running_[i];
        if (sequence.phase != Phase::kPrefill) continue;
        const int left = tokensToPrefill(sequence);
        if (left == 0) {  // a beam with all but its last token
            sequence.phase = Phase::kDecode;
            continue;
        }
        wait.blocks_needed = cache_.blocksToAppend(sequence.id, 1);
        wait.blocks_free = cache_.pool().numFree();
        if (budget_ <= 0) {
            wait.reason = DecisionReason::kTokenBudget;
            tellWait(sequence, wait);
        }
        wait.tokens_needed += left;
        if (budget_ <= 0) continue;
        int num_tokens = std::min(left, budget_);
        if (cache_.config().freesLeftBlocks()) {
            // A window gives back between chunks what one large chunk would take from others.
            const int64_t for_others = promisedBlocks() - cache_.blocksToReach(sequence.id, left);
            const int64_t free = std::max<int64_t>(0, cache_.pool().numFree() - for_others);
            num_tokens = static_cast<int>(
                std::clamp<int64_t>(cache_.roomFor(sequence.id, free), 1, int64_t{num_tokens}));
        }
        if (!makeRoom(sequence, num_tokens)) {
            const int64_t room = cache_.roomFor(sequence.id, cache_.pool().numFree());
            num_tokens = static_cast<int>(std::min<int64_t>(num_tokens, room));
            if (num_tokens == 0 ||
                cache_.blocksToAppend(sequence.id, num_tokens) > cache_.pool().numFree()) {
                Decision starved = wait;
                starved.reason = DecisionReason::kNoFreeBlocks;
                starved.blocks_free = cache_.pool().numFree();
                starved.tokens_needed = starved.tokens_free = 0;
                tellWait(sequence, starved);
                continue;
            }
        }
        const int kv_len = static_cast<int>(kvLen(sequence));
        cache_.prepareAppend(sequence.id, num_tokens, transfers_);
        plan.num_recomputed_tokens +=
            std::max(0, std::min(kv_len + num_tokens, sequence.recompute_len) - kv_len);
        const bool completes = kv_len + num_tokens == static_cast<int>(sequence.tokens.size());
        plan.rows.push_back({&sequence, num_tokens, completes});
        budget_ -= num_tokens;
    }
    std::erase_if(plan.rows, [](const ScheduledRows& rows) {
        return rows.sequence->preempted != PreemptionKind::kNone;
    });
}

StepPlan Scheduler::schedule() {
    StepPlan plan;
    budget_ = token_budget_;
    gave_way_.reset();
    const std::vector<Sequence::Key> joined = std::exchange(joined_, {});
    makeRoomForPriority();
    planDecode(plan);
    if (gave_way_) {
        tellHeadWhereOthersGaveWay();
    } else {
        admit(plan);
    }
    planPrefill(plan);
    tellBehindHead(joined);
    for (const ScheduledRows& rows : plan.rows) {
        if (rows.sequence->phase == Phase::kDecode) {
            ++plan.num_decode_tokens;
        } else {
            plan.num_prefill_tokens += rows.num_tokens;
        }
    }
    plan.transfers = std::move(transfers_);
    transfers_.clear();
    plan.preempted = std::move(preempted_);
    preempted_.clear();
    return plan;
}

Sequence* Scheduler::fork(Sequence& parent, int sample_idx) {
    auto child = std::make_unique<Sequence>(parent);
    child->id = SequenceId(next_sequence_++);
    child->sample_idx = sample_idx;
    ++num_alive_[parent.request_id];
    cache_.fork(parent.id, {child->id}, {sample_idx});
    Sequence* forked = child.get();
    insertRunning(std::move(child));
    return forked;
}

std::vector<Sequence*> Scheduler::forkSamples(Sequence& parent,
                                              std::vector<BlockTransfer>& transfers) {
    std::vector<Sequence*> children;
    parent.forked = true;
    for (int sample = 1; sample < parent.request->num_samples; ++sample) {
        if (!cache_.isSlab()) {
            children.push_back(fork(parent, sample));
            continue;
        }
        auto child = std::make_unique<Sequence>(parent);
        child->id = SequenceId();
        child->sample_idx = sample;
        child->num_steps_held = child->unused_slot_steps = 0;
        ++num_alive_[parent.request_id];
        const int64_t run_blocks = cache_.config().runBlocks(parent.request->longestLen());
        if (!cache_.canTakeRun(run_blocks)) {
            child->tokens.clear();
            child->phase = Phase::kPrefill;
            child->told_waits = 0;
            const Sequence::Key key = child->key();
            joined_.push_back(key);
            waiting_.emplace(key, std::move(child));
            continue;
        }
        child->id = SequenceId(next_sequence_++);
        recorder_.sequenceStarted(child->id, child->request_id, sample, child->tokens);
        cache_.add(child->id, run_blocks);
        cache_.copyInto(parent.id, child->id, transfers);
        children.push_back(child.get());
        insertRunning(std::move(child));
    }
    return children;
}

}  // namespace kvlab
