// SPDX-License-Identifier: MIT
#include "engine/trace/trace_io.h"

#include <random>

#include <QCryptographicHash>
#include <QFile>
#include <QTemporaryDir>
#include <QTest>

#include "engine/engine.h"
#include "engine/error.h"
#include "engine/session/session.h"
#include "tests/support/tiny_model.h"

using namespace kvlab;

namespace {

QByteArray readAll(const QString& path) {
    QFile file(path);
    if (!file.open(QIODevice::ReadOnly)) qFatal("cannot read");
    return file.readAll();
}

void writeAll(const QString& path, const QByteArray& bytes) {
    QFile file(path);
    if (!file.open(QIODevice::WriteOnly)) qFatal("cannot write");
    file.write(bytes);
}

// Seals records as the writer does, so that hostile content passes the seal.
QByteArray sealed(const QList<QByteArray>& records) {
    QByteArray file;
    QByteArray seal;
    for (const QByteArray& record : records) {
        seal = QCryptographicHash::hash(seal + record, QCryptographicHash::Sha256).toHex().left(16);
        file += seal + ' ' + record + '\n';
    }
    return file;
}

QList<QByteArray> recordsOf(const QByteArray& file) {
    QList<QByteArray> records;
    for (const QByteArray& line : file.split('\n')) {
        if (!line.isEmpty()) records.append(line.mid(17));
    }
    return records;
}

}  // namespace

class TraceIoTest : public QObject {
    Q_OBJECT

  private slots:
    void initTestCase() {
        QVERIFY(folder_.isValid());
        path_ = folder_.filePath("run.trace");
        EngineConfig config;
        config.cache.block_size = 4;
        config.cache.num_blocks = 40;
        config.cache.kv_dtype = DataType::kF32;
        config.num_threads = 1;
        Engine engine(tinyModel(), nullptr, config);
        EngineRequest request;
        request.prompt.assign(9, TokenId(3));
        request.num_samples = 4;
        request.max_tokens = 12;
        request.sampling.temperature = 1.f;
        engine.submit(request);
        RunInfo info;
        info.model = engine.model();
        info.cache = config.cache;
        info.title = "a test \"with quotes\"";
        info.sampling.seed = UINT64_MAX;
        TraceWriter writer(path_.toStdString(), info);
        while (const auto step = engine.step()) {
            auto named = std::make_shared<StepTrace>(*step);
            named->new_pieces = {{TokenId(1), " key"}, {TokenId(2), "\xE2\x82"}};
            writer.append(*named);
            steps_.push_back(named);
        }
        writer.finish();
    }

    void whatIsWrittenIsRead() {
        const LoadedTrace trace = loadTrace(path_.toStdString());
        QVERIFY2(trace.complete, trace.damage.c_str());
        QCOMPARE(trace.log->numSteps(), static_cast<int64_t>(steps_.size()));
        for (int64_t i = 0; i < trace.log->numSteps(); ++i) {
            QVERIFY(trace.log->step(i) == *steps_[static_cast<size_t>(i)]);
        }
        QCOMPARE(trace.log->info().title, std::string("a test \"with quotes\""));
        QCOMPARE(trace.log->info().sampling.seed, UINT64_MAX);
        QCOMPARE(trace.log->info().model.num_kv_heads, 2);
        QCOMPARE(trace.log->piece(TokenId(2)), std::string("\xE2\x82"));
    }

    void everyKvTypeIsReadBack() {
        for (const DataType dtype : kKvDataTypes) {
            RunInfo info = loadTrace(path_.toStdString()).log->info();
            info.cache.kv_dtype = dtype;
            const QString path = folder_.filePath(QString("%1.trace").arg(dataTypeName(dtype)));
            TraceWriter(path.toStdString(), info).finish();
            QVERIFY(loadTrace(path.toStdString()).log->info().cache.kv_dtype == dtype);
        }
    }

    // A pool so small that sequences are swapped out and computed again.
    void queueAndHostPoolAreRead() {
        const QString path = folder_.filePath("swaps.trace");
        EngineConfig config;
        config.cache.block_size = 4;
        config.cache.num_blocks = 6;
        config.cache.num_host_blocks = 5;
        config.cache.kv_dtype = DataType::kF32;
        config.preempt = PreemptionKind::kSwap;
        config.num_threads = 1;
        Engine engine(tinyModel(), nullptr, config);
        for (int i = 0; i < 4; ++i) {
            EngineRequest request;
            request.prompt.assign(static_cast<size_t>(7 + i), TokenId(3));
            request.num_samples = 1 + i % 2;
            request.max_tokens = 10;
            request.priority = -i;
            engine.submit(request);
        }
        engine.cancel(RequestId(3));
        RunInfo info;
        info.model = engine.model();
        info.cache = config.cache;
        TraceWriter writer(path.toStdString(), info);
        std::vector<std::shared_ptr<const StepTrace>> steps;
        while (const auto step = engine.step()) {
            writer.append(*step);
            steps.push_back(step);
        }
        writer.finish();
        const LoadedTrace trace = loadTrace(path.toStdString());
        QVERIFY2(trace.complete, trace.damage.c_str());
        QCOMPARE(trace.log->info().cache.num_host_blocks, 5);
        for (size_t i = 0; i < steps.size(); ++i) {
            QVERIFY(trace.log->step(static_cast<int64_t>(i)) == *steps[i]);
        }
        const PoolAccount account = accountOf(trace.log->lastState());
        QVERIFY(account.swapped_out > 0 && account.swapped_in > 0 && account.preemptions > 1);
        QVERIFY(trace.log->lastState() == engine.state());

        // Absurd numbers in any field of any event are refused, or leave a sound state.
        const QList<QByteArray> records = recordsOf(readAll(path));
        std::mt19937_64 random(5);
        for (int i = 0; i < 400; ++i) {
            QList<QByteArray> mutated = records;
            QByteArray& record =
                mutated[1 + static_cast<qsizetype>(random() %
                                                   static_cast<uint64_t>(records.size() - 2))];
            QList<qsizetype> digits;
            for (qsizetype at = 0; at < record.size(); ++at) {
                if (record[at] >= '0' && record[at] <= '9') digits.append(at);
            }
            const QByteArrayList absurd{"-1", "4294967296", "null", "7", "0", "3"};
            record.replace(
                digits[static_cast<qsizetype>(random() % static_cast<uint64_t>(digits.size()))], 1,
                absurd[static_cast<qsizetype>(random() % 6)]);
            const QString hostile = folder_.filePath("hostile.trace");
            writeAll(hostile, sealed(mutated));
            const LoadedTrace loaded = loadTrace(hostile.toStdString());
            QVERIFY(checkInvariants(loaded.log->lastState()).empty());
        }
    }

    // Two records in a file of a few hundred kilobytes can ask for as many blocks as a pool may
    // have. What a step costs must not depend on them, neither in time (counting 4 million blocks
    // after each of these steps would take minutes) nor in memory (as would a copy of them every
    // 256).
    void stepsCostNothingInAHugePool() {
        const QString path = folder_.filePath("huge.trace");
        RunInfo info = loadTrace(path_.toStdString()).log->info();
        info.cache.num_blocks = info.cache.num_host_blocks = 4'194'304;
        TraceWriter writer(path.toStdString(), info);
        for (const auto& step : steps_) writer.append(*step);
        StepTrace empty;
        for (empty.step = static_cast<int64_t>(steps_.size()); empty.step < 6000; ++empty.step) {
            writer.append(empty);
        }
        writer.finish();
        const LoadedTrace trace = loadTrace(path.toStdString());
        QVERIFY2(trace.complete, trace.damage.c_str());
        QCOMPARE(trace.log->numSteps(), int64_t{6000});
        QVERIFY(trace.log->keyframeBytes() < trace.num_bytes);
        const PoolAccount account = trace.log->accountAfter(5999);
        QCOMPARE(account.total_blocks, int64_t{4'194'304});
        QVERIFY(account.active_blocks > 0);
        QVERIFY(trace.log->lastState().counts == recount(trace.log->lastState()));
    }

    // What no reader would open is not begun.
    void aPoolThatIsTooLargeForATraceIsRefused() {
        const QString path = folder_.filePath("too-large.trace");
        for (const bool host : {false, true}) {
            RunInfo info = loadTrace(path_.toStdString()).log->info();
            (host ? info.cache.num_host_blocks : info.cache.num_blocks) = 4'194'305;
            QVERIFY_THROWS_EXCEPTION(EngineError, TraceWriter(path.toStdString(), info));
        }
        QVERIFY(!QFile::exists(path));
    }

    // Eight samples of the bundled model, long enough for several keyframes.
    void eightSequencesTakeAtMostFourKibibytesAStep() {
        const QString bundled = QStringLiteral(KVLAB_SOURCE_DIR "/assets/model/village.gguf");
        if (!QFile::exists(bundled)) QSKIP("assets/model/village.gguf is not there");
        const QString path = folder_.filePath("eight.trace");
        RunConfig config;
        config.model_path = bundled.toStdString();
        config.trace_path = path.toStdString();
        config.requests.resize(1);
        config.requests[0].prompt_num_tokens = 200;
        config.requests[0].num_samples = 8;
        config.requests[0].max_tokens = 700;
        config.requests[0].ignore_eos = true;
        config.requests[0].sampling.temperature = 1.f;
        const RunResult result = runToEnd(config);
        QCOMPARE(result.texts.size(), size_t{8});
        const LoadedTrace trace = loadTrace(config.trace_path);
        QVERIFY2(trace.complete, trace.damage.c_str());
        const int64_t steps = trace.log->numSteps();
        QVERIFY(steps > 2 * RunLog::kKeyframeInterval);
        const int64_t keyframes = trace.log->keyframeBytes();
        qInfo("%lld steps: %lld bytes a step in the file, %lld in keyframes",
              static_cast<long long>(steps), static_cast<long long>(trace.num_bytes / steps),
              static_cast<long long>(keyframes / steps));
        QVERIFY(keyframes > 0);
        QVERIFY(trace.num_bytes + keyframes <= 4096 * steps);
    }

    void olderVersionsStillOpenAndLaterOnesAreRefused() {
        const QList<QByteArray> records = recordsOf(readAll(path_));
        const QString path = folder_.filePath("version.trace");
        for (const int version : {1, 2, 3, 4, 6}) {
            QList<QByteArray> lines = records;
            lines[0].replace("\"kvlab_trace\":5", "\"kvlab_trace\":" + QByteArray::number(version));
            QVERIFY(lines[0] != records[0]);
            if (version < 5) lines[0].replace("\"slab_per_request\"", "\"v\"");
            if (version < 4) {
                for (QByteArray& line : lines) line.replace("\"tokens_free\"", "\"w\"");
            }
            if (version < 3) lines[0].replace("\"window\"", "\"z\"");  // what it did not have
            if (version == 1) {
                lines[0].replace("\"num_host_blocks\"", "\"x\"").replace("\"layout\"", "\"y\"");
                for (QByteArray& line : lines) {
                    line.replace("\"attention_ms\"", "\"x\"").replace("\"waiting\":", "\"y\":");
                }
            }
            writeAll(path, sealed(lines));
            if (version == 6) {
                QVERIFY_THROWS_EXCEPTION(EngineError, loadTrace(path.toStdString()));
                continue;
            }
            const LoadedTrace trace = loadTrace(path.toStdString());
            QVERIFY2(trace.complete, trace.damage.c_str());
            QCOMPARE(trace.log->numSteps(), static_cast<int64_t>(steps_.size()));
        }
    }

    void everyTruncationOpensUpToTheDamage() {
        const QByteArray whole = readAll(path_);
        const QString cut = folder_.filePath("cut.trace");
        int64_t most = 0;
        for (qsizetype size = 0; size < whole.size(); size += 1 + size / 97) {
            writeAll(cut, whole.left(size));
            try {
                const LoadedTrace trace = loadTrace(cut.toStdString());
                QVERIFY(!trace.complete);
                QVERIFY(trace.damage.find("line ") != std::string::npos);
                QVERIFY(trace.log->numSteps() >= most);
                most = trace.log->numSteps();
                QVERIFY(checkInvariants(trace.log->lastState()).empty());
            } catch (const EngineError& error) {
                QVERIFY(error.kind() == ErrorKind::kBadFile);
                QVERIFY(size <= whole.indexOf('\n'));
            }
        }
        QVERIFY(most > 0);
    }

    void everyFlippedBitIsFound() {
        const QByteArray whole = readAll(path_);
        const QString damaged = folder_.filePath("damaged.trace");
        std::mt19937_64 random(4);
        for (int i = 0; i < 400; ++i) {
            QByteArray bytes = whole;
            const qsizetype place =
                static_cast<qsizetype>(random() % static_cast<uint64_t>(bytes.size()));
            bytes[place] = static_cast<char>(bytes[place] ^ (1 << (random() % 8)));
            writeAll(damaged, bytes);
            try {
                QVERIFY(!loadTrace(damaged.toStdString()).complete);
            } catch (const EngineError& error) {
                QVERIFY(error.kind() == ErrorKind::kBadFile);
            }
        }
    }

    void sealedNonsenseIsRefusedWithoutACrash() {
        const QList<QByteArray> records = recordsOf(readAll(path_));
        const QString hostile = folder_.filePath("hostile.trace");
        const auto isRefused = [&](const QList<QByteArray>& lines) {
            writeAll(hostile, sealed(lines));
            try {
                return !loadTrace(hostile.toStdString()).complete;
            } catch (const EngineError& error) {
                return error.kind() == ErrorKind::kBadFile;
            }
        };
        QByteArray huge_pool = records[0];
        huge_pool.replace("\"num_blocks\":40", "\"num_blocks\":2000000000");
        QVERIFY(huge_pool != records[0]);
        const QList<QByteArray> bad_steps{
            "[]",
            "17",
            "null",
            "{}",
            "{\"step\":-1,\"events\":[]}",
            "{\"step\":0,\"events\":{}}",
            "{\"step\":0,\"events\":[{\"event\":\"blocks_allocated\"}],\"prefill_tokens\":0}",
            "{\"step\":0,\"events\":[{\"event\":\"no_such_event\"}]}",
            "{\"step\":0,\"events\":[{\"event\":\"tokens_written\",\"sequence\":[0],\"first_"
            "position\":[0],"
            "\"num_tokens\":[99999999999999999999]}]}",
            "{\"step\":0,\"events\":[{\"event\":\"blocks_released\",\"sequence\":[0,1],\"block\":["
            "1],"
            "\"block_idx\":[0]}]}",
            QByteArray(200'000, '['),
            "{\"step\":0"};
        QVERIFY(isRefused({}));
        QVERIFY(isRefused({"{}"}));
        QVERIFY(isRefused({huge_pool}));
        for (const QByteArray& step : bad_steps)
            QVERIFY2(isRefused({records[0], step}), step.left(80));
        QList<QByteArray> swapped = records;
        swapped.swapItemsAt(1, 2);
        QVERIFY(isRefused(swapped));
        QList<QByteArray> trailing = records;
        trailing.append("{\"step\":99}");
        QVERIFY(isRefused(trailing));
        QVERIFY(!isRefused(records));
        // Numbers of one field, replaced by their neighbours' and by absurd ones.
        std::mt19937_64 random(8);
        for (int i = 0; i < 300; ++i) {
            QList<QByteArray> mutated = records;
            QByteArray& record = mutated[1 + static_cast<qsizetype>(random() % 4)];
            const QByteArrayList absurd{"-1", "4294967296", "1e300", "\"x\"", "[]", "null", "7"};
            QList<qsizetype> digits;
            for (qsizetype at = 0; at < record.size(); ++at) {
                if (record[at] >= '0' && record[at] <= '9') digits.append(at);
            }
            record.replace(
                digits[static_cast<qsizetype>(random() % static_cast<uint64_t>(digits.size()))], 1,
                absurd[static_cast<qsizetype>(random() % 7)]);
            writeAll(hostile, sealed(mutated));
            try {
                const LoadedTrace trace = loadTrace(hostile.toStdString());
                QVERIFY(checkInvariants(trace.log->lastState()).empty());
            } catch (const EngineError& error) {
                QVERIFY(error.kind() == ErrorKind::kBadFile);
            }
        }
    }

    void missingFilesAndFoldersAreNamed() {
        QVERIFY_THROWS_EXCEPTION(EngineError, loadTrace("/no/such/file.trace"));
        QVERIFY_THROWS_EXCEPTION(EngineError, loadTrace(folder_.path().toStdString()));
        QVERIFY_THROWS_EXCEPTION(EngineError, TraceWriter("/no/such/folder/x.trace", RunInfo{}));
    }

  private:
    QTemporaryDir folder_;
    QString path_;
    std::vector<std::shared_ptr<const StepTrace>> steps_;
};

QTEST_GUILESS_MAIN(TraceIoTest)
#include "trace_io_test.moc"
