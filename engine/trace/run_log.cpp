// SPDX-License-Identifier: MIT
#include "engine/trace/run_log.h"

#include <algorithm>
#include <utility>

#include "engine/error.h"

namespace kvlab {

namespace {

// Applies [from, to) of the log to `state`.
void applyRange(const RunLog& log, CacheState& state, Cursor from, Cursor to) {
    for (int64_t step = from.step; step <= to.step && step < log.numSteps(); ++step) {
        const std::vector<Event>& events = log.step(step).events;
        const bool last_step = step == to.step;
        const int first_event = step == from.step ? from.event : 0;
        for (int event = first_event; event < static_cast<int>(events.size()); ++event) {
            if (last_step && event > to.event) return;
            const int begin = step == from.step && event == from.event ? from.entry : 0;
            const int end = last_step && event == to.event
                                ? to.entry
                                : numEntries(events[static_cast<size_t>(event)]);
            for (int entry = begin; entry < end; ++entry) {
                applyEntry(state, events[static_cast<size_t>(event)], entry);
            }
        }
    }
}

}  // namespace

RunLog::RunLog(RunInfo info)
    : info_(std::move(info)), entries_before_{0}, last_(initialState(info_.cache)) {}

void RunLog::append(std::shared_ptr<const StepTrace> step) {
    if (step->step != numSteps()) {
        throw EngineError(ErrorKind::kBadFile, "the log contradicts itself: step " +
                                                   std::to_string(step->step) + " follows step " +
                                                   std::to_string(numSteps() - 1));
    }
    const bool is_keyframe = numSteps() % kKeyframeInterval == 0;
    if (is_keyframe) keyframes_.push_back(makeKeyframe());
    int64_t entries = 0;
    try {
        for (const Event& event : step->events) {
            apply(last_, event);
            entries += numEntries(event);
        }
    } catch (...) {
        // The state was changed in place, without a copy for each step: fold it again.
        last_ = restored(keyframes_.back(), last_.sequences);
        const int64_t keyframe = static_cast<int64_t>(keyframes_.size()) - 1;
        applyRange(*this, last_, {keyframe * kKeyframeInterval, 0, 0}, end());
        if (is_keyframe) keyframes_.pop_back();
        throw;
    }
    accounts_.push_back(accountOf(last_));
    entries_before_.push_back(entries_before_.back() + entries);
    for (const auto& [token, text] : step->new_pieces) pieces_.emplace(token, text);
    steps_.push_back(std::move(step));
}

template <class IdType>
RunLog::PackedPool RunLog::packed(const std::vector<BlockState>& blocks,
                                  const FreeQueue<IdType>& free_queue) {
    PackedPool pool;
    pool.num_blocks = static_cast<int>(blocks.size());
    for (size_t id = 0; id < blocks.size(); ++id) {
        if (blocks[id] != BlockState())
            pool.in_use.emplace_back(static_cast<int32_t>(id), blocks[id]);
    }
    for (const IdType id : free_queue) {
        if (!pool.free_runs.empty() &&
            pool.free_runs.back().first + pool.free_runs.back().second == id.value) {
            ++pool.free_runs.back().second;
        } else {
            pool.free_runs.emplace_back(id.value, 1);
        }
    }
    pool.in_use.shrink_to_fit();
    pool.free_runs.shrink_to_fit();
    return pool;
}

template <class IdType>
void RunLog::unpack(const PackedPool& pool,
                    std::vector<BlockState>& blocks,
                    FreeQueue<IdType>& free_queue) {
    blocks.assign(static_cast<size_t>(pool.num_blocks), BlockState());
    for (const auto& [id, block] : pool.in_use) blocks[static_cast<size_t>(id)] = block;
    free_queue = FreeQueue<IdType>::withoutAny(pool.num_blocks);
    for (const auto& [first, length] : pool.free_runs) {
        for (int32_t i = 0; i < length; ++i) free_queue.pushBack(IdType(first + i));
    }
}

RunLog::Keyframe RunLog::makeKeyframe() {
    Keyframe keyframe;
    keyframe.pool = packed(last_.blocks, last_.free_queue);
    keyframe.host_pool = packed(last_.host_blocks, last_.host_free_queue);
    keyframe.num_sequences = last_.sequences.size();
    // The rest, without a copy of what is large.
    CacheState large;
    const auto swapLarge = [&] {
        large.blocks.swap(last_.blocks);
        large.host_blocks.swap(last_.host_blocks);
        large.sequences.swap(last_.sequences);
        std::swap(large.free_queue, last_.free_queue);
        std::swap(large.host_free_queue, last_.host_free_queue);
    };
    swapLarge();
    keyframe.rest = last_;
    swapLarge();
    for (const SequenceState& sequence : last_.sequences) {
        if (!sequence.removed) keyframe.rest.sequences.push_back(sequence);
    }
    return keyframe;
}

CacheState RunLog::restored(const Keyframe& keyframe, const std::vector<SequenceState>& latest) {
    CacheState state = keyframe.rest;
    unpack(keyframe.pool, state.blocks, state.free_queue);
    unpack(keyframe.host_pool, state.host_blocks, state.host_free_queue);
    state.sequences.assign(latest.begin(),
                           latest.begin() + static_cast<std::ptrdiff_t>(keyframe.num_sequences));
    for (const SequenceState& sequence : keyframe.rest.sequences) {
        state.sequences[static_cast<size_t>(sequence.id.value)] = sequence;
    }
    return state;
}

int64_t RunLog::keyframeBytes() const {
    const auto bytes = [](const auto& values) {
        return static_cast<int64_t>(values.capacity() * sizeof(values[0]));
    };
    constexpr size_t kNodeBytes = sizeof(std::pair<RequestId, WaitingRequest>) + 4 * sizeof(void*);
    int64_t sum = bytes(keyframes_);
    for (const Keyframe& keyframe : keyframes_) {
        for (const PackedPool* pool : {&keyframe.pool, &keyframe.host_pool}) {
            sum += bytes(pool->in_use) + bytes(pool->free_runs);
        }
        sum += bytes(keyframe.rest.sequences);
        for (const SequenceState& sequence : keyframe.rest.sequences) {
            sum += bytes(sequence.tokens) + bytes(sequence.table) + bytes(sequence.host_table);
        }
        sum += static_cast<int64_t>(keyframe.rest.waiting.size() * kNodeBytes);
    }
    return sum;
}

const std::string& RunLog::piece(TokenId token) const {
    static const std::string kNone;
    const auto found = pieces_.find(token);
    return found == pieces_.end() ? kNone : found->second;
}

Cursor RunLog::clamp(Cursor at) const {
    if (at.step < 0) return begin();
    while (at.step < numSteps()) {
        const std::vector<Event>& events = step(at.step).events;
        at.event = std::max(at.event, 0);
        at.entry = std::max(at.entry, 0);
        while (at.event < static_cast<int>(events.size()) &&
               at.entry >= numEntries(events[static_cast<size_t>(at.event)])) {
            ++at.event;
            at.entry = 0;
        }
        if (at.event < static_cast<int>(events.size())) return at;
        at = {at.step + 1, 0, 0};
    }
    return end();
}

Cursor RunLog::nextEntry(Cursor at) const {
    at = clamp(at);
    if (at >= end()) return end();
    ++at.entry;
    return clamp(at);
}

Cursor RunLog::previousEntry(Cursor at) const {
    at = clamp(at);
    if (at.entry > 0) return {at.step, at.event, at.entry - 1};
    if (at.event > 0) {
        const Event& event = step(at.step).events[static_cast<size_t>(at.event - 1)];
        return {at.step, at.event - 1, numEntries(event) - 1};
    }
    for (int64_t s = at.step - 1; s >= 0; --s) {
        const std::vector<Event>& events = step(s).events;
        if (!events.empty()) {
            return {s, static_cast<int>(events.size()) - 1, numEntries(events.back()) - 1};
        }
    }
    return begin();
}

Cursor RunLog::previousStep(Cursor at) const {
    at = clamp(at);
    if (at.event > 0 || at.entry > 0) return clamp({at.step, 0, 0});
    for (int64_t s = at.step - 1; s >= 0; --s) {
        if (!step(s).events.empty()) return {s, 0, 0};
    }
    return begin();
}

int64_t RunLog::entryIndex(Cursor at) const {
    at = clamp(at);
    int64_t index = entries_before_[static_cast<size_t>(at.step)];
    if (at.step < numSteps()) {
        const std::vector<Event>& events = step(at.step).events;
        for (int event = 0; event < at.event; ++event) {
            index += numEntries(events[static_cast<size_t>(event)]);
        }
        index += at.entry;
    }
    return index;
}

CacheState RunLog::stateAt(Cursor at) const {
    at = clamp(at);
    if (at == end()) return last_;
    const int64_t keyframe = at.step / kKeyframeInterval;
    CacheState state = restored(keyframes_[static_cast<size_t>(keyframe)], last_.sequences);
    applyRange(*this, state, {keyframe * kKeyframeInterval, 0, 0}, at);
    return state;
}

void RunLog::advance(CacheState& state, Cursor from, Cursor to) const {
    from = clamp(from);
    to = clamp(to);
    if (from == to) return;
    if (from < to && to.step - from.step <= kKeyframeInterval && to != end()) {
        applyRange(*this, state, from, to);
    } else {
        state = stateAt(to);
    }
}

}  // namespace kvlab
