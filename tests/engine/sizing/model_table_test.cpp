// SPDX-License-Identifier: MIT
#include "engine/sizing/model_table.h"

#include <set>

#include <QTest>

#include "engine/error.h"
#include "engine/sizing/kv_size.h"

namespace kvlab {

class ModelTableTest : public QObject {
    Q_OBJECT

  private slots:
    // Bytes per token in bf16 as the published shapes give them, written down independently.
    void givesThePublishedBytesPerToken_data() {
        QTest::addColumn<QString>("slug");
        QTest::addColumn<qint64>("bytes");
        QTest::addColumn<int>("context_len");
        const auto row = [](const char* slug, qint64 bytes, int context_len) {
            QTest::newRow(slug) << QString(slug) << bytes << context_len;
        };
        row("llama-1-65b", 2621440, 2048);
        row("llama-2-7b", 524288, 4096);
        row("llama-2-13b", 819200, 4096);
        row("llama-2-70b", 327680, 4096);
        row("llama-3-8b", 131072, 8192);
        row("llama-3-70b", 327680, 8192);
        row("llama-3.1-8b", 131072, 131072);
        row("llama-3.1-70b", 327680, 131072);
        row("llama-3.1-405b", 516096, 131072);
        row("llama-3.2-1b", 32768, 131072);
        row("mistral-7b-v0.1", 131072, 32768);
        row("mistral-7b-v0.3", 131072, 32768);
        row("mixtral-8x7b", 131072, 32768);
        row("mixtral-8x22b", 229376, 65536);
        row("qwen2.5-0.5b", 12288, 32768);
        row("qwen2.5-7b", 57344, 131072);
        row("qwen2.5-72b", 327680, 131072);
        row("qwen3-0.6b", 114688, 40960);
        row("gemma-2-9b", 344064, 8192);
        row("gemma-3-4b", 139264, 131072);
        row("phi-3-mini", 393216, 4096);
        row("phi-3-mini-128k", 393216, 131072);
        row("deepseek-v2", 69120, 131072);
        row("deepseek-v3", 70272, 131072);
        row("tinyllama-1.1b", 22528, 2048);
        row("smollm2-135m", 23040, 8192);
        row("smollm2-360m", 40960, 8192);
        row("smollm2-1.7b", 196608, 8192);
        row("opt-13b", 819200, 2048);
    }
    void givesThePublishedBytesPerToken() {
        QFETCH(QString, slug);
        QFETCH(qint64, bytes);
        QFETCH(int, context_len);
        const ModelSpec& spec = modelSpec(slug.toStdString());
        QCOMPARE(qint64{kvBytesPerToken(KvShape::of(spec), KvDtype::kBF16).value}, bytes);
        QCOMPARE(spec.context_len, context_len);
    }

    void holdsTheRowsTestedAboveAndNoOther() { QCOMPARE(modelTable().size(), size_t{29}); }

    void rowsAreConsistent() {
        std::set<std::string> slugs;
        for (const ModelSpec& spec : modelTable()) {
            QVERIFY2(slugs.insert(spec.slug).second, spec.slug.c_str());
            QVERIFY(!spec.name.empty() && !spec.source.empty());
            QVERIFY(spec.num_layers > 0 && spec.num_heads > 0 && spec.context_len > 0);
            QVERIFY(spec.weights_bytes >= 0);
            QCOMPARE(spec.window > 0, spec.num_local_layers > 0);
            QVERIFY(spec.num_local_layers <= spec.num_layers);
            if (spec.attention == AttentionKind::kMla) {
                QVERIFY(spec.latent_dim > 0 && spec.num_kv_heads == 0 && spec.head_dim == 0);
                continue;
            }
            QCOMPARE(spec.latent_dim, 0);
            QCOMPARE(spec.num_heads % spec.num_kv_heads, 0);
            QCOMPARE(spec.attention == AttentionKind::kMha, spec.num_heads == spec.num_kv_heads);
        }
    }

    void knowsTheQuotedWeights() {
        QCOMPARE(modelSpec("llama-3-8b").weights_bytes, int64_t{16060522496});
        QCOMPARE(modelSpec("llama-3-70b").weights_bytes, int64_t{141107412992});
    }

    void namesTheNearestSlugs() {
        QCOMPARE(findModelSpec("llama-4"), nullptr);
        try {
            modelSpec("llama3-70b");
            QFAIL("no error was thrown");
        } catch (const EngineError& error) {
            QCOMPARE(error.kind(), ErrorKind::kBadArgument);
            QVERIFY2(QString(error.what()).contains("llama-3-70b"), error.what());
        }
        const std::string endless(1 << 20, 'x');
        QVERIFY_EXCEPTION_THROWN(modelSpec(endless), EngineError);
        QVERIFY_EXCEPTION_THROWN(modelSpec(""), EngineError);
    }
};

}  // namespace kvlab

using kvlab::ModelTableTest;
QTEST_GUILESS_MAIN(ModelTableTest)
#include "model_table_test.moc"
