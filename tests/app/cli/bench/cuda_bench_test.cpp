// SPDX-License-Identifier: MIT
#include "app/cli/bench/cuda_bench.h"

#include <QTest>

namespace kvlab {

namespace {

// Each look at it costs time, as if every piece of work did.
class TickingClock : public Clock {
  public:
    explicit TickingClock(double tick_ms) : tick_ms_(tick_ms) {}
    double nowMs() const override { return tick_ms_ * num_looks_++; }
    int numLooks() const { return num_looks_; }

  private:
    double tick_ms_;
    mutable int num_looks_ = 0;
};

struct Counts {
    int cases = 0;
    int left_out = 0;
    std::string text;  // of those left out
};

Counts countsOf(const Json& report) {
    Counts counts;
    for (const Json& bench : report["benches"]) {
        counts.cases += static_cast<int>(bench["cases"].size());
        counts.left_out += static_cast<int>(bench["left_out"].size());
        for (const Json& one : bench["left_out"]) {
            counts.text += one["case"].get<std::string>() + ": " + one["why"].get<std::string>();
            counts.text += "\n";
        }
    }
    return counts;
}

}  // namespace

// Over the stand-in for the CUDA plugin, in the smallest sizes.
class CudaBenchTest : public QObject {
    Q_OBJECT

  private slots:
    void init() { qputenv("KVLAB_CUDA_PLUGIN", KVLAB_SIMT_PLUGIN); }
    void cleanup() {
        qunsetenv("KVLAB_CUDA_PLUGIN");
        qunsetenv("KVLAB_SIMT_PLUGIN_FAIL");
    }

    // After 120 s no case is begun, whatever one takes, and none is lost: it was timed or has its
    // reason.
    void nothingIsBegunWhenTheTimeIsOver_data() {
        QTest::addColumn<double>("tick_ms");
        for (const double tick_ms : {1e3, 3e3, 10e3, 119e3, 121e3}) {
            QTest::addRow("%g s", tick_ms / 1000) << tick_ms;
        }
    }

    void nothingIsBegunWhenTheTimeIsOver() {
        QFETCH(double, tick_ms);
        static const TickingClock none(0);
        static const Counts all = countsOf(runCudaBench({}, true, true, none));
        QVERIFY(all.cases > 10 && all.left_out == 0);
        const TickingClock clock(tick_ms);
        const Json report = runCudaBench({}, true, true, clock);
        const Counts counts = countsOf(report);
        QCOMPARE(counts.cases + counts.left_out, all.cases);
        // The last case was begun in time; a case looks 14 times at most, and a look for each that
        // is left out and one for the end are all that came behind it.
        const int num_looks_in_time = static_cast<int>(120e3 / tick_ms) + 1;
        QVERIFY(clock.numLooks() <= num_looks_in_time + 14 + counts.left_out + 1);
        if (tick_ms >= 120e3) QCOMPARE(counts.cases, 0);
        if (tick_ms * none.numLooks() < 120e3) QCOMPARE(counts.left_out, 0);
        if (counts.left_out > 0) {
            QVERIFY(counts.text.find("no time left: 120 s are over") != std::string::npos);
        }
        QCOMPARE(report["rounds_cut"].get<bool>(), tick_ms * (clock.numLooks() - 1) >= 100e3);
    }

    // Only swaps copy rows; only the model's logits come to the host in a step that replays.
    void aPartThatFailsCostsNoOther() {
        const Json whole = runCudaBench({}, true, true, TickingClock(0));
        QVERIFY(whole["failures"].empty());
        for (const char* fail : {"copy_rows:4", "allocate_host:1:1", "launch_graph:2"}) {
            qputenv("KVLAB_SIMT_PLUGIN_FAIL", fail);
            const Json report = runCudaBench({}, true, true, TickingClock(0));
            const std::string failed = std::string(fail) == "copy_rows:4"      ? "swap"
                                       : std::string(fail) == "launch_graph:2" ? "model_decode"
                                                                               : "";
            QVERIFY2(!report["failures"].empty(), fail);
            for (const Json& failure : report["failures"]) {
                QVERIFY2(failed.empty() || failure["name"] == failed, fail);
                QVERIFY(!failure["why"].get<std::string>().empty());
            }
            QCOMPARE(report["benches"].size(), whole["benches"].size());
            for (size_t i = 0; i < whole["benches"].size(); ++i) {
                const Json& bench = report["benches"][i];
                if (failed.empty() || bench["name"] == failed) continue;
                QCOMPARE(bench["cases"].size(), whole["benches"][i]["cases"].size());
            }
        }
    }

    void whatIsTooLargeIsNamed() {
        qputenv("KVLAB_SIMT_PLUGIN_FAIL", "little_memory");
        const Json report = runCudaBench({"decode_attention"}, true, true, TickingClock(0));
        const Counts counts = countsOf(report);
        QCOMPARE(counts.left_out, 2);  // batch 2 of each model
        QVERIFY2(counts.text.find("llama-3-8b/2/20: wants 320 KiB, half of the GPU's free memory "
                                  "is 256 KiB") != std::string::npos,
                 counts.text.c_str());
    }
};

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::CudaBenchTest)
#include "cuda_bench_test.moc"
