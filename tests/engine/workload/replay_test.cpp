// SPDX-License-Identifier: MIT
#include "engine/workload/replay.h"

#include <algorithm>
#include <random>

#include <QTemporaryDir>
#include <QTest>

#include "engine/error.h"
#include "engine/model/weights.h"
#include "engine/trace/trace_io.h"
#include "tests/support/expect_error.h"
#include "tests/support/tiny_model.h"

using namespace kvlab;

namespace {

TraceRequest requestOf(double arrival_ms, int prompt_len, int max_tokens) {
    TraceRequest request;
    request.arrival_ms = arrival_ms;
    request.prompt_num_tokens = prompt_len;
    request.max_tokens = max_tokens;
    return request;
}

// Every step takes a millisecond, whatever it does.
AssumedMachine oneMsAStep() { return {1e300, 1e300, 1e300, 1}; }

ReplayOptions optionsOf(int num_blocks, int block_size = 4) {
    ReplayOptions options;
    options.engine.cache.num_blocks = num_blocks;
    options.engine.cache.block_size = block_size;
    options.engine.cache.kv_dtype = DataType::kF32;
    options.engine.num_threads = 1;
    options.ignore_eos = true;
    options.time = ReplayTime::kVirtual;
    options.machine = oneMsAStep();
    return options;
}

ReplayResult accounts(const std::vector<TraceRequest>& trace, const ReplayOptions& options) {
    return replayAccounts(trace, tinyConfig(), ModelWork{1, 1}, options);
}

// Times of the cost model end in a rounding error far below a step.
bool isNear(const std::optional<double>& a, double b) { return a && std::abs(*a - b) < 1e-6; }

int64_t decisions(const ReplayResult& result, DecisionKind kind) {
    return result.num_decisions[static_cast<size_t>(kind)];
}

// Real prompts of random tokens, some of them long for the pool, with samples, priorities and
// cancels.
std::vector<TraceRequest> mixedTrace(uint64_t seed, int count) {
    std::mt19937_64 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
    std::vector<TraceRequest> trace;
    double arrival_ms = 0;
    for (int i = 0; i < count; ++i) {
        TraceRequest request;
        request.arrival_ms = arrival_ms += below(6);
        request.prompt_tokens.emplace();
        for (int n = 1 + below(30); n > 0; --n) request.prompt_tokens->emplace_back(below(61));
        request.max_tokens = 1 + below(14);
        if (below(4) == 0) request.num_samples = 2 + below(3);
        request.priority = below(4) == 0 ? 1 : 0;
        if (below(6) == 0) request.cancel_ms = request.arrival_ms + below(12);
        trace.push_back(std::move(request));
    }
    return trace;
}

// What the request's samples get alone, from the engine itself and a pool with room.
std::vector<std::vector<TokenId>> alone(const LoadedModel& model,
                                        const TraceRequest& request,
                                        size_t index,
                                        const SamplingParams& sampling) {
    EngineConfig config;
    config.cache.num_blocks = 60;
    config.cache.block_size = 7;
    config.cache.kv_dtype = DataType::kF32;
    config.num_threads = 1;
    Engine engine(model.weights, nullptr, config);
    EngineRequest made;
    made.prompt = *request.prompt_tokens;
    made.max_tokens = request.max_tokens;
    made.num_samples = request.num_samples;
    made.ignore_eos = true;
    made.sampling = sampling;
    made.sampling.seed = sampling.seed + index;
    engine.submit(made);
    while (engine.step()) {
    }
    std::vector<std::vector<TokenId>> texts(static_cast<size_t>(request.num_samples));
    for (const SequenceState& sequence : engine.state().sequences) {
        texts[static_cast<size_t>(sequence.sample_idx)] = {
            sequence.tokens.begin() + sequence.prompt_len, sequence.tokens.end()};
    }
    return texts;
}

}  // namespace

class ReplayTest : public QObject {
    Q_OBJECT

  private slots:
    // 10 requests of 5 + 4 tokens (8 with K/V) at once, a pool of 8 blocks of 4. Paged: 2 blocks
    // each, 4 run together, each for 4 steps: 4 + 4 + 4 steps. Slabs for 16: 2 run, 20 steps.
    void layoutsByHand() {
        const std::vector<TraceRequest> trace(10, requestOf(0, 5, 4));
        ReplayOptions options = optionsOf(8);
        const ReplayResult paged = accounts(trace, options);
        QCOMPARE(paged.num_finished, int64_t{10});
        QCOMPARE(paged.steps.num_steps, int64_t{12});
        QCOMPARE(paged.waste.max_running, int64_t{4});
        QCOMPARE(paged.waste.num_running, int64_t{4 * 8 + 2 * 4});
        QCOMPARE(paged.waste.pool_slots, int64_t{12 * 32});
        QCOMPARE(paged.waste.used_slots, int64_t{10 * (5 + 6 + 7 + 8)});
        QCOMPARE(paged.waste.tail_slots, int64_t{10 * (3 + 2 + 1 + 0)});
        QCOMPARE(paged.waste.free_slots, int64_t{4 * 16});
        QCOMPARE(paged.steps.max_waiting, int64_t{6});
        QCOMPARE(paged.blocks_peak, int64_t{8});
        QCOMPARE(paged.sampled_tokens, int64_t{40});
        QVERIFY(isNear(paged.ended_ms, 12));
        QVERIFY(isNear(paged.tokensPerSecond(), 40 * 1000.0 / 12));
        QVERIFY(isNear(paged.queue_ms->p50, 4));
        QVERIFY(isNear(paged.queue_ms->p90, 8));
        QVERIFY(isNear(paged.queue_ms->mean, (4 * 4 + 2 * 8) / 10.0));
        QVERIFY(isNear(paged.time_to_first_token_ms->max, 9));
        QVERIFY(isNear(paged.time_per_token_ms->p99, 1));
        QVERIFY(isNear(paged.end_to_end_ms->p50, 8));
        QCOMPARE(decisions(paged, DecisionKind::kAdmitted), int64_t{10});
        // The fifth waits for blocks with five behind it, and then the ninth.
        const auto waitsFor = [&](DecisionReason reason) {
            return std::count_if(paged.why.begin(), paged.why.end(), [&](const WhyEntry& e) {
                return e.decision.kind == DecisionKind::kWaiting && e.decision.reason == reason;
            });
        };
        QCOMPARE(decisions(paged, DecisionKind::kWaiting), int64_t{7});
        QCOMPARE(waitsFor(DecisionReason::kNoFreeBlocks), 2);
        QCOMPARE(waitsFor(DecisionReason::kBehindOther), 5);
        const auto waits = std::find_if(paged.why.begin(), paged.why.end(), [](const WhyEntry& e) {
            return e.decision.kind == DecisionKind::kWaiting;
        });
        QCOMPARE(waits->decision.request, RequestId(4));
        QCOMPARE(waits->decision.blocks_needed, int64_t{2});
        QCOMPARE(waits->decision.blocks_free, int64_t{0});
        QVERIFY(waits->sentence.find("request 4 waits: it needs 2 blocks") == 0);

        options.engine.cache.layout = CacheLayout::kSlab;
        options.engine.cache.max_len = 16;
        const ReplayResult slab = accounts(trace, options);
        QCOMPARE(slab.steps.num_steps, int64_t{20});
        QCOMPARE(slab.waste.max_running, int64_t{2});
        QCOMPARE(slab.waste.num_running, int64_t{2 * 20});
        QCOMPARE(slab.waste.used_slots, int64_t{260});
        QCOMPARE(slab.waste.reserved_slots, int64_t{60});
        QCOMPARE(slab.waste.never_used_slots, int64_t{10 * 4 * (16 - 8)});
        QCOMPARE(slab.waste.free_slots, int64_t{0});
        QCOMPARE(slab.waste.pool_slots, int64_t{260 + 60 + 320});
        QVERIFY(isNear(slab.ended_ms, 20));
    }

    // A request that arrives in a step waits for its end; over idle time the clock jumps.
    void arrivalsAreAtTheirTime() {
        std::vector<TraceRequest> trace = {requestOf(0, 2, 3), requestOf(0.25, 2, 1),
                                           requestOf(1000.5, 2, 2)};
        const ReplayResult result = accounts(trace, optionsOf(20));
        const auto timings = [&](size_t i) { return result.requests[i].timings; };
        QVERIFY(isNear(timings(0).finished_ms, 3));
        QVERIFY(isNear(timings(1).queueMs(), 0.75));
        QVERIFY(isNear(timings(1).timeToFirstTokenMs(), 1.75));
        QVERIFY(isNear(timings(2).admitted_ms, 1000.5));
        QVERIFY(isNear(timings(2).finished_ms, 1002.5));
        QVERIFY(isNear(timings(2).timePerTokenMs(), 1));
        QCOMPARE(timings(2).arrived_ms, 1000.5);
        QVERIFY(!timings(1).timePerTokenMs());
        QCOMPARE(result.time_per_token_ms->count, int64_t{2});
        QCOMPARE(result.steps.num_steps, int64_t{3 + 2});
        // The order of a file is that of arrival; a caller's need not be.
        std::reverse(trace.begin(), trace.end());
        const ReplayResult reversed = accounts(trace, optionsOf(20));
        QVERIFY(isNear(reversed.requests[0].timings.finished_ms, 1002.5));
        QVERIFY(isNear(reversed.requests[1].timings.queueMs(), 0.75));
    }

    void cancelsAreObeyed() {
        std::vector<TraceRequest> trace = {
            requestOf(0, 9, 4),   // takes the pool of 3 blocks
            requestOf(0, 9, 4),   // cancelled while it waits
            requestOf(0, 9, 2),   // cancelled after its end
            requestOf(20, 9, 4),  // cancelled while it runs
        };
        trace[0].cancel_ms = 1000;
        trace[1].cancel_ms = 2.5;
        trace[2].cancel_ms = 19;
        trace[3].cancel_ms = 22.5;
        const ReplayResult result = accounts(trace, optionsOf(3));
        QCOMPARE(result.num_finished, int64_t{2});
        QCOMPARE(result.num_cancelled, int64_t{2});
        const auto& requests = result.requests;
        QVERIFY(requests[0].status == ReplayStatus::kFinished);
        QCOMPARE(requests[0].timings.num_sampled, 4);
        QVERIFY(requests[1].status == ReplayStatus::kCancelled);
        QVERIFY(!requests[1].timings.admitted_ms);
        QVERIFY(isNear(requests[1].timings.finished_ms, 3));  // the next step's start
        QVERIFY(requests[2].status == ReplayStatus::kFinished);
        QVERIFY(requests[3].status == ReplayStatus::kCancelled);
        QCOMPARE(requests[3].timings.num_sampled, 3);
        QVERIFY(isNear(requests[3].timings.finished_ms, 23));
        // Who was cancelled has no end of its own.
        QCOMPARE(result.end_to_end_ms->count, int64_t{2});
        QCOMPARE(result.queue_ms->count, int64_t{3});
    }

    // A pool for one: the later request that is more important takes it from who runs.
    void prioritiesGoFirst() {
        std::vector<TraceRequest> trace = {requestOf(0, 9, 4), requestOf(0, 9, 2),
                                           requestOf(2, 9, 2)};
        trace[2].priority = 5;
        const ReplayResult result = accounts(trace, optionsOf(3));
        const auto& requests = result.requests;
        QCOMPARE(requests[0].timings.num_preemptions, 1);
        QCOMPARE(result.num_preemptions, int64_t{1});
        QCOMPARE(decisions(result, DecisionKind::kPreempted), int64_t{1});
        QVERIFY(isNear(requests[2].timings.queueMs(), 0));
        QVERIFY(*requests[2].timings.finished_ms < *requests[0].timings.finished_ms);
        QVERIFY(*requests[0].timings.finished_ms < *requests[1].timings.first_token_ms);
        QVERIFY(result.steps.recomputed_tokens > 0);
        const bool told = std::any_of(result.why.begin(), result.why.end(), [](const WhyEntry& e) {
            return e.decision.kind == DecisionKind::kPreempted &&
                   e.decision.reason == DecisionReason::kHigherPriority &&
                   e.decision.request == RequestId(0) &&
                   e.sentence.find("request 0 gives way") == 0;
        });
        QVERIFY(told);
    }

    // "needs 140 blocks, the pool has 128": the others go on; all of it is in the log.
    void whatCanNeverFitIsRefused() {
        QTemporaryDir folder;
        std::vector<TraceRequest> trace = {requestOf(0, 8, 2), requestOf(1, 2000, 241),
                                           requestOf(2, 8, 2), requestOf(500, 2000, 241)};
        ReplayOptions options = optionsOf(128, 16);
        options.trace_path = folder.filePath("run.trace").toStdString();
        const ReplayResult result = accounts(trace, options);
        QCOMPARE(result.num_finished, int64_t{2});
        QCOMPARE(result.num_refused, int64_t{2});
        for (const size_t refused : {size_t{1}, size_t{3}}) {
            const ReplayedRequest& request = result.requests[refused];
            QVERIFY(request.status == ReplayStatus::kRefused);
            QVERIFY(request.timings.refused);
            QVERIFY(request.refusal.find("needs 140 blocks of 16 tokens, the pool has 128") !=
                    std::string::npos);
            QVERIFY(!request.timings.finished_ms && !request.timings.queueMs());
            QCOMPARE(request.timings.request, RequestId(static_cast<int64_t>(refused)));
        }
        QCOMPARE(decisions(result, DecisionKind::kRefused), int64_t{2});
        QVERIFY(isNear(result.ended_ms, 4));

        // The last refusal came after the last step, and is in the trace all the same.
        const LoadedTrace loaded = loadTrace(options.trace_path);
        QVERIFY(loaded.complete && loaded.damage.empty());
        int64_t refusals = 0;
        for (int64_t step = 0; step < loaded.log->numSteps(); ++step) {
            for (const Event& event : loaded.log->step(step).events) {
                if (const auto* made = std::get_if<DecisionsMade>(&event)) {
                    refusals +=
                        std::count(made->kind.begin(), made->kind.end(), DecisionKind::kRefused);
                }
            }
        }
        QCOMPARE(refusals, int64_t{2});

        const ReplayResult none = accounts({requestOf(0, 2000, 241)}, optionsOf(128, 16));
        QCOMPARE(none.num_refused, int64_t{1});
        QCOMPARE(decisions(none, DecisionKind::kRefused), int64_t{1});
        QVERIFY(!none.queue_ms && !none.end_to_end_ms && !none.tokensPerSecond());
    }

    // Neither who else is there, nor the pool, nor the clock changes a token of anyone.
    void tokensAreThoseOfEachAlone() {
        const LoadedModel model{tinyModel(3), nullptr};
        int64_t preemptions = 0, moved = 0, cancelled = 0, samples = 0;
        for (uint64_t round = 0; round < 12; ++round) {
            const std::vector<TraceRequest> trace = mixedTrace(round, 14);
            ReplayOptions options = optionsOf(14, 4);
            options.sampling.temperature = round % 2 == 0 ? 1.f : 0.f;
            options.sampling.seed = 40 + round;
            options.engine.token_budget = 3 + static_cast<int>(round) * 2;
            options.time = round % 3 == 0 ? ReplayTime::kReal : ReplayTime::kVirtual;
            if (round % 4 == 1) {
                options.engine.cache.num_host_blocks = 20;
                options.engine.preempt = PreemptionKind::kSwap;
            }
            if (round % 4 == 2) {
                options.engine.cache.layout = CacheLayout::kSlab;
                options.engine.cache.max_len = 44;
                options.engine.cache.slab_per_request = round % 8 == 2;
            }
            const ReplayResult result = replay(trace, model, options);
            for (size_t i = 0; i < trace.size(); ++i) {
                const ReplayedRequest& request = result.requests[i];
                const bool is_cancelled = request.status == ReplayStatus::kCancelled;
                std::vector<std::vector<TokenId>> got = {request.token_ids};
                got.insert(got.end(), request.more_samples.begin(), request.more_samples.end());
                auto expected = alone(model, trace[i], i, options.sampling);
                QVERIFY(is_cancelled ? got.size() <= expected.size()
                                     : got.size() == expected.size());
                size_t num_sampled = 0;
                for (size_t sample = 0; sample < got.size(); ++sample) {
                    num_sampled += got[sample].size();
                    if (is_cancelled) {
                        QVERIFY(got[sample].size() <= expected[sample].size());
                        expected[sample].resize(got[sample].size());
                    }
                    QVERIFY(got[sample] == expected[sample]);
                }
                QCOMPARE(static_cast<int>(num_sampled), request.timings.num_sampled);
                QCOMPARE(request.seed, options.sampling.seed + i);
                samples += static_cast<int64_t>(request.more_samples.size());
            }
            preemptions += result.num_preemptions;
            moved += result.bytes_moved;
            cancelled += result.num_cancelled;
        }
        QVERIFY(preemptions > 10 && moved > 0 && cancelled > 0 && samples > 20);
    }

    // With weights or without, virtual time makes the same decisions at the same moments.
    void accountsAreThoseOfARealRun() {
        const LoadedModel model{tinyModel(3), nullptr};
        for (uint64_t round = 0; round < 8; ++round) {
            const std::vector<TraceRequest> trace = mixedTrace(100 + round, 14);
            ReplayOptions options = optionsOf(14, 4);
            options.machine = {1e6, 2e6, 1e5, 0.5};
            if (round % 2 == 1) {
                options.engine.cache.num_host_blocks = 20;
                options.engine.preempt = PreemptionKind::kSwap;
            }
            const ReplayResult real = replay(trace, model, options);
            const ReplayResult books =
                replayAccounts(trace, model.weights->config, modelWork(*model.weights), options);
            const ReplayResult again = replay(trace, model, options);
            for (const ReplayResult* other : {&books, &again}) {
                QCOMPARE(other->steps.num_steps, real.steps.num_steps);
                QCOMPARE(other->ended_ms, real.ended_ms);
                QCOMPARE(other->bytes_moved, real.bytes_moved);
                QCOMPARE(other->waste.used_slots, real.waste.used_slots);
                QCOMPARE(other->steps.attention_bytes, real.steps.attention_bytes);
                QCOMPARE(other->cost->total(), real.cost->total());
                QVERIFY(other->num_decisions == real.num_decisions);
                QCOMPARE(other->why.size(), real.why.size());
                for (size_t i = 0; i < real.why.size(); ++i) {
                    QCOMPARE(other->why[i].time_ms, real.why[i].time_ms);
                    QVERIFY(other->why[i].sentence == real.why[i].sentence);
                }
                for (size_t i = 0; i < trace.size(); ++i) {
                    const RequestTimings& a = other->requests[i].timings;
                    const RequestTimings& b = real.requests[i].timings;
                    QVERIFY(a.finished_ms == b.finished_ms && a.admitted_ms == b.admitted_ms &&
                            a.first_token_ms == b.first_token_ms && a.finish == b.finish);
                }
            }
            QVERIFY(real.requests[0].token_ids == again.requests[0].token_ids);
            // The machine's own times stand beside the assumed ones.
            QVERIFY(real.steps.matmul_ms > 0);
        }
    }

    // The last arrival is in a day's time: the test ends only if idle time is skipped.
    void realTimeSkipsWhatIsIdle() {
        const LoadedModel model{tinyModel(), nullptr};
        TraceRequest request = requestOf(0, 0, 2);
        request.prompt_num_tokens.reset();
        request.prompt_tokens = {TokenId(3), TokenId(4)};
        std::vector<TraceRequest> trace(2, request);
        trace[1].arrival_ms = 86'400'000;
        ReplayOptions options = optionsOf(4);
        options.time = ReplayTime::kReal;
        const ReplayResult skipped = replay(trace, model, options);
        QVERIFY(*skipped.requests[1].timings.admitted_ms >= 86'400'000);
        QVERIFY(*skipped.requests[0].timings.finished_ms < 86'400'000);
        QCOMPARE(skipped.num_finished, int64_t{2});
        QVERIFY(!skipped.cost);

        options.time = ReplayTime::kWait;
        expectError(ErrorKind::kBadArgument, "1,440 minutes",
                    [&] { replay(trace, model, options); });
        trace[1].arrival_ms = 80;
        const SteadyClock clock;
        const double start_ms = clock.nowMs();
        const ReplayResult waited = replay(trace, model, options);
        QVERIFY(clock.nowMs() - start_ms >= 80);
        QVERIFY(*waited.requests[1].timings.admitted_ms >= 80);
    }

    void wrongTokensAreRefusedOneByOne() {
        const LoadedModel model{tinyModel(), nullptr};
        TraceRequest good = requestOf(0, 0, 2);
        good.prompt_num_tokens.reset();
        good.prompt_tokens = {TokenId(3)};
        TraceRequest bad = good;
        bad.prompt_tokens = {TokenId(3), TokenId(61)};
        const ReplayResult result = replay({bad, good, bad, good}, model, optionsOf(4));
        QCOMPARE(result.num_refused, int64_t{2});
        QCOMPARE(result.num_finished, int64_t{2});
        QVERIFY(result.requests[2].refusal.find("token 61 is not in the vocabulary") !=
                std::string::npos);
        QCOMPARE(result.requests[2].timings.prompt_len, 2);
        QCOMPARE(result.requests[3].token_ids.size(), size_t{2});
        // The log names requests by their place in the trace.
        QCOMPARE(result.why.back().decision.request, RequestId(3));
        // No tokenizer, no text.
        TraceRequest text = requestOf(0, 4, 2);
        expectError(ErrorKind::kBadArgument, "request 0 asks for a text",
                    [&] { replay({text}, model, optionsOf(4)); });
        text.prompt_num_tokens.reset();
        text.prompt_text = "x";
        expectError(ErrorKind::kBadArgument, "request 1 has a text", [&] {
            accounts({requestOf(0, 4, 2), text}, optionsOf(4));
        });
    }

    void theWhyLogIsBounded() {
        const std::vector<TraceRequest> trace(50, requestOf(0, 5, 4));
        ReplayOptions options = optionsOf(8);
        const ReplayResult whole = accounts(trace, options);
        options.max_why = 7;
        const ReplayResult some = accounts(trace, options);
        QVERIFY(whole.why.size() > 50);
        QCOMPARE(static_cast<int64_t>(whole.why.size()), whole.numDecisions());
        QCOMPARE(some.why.size(), size_t{7});
        QVERIFY(some.num_decisions == whole.num_decisions);
        for (size_t i = 0; i < 7; ++i) QVERIFY(some.why[i].sentence == whole.why[i].sentence);
    }

    // A pool that nobody sized, and slabs that nobody cut.
    void whatIsLeftOutIsFilledIn() {
        const LoadedModel model{tinyModel(), nullptr};
        TraceRequest request = requestOf(0, 0, 4);
        request.prompt_num_tokens.reset();
        request.prompt_tokens.emplace(5, TokenId(2));
        ReplayOptions options = optionsOf(0);
        const std::vector<TraceRequest> trace(6, request);
        const ReplayResult paged = replay(trace, model, options);
        QCOMPARE(paged.engine.cache.num_blocks, 6 * 2);
        QCOMPARE(paged.num_preemptions, int64_t{0});
        QCOMPARE(paged.waste.max_running, int64_t{6});
        options.engine.cache.layout = CacheLayout::kSlab;
        const ReplayResult slab = replay(trace, model, options);
        QCOMPARE(slab.engine.cache.max_len, 9);
        QCOMPARE(slab.engine.cache.num_blocks, 6 * 3);
        // One that is longer than the pool does not make every slab too long.
        options.engine.cache.num_blocks = 6;
        std::vector<TraceRequest> with_giant = trace;
        with_giant[3].max_tokens = 1000;
        const ReplayResult some = replay(with_giant, model, options);
        QCOMPARE(some.num_refused, int64_t{1});
        QCOMPARE(some.num_finished, int64_t{5});
        QCOMPARE(some.engine.cache.max_len, 24);
    }

    void impossibleReplaysAreRefused() {
        const auto refused = [](const std::string& part, const std::function<void()>& call) {
            expectError(ErrorKind::kBadArgument, part, call);
        };
        refused("no request", [] { accounts({}, optionsOf(4)); });
        refused("number of blocks", [] { accounts({requestOf(0, 1, 1)}, optionsOf(0)); });
        refused("ask for at most 1,000,000,000", [] {
            accounts(std::vector<TraceRequest>(1001, requestOf(0, 1, 1'000'000)), optionsOf(4));
        });
        refused("ask for at most 10,000,000", [] {
            replay(std::vector<TraceRequest>(11, requestOf(0, 1, 1'000'000)),
                   {tinyModel(), nullptr}, optionsOf(4));
        });
        ReplayOptions options = optionsOf(4, 300);
        refused("a block of 300 tokens", [&] { accounts({requestOf(0, 1, 1)}, options); });
        options = optionsOf(4);
        options.engine.token_budget = 0;
        refused("token budget", [&] { accounts({requestOf(0, 1, 1)}, options); });
    }

    // Twice what the pool can serve, so the queue grows and runs dry again; nobody is lost.
    void manyRequestsEnd() {
        RequestTraceOptions draws;
        draws.num_requests = 5000;
        draws.rate_per_s = 500;
        draws.bursts = BurstOptions{};
        draws.prompt = {100, 1, 1, 2000};
        draws.output = {20, 1, 1, 200};
        for (const CacheLayout layout : {CacheLayout::kPaged, CacheLayout::kSlab}) {
            ReplayOptions options = optionsOf(1000, 16);
            options.engine.cache.layout = layout;
            options.engine.cache.max_len = layout == CacheLayout::kSlab ? 2200 : 0;
            options.machine.overhead_ms = 10;
            const ReplayResult result = accounts(generateRequestTrace(draws), options);
            QCOMPARE(result.num_finished, int64_t{5000});
            QVERIFY(result.steps.max_waiting > 100);
            const WasteAccount& waste = result.waste;
            QCOMPARE(waste.used_slots + waste.reserved_slots + waste.never_used_slots +
                         waste.tail_slots + waste.free_slots,
                     waste.pool_slots);
            for (const ReplayedRequest& request : result.requests) {
                QCOMPARE(request.timings.num_sampled, request.max_tokens);
                QVERIFY(request.timings.queueMs() >= 0.0 && request.timings.finished_ms);
            }
            QCOMPARE(result.end_to_end_ms->count, int64_t{5000});
            QVERIFY(result.queue_ms->p50 <= result.queue_ms->p90 &&
                    result.queue_ms->p90 <= result.queue_ms->p99);
        }
    }
};

QTEST_GUILESS_MAIN(ReplayTest)
#include "replay_test.moc"
