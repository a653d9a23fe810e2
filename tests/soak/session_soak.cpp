// SPDX-License-Identifier: MIT
//
// session_soak [ROUNDS [SEED]]: sessions that are paused, resumed, cancelled, started again and
// destroyed at random moments, two at a time, while another thread folds what they publish, as a
// window does. Made for ThreadSanitizer (preset tsan; no Qt, which is not instrumented); also run
// in every other build. Exit status 1 and one line on the first contradiction.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "engine/error.h"
#include "engine/model/counter_random.h"
#include "engine/model/gguf_writer.h"
#include "engine/session/session.h"
#include "engine/trace/run_log.h"
#include "engine/trace/trace_io.h"
#include "tests/support/tiny_model.h"

using namespace kvlab;

namespace {

[[noreturn]] void failSoak(const std::string& what) {
    std::fprintf(stderr, "session_soak: %s\n", what.c_str());
    std::_Exit(1);  // other threads still run
}

void require(bool condition, const std::string& what) {
    if (!condition) failSoak(what);
}

// Draws of one round; a pure function of seed and round.
class Dice {
  public:
    Dice(uint64_t seed, uint64_t round) : seed_(seed), round_(round) {}
    int below(int n) {
        return static_cast<int>(counterRandom(seed_, round_, count_++) % static_cast<uint64_t>(n));
    }

  private:
    uint64_t seed_;
    uint64_t round_;
    uint64_t count_ = 0;
};

// What a session published, in order, read by one thread. Stands for the window.
class Reader {
  public:
    Reader() : thread_([this] { work(); }) {}
    ~Reader() {
        post([this] { done_ = true; });
        thread_.join();
    }
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;

    SessionCallbacks callbacks() {
        SessionCallbacks callbacks;
        callbacks.on_progress = [this](SessionPhase, double fraction, const std::string& text) {
            require(fraction >= 0 && fraction <= 1, "a fraction outside 0 ... 1");
            post([text] { require(!text.empty(), "progress without a text"); });
        };
        callbacks.on_started = [this](std::shared_ptr<const RunInfo> info) {
            post([this, info] { log_ = std::make_unique<RunLog>(*info); });
        };
        callbacks.on_step = [this](std::shared_ptr<const StepTrace> step) {
            ++num_steps;
            post([this, step] { log_->append(step); });
        };
        callbacks.on_finished = [this](const RunResult& result) {
            ++num_ends;
            post([this, result] {
                const std::string broken = checkInvariants(log_->lastState());
                require(broken.empty(), "after the run: " + broken);
                require(accountOf(log_->lastState()).active_blocks == result.metrics.blocks_held,
                        "the folded log and the result disagree");
                result_ = result;
            });
        };
        callbacks.on_failed = [](const std::string& message) {
            failSoak("a run failed: " + message);
        };
        return callbacks;
    }

    // The last result, once everything posted so far was read.
    RunResult result() {
        std::mutex mutex;
        std::condition_variable read;
        bool is_read = false;
        RunResult copy;
        post([&] {
            const std::lock_guard lock(mutex);
            copy = result_;
            is_read = true;
            read.notify_one();
        });
        std::unique_lock lock(mutex);
        read.wait(lock, [&] { return is_read; });
        return copy;
    }

    std::atomic<int> num_steps{0};
    std::atomic<int> num_ends{0};

  private:
    void post(std::function<void()> message) {
        {
            const std::lock_guard lock(mutex_);
            messages_.push_back(std::move(message));
        }
        posted_.notify_one();
    }

    void work() {
        while (!done_) {
            std::function<void()> message;
            {
                std::unique_lock lock(mutex_);
                posted_.wait(lock, [&] { return !messages_.empty(); });
                message = std::move(messages_.front());
                messages_.pop_front();
            }
            message();
        }
    }

    std::mutex mutex_;
    std::condition_variable posted_;
    std::deque<std::function<void()>> messages_;
    bool done_ = false;  // only the reader's thread touches this and what follows
    std::unique_ptr<RunLog> log_;
    RunResult result_;
    std::thread thread_;  // last: it starts when the rest is there
};

RunConfig runConfig(const std::string& model_path, Dice& dice) {
    RunConfig config;
    config.model_path = model_path;
    config.engine.cache.block_size = 1 + dice.below(8);
    config.engine.token_budget = 4 + dice.below(30);
    config.engine.num_threads = 1 + dice.below(3);
    GenerationRequest request;
    request.prompt_tokens =
        std::vector<TokenId>(static_cast<size_t>(1 + dice.below(20)), TokenId(5));
    request.num_samples = 1 + dice.below(3);
    request.max_tokens = 1 + dice.below(24);
    request.ignore_eos = true;
    request.sampling.temperature = 1.f;
    request.sampling.seed = static_cast<uint64_t>(dice.below(1000));
    config.requests.assign(static_cast<size_t>(1 + dice.below(2)), request);
    return config;
}

void rest(Dice& dice) {
    switch (dice.below(3)) {
        case 0:
            std::this_thread::yield();
            break;
        case 1:
            std::this_thread::sleep_for(std::chrono::microseconds(dice.below(300)));
            break;
        default:
            break;
    }
}

struct Tally {
    int cancelled = 0, whole = 0, destroyed = 0, restarted = 0;
    int64_t steps = 0;
};

void soakRound(const std::string& folder, uint64_t seed, uint64_t round, Tally& tally) {
    Dice dice(seed, round);
    const RunConfig config = runConfig(folder + "/tiny.gguf", dice);
    RunConfig traced = config;
    if (dice.below(3) == 0) traced.trace_path = folder + "/" + std::to_string(round) + ".trace";
    Reader reader;
    Reader other_reader;
    bool ended = false;
    {
        Session other(other_reader.callbacks());  // shares nothing but the code
        Session session(reader.callbacks());
        other.start(config);
        session.start(traced);
        bool cancelled = false;
        for (int i = dice.below(6); i > 0; --i) {
            rest(dice);
            switch (dice.below(5)) {
                case 0:
                    session.setPaused(true);
                    break;
                case 1:
                    session.setPaused(false);
                    break;
                case 2:
                    other.setPaused(dice.below(2) == 0);
                    break;
                case 3:
                    session.isRunning();
                    break;
                default:
                    if (dice.below(2) == 0) {
                        session.cancel();
                        cancelled = true;
                    }
                    break;
            }
        }
        rest(dice);
        if (dice.below(3) > 0) {
            session.setPaused(false);
            session.wait();
            ended = true;
            require(!session.isRunning(), "a run that was waited for still runs");
            require(reader.num_ends == 1, "a run did not end once");
            const RunResult result = reader.result();
            require(cancelled || !result.cancelled, "a run was cancelled by nobody");
            (result.cancelled ? tally.cancelled : tally.whole) += 1;
            if (!result.cancelled) {
                // Threads, pauses and the other session change no token.
                const RunResult alone = runToEnd(config);
                require(alone.token_ids == result.token_ids, "a run alone draws other tokens");
            }
            if (!traced.trace_path.empty()) {
                const LoadedTrace trace = loadTrace(traced.trace_path);
                require(trace.complete, "the trace is damaged: " + trace.damage);
                require(trace.log->numSteps() == reader.num_steps, "the trace lacks steps");
            }
            if (dice.below(4) == 0) {  // a session may run again, whatever happened before
                session.start(config);
                rest(dice);
                if (dice.below(2) == 0) session.cancel();
                session.wait();
                require(reader.num_ends == 2, "a second run did not end once");
                ++tally.restarted;
            }
        }
    }  // both are cancelled and joined here, paused or not
    require(other_reader.num_ends == 1, "a destroyed session did not end its run");
    require(reader.num_ends >= 1, "a destroyed session did not end its run");
    if (!ended) ++tally.destroyed;
    tally.steps += reader.num_steps + other_reader.num_steps;
}

}  // namespace

int main(int argc, char** argv) {
    const int num_rounds = argc > 1 ? std::atoi(argv[1]) : 200;
    const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
    std::string folder = (std::filesystem::temp_directory_path() / "kvlab-soak-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) failSoak("there is no folder for temporary files");
    Tally tally;
    try {
        ModelConfig config = tinyConfig();
        config.vocab_size = 300;
        writeModelGguf(*ModelWeights::random(config, 4, true, DataType::kF16),
                       folder + "/tiny.gguf");
        for (int round = 0; round < num_rounds; ++round) {
            soakRound(folder, seed, static_cast<uint64_t>(round), tally);
        }
    } catch (const std::exception& error) {
        failSoak(error.what());
    }
    std::filesystem::remove_all(folder);
    std::printf(
        "session_soak: %d rounds, %lld steps; runs whole %d, cancelled %d, destroyed %d, "
        "started again %d\n",
        num_rounds, static_cast<long long>(tally.steps), tally.whole, tally.cancelled,
        tally.destroyed, tally.restarted);
    // A soak that never met a case proves nothing about it.
    if (num_rounds >= 60 && (tally.whole == 0 || tally.destroyed == 0 || tally.restarted == 0)) {
        failSoak("a case never happened; choose another seed");
    }
    return 0;
}
