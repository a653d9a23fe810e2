// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <QTest>

#include "engine/engine.h"
#include "engine/model/weights.h"
#include "tests/support/tiny_model.h"

namespace kvlab {

// Logits of every row that gave some, by (sequence, position), and what the schedule did.
struct BackendRun {
    std::map<std::pair<int, int>, std::vector<float>> logits;
    int64_t num_preemptions = 0;
    int64_t num_copies = 0;  // copies on write
    int64_t num_swapped_in = 0;
    std::string backend;
};

// Three requests over one small pool: two with samples that share their prompt (copies on write),
// teacher-forced, so that every backend sees the same tokens; too few blocks for all of them, so
// that some are swapped out and in again where there is a host pool.
inline BackendRun runOn(const std::string& backend,
                        const std::shared_ptr<const ModelWeights>& weights,
                        DataType kv_dtype,
                        PreemptionKind preempt = PreemptionKind::kSwap,
                        EngineConfig config = {}) {
    config.backend = backend;
    config.num_threads = 1;
    config.cache.kv_dtype = kv_dtype;
    config.cache.block_size = 4;
    config.cache.num_blocks = 16;
    config.preempt = preempt;
    config.cache.num_host_blocks = preempt == PreemptionKind::kSwap ? 24 : 0;
    config.token_budget = 13;
    Engine engine(weights, nullptr, config);
    BackendRun run;
    engine.setLogitsObserver(
        [&](SequenceId sequence, int position, const float* row, int vocab_size) {
            run.logits[{sequence.value, position}].assign(row, row + vocab_size);
        });
    for (int r = 0; r < 3; ++r) {
        EngineRequest request;
        for (int i = 0; i < 9 + 2 * r; ++i)
            request.prompt.push_back(TokenId((7 * i + 11 * r + 1) % 61));
        request.num_samples = r == 2 ? 1 : 2;
        for (int i = 0; i < 14; ++i) request.forced.push_back(TokenId((5 * i + 3 * r + 2) % 61));
        request.ignore_eos = true;
        engine.submit(std::move(request));
    }
    while (engine.step()) {
    }
    run.num_preemptions = engine.numPreemptions();
    run.num_copies = engine.state().num_copy_on_write;
    run.num_swapped_in = engine.state().num_swapped_in;
    run.backend = engine.config().backend;
    return run;
}

// The worst max |a - b| / max |b| of any row; infinite when the rows are not the same ones.
inline double worstDifference(const BackendRun& a, const BackendRun& b) {
    if (a.logits.size() != b.logits.size() || a.logits.empty()) return INFINITY;
    double worst = 0;
    for (const auto& [place, row] : a.logits) {
        const auto other = b.logits.find(place);
        if (other == b.logits.end() || other->second.size() != row.size()) return INFINITY;
        double largest = 0;
        double difference = 0;
        for (size_t i = 0; i < row.size(); ++i) {
            largest = std::max(largest, std::abs(double{other->second[i]}));
            const double here = std::abs(double{row[i]} - other->second[i]);
            if (!(here < INFINITY)) return INFINITY;
            difference = std::max(difference, here);
        }
        worst = std::max(worst, difference / largest);
    }
    return worst;
}

// Columns `kv_dtype` and `swap` for verifySchedulesAgreeWithTheCpu.
inline void addScheduleRows() {
    QTest::addColumn<int>("kv_dtype");
    QTest::addColumn<bool>("swap");
    for (const DataType dtype : kKvDataTypes) {
        QTest::addRow("%s, swap", dataTypeName(dtype)) << static_cast<int>(dtype) << true;
    }
    QTest::newRow("f16, recompute") << static_cast<int>(DataType::kF16) << false;
}

// Prefill chunks, decode, copies on write, swaps: every row of logits near the CPU's. `difference`
// is the worst one, and 0 when the test has failed before.
inline void verifySchedulesAgreeWithTheCpu(const char* backend, double& difference) {
    QFETCH(int, kv_dtype);
    QFETCH(bool, swap);
    const auto dtype = static_cast<DataType>(kv_dtype);
    const auto preempt = swap ? PreemptionKind::kSwap : PreemptionKind::kRecompute;
    const BackendRun run = runOn(backend, tinyModel(), dtype, preempt);
    const BackendRun cpu = runOn("cpu", tinyModel(), dtype, preempt);
    QCOMPARE(run.backend, std::string(backend));
    QVERIFY(run.num_preemptions > 0 && run.num_copies > 0);
    QCOMPARE(run.num_swapped_in > 0, swap);
    difference = worstDifference(run, cpu);
    const double tolerance = dtype == DataType::kF32 ? 1e-4 : 2e-3;
    QVERIFY2(difference < tolerance, qPrintable(QString::number(difference)));
}

}  // namespace kvlab
