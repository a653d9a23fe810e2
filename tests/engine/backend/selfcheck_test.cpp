// SPDX-License-Identifier: MIT
#include "engine/backend/selfcheck.h"

#include <algorithm>

#include <QTest>

#include "engine/backend/host_backend.h"
#include "engine/error.h"
#include "kernels/cpu/thread_pool.h"

using namespace kvlab;

namespace {

// The CPU's operations with one of them wrong.
class WrongBackend : public HostBackend {
  public:
    explicit WrongBackend(const Ops& ops) : HostBackend("wrong", ops), threads_(1) {
        context_.threads = &threads_;
    }

  private:
    ThreadPool threads_;
};

Ops cpuOps() { return makeCpuBackend(1)->ops(); }

std::string missedRows(const SelfcheckReport& report) {
    std::string text;
    for (const SelfcheckRow& row : report.rows) {
        if (!row.passed()) text += row.operation + " " + row.variant + ": " + row.worst_case + "\n";
    }
    return text;
}

bool missed(const SelfcheckReport& report, const std::string& operation) {
    return std::any_of(report.rows.begin(), report.rows.end(), [&](const SelfcheckRow& row) {
        return row.operation == operation && !row.passed();
    });
}

void planted(Ops& ops, int fault) {
    switch (fault) {
        case 0:  // one value a little off
            ops.rms_norm = [](const RmsNormParams& p, ExecutionContext& c) {
                rmsNormCpu(p, c);
                p.output[p.dim - 1] *= 1.001f;
            };
            return;
        case 1:  // the last row forgotten
            ops.matmul = [](const MatmulParams& p, ExecutionContext& c) {
                MatmulParams fewer = p;
                if (p.num_rows > 16) --fewer.num_rows;
                matmulCpu(fewer, c);
            };
            return;
        case 2:  // a value behind the end
            ops.silu_mul = [](const SiluMulParams& p, ExecutionContext& c) {
                siluMulCpu(p, c);
                p.output[p.num_values] = 0;
            };
            return;
        case 3:  // a neighbour's slot
            ops.kv_cache_write = [](const KvCacheWriteParams& p, ExecutionContext& c) {
                kvCacheWriteCpu(p, c);
                p.kv.data[0] = std::byte{0};
            };
            return;
        case 4:  // the scales of int8 left behind
            ops.copy_blocks = [](const CopyBlocksParams& p, ExecutionContext& c) {
                if (p.kv.dtype != DataType::kInt8) return copyBlocksCpu(p, c);
                CopyBlocksParams bytes = p;
                bytes.kv.dtype = DataType::kF16;
                bytes.kv.head_dim /= 2;
                copyBlocksCpu(bytes, c);
            };
            return;
        case 5:  // one token too few
            ops.paged_attention = [](const PagedAttentionParams& p, ExecutionContext& c) {
                std::vector<int32_t> lens(p.context_lens, p.context_lens + p.num_rows);
                for (int32_t& len : lens) len = std::max(1, len - (len > 200 ? 1 : 0));
                PagedAttentionParams shorter = p;
                shorter.context_lens = lens.data();
                pagedAttentionCpu(shorter, c);
            };
            return;
        case 6:  // angles in float
            ops.rope = [](const RopeParams& p, ExecutionContext& c) {
                RopeParams other = p;
                other.base *= 1.0001f;
                ropeCpu(other, c);
            };
            return;
        case 7:  // nothing written
            ops.embedding = [](const EmbeddingParams&, ExecutionContext&) {};
            return;
        case 8:  // refuses what it must take
            ops.matmul = [](const MatmulParams& p, ExecutionContext& c) {
                if (p.num_outputs == 7) throw std::invalid_argument("matmul: outputs in eights");
                matmulCpu(p, c);
            };
            return;
    }
}

}  // namespace

class SelfcheckTest : public QObject {
    Q_OBJECT

  private slots:
    void theCpuPasses() {
        const std::unique_ptr<Backend> cpu = makeCpuBackend(1);
        SelfcheckOptions options;
        options.seed = 1;
        size_t num_told = 0;
        options.on_row = [&](const SelfcheckRow&) { ++num_told; };
        const SelfcheckReport report = selfcheck(*cpu, options);
        QVERIFY2(report.passed(), missedRows(report).c_str());
        QCOMPARE(num_told, report.rows.size());
        for (const char* operation :
             {"embedding", "rms_norm", "matmul", "rope", "kv_cache_write", "paged_attention",
              "attention_mass", "silu_mul", "copy_blocks", "decode"}) {
            QVERIFY2(std::any_of(report.rows.begin(), report.rows.end(),
                                 [&](const SelfcheckRow& row) {
                                     return row.operation == operation && row.num_cases > 0;
                                 }),
                     operation);
        }
    }

    void plantedFaultsAreFound_data() {
        QTest::addColumn<int>("fault");
        QTest::addColumn<QString>("operation");
        const char* const operations[] = {"rms_norm",       "matmul",      "silu_mul",
                                          "kv_cache_write", "copy_blocks", "paged_attention",
                                          "rope",           "embedding",   "matmul"};
        for (int fault = 0; fault < 9; ++fault) {
            QTest::addRow("%d %s", fault, operations[fault]) << fault << operations[fault];
        }
    }

    void plantedFaultsAreFound() {
        QFETCH(int, fault);
        QFETCH(QString, operation);
        Ops ops = cpuOps();
        planted(ops, fault);
        WrongBackend wrong(ops);
        SelfcheckOptions options;
        options.seed = 2;
        const SelfcheckReport report = selfcheck(wrong, options);
        QVERIFY(!report.passed());
        QVERIFY2(missed(report, operation.toStdString()), missedRows(report).c_str());
        // The others are what they were; only decodes may suffer with them.
        for (const SelfcheckRow& row : report.rows) {
            if (row.operation == operation.toStdString() || row.operation == "decode" ||
                (row.operation == "attention_mass" && operation == "paged_attention")) {
                continue;
            }
            QVERIFY2(row.passed(), (row.operation + " " + row.worst_case).c_str());
        }
    }

    void aBrokenDeviceEndsIt() {
        Ops ops = cpuOps();
        ops.rope = [](const RopeParams&, ExecutionContext&) {
            throw EngineError(ErrorKind::kDevice, "the GPU stopped answering");
        };
        WrongBackend broken(ops);
        QVERIFY_THROWS_EXCEPTION(EngineError, selfcheck(broken, {}));
    }
};

QTEST_GUILESS_MAIN(SelfcheckTest)
#include "selfcheck_test.moc"
