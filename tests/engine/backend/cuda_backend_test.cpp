// SPDX-License-Identifier: MIT
#include "engine/backend/cuda_backend.h"

#include <cstring>
#include <dlfcn.h>

#include <QTest>

#include "engine/backend/cuda_plugin.h"
#include "engine/error.h"
#include "engine/model/transformer.h"
#include "tests/engine/backend/backend_test_support.h"
#include "tests/support/expect_error.h"
#include "tests/support/tiny_model.h"

using namespace kvlab;

namespace {

// Sets an environment variable for a while.
class Environment {
  public:
    Environment(const char* name, const QByteArray& value) : name_(name), before_(qgetenv(name)) {
        qputenv(name, value);
    }
    ~Environment() { before_.isEmpty() ? qunsetenv(name_) : qputenv(name_, before_); }

  private:
    const char* name_;
    QByteArray before_;
};

constexpr const char* kFail = "KVLAB_SIMT_PLUGIN_FAIL";

int numAlive() {
    void* const library = dlopen(KVLAB_SIMT_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    auto* const alive = reinterpret_cast<int (*)()>(dlsym(library, "kvlabSimtPluginAlive"));
    return alive != nullptr ? alive() : -1;
}

// Calls of the entry that kFail names, since it was named.
int numCalled() {
    void* const library = dlopen(KVLAB_SIMT_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    auto* const called = reinterpret_cast<int (*)()>(dlsym(library, "kvlabSimtPluginWorked"));
    return called != nullptr ? called() : -1;
}

// Logits of some decode steps of one sequence: a prompt of 5, then row by row.
std::vector<std::vector<float>> decode(Backend& backend, int num_steps) {
    const auto weights = tinyModel();
    const ModelConfig& c = weights->config;
    Transformer transformer(weights, backend);
    PagedKvView kv;
    kv.dtype = DataType::kF16;
    kv.num_layers = c.num_layers;
    kv.num_blocks = 8;
    kv.block_size = 4;
    kv.num_kv_heads = c.num_kv_heads;
    kv.head_dim = c.head_dim;
    const Backend::Memory pool = backend.allocate(kv.numBytes(), "the pool");
    kv.data = pool.get();
    std::vector<std::vector<float>> result;
    int position = 0;
    const auto step = [&](int num_rows) {
        StepBatch batch;
        batch.num_seqs = 1;
        batch.max_blocks_per_seq = 8;
        batch.block_tables = {3, 1, 7, 0, 2, 6, 5, 4};
        for (int i = 0; i < num_rows; ++i, ++position) {
            batch.token_ids.push_back((17 * position + 3) % 61);
            batch.positions.push_back(position);
            batch.slot_mapping.push_back(batch.block_tables[static_cast<size_t>(position / 4)] * 4 +
                                         position % 4);
            batch.row_to_seq.push_back(0);
            batch.context_lens.push_back(position + 1);
        }
        batch.logit_rows = {num_rows - 1};
        backend.beginStep();
        const float* const logits = transformer.forward(batch, kv);
        backend.endStep();
        result.emplace_back(logits, logits + c.vocab_size);
    };
    step(5);
    for (int i = 0; i < num_steps; ++i) step(1);
    return result;
}

}  // namespace

// The engine's side of the CUDA plugin, run over a stand-in that has the same table, host memory
// and simt kernels. What only a GPU can show is in tests/gpu/check.sh.
class CudaBackendTest : public QObject {
    Q_OBJECT

  private slots:
    void init() { qputenv("KVLAB_CUDA_PLUGIN", KVLAB_SIMT_PLUGIN); }
    void cleanup() {
        qunsetenv("KVLAB_CUDA_PLUGIN");
        qunsetenv(kFail);
        QCOMPARE(numAlive(), 0);  // memory, streams, events, graphs
    }

    void schedulesAgreeWithTheCpu_data() { addScheduleRows(); }

    void schedulesAgreeWithTheCpu() {
        double difference = 0;
        verifySchedulesAgreeWithTheCpu("cuda", difference);
    }

    // The stand-in finds a missing wait: rows that do not wait for the copies of their step read
    // and write other numbers.
    void rowsWaitForCopies() {
        const BackendRun cpu = runOn("cpu", tinyModel(), DataType::kF32, PreemptionKind::kSwap);
        const Environment lost(kFail, "lost_wait");
        const BackendRun cuda = runOn("cuda", tinyModel(), DataType::kF32, PreemptionKind::kSwap);
        QVERIFY(!(worstDifference(cuda, cpu) < 1e-4));
    }

    void graphsReplayWhatWasRecorded() {
        const auto plain = decode(*makeCudaBackend({.graphs = false}), 12);
        const auto replayed = decode(*makeCudaBackend({.graphs = true}), 12);
        QVERIFY(plain == replayed);
        // The first decode step of a shape runs, the second is recorded and launched.
        const Environment fail(kFail, "launch_graph:4:3");
        QCOMPARE(decode(*makeCudaBackend({.graphs = false}), 12).size(), plain.size());
        expectError(ErrorKind::kDevice, "launch_graph",
                    [] { decode(*makeCudaBackend({.graphs = true}), 12); });
    }

    // Memory for a graph is asked for once; steps go on without, and give the same.
    void aGpuWithoutRoomForGraphsRunsPlainly() {
        const auto plain = decode(*makeCudaBackend({.graphs = false}), 12);
        const int before = numCalled();
        const Environment fail(kFail, "end_capture:1");
        const auto without = decode(*makeCudaBackend({}), 12);
        QCOMPARE(numCalled() - before, 1);
        QVERIFY(without == plain);
    }

    // One shape more than are kept costs the one that was longest unused, and no other.
    void theShapeLongestUnusedIsForgotten() {
        const std::unique_ptr<Backend> backend = makeCudaBackend({.max_graphs = 2});
        int num_run = 0;
        const auto records = [&](int64_t shape) {
            const int before = numCalled();
            backend->beginStep();
            backend->runRepeatable(std::vector<int64_t>{shape}, [&] { ++num_run; });
            backend->endStep();
            return numCalled() - before;
        };
        const Environment count(kFail, "begin_capture:4:1000000");
        QCOMPARE(records(1), 0);
        QCOMPARE(records(1), 1);
        QCOMPARE(records(2), 0);
        QCOMPARE(records(2), 1);
        QCOMPARE(num_run, 4);
        QCOMPARE(records(1), 0);  // replayed
        QCOMPARE(num_run, 4);
        QCOMPARE(records(3), 0);  // in the place of 2
        QCOMPARE(num_run, 5);
        QCOMPARE(records(1), 0);
        QCOMPARE(num_run, 5);
        QCOMPARE(records(2), 0);  // as if new, in the place of 3
        QCOMPARE(num_run, 6);
        QCOMPARE(records(2), 1);
        QCOMPARE(records(1), 0);
        QCOMPARE(num_run, 7);
        QCOMPARE(records(3), 0);
        QCOMPARE(records(1), 0);
        QCOMPARE(num_run, 8);
    }

    // However the blocks lie, each goes over in one copy (in int8 its scales in another), and
    // blocks that lie side by side in both pools go together. What arrives is held against the
    // layout, row by row.
    void swapsTakeACopyABlock_data() {
        QTest::addColumn<int>("kv_dtype");
        for (const DataType dtype : kKvDataTypes) {
            QTest::newRow(dataTypeName(dtype)) << static_cast<int>(dtype);
        }
    }

    void swapsTakeACopyABlock() {
        QFETCH(int, kv_dtype);
        PagedKvView kv;
        kv.dtype = static_cast<DataType>(kv_dtype);
        kv.num_layers = 3;
        kv.num_blocks = 9;
        kv.block_size = 5;
        kv.num_kv_heads = 2;
        kv.head_dim = 8;
        PagedKvView host = kv;
        host.num_blocks = 7;
        const std::unique_ptr<Backend> backend = makeCudaBackend({});
        std::vector<uint8_t> before(static_cast<size_t>(kv.numBytes()));
        for (size_t i = 0; i < before.size(); ++i) before[i] = static_cast<uint8_t>(37 * i + i / 9);
        const Backend::Memory pool =
            backend->resident(before.data(), static_cast<int64_t>(before.size()), "the pool");
        const Backend::Memory host_pool = backend->allocateHost(host.numBytes(), "the host pool");
        kv.data = pool.get();
        host.data = host_pool.get();
        // 4 and 5 lie side by side in both, and so does the half-filled 6 behind them.
        const std::vector<BlockSwap> out = {{8, 0, 5}, {1, 6, 5}, {4, 1, 5},
                                            {5, 2, 5}, {6, 3, 2}, {0, 5, 3}};
        const int per_run = kv.dtype == DataType::kInt8 ? 2 : 1;
        const Environment count(kFail, "copy_rows:4:1000000");
        const auto numCopies = [&](bool is_out, const std::vector<BlockSwap>& swaps) {
            const int num_before = numCalled();
            backend->beginStep();
            is_out ? backend->swapOut(swaps, kv, host) : backend->swapIn(swaps, kv, host);
            backend->endStep();
            return numCalled() - num_before;
        };
        QCOMPARE(numCopies(true, out), 4 * per_run);
        const auto rowsAgree = [&](const std::byte* device, const BlockSwap& swap) {
            PagedKvView there = kv;
            there.data = const_cast<std::byte*>(device);
            const int64_t row_bytes = int64_t{kv.head_dim} * dataTypeBytes(kv.dtype);
            for (int layer = 0; layer < kv.num_layers; ++layer) {
                for (const int part : {PagedKvView::kKey, PagedKvView::kValue}) {
                    for (int i = 0; i < swap.num_slots * kv.num_kv_heads; ++i) {
                        const int slot = i / kv.num_kv_heads, head = i % kv.num_kv_heads;
                        const int64_t a = there.rowIndex(
                            layer, part, swap.device_block * kv.block_size + slot, head);
                        const int64_t b = host.rowIndex(
                            layer, part, swap.host_block * kv.block_size + slot, head);
                        if (std::memcmp(there.data + a * row_bytes, host.data + b * row_bytes,
                                        static_cast<size_t>(row_bytes)) != 0) {
                            return false;
                        }
                        if (kv.dtype == DataType::kInt8 &&
                            std::memcmp(there.scales() + a, host.scales() + b, 4) != 0) {
                            return false;
                        }
                    }
                }
            }
            return true;
        };
        for (const BlockSwap& one : out) {
            QVERIFY(rowsAgree(reinterpret_cast<const std::byte*>(before.data()), one));
        }
        // Back to other places; the rest of the pool stays as it was.
        const std::vector<BlockSwap> in = {{2, 0, 5}, {7, 6, 5}, {3, 3, 2}};
        QCOMPARE(numCopies(false, in), 3 * per_run);
        std::vector<std::byte> after(before.size());
        backend->download(pool.get(), static_cast<int64_t>(after.size()), after.data());
        for (const BlockSwap& one : in) QVERIFY(rowsAgree(after.data(), one));
        size_t num_changed = 0;
        for (size_t i = 0; i < after.size(); ++i) {
            num_changed += static_cast<uint8_t>(after[i]) != before[i];
        }
        const size_t slot_bytes =
            static_cast<size_t>(kvRowBytes(kv.dtype, kv.head_dim)) * 2 * 3 * 2;
        QVERIFY(num_changed > 0 && num_changed <= 12 * slot_bytes);
    }

    void failuresBecomeOneSentence_data() {
        QTest::addColumn<QByteArray>("injected");
        QTest::addColumn<int>("kind");
        QTest::addColumn<QString>("part");
        const auto row = [](const char* injected, ErrorKind kind, const char* part) {
            QTest::newRow(injected) << QByteArray(injected) << static_cast<int>(kind) << part;
        };
        row("open:4", ErrorKind::kDevice, "driver failed");
        row("create_stream:4", ErrorKind::kDevice, "driver failed");
        row("create_stream:4:1", ErrorKind::kDevice, "driver failed");
        row("create_event:4", ErrorKind::kDevice, "driver failed");
        row("allocate:1", ErrorKind::kOutOfMemory, "free of 2 GiB");
        row("allocate:1:5", ErrorKind::kOutOfMemory, "the weights need");
        row("allocate:1:1000", ErrorKind::kOutOfMemory, "never");  // see below
        row("allocate_host:1", ErrorKind::kOutOfMemory, "pinned memory");
        row("allocate_host:2", ErrorKind::kDevice, "stopped answering");
        row("copy:2", ErrorKind::kDevice, "stopped answering");
        row("copy:2:40", ErrorKind::kDevice, "stopped answering");
        row("copy_rows:2", ErrorKind::kDevice, "stopped answering");
        row("fill:4", ErrorKind::kDevice, "driver failed");
        row("operation:1", ErrorKind::kOutOfMemory, "no memory left");
        row("operation:2", ErrorKind::kDevice, "stopped answering");
        row("operation:2:55", ErrorKind::kDevice, "stopped answering");
        row("operation:3:70", ErrorKind::kInternal, "refuses its arguments");
        row("synchronise:2:30", ErrorKind::kDevice, "stopped answering");
        row("record_event:4", ErrorKind::kDevice, "driver failed");
        row("wait_event:4", ErrorKind::kDevice, "driver failed");
        row("devices:0", ErrorKind::kUnsupported, "the test took the device away");
        row("capability:0", ErrorKind::kUnsupported, "compute capability 6.1 is below 7.5");
        row("version:0", ErrorKind::kUnsupported, "another version of KV Lab");
        row("hole:0", ErrorKind::kUnsupported, "lacks some of its functions");
    }

    void failuresBecomeOneSentence() {
        QFETCH(QByteArray, injected);
        QFETCH(int, kind);
        QFETCH(QString, part);
        const Environment fail(kFail, injected);
        if (part == "never") {  // what fails after the end of the run does no harm
            QCOMPARE(runOn("cuda", tinyModel(), DataType::kF16).backend, std::string("cuda"));
            return;
        }
        expectError(static_cast<ErrorKind>(kind), part.toStdString(),
                    [] { runOn("cuda", tinyModel(), DataType::kF16); });
        expectError(static_cast<ErrorKind>(kind), "use --backend cpu",
                    [] { runOn("cuda", tinyModel(), DataType::kF16); });
    }

    void failuresWhileRecordingAreTold_data() {
        QTest::addColumn<QByteArray>("injected");
        for (const char* injected : {"begin_capture:4", "end_capture:4", "launch_graph:2"}) {
            QTest::newRow(injected) << QByteArray(injected);
        }
    }

    void failuresWhileRecordingAreTold() {
        QFETCH(QByteArray, injected);
        const Environment fail(kFail, injected);
        expectError(ErrorKind::kDevice, injected.split(':').first().toStdString(),
                    [] { decode(*makeCudaBackend({}), 5); });
    }

    void anotherLibraryAndNoneAreRefused() {
        const Environment other("KVLAB_CUDA_PLUGIN", KVLAB_OTHER_LIBRARY);
        QVERIFY(!cudaDeviceIsThere());
        expectError(ErrorKind::kUnsupported, "is not KV Lab's CUDA plugin",
                    [] { makeCudaBackend({}); });
        const Environment none("KVLAB_CUDA_PLUGIN", "/nowhere/libkvlab_cuda.so");
        QVERIFY(!cudaDeviceIsThere());
        expectError(ErrorKind::kUnsupported, "is not there", [] { makeCudaBackend({}); });
    }

    void autoTakesTheGpu() {
        QVERIFY(cudaDeviceIsThere());
        QCOMPARE(runOn("auto", tinyModel(), DataType::kF16).backend, std::string("cuda"));
    }

    void autoFallsBackAndSaysWhy() {
        const Environment fail(kFail, "allocate:1:5");
        std::string why;
        EngineConfig config;
        config.on_fallback = [&](const std::string& text) { why = text; };
        const BackendRun run =
            runOn("auto", tinyModel(), DataType::kF16, PreemptionKind::kSwap, config);
        QCOMPARE(run.backend, std::string("cpu"));
        QVERIFY2(why.find("the GPU has") != std::string::npos, why.c_str());
        QVERIFY2(why.find("use --backend") == std::string::npos, why.c_str());
    }

    void autoSaysWhyANamedPluginIsNotUsed() {
        const Environment none("KVLAB_CUDA_PLUGIN", "/nowhere/libkvlab_cuda.so");
        std::string why;
        EngineConfig config;
        config.on_fallback = [&](const std::string& text) { why = text; };
        QCOMPARE(runOn("auto", tinyModel(), DataType::kF16, PreemptionKind::kSwap, config).backend,
                 std::string("cpu"));
        QVERIFY2(why.find("\"/nowhere/libkvlab_cuda.so\", which is not there") != std::string::npos,
                 why.c_str());
    }

    void autoWithoutAGpuSaysNothing() {
        const Environment none(kFail, "devices:0");
        bool told = false;
        EngineConfig config;
        config.on_fallback = [&](const std::string&) { told = true; };
        QCOMPARE(runOn("auto", tinyModel(), DataType::kF16, PreemptionKind::kSwap, config).backend,
                 std::string("cpu"));
        QVERIFY(!told);
    }
};

QTEST_GUILESS_MAIN(CudaBackendTest)
#include "cuda_backend_test.moc"
