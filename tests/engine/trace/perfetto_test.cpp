// SPDX-License-Identifier: MIT
#include "engine/trace/perfetto.h"

#include <cmath>
#include <map>

#include <QDir>
#include <QFile>
#include <QJsonArray>
#include <QJsonDocument>
#include <QJsonObject>
#include <QTemporaryDir>
#include <QTest>

#include "engine/engine.h"
#include "engine/error.h"
#include "tests/support/tiny_model.h"

using namespace kvlab;

namespace {

auto equals(const char* name) {
    return [wanted = QString(name)](const QString& found) { return found == wanted; };
}

}  // namespace

// Qt's JSON reader is the witness; the counts are those of the fold.
class PerfettoTest : public QObject {
    Q_OBJECT

  private slots:
    void initTestCase() {
        QVERIFY(folder_.isValid());
        EngineConfig config;
        config.cache.block_size = 4;
        config.cache.num_blocks = 60;
        config.cache.kv_dtype = DataType::kF32;
        config.num_threads = 1;
        config.token_budget = 8;
        Engine engine(tinyModel(), nullptr, config);
        EngineRequest request;
        request.prompt.assign(19, TokenId(3));  // three chunks
        request.num_samples = 3;
        request.max_tokens = 7;
        request.sampling.temperature = 1.f;
        engine.submit(request);
        request.prompt.assign(5, TokenId(4));
        request.num_samples = 1;
        request.max_tokens = 4;
        engine.submit(request);
        RunInfo info;
        info.model = engine.model();
        info.cache = config.cache;
        info.title = "a \"quoted\" title, \xff no UTF-8";
        log_ = std::make_unique<RunLog>(info);
        while (const auto step = engine.step()) log_->append(step);
        QVERIFY(log_->numSteps() > 8);

        path_ = folder_.filePath("run.json");
        num_events_ = writePerfettoTrace(*log_, path_.toStdString());
        QFile file(path_);
        QVERIFY(file.open(QIODevice::ReadOnly));
        QJsonParseError error;
        document_ = QJsonDocument::fromJson(file.readAll(), &error).object();
        QVERIFY2(error.error == QJsonParseError::NoError, qPrintable(error.errorString()));
        for (const QJsonValue value : document_["traceEvents"].toArray()) {
            events_.append(value.toObject());
        }
    }

    void everyEventIsWellFormed() {
        QCOMPARE(events_.size(), num_events_);
        QCOMPARE(document_["displayTimeUnit"].toString(), "ms");
        QVERIFY(document_["otherData"].toObject()["title"].toString().startsWith(
            "a \"quoted\" title, "));
        for (const QJsonObject& event : events_) {
            const QString phase = event["ph"].toString();
            QVERIFY(QStringList({"X", "i", "C", "M"}).contains(phase));
            QVERIFY(!event["name"].toString().isEmpty() && event["pid"].isDouble());
            if (phase != "M") QVERIFY(event["ts"].toDouble(-1) >= 0);
            if (phase == "X") QVERIFY(event["dur"].toDouble(-1) > 0 && event["tid"].isDouble());
            if (phase == "i") QCOMPARE(event["s"].toString(), "t");
        }
    }

    void stepsCarryTheirTimesAndTokens() {
        const QList<QJsonObject> slices =
            named("X", [](const QString& name) { return name.startsWith("step "); });
        QCOMPARE(slices.size(), log_->numSteps());
        double now = 0;
        for (int64_t i = 0; i < log_->numSteps(); ++i) {
            const StepTrace& step = log_->step(i);
            const QJsonObject& slice = slices[i];
            QCOMPARE(slice["name"].toString(), QStringLiteral("step %1").arg(i));
            QVERIFY(std::abs(slice["ts"].toDouble() - now) < 1e-6 * (1 + now));
            now = slice["ts"].toDouble() + slice["dur"].toDouble();
            QCOMPARE(slice["dur"].toDouble(), std::max(step.stats.total_ms * 1000, 1.0));
            QCOMPARE(slice["args"]["prefill_tokens"].toInt(), step.stats.num_prefill_tokens);
            QCOMPARE(slice["args"]["decode_tokens"].toInt(), step.stats.num_decode_tokens);
            std::map<QString, int> entries;
            for (const Event& event : step.events) entries[eventName(event)] += numEntries(event);
            const QJsonObject told = slice["args"]["entries"].toObject();
            QCOMPARE(static_cast<size_t>(told.size()), entries.size());
            for (const auto& [name, count] : entries) QCOMPARE(told[name].toInt(), count);
        }
    }

    void forwardAndSampleLieInTheirStep() {
        const QList<QJsonObject> forward = named("X", equals("forward"));
        const QList<QJsonObject> sample = named("X", equals("sample"));
        const QList<QJsonObject> steps =
            named("X", [](const QString& name) { return name.startsWith("step "); });
        int num_forward = 0;
        double forward_us = 0;
        for (int64_t i = 0; i < log_->numSteps(); ++i) {
            num_forward += log_->step(i).stats.forward_ms > 0;
            forward_us += log_->step(i).stats.forward_ms * 1000;
        }
        QVERIFY(num_forward > 0);
        QCOMPARE(forward.size(), num_forward);
        double told_us = 0;
        for (const QList<QJsonObject>* parts : {&forward, &sample}) {
            for (const QJsonObject& part : *parts) {
                const double begin = part["ts"].toDouble();
                const double end = begin + part["dur"].toDouble();
                bool inside = false;
                for (const QJsonObject& step : steps) {
                    const double step_begin = step["ts"].toDouble();
                    const double step_end = step_begin + step["dur"].toDouble();
                    inside = inside || (begin >= step_begin && end <= step_end + 1e-6);
                }
                QVERIFY(inside);
                if (parts == &forward) told_us += part["dur"].toDouble();
            }
        }
        QVERIFY(std::abs(told_us - forward_us) < 1e-6 * forward_us + 1e-6);
    }

    void countersAreTheFold() {
        const auto values = [&](const char* name) {
            QList<int64_t> all;
            for (const QJsonObject& event : named("C", equals(name))) {
                all.append(event["args"]["value"].toInteger(-1));
            }
            return all;
        };
        const QList<int64_t> free = values("free blocks");
        const QList<int64_t> active = values("active blocks");
        const QList<int64_t> shared = values("shared blocks");
        const QList<int64_t> held = values("tokens held");
        QCOMPARE(free.size(), log_->numSteps() + 1);
        CacheState state = initialState(log_->info().cache);
        int64_t most_shared = 0;
        for (int64_t i = 0; i <= log_->numSteps(); ++i) {
            if (i > 0) {
                for (const Event& event : log_->step(i - 1).events) apply(state, event);
            }
            const PoolAccount account = accountOf(state);
            QCOMPARE(free[i], account.free_blocks);
            QCOMPARE(active[i], account.active_blocks);
            QCOMPARE(shared[i], account.shared_blocks);
            QCOMPARE(held[i], account.tokens_held);
            most_shared = std::max(most_shared, account.shared_blocks);
        }
        QVERIFY(most_shared > 0);
    }

    void sequencesHaveTheirTracks() {
        const CacheState& state = log_->lastState();
        QCOMPARE(state.sequences.size(), size_t{4});
        std::map<int, int64_t> prefill_tokens;  // by track
        std::map<int, int64_t> decode_tokens;
        for (const QJsonObject& event : events_) {
            if (event["pid"].toInt() != 2 || event["ph"] != "X") continue;
            const QString name = event["name"].toString();
            QVERIFY(name == "prefill" || name == "decode");
            (name == "prefill" ? prefill_tokens : decode_tokens)[event["tid"].toInt()] +=
                event["args"]["tokens"].toInteger();
        }
        int64_t num_prefill = 0;
        int64_t num_decode = 0;
        for (int64_t i = 0; i < log_->numSteps(); ++i) {
            num_prefill += log_->step(i).stats.num_prefill_tokens;
            num_decode += log_->step(i).stats.num_decode_tokens;
        }
        int64_t told_prefill = 0;
        int64_t told_decode = 0;
        for (const auto& [track, tokens] : prefill_tokens) told_prefill += tokens;
        for (const auto& [track, tokens] : decode_tokens) told_decode += tokens;
        QCOMPARE(told_prefill, num_prefill);
        QCOMPARE(told_decode, num_decode);
        QCOMPARE(num_prefill, int64_t{19 + 5});

        QMap<int, QString> names;
        for (const QJsonObject& event : named("M", equals("thread_name"))) {
            if (event["pid"].toInt() == 2) {
                names[event["tid"].toInt()] = event["args"]["name"].toString();
            }
        }
        QMap<int, QString> finished;
        for (const QJsonObject& event : named("i", equals("finished"))) {
            finished[event["tid"].toInt()] = event["args"]["reason"].toString();
        }
        QCOMPARE(named("i", equals("started")).size(), 2);
        QCOMPARE(named("i", equals("forked")).size(), 2);
        for (const SequenceState& sequence : state.sequences) {
            const int track = sequence.id.value + 1;
            const QString start = QString::fromStdString(ownerLetter(sequence.id)) +
                                  QStringLiteral(" (request %1, sample %2)")
                                      .arg(sequence.request.value)
                                      .arg(sequence.sample_idx);
            QCOMPARE(names[track], start);
            QCOMPARE(finished[track], QString(finishReasonName(sequence.finish)));
            // A forked sequence wrote only what it decoded.
            const bool forked = sequence.sample_idx > 0;
            QCOMPARE(prefill_tokens.count(track), size_t{forked ? 0u : 1u});
            if (!forked) QCOMPARE(prefill_tokens[track], int64_t{sequence.prompt_len});
            // The last sampled token is never fed back.
            const auto num_sampled =
                static_cast<int64_t>(sequence.tokens.size()) - sequence.prompt_len;
            QCOMPARE(decode_tokens[track], num_sampled - 1);
        }
    }

    void slicesOfATrackDoNotOverlap() {
        std::map<std::pair<int, int>, double> ends;
        for (const QJsonObject& event : events_) {
            if (event["ph"] != "X" || event["pid"].toInt() != 2) continue;
            double& end = ends[{event["pid"].toInt(), event["tid"].toInt()}];
            QVERIFY(event["ts"].toDouble() >= end - 1e-6);
            end = event["ts"].toDouble() + event["dur"].toDouble();
        }
        QCOMPARE(ends.size(), size_t{4});
    }

    // Numbers of a damaged or accounting trace: the file stays JSON and time goes forward.
    void strangeTimesStayNumbers() {
        RunInfo info = log_->info();
        RunLog strange(info);
        const double times[] = {0, -5, INFINITY, NAN, 1e300};
        for (int64_t i = 0; i < 5; ++i) {
            auto step = std::make_shared<StepTrace>();
            step->step = i;
            step->stats.total_ms = times[i];
            step->stats.forward_ms = times[4 - i];
            step->stats.sample_ms = 1;
            strange.append(step);
        }
        const QString path = folder_.filePath("strange.json");
        writePerfettoTrace(strange, path.toStdString());
        QFile file(path);
        QVERIFY(file.open(QIODevice::ReadOnly));
        const QJsonArray events =
            QJsonDocument::fromJson(file.readAll()).object()["traceEvents"].toArray();
        int num_steps = 0;
        double now = 0;
        for (const QJsonValue event : events) {
            if (!event["name"].toString().startsWith("step ")) continue;
            ++num_steps;
            QVERIFY(event["ts"].toDouble(-1) >= now);
            QVERIFY(event["dur"].toDouble() >= 1);
            now = event["ts"].toDouble() + event["dur"].toDouble();
        }
        QCOMPARE(num_steps, 5);
    }

    void nothingIsLeftWhereNothingCanBeWritten() {
        const QString missing = folder_.filePath("no folder/run.json");
        QVERIFY_THROWS_EXCEPTION(EngineError, writePerfettoTrace(*log_, missing.toStdString()));
        // A folder cannot be replaced by a file: the rename fails at the very end.
        QVERIFY(QDir(folder_.path()).mkdir("taken"));
        QVERIFY_THROWS_EXCEPTION(
            EngineError, writePerfettoTrace(*log_, folder_.filePath("taken").toStdString()));
        QVERIFY(QDir(folder_.path()).entryList({"*.tmp*"}, QDir::Files).isEmpty());
        // An older file is replaced as a whole.
        const QString old = folder_.filePath("old.json");
        QVERIFY(QFile::copy(path_, old));
        RunLog empty(log_->info());
        writePerfettoTrace(empty, old.toStdString());
        QVERIFY(QFile(old).size() < QFile(path_).size());
    }

  private:
    template <class Predicate>
    QList<QJsonObject> named(const char* phase, const Predicate& wanted) const {
        QList<QJsonObject> found;
        for (const QJsonObject& event : events_) {
            if (event["ph"] == phase && wanted(event["name"].toString())) found.append(event);
        }
        return found;
    }

    QTemporaryDir folder_;
    QString path_;
    std::unique_ptr<RunLog> log_;
    int64_t num_events_ = 0;
    QJsonObject document_;
    QList<QJsonObject> events_;
};

QTEST_GUILESS_MAIN(PerfettoTest)
#include "perfetto_test.moc"
