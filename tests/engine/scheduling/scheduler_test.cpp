// SPDX-License-Identifier: MIT
#include "engine/scheduling/scheduler.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <tuple>

#include <QTest>

#include "engine/engine.h"
#include "engine/error.h"
#include "engine/trace/state.h"

using namespace kvlab;

namespace {

EngineConfig configOf(int num_blocks, int block_size) {
    EngineConfig config;
    config.cache.block_size = block_size;
    config.cache.num_blocks = num_blocks;
    config.cache.kv_dtype = DataType::kF32;
    return config;
}

EngineRequest requestOf(int prompt_len, int max_tokens, int priority = 0) {
    EngineRequest request;
    request.prompt.assign(static_cast<size_t>(prompt_len), TokenId(1));
    request.max_tokens = max_tokens;
    request.priority = priority;
    return request;
}

ModelConfig modelOf() {
    ModelConfig model;
    model.num_layers = model.num_heads = model.num_kv_heads = model.head_dim = 1;
    return model;
}

struct Told {
    DecisionKind kind;
    DecisionReason reason;
    int request;
    int64_t needed, free;
    bool operator==(const Told&) const = default;
};

std::vector<Told> toldIn(const StepTrace& step) {
    std::vector<Told> all;
    for (const Event& event : step.events) {
        const auto* made = std::get_if<DecisionsMade>(&event);
        for (size_t i = 0; made && i < made->kind.size(); ++i) {
            all.push_back({made->kind[i], made->reason[i], made->request[i].value,
                           made->blocks_needed[i], made->blocks_free[i]});
        }
    }
    return all;
}

// What the rules say about a step, worked out from the log, the folded state and the requests that
// were submitted; of the scheduler it knows nothing.
class Referee {
  public:
    Referee(const EngineConfig& config, const ModelConfig& model)
        : config_(config), window_(model.uniformWindow()), state_(initialState(config.cache)) {}

    // Blocks that one sequence of it needs at the least.
    int64_t fewest(const EngineRequest& request) const {
        const CacheConfig& cache = config_.cache;
        const auto up = [&](int64_t tokens) {
            return (tokens + cache.block_size - 1) / cache.block_size;
        };
        if (cache.layout == CacheLayout::kSlab) {
            return up(cache.slab_per_request
                          ? static_cast<int64_t>(request.prompt.size()) + request.max_tokens
                          : cache.max_len);
        }
        const int64_t all =
            up(static_cast<int64_t>(request.prompt.size()) + request.max_tokens - 1);
        return window_ > 0 ? std::min(all, up(std::max(window_, 2) - 1) + 1) : all;
    }
    void submitted(const EngineRequest& request) { requests_.push_back({request, false}); }
    void cancelled(int request) {
        if (request < static_cast<int>(requests_.size())) {
            requests_[static_cast<size_t>(request)].cancelled = true;
        }
    }
    const CacheState& state() const { return state_; }

    // "" or the rule that the step broke.
    std::string judge(const StepTrace& step) {
        std::map<int, size_t> decoding;  // sequence → its tokens before the step
        for (const SequenceState& s : state_.sequences) {
            if (runs(s) && decodes(s)) {
                decoding[s.id.value] = s.tokens.size();
            }
        }
        std::multiset<int> gave_way;  // sequences, in this step
        std::set<int> wrote;
        int64_t written = 0, num_preempted = 0, budget_told = -1;
        for (const Event& event : step.events) {
            if (const auto* preempted = std::get_if<SequencesPreempted>(&event)) {
                for (size_t i = 0; i < preempted->sequence.size(); ++i) {
                    const int id = preempted->sequence[i].value;
                    decoding.erase(id);  // it may even come back in the same step
                    if (preempted->kind[i] == PreemptionKind::kRecompute) recomputing_.insert(id);
                }
            } else if (const auto* sampled = std::get_if<TokensSampled>(&event)) {
                for (const SequenceId id : sampled->sequence) recomputing_.erase(id.value);
            }
            for (int i = 0; i < numEntries(event); ++i) {
                const std::string broken = judgeEntry(event, static_cast<size_t>(i));
                if (!broken.empty()) return broken;
                if (const auto* made = std::get_if<DecisionsMade>(&event)) {
                    const auto at = static_cast<size_t>(i);
                    num_preempted += made->kind[at] == DecisionKind::kPreempted ? 1 : 0;
                    if (made->reason[at] == DecisionReason::kTokenBudget) {
                        budget_told = made->tokens_free[at];
                    }
                    const std::string untrue = noteWait(*made, at, !gave_way.empty());
                    if (!untrue.empty()) return untrue;
                }
                forgetWaits(event, static_cast<size_t>(i), gave_way);
                applyEntry(state_, event, i);
                const auto* write = std::get_if<TokensWritten>(&event);
                if (write) {
                    written += write->num_tokens[static_cast<size_t>(i)];
                    wrote.insert(write->sequence[static_cast<size_t>(i)].value);
                }
            }
        }
        const StepStats& stats = step.stats;
        if (written != stats.num_prefill_tokens + stats.num_decode_tokens) {
            return "another number of tokens was written than planned";
        }
        if (stats.num_prefill_tokens >
            std::max(0, config_.token_budget - stats.num_decode_tokens)) {
            return "prompts took more than decode rows left of the token budget";
        }
        if (num_preempted != static_cast<int64_t>(gave_way.size())) {
            return "not every preemption was told once";
        }
        if (gave_way.empty() && budget_told >= 0 &&
            budget_told != std::max(0, config_.token_budget - stats.num_decode_tokens)) {
            return "a wait for the token budget names another budget";
        }
        const std::string untold = judgeWaits(gave_way, wrote);
        if (!untold.empty()) return untold;
        for (const auto& [id, num_tokens] : decoding) {
            const SequenceState& s = state_.sequences[static_cast<size_t>(id)];
            const bool stopped =
                s.preempted != PreemptionKind::kNone || s.finish == FinishReason::kCancelled;
            if (!stopped && s.tokens.size() != num_tokens + 1) {
                return "a decoding sequence that nobody preempted got no token: " +
                       ownerLetter(s.id) + " in step " + std::to_string(step.step);
            }
        }
        return checkInvariants(state_);
    }

    // After the last step.
    std::string judgeEnd() const {
        std::map<int, int> complete;  // request → sequences that have all their tokens
        for (const SequenceState& s : state_.sequences) {
            const Request& request = requests_[static_cast<size_t>(s.request.value)];
            const size_t wanted =
                request.wanted.prompt.size() + static_cast<size_t>(request.wanted.max_tokens);
            if (s.finish == FinishReason::kLength) {
                if (s.tokens.size() != wanted) return "a sequence ended too early or too late";
                ++complete[s.request.value];
            } else if (s.finish != FinishReason::kCancelled || !request.cancelled) {
                return "a sequence ended for no reason";
            }
        }
        for (size_t i = 0; i < requests_.size(); ++i) {
            const int count = complete[static_cast<int>(i)];
            const bool refused = fewest(requests_[i].wanted) > config_.cache.num_blocks;
            if (refused && count > 0) return "a request ran that cannot fit";
            if (!refused && !requests_[i].cancelled && count != requests_[i].wanted.num_samples) {
                return "a request lost a sample";
            }
        }
        return state_.waiting.empty() ? "" : "a request still waits";
    }

  private:
    struct Request {
        EngineRequest wanted;
        bool cancelled = false;
    };
    using Key = std::tuple<int, int, int>;  // minus priority, request, sample: first goes first

    static bool runs(const SequenceState& s) {
        return !s.removed && s.finish == FinishReason::kNone &&
               s.preempted == PreemptionKind::kNone;
    }
    Key keyOf(RequestId request, int sample_idx) const {
        return {-requests_[static_cast<size_t>(request.value)].wanted.priority, request.value,
                sample_idx};
    }
    // Who stands first in the queue, as far as the log tells.
    std::optional<Key> head() const {
        std::optional<Key> first;
        const auto offer = [&](const Key& key) {
            if (!first || key < *first) first = key;
        };
        for (const auto& [request, waiting] : state_.waiting) offer(keyOf(request, 0));
        for (const SequenceState& s : state_.sequences) {
            if (!s.removed && s.finish == FinishReason::kNone &&
                s.preempted != PreemptionKind::kNone) {
                offer(keyOf(s.request, s.sample_idx));
            }
        }
        return first;
    }

    bool decodes(const SequenceState& s) const {
        return s.kv_len + 1 == static_cast<int>(s.tokens.size()) &&
               static_cast<int>(s.tokens.size()) > s.prompt_len &&
               recomputing_.count(s.id.value) == 0;
    }
    // Tokens that running prompts still lack, those of sequences before `key`.
    int64_t pendingBefore(const Key& key) const {
        int64_t pending = 0;
        for (const SequenceState& s : state_.sequences) {
            if (!runs(s) || decodes(s) || keyOf(s.request, s.sample_idx) >= key) continue;
            pending += static_cast<int64_t>(s.tokens.size()) - s.kv_len;
        }
        return pending;
    }

    // Who waits, by what the log calls it: its sequence, or its request when it has none.
    using Waiting = std::pair<int, int>;

    std::string noteWait(const DecisionsMade& made, size_t i, bool somebody_gave_way) {
        if (made.kind[i] != DecisionKind::kWaiting) return "";
        const SequenceId id = made.sequence[i];
        const Waiting who{id.value, id.valid() ? -1 : made.request[i].value};
        // Samples that found no slab share a name.
        const bool hidden = config_.cache.layout == CacheLayout::kSlab && !id.valid();
        if (!told_[who].insert(made.reason[i]).second && !hidden) return "a wait was told twice";
        if (made.reason[i] == DecisionReason::kTokenBudget) {
            const bool running =
                id.valid() && runs(state_.sequences[static_cast<size_t>(id.value)]);
            const Key key = running
                                ? keyOf(made.request[i],
                                        state_.sequences[static_cast<size_t>(id.value)].sample_idx)
                                : Key{INT32_MAX, 0, 0};
            if (made.tokens_needed[i] != pendingBefore(key)) {
                return "a wait for the token budget counts other prompts";
            }
            if (made.tokens_needed[i] < made.tokens_free[i]) {
                return "a request waits though the token budget has room";
            }
        } else if (made.reason[i] == DecisionReason::kBehindOther) {
            const int first = std::get<1>(*head());
            if (config_.cache.layout == CacheLayout::kPaged && made.head[i].value != first) {
                return "a wait names another head of the queue";
            }
            if (keyOf(made.head[i], 0) > keyOf(made.request[i], INT32_MAX)) {
                return "a request waits behind one that goes after it";
            }
        } else if (made.reason[i] == DecisionReason::kNeededByOther) {
            if (!somebody_gave_way || made.blocks_needed[i] <= made.blocks_free[i]) {
                return "a request waits for one that gave way, and none did";
            }
        } else if (made.reason[i] != DecisionReason::kNoFreeBlocks &&
                   made.reason[i] != DecisionReason::kNoFreeRun) {
            return "a wait has a reason that is none";
        }
        return "";
    }
    // Whoever starts, or joins the queue, is told anew.
    void forgetWaits(const Event& event, size_t i, std::multiset<int>& gave_way) {
        if (const auto* preempted = std::get_if<SequencesPreempted>(&event)) {
            const int id = preempted->sequence[i].value;
            if (state_.sequences[static_cast<size_t>(id)].preempted == PreemptionKind::kNone) {
                gave_way.insert(id);
                told_.erase({id, -1});
            }
        } else if (const auto* resumed = std::get_if<SequencesResumed>(&event)) {
            told_.erase({resumed->sequence[i].value, -1});
        } else if (const auto* started = std::get_if<SequenceStarted>(&event)) {
            told_.erase({-1, started->request.value});
        }
    }
    std::string judgeWaits(const std::multiset<int>& gave_way, const std::set<int>& wrote) const {
        for (const auto& [request, waiting] : state_.waiting) {
            if (told_.count({-1, request.value}) == 0) return "a request waits and nobody says why";
        }
        for (const SequenceState& s : state_.sequences) {
            if (s.removed || s.finish != FinishReason::kNone || gave_way.count(s.id.value) > 0 ||
                told_.count({s.id.value, -1}) > 0) {
                continue;
            }
            if (s.preempted != PreemptionKind::kNone) {
                return "a preempted sequence waits and nobody says why";
            }
            if (!decodes(s) && wrote.count(s.id.value) == 0) {
                return "a prompt gets no row and nobody says why";
            }
        }
        return "";
    }

    int64_t longestFreeRun() const {
        int64_t longest = 0, length = 0;
        for (const BlockState& block : state_.blocks) {
            length = block.ref_count == 0 ? length + 1 : 0;
            longest = std::max(longest, length);
        }
        return longest;
    }

    std::string judgeEntry(const Event& event, size_t i) const {
        if (const auto* started = std::get_if<SequenceStarted>(&event)) {
            // Further samples split off; they do not stand in line.
            if (started->sample_idx == 0 && keyOf(started->request, 0) != head()) {
                return "a request overtook the head of the queue";
            }
        } else if (const auto* resumed = std::get_if<SequencesResumed>(&event)) {
            const SequenceState& s =
                state_.sequences[static_cast<size_t>(resumed->sequence[i].value)];
            if (keyOf(s.request, s.sample_idx) != head()) {
                return "a preempted sequence overtook the head of the queue";
            }
        } else if (const auto* preempted = std::get_if<SequencesPreempted>(&event)) {
            const SequenceState& victim =
                state_.sequences[static_cast<size_t>(preempted->sequence[i].value)];
            for (const SequenceState& s : state_.sequences) {
                // Running ones give way to running ones, and swapped-out ones give up their blocks
                // among themselves.
                const bool rival = !s.removed && s.finish == FinishReason::kNone &&
                                   s.preempted == victim.preempted;
                if (rival &&
                    keyOf(s.request, s.sample_idx) > keyOf(victim.request, victim.sample_idx)) {
                    return "a sequence gave way that was not the last in line";
                }
            }
        } else if (const auto* made = std::get_if<DecisionsMade>(&event)) {
            const int64_t free = state_.counts.free_blocks;
            if (made->kind[i] == DecisionKind::kPreempted &&
                made->reason[i] == DecisionReason::kNeededByOther &&
                (made->blocks_free[i] != free || made->blocks_needed[i] <= free)) {
                return "a sequence gave way though there were blocks";
            }
            if (made->kind[i] == DecisionKind::kWaiting &&
                made->reason[i] == DecisionReason::kNoFreeBlocks &&
                made->blocks_needed[i] <= made->blocks_free[i] - made->watermark[i]) {
                return "a request waits though there are blocks";
            }
            if (made->kind[i] == DecisionKind::kWaiting &&
                made->reason[i] == DecisionReason::kNoFreeRun &&
                (made->blocks_needed[i] > free || longestFreeRun() >= made->blocks_needed[i])) {
                return "a request waits for a run though there is one, or too few blocks";
            }
            if (made->kind[i] == DecisionKind::kAdmitted &&
                made->blocks_needed[i] > made->blocks_free[i] - made->watermark[i]) {
                return "a request was admitted without blocks";
            }
            if (made->kind[i] == DecisionKind::kAdmitted &&
                config_.cache.layout == CacheLayout::kSlab &&
                made->blocks_needed[i] > longestFreeRun()) {
                return "a request was admitted without a run";
            }
            if (made->kind[i] == DecisionKind::kDropped &&
                made->blocks_needed[i] <= made->blocks_free[i]) {
                return "K/V were dropped though there was room";
            }
        }
        return "";
    }

    EngineConfig config_;
    int window_;
    CacheState state_;
    std::vector<Request> requests_;  // by id
    std::set<int> recomputing_;      // sequences whose tokens are a prompt again
    std::map<Waiting, std::set<DecisionReason>> told_;
};

// Random operations on an engine without a model: submit, cancel, step; at last everything runs
// out. The number of operations done is added to `num_operations`; "" or what went wrong.
std::string playEpisode(uint64_t seed, int length, int64_t& num_operations) {
    std::mt19937_64 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
    ModelConfig model = modelOf();
    if (below(3) == 0) model.layer_windows = {1 + below(20)};
    EngineConfig config = configOf(1 + below(30), 1 + below(8));
    config.cache.num_host_blocks = below(3) == 0 ? 0 : below(40);
    if (below(3) == 0) {
        config.cache.layout = CacheLayout::kSlab;
        config.cache.max_len =
            1 + below(std::min(40, config.cache.num_blocks * config.cache.block_size));
        config.cache.slab_per_request = below(2) == 0;
    }
    config.preempt = below(2) == 0 ? PreemptionKind::kSwap : PreemptionKind::kRecompute;
    config.token_budget = 1 + below(below(2) == 0 ? 6 : 60);
    config.watermark = below(2) == 0 ? 0.01 : 0.3;
    Engine engine(model, config, AccountingOptions{});
    Referee referee(engine.config(), model);
    int num_requests = 0;
    const auto step = [&]() -> std::string {
        const auto trace = engine.step();
        if (!trace) return "";
        const std::string broken = referee.judge(*trace);
        if (!broken.empty()) return broken;
        return referee.state() == engine.state() ? "" : "the folded log differs from the engine";
    };
    for (int i = 0; i < length; ++i, ++num_operations) {
        const int kind = below(10);
        if (kind < 2) {
            EngineRequest request = requestOf(1 + below(30), 1 + below(12), below(3));
            request.num_samples = below(4) == 0 ? 1 + below(4) : 1;
            const bool too_long =
                config.cache.layout == CacheLayout::kSlab && !config.cache.slab_per_request &&
                static_cast<int>(request.prompt.size()) + request.max_tokens > config.cache.max_len;
            if (too_long) continue;  // its refusal has its own test
            referee.submitted(request);
            ++num_requests;
            const bool fits = referee.fewest(request) <= config.cache.num_blocks;
            try {
                engine.submit(request);
                if (!fits) return "a request was taken that cannot fit";
            } catch (const EngineError&) {
                if (fits) return "a request was refused that fits";
            }
        } else if (kind == 2 && num_requests > 0) {
            const int request = below(num_requests);
            engine.cancel(RequestId(request));
            referee.cancelled(request);
        } else {
            const std::string broken = step();
            if (!broken.empty()) return broken;
        }
    }
    for (int i = 0; engine.hasWork(); ++i) {
        if (i > 20'000) return "the run does not end";
        const std::string broken = step();
        if (!broken.empty()) return broken;
    }
    return referee.judgeEnd();
}

}  // namespace

class SchedulerTest : public QObject {
    Q_OBJECT

  private slots:
    // Blocks of 4, pool of 10, 20 % kept free.
    void everyDecisionIsToldOnceWithItsNumbers() {
        EngineConfig config = configOf(10, 4);
        config.watermark = 0.2;
        Engine engine(modelOf(), config, AccountingOptions{});
        QVERIFY_THROWS_EXCEPTION(EngineError, engine.submit(requestOf(40, 2)));
        engine.submit(requestOf(20, 5));  // request 1: 5 blocks, 6 at the end
        engine.submit(requestOf(13, 9));  // 4 blocks, of which 5 - 2 are to be had
        engine.submit(requestOf(1, 1));   // nobody overtakes the head
        const auto first = toldIn(*engine.step());
        const std::vector<Told> expected{
            {DecisionKind::kRefused, DecisionReason::kLargerThanPool, 0, 11, 10},
            {DecisionKind::kAdmitted, DecisionReason::kFits, 1, 5, 10},
            {DecisionKind::kWaiting, DecisionReason::kNoFreeBlocks, 2, 4, 5},
            {DecisionKind::kWaiting, DecisionReason::kBehindOther, 3, 1, 5}};
        QVERIFY(first == expected);
        QVERIFY(engine.timings()[0].refused);
        for (int i = 0; i < 4; ++i) QVERIFY(toldIn(*engine.step()).empty());
        const auto then = toldIn(*engine.step());
        QVERIFY(then.size() == 2 && then[0].kind == DecisionKind::kAdmitted &&
                then[0].request == 2 && then[1].request == 3);
    }

    void theTokenBudgetCutsPromptsAfterDecodeRows() {
        EngineConfig config = configOf(100, 4);
        config.token_budget = 8;
        Engine engine(modelOf(), config, AccountingOptions{});
        engine.submit(requestOf(3, 10));
        engine.submit(requestOf(20, 2));
        const auto first = engine.step();
        QCOMPARE(first->stats.num_prefill_tokens, 8);  // 3 + 5
        const auto second = engine.step();
        QCOMPARE(second->stats.num_decode_tokens, 1);
        QCOMPARE(second->stats.num_prefill_tokens, 7);
        QCOMPARE(engine.account().active_blocks, int64_t{1 + 3});  // block by block
    }

    void waitsForTheTokenBudgetAreTold() {
        EngineConfig config = configOf(100, 4);
        config.token_budget = 8;
        Engine engine(modelOf(), config, AccountingOptions{});
        engine.submit(requestOf(3, 10));
        engine.submit(requestOf(20, 2));
        engine.submit(requestOf(1, 2));
        engine.submit(requestOf(1, 2));
        QStringList waits;
        while (const auto step = engine.step()) {
            for (const Event& event : step->events) {
                const auto* made = std::get_if<DecisionsMade>(&event);
                for (int i = 0; made && i < numEntries(event); ++i) {
                    if (made->kind[static_cast<size_t>(i)] != DecisionKind::kWaiting) continue;
                    waits += QString::fromStdString(describeEntry(event, i));
                }
            }
        }
        const QStringList expected{
            "request 2 waits: prompts before it have 23 tokens to go, the step has room for 8",
            "request 3 waits: request 2 is first in the queue"};
        QCOMPARE(waits, expected);
        // A prompt that runs loses its place to decode rows of a request that goes first.
        Engine crowded(modelOf(), config, AccountingOptions{});
        for (int i = 0; i < 8; ++i) crowded.submit(requestOf(1, 9));
        crowded.step();
        crowded.submit(requestOf(30, 2, 1));
        crowded.submit(requestOf(1, 2));
        const auto told = toldIn(*crowded.step());
        QCOMPARE(told.size(), size_t{2});
        QVERIFY(told[0].kind == DecisionKind::kWaiting && told[0].request == 8 &&
                told[0].reason == DecisionReason::kTokenBudget);
        QVERIFY(told[1].request == 9 && told[1].reason == DecisionReason::kBehindOther);
    }

    void aSwapThatBecomesARecomputationIsOnePreemption() {
        EngineConfig config = configOf(6, 4);
        config.cache.num_host_blocks = 1;
        config.preempt = PreemptionKind::kSwap;
        Engine engine(modelOf(), config, AccountingOptions{});
        engine.submit(requestOf(9, 12));
        engine.submit(requestOf(9, 12));
        std::vector<Told> told;
        while (engine.numPreemptions() == 0) told = toldIn(*engine.step());
        QCOMPARE(told.size(), size_t{2});
        QVERIFY(told[0].kind == DecisionKind::kPreempted &&
                told[0].reason == DecisionReason::kNeededByOther);
        const Told dropped{DecisionKind::kDropped, DecisionReason::kHostPoolFull, 1, 3, 1};
        QVERIFY(told[1] == dropped);
    }

    // What a cancelled sequence holds is free one step later: no reason to drop what is on the
    // host.
    void aCancelDropsNoSwappedOutBlocks() {
        EngineConfig config = configOf(6, 4);
        config.cache.num_host_blocks = 100;
        config.preempt = PreemptionKind::kSwap;
        Engine engine(modelOf(), config, AccountingOptions{});
        for (int i = 0; i < 3; ++i) engine.submit(requestOf(5, 18));
        while (engine.state().num_preemptions < 2) engine.step();
        engine.cancel(RequestId(0));
        int64_t recomputed = 0;
        std::vector<Told> dropped;
        while (const auto step = engine.step()) {
            recomputed += step->stats.num_recomputed_tokens;
            for (const Told& told : toldIn(*step)) {
                if (told.kind == DecisionKind::kDropped) dropped.push_back(told);
            }
        }
        QVERIFY(dropped.empty());
        QCOMPARE(recomputed, int64_t{0});
    }

    // No reserve is kept for anybody: slabs have none, and in the second pool nobody else would
    // run.
    void priorityTakesWhatAdmissionWouldGive() {
        for (const bool slab : {true, false}) {
            EngineConfig config = configOf(20, 4);
            config.watermark = 0.3;
            if (slab) {
                config.cache.layout = CacheLayout::kSlab;
                config.cache.max_len = 80;
            }
            Engine engine(modelOf(), config, AccountingOptions{});
            engine.submit(requestOf(60, 10));
            engine.step();
            engine.submit(requestOf(70, 4, 5));  // 18 blocks, or the only run
            const auto told = toldIn(*engine.step());
            QVERIFY(told.size() >= 2);
            QVERIFY(told[0].kind == DecisionKind::kPreempted && told[0].request == 0);
            QVERIFY(told[1].kind == DecisionKind::kAdmitted && told[1].request == 1);
        }
    }

    // Blocks 0 … 3, 4 … 8 and 9 … 12; the outer two leave first.
    void freeBlocksThatLieApartAreNoRun() {
        EngineConfig config = configOf(13, 1);
        config.cache.layout = CacheLayout::kSlab;
        config.cache.slab_per_request = true;
        Engine engine(modelOf(), config, AccountingOptions{});
        engine.submit(requestOf(3, 1));
        engine.submit(requestOf(1, 4));
        engine.submit(requestOf(3, 1));
        engine.step();
        engine.submit(requestOf(5, 1));
        const auto told = toldIn(*engine.step());
        const Told waits{DecisionKind::kWaiting, DecisionReason::kNoFreeRun, 3, 6, 8};
        QVERIFY(told.size() == 1 && told[0] == waits);
        while (engine.step()) {
        }
        QVERIFY(engine.timings()[3].finish == FinishReason::kLength);
        try {
            engine.submit(requestOf(12, 2));
            QFAIL("it should have been refused");
        } catch (const EngineError& error) {
            QVERIFY(QString(error.what()).contains("needs 14 blocks of 1 tokens, the pool has 13"));
        }
    }

    // Three runs of 12 fill the pool; a request that goes before them needs 13 blocks. The last two
    // give way, unless the one in the middle stays: then the other two would in vain.
    void priorityTakesRunsOnlyWhereTheyJoin() {
        for (const bool helps : {true, false}) {
            EngineConfig config = configOf(36, 1);
            config.cache.layout = CacheLayout::kSlab;
            config.cache.slab_per_request = true;
            Engine engine(modelOf(), config, AccountingOptions{});
            for (const int priority : {0, helps ? 0 : 9, 0}) {
                engine.submit(requestOf(2, 10, priority));
                engine.step();
            }
            engine.submit(requestOf(3, 10, 5));
            const auto told = toldIn(*engine.step());
            int preempted = 0;
            for (const Told& each : told) preempted += each.kind == DecisionKind::kPreempted;
            QCOMPARE(preempted, helps ? 2 : 0);
        }
    }

    // The reserve is named where it is kept: beside others, not alone.
    void theReserveIsToldWhereItIsKept() {
        EngineConfig config = configOf(20, 4);
        config.watermark = 0.3;
        Engine engine(modelOf(), config, AccountingOptions{});
        engine.submit(requestOf(8, 4));
        engine.submit(requestOf(8, 4));
        std::vector<int64_t> reserves;
        const auto step = engine.step();
        for (const Event& event : step->events) {
            if (const auto* made = std::get_if<DecisionsMade>(&event)) {
                reserves.insert(reserves.end(), made->watermark.begin(), made->watermark.end());
            }
        }
        QCOMPARE(reserves, (std::vector<int64_t>{0, 6}));
    }

    void higherPriorityGoesFirstAndTakesBlocks() {
        Engine engine(modelOf(), configOf(6, 4), AccountingOptions{});
        engine.submit(requestOf(9, 8));  // 3 blocks
        engine.submit(requestOf(9, 8));  // 3 blocks: the pool is full
        engine.step();
        engine.submit(requestOf(8, 2, 0));
        engine.submit(requestOf(8, 2, 5));
        const auto told = toldIn(*engine.step());
        // The later of the two gives way, not the earlier; the other new one still waits.
        QVERIFY(told.size() >= 2);
        QVERIFY(told[0].kind == DecisionKind::kPreempted &&
                told[0].reason == DecisionReason::kHigherPriority && told[0].request == 1);
        QVERIFY(told[1].kind == DecisionKind::kAdmitted && told[1].request == 3);
        while (engine.step()) {
        }
        const auto& times = engine.timings();
        QVERIFY(times[1].num_preemptions >= 1);
        QCOMPARE(times[0].num_preemptions, 0);
        for (const RequestTimings& each : times) QVERIFY(each.finished_ms.has_value());
    }

    void cancelsReachEveryPlace() {
        EngineConfig config = configOf(6, 4);
        config.cache.num_host_blocks = 10;
        config.preempt = PreemptionKind::kSwap;
        Engine engine(modelOf(), config, AccountingOptions{});
        engine.submit(requestOf(9, 12));
        engine.submit(requestOf(9, 12));
        engine.submit(requestOf(9, 12));
        while (engine.numPreemptions() == 0) engine.step();
        QVERIFY(engine.account().host_used_blocks > 0);
        engine.cancel(RequestId(1));  // swapped out
        engine.cancel(RequestId(2));  // never started
        engine.cancel(RequestId(7));  // never was
        engine.step();
        QVERIFY(engine.state().sequences[1].finish == FinishReason::kCancelled);
        QVERIFY(engine.state().waiting.empty());
        engine.step();
        QCOMPARE(engine.account().host_used_blocks, int64_t{0});
        while (engine.step()) {
        }
        QVERIFY(engine.timings()[0].finish == FinishReason::kLength);
        QVERIFY(engine.timings()[2].finish == FinishReason::kCancelled);
        QCOMPARE(engine.state().sequences.size(), size_t{2});
    }

    // 100,000 operations by the rules; KVLAB_SOAK multiplies them.
    void randomOperationsFollowTheRules() {
        const int factor = std::max(1, qEnvironmentVariableIntValue("KVLAB_SOAK"));
        int64_t num_operations = 0;
        for (int episode = 0; num_operations < 100'000 * int64_t{factor}; ++episode) {
            const std::string broken =
                playEpisode(static_cast<uint64_t>(episode) + 1, 200, num_operations);
            QVERIFY2(
                broken.empty(),
                qPrintable(
                    QString("episode %1: %2").arg(episode).arg(QString::fromStdString(broken))));
        }
    }

    void aSlabRefusesWhatIsLongerThanIt() {
        EngineConfig config = configOf(10, 4);
        config.cache.layout = CacheLayout::kSlab;
        config.cache.max_len = 16;
        Engine engine(modelOf(), config, AccountingOptions{});
        try {
            engine.submit(requestOf(12, 5));
            QFAIL("it should have been refused");
        } catch (const EngineError& error) {
            QVERIFY(QString(error.what()).contains("12 and 5 tokens to generate make 17"));
        }
        config.cache.max_len = 41;
        QVERIFY_THROWS_EXCEPTION(EngineError, Engine(modelOf(), config, AccountingOptions{}));
        config.cache.max_len = 0;
        QVERIFY_THROWS_EXCEPTION(EngineError, Engine(modelOf(), config, AccountingOptions{}));
    }
};

QTEST_GUILESS_MAIN(SchedulerTest)
#include "scheduler_test.moc"
