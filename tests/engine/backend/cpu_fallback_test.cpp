// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <random>

#include <QTemporaryDir>
#include <QTest>

#include "engine/engine.h"
#include "engine/error.h"
#include "engine/model/gguf_writer.h"
#include "engine/session/session.h"
#include "engine/trace/state.h"
#include "engine/trace/trace_io.h"
#include "tests/support/expect_error.h"
#include "tests/support/tiny_model.h"

using namespace kvlab;

namespace {

constexpr const char* kFail = "KVLAB_SIMT_PLUGIN_FAIL";
// Of the largest logit of a row; f32 K/V on both sides.
constexpr float kTolerance = 1e-4f;

int pluginSays(const char* function) {
    void* const library = dlopen(KVLAB_SIMT_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    auto* const count = reinterpret_cast<int (*)()>(dlsym(library, function));
    return count != nullptr ? count() : -1;
}

using Row = std::vector<float>;
// Rows of logits of a request by the tokens that they continue.
using Rows = std::map<std::vector<TokenId>, Row>;

struct Mix {
    EngineConfig config;
    std::vector<EngineRequest> requests;
    std::vector<int> arrivals;  // request i is submitted before this step
    int cancel_step = -1;       // of the first request
};

struct Played {
    std::string wrong;           // "" or the first broken rule
    std::map<int, Rows> before;  // by request: chosen from while the GPU worked
    std::map<int, Rows> after;   // and by the CPU
    std::vector<SequenceState> sequences;
    std::vector<std::string> told;
    std::string backend;
    int num_lost_running = 0;  // decisions of reason device_failed
    int num_lost_swapped = 0;
    int64_t num_swapped_in = 0;
    int64_t num_forks = 0;
};

// Runs everything; folds the log beside the engine and checks all books after each step.
Played play(const Mix& mix, const std::string& backend) {
    Played played;
    EngineConfig config = mix.config;
    config.backend = backend;
    config.num_threads = 2;
    config.on_fallback = [&](const std::string& why) { played.told.push_back(why); };
    Engine engine(tinyModel(), nullptr, config);
    struct Seen {
        int sequence;
        int position;
        bool on_cpu;
        Row row;
    };
    std::vector<Seen> seen;
    std::map<std::pair<int, int>, int> chosen;
    engine.setLogitsObserver([&](SequenceId sequence, int position, const float* row, int size) {
        if (++chosen[{sequence.value, position}] > 1) played.wrong = "a token was chosen twice";
        seen.push_back(
            {sequence.value, position, engine.config().backend == "cpu", Row(row, row + size)});
    });
    CacheState folded = initialState(engine.config().cache);
    const auto fold = [&](const StepTrace& step) {
        for (const Event& event : step.events) {
            for (int entry = 0; entry < numEntries(event); ++entry) {
                if (const auto* e = std::get_if<DecisionsMade>(&event)) {
                    const size_t i = static_cast<size_t>(entry);
                    if (e->reason[i] == DecisionReason::kDeviceFailed) {
                        const auto& sequence =
                            folded.sequences[static_cast<size_t>(e->sequence[i].value)];
                        ++(sequence.preempted == PreemptionKind::kSwap ? played.num_lost_swapped
                                                                       : played.num_lost_running);
                        if (e->blocks_needed[i] != sequence.numHeld()) {
                            played.wrong = "the why log miscounts the blocks that were lost";
                        }
                    }
                }
                if (const auto* e = std::get_if<SequencesForked>(&event)) {
                    played.num_forks += e->child[static_cast<size_t>(entry)].valid();
                }
                applyEntry(folded, event, entry);
                const std::string broken = checkInvariants(folded);
                if (!broken.empty()) played.wrong = broken;
                if (describeEntry(event, entry).empty()) played.wrong = "an event has no words";
            }
        }
        if (!(folded == engine.state())) played.wrong = "the folded log is another state";
    };
    size_t submitted = 0;
    for (int step = 0; step < 5'000 && played.wrong.empty(); ++step) {
        while (submitted < mix.requests.size() && mix.arrivals[submitted] <= step) {
            engine.submit(mix.requests[submitted++]);
        }
        if (step == mix.cancel_step) engine.cancel(RequestId(0));
        const std::string before = engine.config().backend;
        const std::shared_ptr<const StepTrace> trace = engine.step();
        if (!trace) {
            if (submitted == mix.requests.size()) break;
            continue;
        }
        fold(*trace);
        if (engine.config().backend != before) {
            // That step ran nothing and left nobody on the device.
            if (trace->stats.num_decode_tokens + trace->stats.num_prefill_tokens != 0 ||
                trace->stats.attention_bytes != 0) {
                played.wrong = "the step that failed counts rows";
            }
            for (const SequenceState& sequence : folded.sequences) {
                if (sequence.finish == FinishReason::kNone && !sequence.table.empty()) {
                    played.wrong = "a sequence keeps blocks whose K/V are lost";
                }
            }
        }
    }
    if (engine.hasWork() && played.wrong.empty()) played.wrong = "the run does not end";
    if (const auto last = engine.releaseFinished()) fold(*last);
    const PoolAccount account = accountOf(folded);
    if (played.wrong.empty() && (account.free_blocks != account.total_blocks ||
                                 account.host_free_blocks != account.host_total_blocks)) {
        played.wrong = "blocks are still held when all have left";
    }
    for (Seen& one : seen) {
        const SequenceState& sequence = folded.sequences[static_cast<size_t>(one.sequence)];
        const std::vector<TokenId> context(sequence.tokens.begin(),
                                           sequence.tokens.begin() + one.position + 1);
        // The backend at the end of its step: rows are chosen from before it could change again.
        (one.on_cpu ? played.after : played.before)[sequence.request.value][context] =
            std::move(one.row);
    }
    int64_t preemptions = 0;
    for (const RequestTimings& times : engine.timings()) preemptions += times.num_preemptions;
    if (preemptions != account.preemptions) played.wrong = "requests miscount their preemptions";
    played.sequences = folded.sequences;
    played.backend = engine.config().backend;
    played.num_swapped_in = account.swapped_in;
    if (played.told.size() != (backend != "cpu" && played.backend == "cpu" ? 1U : 0U)) {
        played.wrong = "a fallback must be told once";
    }
    return played;
}

// Requests with prompts and texts of random lengths: greedy, forced, drawn, with samples, beams;
// layouts, chunks, pools from tight to roomy, both kinds of preemption, a cancel.
Mix mixOf(uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
    Mix mix;
    const bool slab = below(4) == 0;
    const int num_requests = 3 + below(2);
    for (int i = 0; i < num_requests; ++i) {
        EngineRequest request;
        for (int n = 1 + below(14); n > 0; --n) request.prompt.push_back(TokenId(below(61)));
        request.max_tokens = 2 + below(9);
        request.num_samples = below(3) == 0 ? 2 + below(2) : 1;
        switch (below(4)) {
            case 0:
                for (int n = 0; n < request.max_tokens; ++n) {
                    request.forced.push_back(TokenId(below(61)));
                }
                break;
            case 1:
                request.sampling.temperature = 1.f;
                request.sampling.seed = random();
                break;
            case 2:
                if (slab) break;
                request.num_samples = 1;
                request.num_beams = 2 + below(2);
                break;
            default:
                break;
        }
        request.priority = below(3) == 0 ? below(3) : 0;
        mix.requests.push_back(std::move(request));
        mix.arrivals.push_back(i < 3 ? 0 : below(6));
    }
    std::sort(mix.arrivals.begin(), mix.arrivals.end());
    CacheConfig& cache = mix.config.cache;
    cache.kv_dtype = DataType::kF32;
    cache.block_size = 1 + below(5);
    if (slab) {
        cache.layout = CacheLayout::kSlab;
        cache.max_len = 26;
        cache.slab_per_request = below(2) == 0;
    }
    int64_t least = 1;
    for (const EngineRequest& request : mix.requests) {
        least = std::max(least, Engine::fewestBlocks(request, cache));
    }
    cache.num_blocks = static_cast<int>(least) + below(static_cast<int>(least) / 2 + 2);
    cache.num_host_blocks = below(4) == 0 ? 0 : 60;
    mix.config.preempt =
        cache.num_host_blocks > 0 ? PreemptionKind::kSwap : PreemptionKind::kRecompute;
    mix.config.token_budget = below(2) == 0 ? 2 + below(6) : 64;
    if (below(5) == 0) mix.cancel_step = below(12);
    return mix;
}

// What each request gives alone on the CPU, with room for everything.
std::vector<Played> aloneOnTheCpu(const Mix& mix) {
    std::vector<Played> result;
    for (const EngineRequest& request : mix.requests) {
        Mix single;
        single.config.cache.kv_dtype = DataType::kF32;
        single.config.cache.num_blocks = 100;
        single.requests = {request};
        single.arrivals = {0};
        result.push_back(play(single, "cpu"));
    }
    return result;
}

float largest(const Row& row) {
    float most = 0;
    for (const float value : row) most = std::max(most, std::abs(value));
    return most;
}

// The two best differ by less than the backends may.
bool isClose(const Row& row) {
    Row sorted = row;
    std::partial_sort(sorted.begin(), sorted.begin() + 2, sorted.end(), std::greater<>());
    return sorted[0] - sorted[1] <= 2 * kTolerance * largest(row);
}

struct Compared {
    std::string wrong;
    int num_rows = 0;  // of a GPU that worked, within tolerance of the CPU's
    int num_bits = 0;  // of the CPU after it took over, equal to those it gives alone
};

// Against the CPU alone: every text is complete; rows of the same context agree, and bit for bit
// when the CPU computed them, wherever their tokens' K/V once were; greedy and forced texts are the
// same unless two tokens were equally good for the GPU.
Compared compare(const Mix& mix, const Played& played, const std::vector<Played>& alone) {
    Compared result;
    if (!played.wrong.empty()) {
        result.wrong = played.wrong;
        return result;
    }
    for (size_t r = 0; r < mix.requests.size(); ++r) {
        const EngineRequest& request = mix.requests[r];
        const int id = static_cast<int>(r);
        const std::string whose = " of request " + std::to_string(r);
        const Rows& expected = alone[r].after.at(0);
        const auto rowsOf = [&](const std::map<int, Rows>& of) {
            const auto found = of.find(id);
            return found == of.end() ? Rows() : found->second;
        };
        for (const auto& [context, row] : rowsOf(played.before)) {
            const auto other = expected.find(context);
            if (other == expected.end()) continue;
            for (size_t i = 0; i < row.size(); ++i) {
                if (!(std::abs(row[i] - other->second[i]) <= kTolerance * largest(other->second))) {
                    result.wrong = "the GPU's logits differ" + whose;
                }
            }
            ++result.num_rows;
        }
        for (const auto& [context, row] : rowsOf(played.after)) {
            const auto other = expected.find(context);
            if (other == expected.end()) continue;
            if (std::memcmp(row.data(), other->second.data(), row.size() * sizeof(float)) != 0) {
                result.wrong = "the CPU's logits differ after it took over" + whose;
            }
            ++result.num_bits;
        }
        int num_complete = 0;
        bool cancelled = false;
        const std::vector<TokenId>& text = alone[r].sequences[0].tokens;
        for (const SequenceState& sequence : played.sequences) {
            if (sequence.request.value != id) continue;
            cancelled |= sequence.finish == FinishReason::kCancelled;
            if (sequence.finish != FinishReason::kLength) continue;
            ++num_complete;
            if (sequence.tokens.size() !=
                request.prompt.size() + static_cast<size_t>(request.max_tokens)) {
                result.wrong = "a text has another length" + whose;
            }
            if (request.num_beams > 1 || request.sampling.temperature > 0) continue;
            if (sequence.tokens == text) continue;
            const auto at = std::mismatch(text.begin(), text.end(), sequence.tokens.begin()).first;
            if (!request.forced.empty() ||
                !isClose(expected.at(std::vector<TokenId>(text.begin(), at)))) {
                result.wrong = "tokens differ" + whose;
            }
        }
        const int wanted = request.num_beams > 1 ? request.num_beams : request.num_samples;
        if (!cancelled && num_complete != wanted &&
            !(mix.cancel_step >= 0 && r == 0)) {  // cancelled while it waited
            result.wrong = "another number of texts" + whose;
        }
    }
    return result;
}

}  // namespace

// A GPU that fails in the middle of a run, played by the stand-in plugin over the simt kernels.
class CpuFallbackTest : public QObject {
    Q_OBJECT

  private slots:
    void init() { qputenv("KVLAB_CUDA_PLUGIN", KVLAB_SIMT_PLUGIN); }
    void cleanup() {
        qunsetenv("KVLAB_CUDA_PLUGIN");
        qunsetenv(kFail);
        QCOMPARE(pluginSays("kvlabSimtPluginAlive"), 0);  // memory, streams, events, graphs
    }

    // Any call, at any time: allocations and uploads in a step, copies on write, swaps both ways,
    // operations, recorded steps, the wait for the logits. KVLAB_SOAK multiplies the rounds.
    void noTokenIsLostWhereverItFails() {
        const char* const entries[] = {"operation",    "copy",          "synchronise",
                                       "allocate",     "allocate_host", "launch_graph",
                                       "record_event", "wait_event",    "begin_capture",
                                       "end_capture",  "copy_blocks"};
        int64_t fallbacks = 0, lost_running = 0, lost_swapped = 0, forks = 0, rows = 0, bits = 0;
        std::map<std::string, int> by_entry;
        const int soak = std::max(1, qEnvironmentVariableIntValue("KVLAB_SOAK"));
#ifdef __SANITIZE_ADDRESS__
        const int num_rounds = 5 * soak;  // six times as slow
#else
        const int num_rounds = 30 * soak;
#endif
        for (int round = 0; round < num_rounds; ++round) {
            const Mix mix = mixOf(static_cast<uint64_t>(round) + 1);
            const std::vector<Played> alone = aloneOnTheCpu(mix);
            std::mt19937_64 random(static_cast<uint64_t>(round));
            for (int i = 0; i < 3; ++i) {
                const std::string entry = entries[static_cast<size_t>(3 * round + i) % 11];
                // How often a run that does not fail calls it; the rounds make the name new.
                qputenv(kFail, QByteArray::fromStdString(entry) +
                                   ":2:" + QByteArray::number(1'000'000'000 + round));
                const Played whole = play(mix, "auto");
                const Compared without = compare(mix, whole, alone);
                QVERIFY2(without.wrong.empty(), without.wrong.c_str());
                QCOMPARE(whole.backend, std::string("cuda"));
                const int num_calls = pluginSays("kvlabSimtPluginWorked");
                if (num_calls < 1) continue;
                const int after = static_cast<int>(random() % static_cast<uint64_t>(num_calls));
                // Without memory for a graph a run goes on on the GPU.
                const int code = entry.starts_with("allocate") ? 1
                                 : entry == "end_capture"      ? 2
                                                               : 1 + static_cast<int>(random() % 2);
                const std::string failure =
                    entry + ":" + std::to_string(code) + ":" + std::to_string(after);
                qputenv(kFail, QByteArray::fromStdString(failure));
                const Played played = play(mix, "auto");
                const Compared compared = compare(mix, played, alone);
                QVERIFY2(compared.wrong.empty(),
                         qPrintable(QString("round %1, %2: %3")
                                        .arg(round)
                                        .arg(QString::fromStdString(failure),
                                             QString::fromStdString(compared.wrong))));
                // Only a call that ends the engine comes too late.
                if (entry != "synchronise") QCOMPARE(played.backend, std::string("cpu"));
                if (played.told.empty()) continue;
                ++fallbacks;
                ++by_entry[entry];
                lost_running += played.num_lost_running;
                lost_swapped += played.num_lost_swapped;
                forks += played.num_forks;
                rows += compared.num_rows;
                bits += compared.num_bits;
            }
        }
        qInfo(
            "%lld fallbacks, %lld running and %lld swapped-out sequences computed again, %lld "
            "forks, %lld rows of the GPU, %lld of the CPU after it",
            static_cast<long long>(fallbacks), static_cast<long long>(lost_running),
            static_cast<long long>(lost_swapped), static_cast<long long>(forks),
            static_cast<long long>(rows), static_cast<long long>(bits));
        QVERIFY(fallbacks >= num_rounds);
        if (num_rounds < 30) return;
        QVERIFY(fallbacks > 50 && lost_running > 100 && lost_swapped > 10 && forks > 50);
        QVERIFY(rows > 300 && bits > 300);
        QVERIFY(by_entry.size() >= 8);
    }

    void whoAskedForTheGpuAloneGetsAnError() {
        const Mix mix = mixOf(1);
        qputenv(kFail, "operation:2:41");
        expectError(ErrorKind::kDevice, "use --backend cpu", [&] { play(mix, "cuda"); });
        Mix agreed = mix;
        agreed.config.cpu_fallback = true;
        qputenv(kFail, "operation:2:42");
        const Played played = play(agreed, "cuda");
        QCOMPARE(played.backend, std::string("cpu"));
        QVERIFY2(played.told.at(0).find("the GPU stopped answering") == 0 &&
                     played.told[0].find("computed again") != std::string::npos &&
                     played.told[0].find("use --backend") == std::string::npos,
                 played.told[0].c_str());
        // And at the start, where there is no GPU at all.
        qputenv("KVLAB_CUDA_PLUGIN", "/nowhere/libkvlab_cuda.so");
        const EngineConfig config = agreed.config;
        std::string why;
        EngineConfig wanted = config;
        wanted.backend = "cuda";
        wanted.on_fallback = [&](const std::string& text) { why = text; };
        QCOMPARE(Engine(tinyModel(), nullptr, wanted).config().backend, std::string("cpu"));
        QVERIFY2(why.find("is not there") != std::string::npos, why.c_str());
    }

    // A plugin that lacks a function, or a GPU that is too old: there, but of no use.
    void autoTellsWhyAGpuThatIsThereIsOfNoUse_data() {
        QTest::addColumn<QByteArray>("injected");
        QTest::addColumn<QString>("part");
        QTest::newRow("symbol") << QByteArray("hole:0") << "lacks some of its functions";
        QTest::newRow("version") << QByteArray("version:0") << "another version";
        QTest::newRow("capability") << QByteArray("capability:0") << "compute capability 6.1";
    }

    void autoTellsWhyAGpuThatIsThereIsOfNoUse() {
        QFETCH(QByteArray, injected);
        QFETCH(QString, part);
        qputenv(kFail, injected);
        EngineConfig config = mixOf(1).config;
        QString why;
        config.on_fallback = [&](const std::string& text) { why = QString::fromStdString(text); };
        QCOMPARE(Engine(tinyModel(), nullptr, config).config().backend, std::string("cpu"));
        QVERIFY2(why.contains(part), qPrintable(why));
    }

    // A call that the GPU refuses is a bug, and hidden by no CPU.
    void aBugIsNotHidden() {
        qputenv(kFail, "operation:3:43");
        expectError(ErrorKind::kInternal, "that is a bug", [&] { play(mixOf(1), "auto"); });
    }

    void theSessionTellsAndTheTraceIsWhole() {
        QTemporaryDir folder;
        const std::string path = folder.filePath("tiny.gguf").toStdString();
        ModelConfig model = tinyConfig();
        model.vocab_size = 300;
        writeModelGguf(*ModelWeights::random(model, 4, true, DataType::kF16), path);
        RunConfig config;
        config.model_path = path;
        config.trace_path = folder.filePath("run.trace").toStdString();
        config.engine.cache.kv_dtype = DataType::kF32;
        config.requests.emplace_back();
        config.requests[0].prompt_tokens = {TokenId(5), TokenId(6), TokenId(7)};
        config.requests[0].num_samples = 2;
        config.requests[0].max_tokens = 12;
        config.requests[0].ignore_eos = true;

        config.engine.backend = "cpu";
        const RunResult cpu = runToEnd(config);
        QVERIFY(cpu.messages.empty());

        config.engine.backend = "auto";
        qputenv(kFail, "launch_graph:2:4");
        std::vector<std::string> messages;
        std::string failure;
        RunResult result;
        Session session({.on_progress = {},
                         .on_started = {},
                         .on_step = {},
                         .on_message = [&](const std::string& text) { messages.push_back(text); },
                         .on_finished = [&](const RunResult& r) { result = r; },
                         .on_failed = [&](const std::string& text) { failure = text; }});
        session.start(config);
        session.wait();
        QVERIFY2(failure.empty(), failure.c_str());
        QCOMPARE(messages.size(), size_t{1});
        QVERIFY2(messages[0].find("running on the CPU: the GPU stopped answering") == 0,
                 messages[0].c_str());
        QVERIFY(result.messages == messages);
        QVERIFY(result.token_ids == cpu.token_ids);
        const LoadedTrace trace = loadTrace(config.trace_path);
        QVERIFY2(trace.complete, trace.damage.c_str());
        bool said = false;
        for (int64_t i = 0; i < trace.log->numSteps(); ++i) {
            for (const Event& event : trace.log->step(i).events) {
                const auto* made = std::get_if<DecisionsMade>(&event);
                said |= made != nullptr && made->reason[0] == DecisionReason::kDeviceFailed;
            }
        }
        QVERIFY(said);
    }
};

QTEST_GUILESS_MAIN(CpuFallbackTest)
#include "cpu_fallback_test.moc"
