// SPDX-License-Identifier: MIT
#include "engine/session/session.h"

#include <atomic>
#include <mutex>

#include <QTemporaryDir>
#include <QTest>

#include "engine/error.h"
#include "engine/model/gguf_writer.h"
#include "engine/trace/trace_io.h"
#include "tests/support/tiny_model.h"

using namespace kvlab;

class SessionTest : public QObject {
    Q_OBJECT

  private slots:
    void initTestCase() {
        ModelConfig config = tinyConfig();
        config.vocab_size = 300;
        writeModelGguf(*ModelWeights::random(config, 4, true, DataType::kF16), modelPath());
    }

    void aRunReportsStepsProgressAndResult() {
        std::vector<std::shared_ptr<const StepTrace>> steps;
        std::shared_ptr<const RunInfo> info;
        std::vector<double> prefill;
        RunResult result;
        std::string failure;
        SessionCallbacks callbacks;
        callbacks.on_started = [&](std::shared_ptr<const RunInfo> started) { info = started; };
        callbacks.on_step = [&](std::shared_ptr<const StepTrace> step) { steps.push_back(step); };
        callbacks.on_progress = [&](SessionPhase phase, double fraction, const std::string&) {
            QVERIFY(fraction >= 0 && fraction <= 1);
            if (phase == SessionPhase::kPrefill) prefill.push_back(fraction);
        };
        callbacks.on_finished = [&](const RunResult& r) { result = r; };
        callbacks.on_failed = [&](const std::string& message) { failure = message; };
        Session session(callbacks);
        RunConfig config = runConfig();
        config.trace_path = folder_.filePath("run.trace").toStdString();
        session.start(config);
        session.wait();
        QVERIFY2(failure.empty(), failure.c_str());
        QVERIFY(!session.isRunning());
        QVERIFY(info && info->num_samples == 3 && info->model.vocab_size == 300);
        QCOMPARE(info->model_sha256.size(), size_t{64});
        QCOMPARE(prefill.back(), 1.0);
        QCOMPARE(result.token_ids.size(), size_t{3});
        QCOMPARE(result.token_ids[0].size(), size_t{20});
        QCOMPARE(result.metrics.tokens_unshared, int64_t{3} * (41 + 19));
        QCOMPARE(result.metrics.prompt_tokens, int64_t{41});
        QVERIFY(result.metrics.prefill_ms && result.metrics.decode_ms &&
                result.metrics.tokens_per_s);

        RunLog log(*info);
        for (const auto& step : steps) log.append(step);
        QCOMPARE(accountOf(log.lastState()).active_blocks, result.metrics.blocks_held);
        const LoadedTrace trace = loadTrace(config.trace_path);
        QVERIFY2(trace.complete, trace.damage.c_str());
        QVERIFY(trace.log->lastState() == log.lastState());

        const RunResult again = runToEnd(runConfig());
        QVERIFY(again.token_ids == result.token_ids);
        QVERIFY(again.texts == result.texts);

        // Nobody keeps the name of the weights: the file is not read through for it.
        config.trace_path.clear();
        session.start(config);
        session.wait();
        QVERIFY(info->model_sha256.empty());
    }

    void cancelEndsTheRunAndTheLogSaysSo() {
        std::atomic<int> num_steps{0};
        RunResult result;
        SessionCallbacks callbacks;
        Session* running = nullptr;
        callbacks.on_step = [&](std::shared_ptr<const StepTrace>) {
            if (++num_steps == 5) running->cancel();
        };
        callbacks.on_finished = [&](const RunResult& r) { result = r; };
        Session session(callbacks);
        running = &session;
        RunConfig config = runConfig();
        config.requests[0].max_tokens = 100'000;
        config.trace_path = folder_.filePath("cancelled.trace").toStdString();
        session.start(config);
        session.wait();
        QVERIFY(result.cancelled);
        QCOMPARE(num_steps.load(), 6);
        const LoadedTrace trace = loadTrace(config.trace_path);
        QVERIFY2(trace.complete, trace.damage.c_str());
        QVERIFY(trace.log->lastState().sequences[0].finish == FinishReason::kCancelled);
    }

    void aPausedRunStandsStillAndGoesOn() {
        std::atomic<int> num_steps{0};
        std::atomic<bool> finished{false};
        SessionCallbacks callbacks;
        Session* running = nullptr;
        callbacks.on_step = [&](std::shared_ptr<const StepTrace>) {
            if (++num_steps == 3) running->setPaused(true);
        };
        callbacks.on_finished = [&](const RunResult&) { finished = true; };
        Session session(callbacks);
        running = &session;
        session.start(runConfig());
        QTRY_COMPARE(num_steps.load(), 3);
        QTest::qWait(50);
        QCOMPARE(num_steps.load(), 3);
        QVERIFY(session.isRunning());
        session.setPaused(false);
        session.wait();
        QVERIFY(finished);
    }

    void failuresAreOneSentence_data() {
        QTest::addColumn<int>("what");
        for (int what = 0; what < 8; ++what) QTest::addRow("%d", what) << what;
    }

    void failuresAreOneSentence() {
        QFETCH(int, what);
        RunConfig config = runConfig();
        switch (what) {
            case 0:
                config.model_path = "/no/such/model.gguf";
                break;
            case 1:
                config.requests.clear();
                break;
            case 2:
                config.requests[0].prompt_text = "two prompts";
                break;
            case 3:
                config.requests[0].num_samples = 0;
                break;
            case 4:
                config.engine.cache.block_size = 0;
                break;
            case 5:
                config.engine.cache.num_blocks = 1;
                break;
            case 6:
                config.engine.backend = "abacus";
                break;
            case 7:
                config.trace_path = "/no/such/folder/x.trace";
                break;
        }
        std::string failure;
        SessionCallbacks callbacks;
        callbacks.on_failed = [&](const std::string& message) { failure = message; };
        Session session(callbacks);
        session.start(config);
        session.wait();
        QVERIFY(!failure.empty());
        QVERIFY(failure.find('\n') == std::string::npos);
        QVERIFY_THROWS_EXCEPTION(EngineError, runToEnd(config));
    }

    void anUnfinishedSessionEndsWithItsObject() {
        Session session(SessionCallbacks{});
        RunConfig config = runConfig();
        config.requests[0].max_tokens = 1'000'000;
        session.start(config);
    }

  private:
    std::string modelPath() const { return folder_.filePath("tiny.gguf").toStdString(); }

    RunConfig runConfig() const {
        RunConfig config;
        config.model_path = modelPath();
        config.engine.num_threads = 1;
        config.engine.token_budget = 16;
        GenerationRequest request;
        request.prompt_num_tokens = 41;
        request.num_samples = 3;
        request.max_tokens = 20;
        request.ignore_eos = true;
        request.sampling.temperature = 1.f;
        request.sampling.seed = 6;
        config.requests = {request};
        return config;
    }

    QTemporaryDir folder_;
};

QTEST_GUILESS_MAIN(SessionTest)
#include "session_test.moc"
