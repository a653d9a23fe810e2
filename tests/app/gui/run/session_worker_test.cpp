// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/run/session_worker.h"

#include <QElapsedTimer>
#include <QFile>
#include <QSignalSpy>
#include <QThread>
#include <QtTest>

namespace kvlab {

class SessionWorkerTest : public QObject {
    Q_OBJECT

    // Counts what the worker tells, and where.
    struct Listener {
        std::vector<int64_t> steps;
        std::vector<size_t> batches;
        std::vector<qint64> delivered_ms;
        int started = 0, finished = 0, failed = 0;
        bool cancelled = false;
        bool ended_before_last_step = false;
        bool right_thread = true;
        QString message;
        QElapsedTimer clock;

        explicit Listener(SessionWorker& worker) {
            clock.start();
            const QThread* home = QThread::currentThread();
            const auto check = [this, home] {
                right_thread = right_thread && QThread::currentThread() == home;
            };
            connect(&worker, &SessionWorker::runStarted, &worker, [this, check](const auto&) {
                check();
                ++started;
                steps.clear();
            });
            connect(&worker, &SessionWorker::stepsReceived, &worker,
                    [this, check](const auto& batch) {
                        check();
                        batches.push_back(batch.size());
                        delivered_ms.push_back(clock.elapsed());
                        for (const auto& step : batch) {
                            steps.push_back(step->step);
                        }
                        ended_before_last_step = ended_before_last_step || finished > 0;
                    });
            connect(&worker, &SessionWorker::finished, &worker, [this, check](const auto& result) {
                check();
                ++finished;
                cancelled = result->cancelled;
            });
            connect(&worker, &SessionWorker::failed, &worker, [this, check](const QString& text) {
                check();
                ++failed;
                message = text;
            });
        }
    };

    static RunConfig runOf(int prompt, int samples, int max_tokens) {
        RunConfig config;
        GenerationRequest request;
        request.prompt_num_tokens = prompt;
        request.num_samples = samples;
        request.max_tokens = max_tokens;
        request.ignore_eos = true;
        config.requests.push_back(request);
        config.engine.num_threads = 1;
        return config;
    }

    static bool hasModel() {
        return QFile::exists(QStringLiteral(KVLAB_SOURCE_DIR "/assets/model/village.gguf"));
    }

  private slots:
    void aSlowStepIsToldByLayerAndLeftAtOnce() {
        if (!hasModel()) {
            QSKIP("no bundled model");
        }
        SessionWorker worker;
        Listener listener(worker);
        QStringList told;
        connect(&worker, &SessionWorker::progressChanged, &worker,
                [&](SessionPhase, double, const QString& text) {
                    told.push_back(text);
                    if (text.contains("layer")) worker.cancel();
                });
        RunConfig config = runOf(300, 1, 4);
        config.engine.backend = "simt";
        worker.start(config);
        QTRY_VERIFY_WITH_TIMEOUT(listener.finished + listener.failed > 0, 120000);
        QVERIFY2(told.last().contains("simt is slow: step 0, layer 1 of "),
                 qPrintable(told.join('|')));
        QCOMPARE(listener.finished, 1);
        QVERIFY(listener.cancelled);
        QVERIFY(!worker.isRunning());
        // What was under way is told by nobody, and ends before its step would have.
        QVERIFY(worker.endWithin(120000));
        QCoreApplication::processEvents();
        QCOMPARE(listener.finished, 1);
        QVERIFY(listener.steps.empty());
    }

    void endsAfterTheStepsAskedFor() {
        if (!hasModel()) {
            QSKIP("no bundled model");
        }
        SessionWorker worker;
        Listener listener(worker);
        worker.start(runOf(40, 2, 20), 3);
        QTRY_VERIFY_WITH_TIMEOUT(listener.finished + listener.failed > 0, 60000);
        QCOMPARE(listener.finished, 1);
        QVERIFY(listener.cancelled);
        QCOMPARE(listener.steps, (std::vector<int64_t>{0, 1, 2}));
        QVERIFY(worker.endWithin(60000));
    }

    void tellsEveryStepOnceInOrder() {
        if (!hasModel()) {
            QSKIP("no bundled model");
        }
        SessionWorker worker;
        Listener heard(worker);
        worker.start(runOf(40, 2, 150));
        QVERIFY(worker.isRunning());
        QTRY_COMPARE_WITH_TIMEOUT(heard.finished + heard.failed, 1, 120000);
        QCOMPARE(heard.message, QString());
        QVERIFY(!worker.isRunning());
        QVERIFY(heard.right_thread);
        QCOMPARE(heard.started, 1);
        QVERIFY(!heard.ended_before_last_step);
        QVERIFY(heard.steps.size() >= 150);
        for (size_t i = 0; i < heard.steps.size(); ++i) {
            QCOMPARE(heard.steps[i], static_cast<int64_t>(i));
        }
        for (size_t i = 0; i < heard.batches.size(); ++i) {
            QVERIFY(heard.batches[i] <= SessionWorker::kMaxStepsPerFrame);
            if (i > 0) {
                // One frame at least, but for the rounding of the clock.
                QVERIFY(heard.delivered_ms[i] - heard.delivered_ms[i - 1] >=
                        SessionWorker::kFrameMs - 2);
            }
        }
    }

    void cancelEndsTheRunEarly() {
        if (!hasModel()) {
            QSKIP("no bundled model");
        }
        SessionWorker worker;
        Listener heard(worker);
        worker.start(runOf(40, 1, 4000));
        QTRY_VERIFY_WITH_TIMEOUT(heard.steps.size() > 3, 60000);
        worker.cancel();
        QTRY_COMPARE_WITH_TIMEOUT(heard.finished + heard.failed, 1, 60000);
        QVERIFY(heard.cancelled);
        QVERIFY(heard.steps.size() < 4000);
    }

    void pauseHoldsTheRun() {
        if (!hasModel()) {
            QSKIP("no bundled model");
        }
        SessionWorker worker;
        Listener heard(worker);
        worker.start(runOf(40, 1, 3000));
        QTRY_VERIFY_WITH_TIMEOUT(heard.steps.size() > 3, 60000);
        worker.setPaused(true);
        QTest::qWait(300);  // the step that was on its way
        const size_t held = heard.steps.size();
        QTest::qWait(300);
        QCOMPARE(heard.steps.size(), held);
        worker.setPaused(false);
        QTRY_VERIFY_WITH_TIMEOUT(heard.steps.size() > held, 60000);
    }

    void aReplacedRunIsNotHeardAnyMore() {
        if (!hasModel()) {
            QSKIP("no bundled model");
        }
        SessionWorker worker;
        Listener heard(worker);
        worker.start(runOf(40, 1, 4000));
        QTRY_VERIFY_WITH_TIMEOUT(heard.steps.size() > 3, 60000);
        QElapsedTimer clock;
        clock.start();
        worker.start(runOf(30, 1, 20));
        QVERIFY(clock.elapsed() < 100);  // does not wait for the other one
        QTRY_COMPARE_WITH_TIMEOUT(heard.finished + heard.failed, 1, 60000);
        QVERIFY(!heard.cancelled);
        QCOMPARE(heard.started, 2);
        QVERIFY(heard.steps.size() < 40);
        for (size_t i = 0; i < heard.steps.size(); ++i) {
            QCOMPARE(heard.steps[i], static_cast<int64_t>(i));
        }
    }

    void anAbandonedRunTellsNothing() {
        if (!hasModel()) {
            QSKIP("no bundled model");
        }
        SessionWorker worker;
        Listener heard(worker);
        worker.start(runOf(40, 1, 4000));
        QTRY_VERIFY_WITH_TIMEOUT(heard.steps.size() > 3, 60000);
        worker.abandon();
        const size_t held = heard.steps.size();
        QTest::qWait(200);
        QCOMPARE(heard.steps.size(), held);
        QCOMPARE(heard.finished + heard.failed, 0);
        QVERIFY(!worker.isRunning());
    }

    void aMissingModelIsOnePlainSentence() {
        SessionWorker worker;
        Listener heard(worker);
        RunConfig config = runOf(10, 1, 5);
        config.model_path = "/nowhere/model.gguf";
        worker.start(config);
        QTRY_COMPARE_WITH_TIMEOUT(heard.finished + heard.failed, 1, 30000);
        QCOMPARE(heard.failed, 1);
        QVERIFY2(heard.message.contains("/nowhere/model.gguf"), qPrintable(heard.message));
        QVERIFY(!heard.message.contains('\n'));
    }
};

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::SessionWorkerTest)
#include "session_worker_test.moc"
