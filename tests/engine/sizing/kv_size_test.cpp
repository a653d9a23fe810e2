// SPDX-License-Identifier: MIT
#include "engine/sizing/kv_size.h"

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include <QTest>

#include "engine/error.h"

namespace kvlab {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

KvShape shapeOf(const char* slug) { return KvShape::of(modelSpec(slug)); }

// Samples of one prompt on a pool of real blocks, one token at a time: what the formulas claim.
struct SimulatedSamples {
    int64_t blocks_held = 0;
    int64_t copies = 0;
    int64_t tokens_copied = 0;
    int64_t slots_unused = 0;

    SimulatedSamples(int64_t prompt_len,
                     int64_t written_len,
                     int64_t num_samples,
                     int64_t block_size) {
        struct Block {
            int64_t ref_count;
            int64_t num_tokens;
        };
        std::vector<Block> blocks;
        std::vector<size_t> prompt_table;
        for (int64_t token = 0; token < prompt_len; ++token) {
            if (token % block_size == 0) {
                prompt_table.push_back(blocks.size());
                blocks.push_back({num_samples, 0});
            }
            ++blocks.back().num_tokens;
        }
        std::vector<std::vector<size_t>> tables(static_cast<size_t>(num_samples), prompt_table);
        for (int64_t step = 0; step < written_len; ++step) {
            for (std::vector<size_t>& table : tables) {
                const int64_t position = prompt_len + step;
                if (position % block_size == 0) {
                    table.push_back(blocks.size());
                    blocks.push_back({1, 0});
                } else if (blocks[table.back()].ref_count > 1) {
                    --blocks[table.back()].ref_count;
                    ++copies;
                    tokens_copied += blocks[table.back()].num_tokens;
                    blocks.push_back({1, blocks[table.back()].num_tokens});
                    table.back() = blocks.size() - 1;
                }
                ++blocks[table.back()].num_tokens;
            }
        }
        for (const Block& block : blocks) {
            if (block.ref_count == 0) continue;
            ++blocks_held;
            slots_unused += block_size - block.num_tokens;
        }
    }
};

}  // namespace

class KvSizeTest : public QObject {
    Q_OBJECT

  private:
    static void expectError(ErrorKind kind, const char* part, const std::function<void()>& call) {
        try {
            call();
        } catch (const EngineError& error) {
            if (error.kind() != kind || std::string(error.what()).find(part) == std::string::npos) {
                QFAIL(error.what());
            }
            return;
        }
        QFAIL("no error was thrown");
    }

  private slots:
    void reproducesTheTextbookFigures() {
        const KvShape llama70 = shapeOf("llama-3-70b");
        const Quantity token = kvBytesPerToken(llama70, KvDtype::kBF16);
        QCOMPARE(token.value, int64_t{327680});
        QCOMPARE(token.unit, std::string("B"));
        QCOMPARE(token.formula, std::string("2 · L · H_kv · D · b"));
        QCOMPARE(token.substituted, std::string("2 · 80 · 8 · 128 · 2 = 327,680"));
        const Quantity sequence = kvBytesPerSequence(llama70, KvDtype::kBF16, 8192);
        QCOMPARE(sequence.value, int64_t{2684354560});
        QCOMPARE(sequence.formula, std::string("2 · L · H_kv · D · b · S"));
        QCOMPARE(sequence.substituted, std::string("2 · 80 · 8 · 128 · 2 · 8,192 = 2,684,354,560"));
        const Quantity total = kvBytesTotal(llama70, KvDtype::kBF16, 8192, 32);
        QCOMPARE(total.value, int64_t{85899345920});
        QCOMPARE(total.substituted, std::string("2,684,354,560 · 32 = 85,899,345,920"));
        QCOMPARE(kvBytesPerSequence(llama70, KvDtype::kBF16, 131072).value, int64_t{40} << 30);
        QCOMPARE(kvBytesPerSequence(llama70, KvDtype::kBF16, 200000).value, int64_t{65536000000});
        QCOMPARE(kvBytesPerBlock(llama70, KvDtype::kBF16, 16).value, int64_t{5242880});
    }

    void knowsEveryStorageType() {
        const KvShape llama8 = shapeOf("llama-3-8b");
        QCOMPARE(kvBytesPerToken(llama8, KvDtype::kF32).value, int64_t{262144});
        QCOMPARE(kvBytesPerToken(llama8, KvDtype::kF16).value, int64_t{131072});
        const Quantity int8 = kvBytesPerToken(llama8, KvDtype::kInt8);
        QCOMPARE(int8.value, int64_t{2 * 32 * 8 * (128 + 4)});
        QCOMPARE(int8.formula, std::string("2 · L · H_kv · (D + 4)"));
        QCOMPARE(int8.substituted, std::string("2 · 32 · 8 · (128 + 4) = 67,584"));
        for (const char* name : {"f32", "f16", "bf16", "int8"}) {
            QCOMPARE(std::string(dataTypeName(parseKvDtype(name))), std::string(name));
        }
        expectError(ErrorKind::kBadArgument, "\"fp8\"", [] { parseKvDtype("fp8"); });
    }

    void countsTheLatentOfMla() {
        const Quantity token = kvBytesPerToken(shapeOf("deepseek-v3"), KvDtype::kBF16);
        QCOMPARE(token.value, int64_t{70272});
        QCOMPARE(token.formula, std::string("L · C · b"));
        QCOMPARE(token.substituted, std::string("61 · 576 · 2 = 70,272"));
        const Quantity int8 = kvBytesPerToken(shapeOf("deepseek-v3"), KvDtype::kInt8);
        QCOMPARE(int8.value, int64_t{61 * 580});
        QCOMPARE(int8.formula, std::string("L · (C + 4)"));
    }

    void countsEachLayersOwnWindow() {
        const KvShape gemma3 = shapeOf("gemma-3-4b");
        QCOMPARE(kvBytesPerSequence(gemma3, KvDtype::kBF16, 1024).value, int64_t{139264} * 1024);
        const Quantity longer = kvBytesPerSequence(gemma3, KvDtype::kBF16, 131072);
        QCOMPARE(longer.value, int64_t{4096} * (5 * 131072 + 29 * 1024));
        QCOMPARE(longer.formula,
                 std::string("2 · (L_global · S + L_local · min(S, W)) · H_kv · D · b"));
        QCOMPARE(longer.substituted,
                 std::string("2 · (5 · 131,072 + 29 · min(131,072, 1,024)) · 4 · 256 · 2 = "
                             "2,805,989,376"));
        // Past the window only the global layers grow.
        QCOMPARE(kvBytesPerSequence(gemma3, KvDtype::kBF16, 5001).value -
                     kvBytesPerSequence(gemma3, KvDtype::kBF16, 5000).value,
                 int64_t{20480});
        const KvShape mistral = shapeOf("mistral-7b-v0.1");
        const Quantity windowed = kvBytesPerSequence(mistral, KvDtype::kF16, 32768);
        QCOMPARE(windowed.value, int64_t{131072} * 4096);
        QCOMPARE(windowed.formula, std::string("2 · L · H_kv · D · b · min(S, W)"));
        QCOMPARE(kvBytesPerSequence(shapeOf("gemma-2-9b"), KvDtype::kF16, 8192).value,
                 int64_t{8192} * (21 * 8192 + 21 * 4096));
    }

    void takesTheShapeOfALoadedModel() {
        ModelConfig config;
        config.num_layers = 4;
        config.num_kv_heads = 2;
        config.head_dim = 64;
        QCOMPARE(kvBytesPerToken(KvShape::of(config), KvDtype::kF16).value, int64_t{2048});
        for (const DataType dtype : kKvDataTypes) {
            QCOMPARE(kvBytesPerToken(KvShape::of(config), dtype).value,
                     config.kvBytesPerToken(dtype));
        }
        QCOMPARE(config.kvBytesPerToken(DataType::kInt8), int64_t{2 * 4 * 2 * (64 + 4)});
    }

    void roundsBlocksUp() {
        QCOMPARE(blocksForTokens(0, 16).value, int64_t{0});
        QCOMPARE(blocksForTokens(1, 16).value, int64_t{1});
        QCOMPARE(blocksForTokens(16, 16).value, int64_t{1});
        QCOMPARE(blocksForTokens(17, 16).value, int64_t{2});
        QCOMPARE(blocksForTokens(8192, 16).substituted, std::string("⌈8,192 / 16⌉ = 512"));
        QCOMPARE(blocksForTokens(kMax, 256).value, kMax / 256 + 1);
    }

    void sharesBestOf8() {
        const SamplesSize size = samplesOfOnePrompt(2000, 100, 8, 16);
        QCOMPARE(size.tokens_held.value, int64_t{2800});
        QCOMPARE(size.tokens_unshared.value, int64_t{16800});
        QCOMPARE(size.blocks_held.value, int64_t{181});
        QCOMPARE(size.blocks_unshared.value, int64_t{1056});
        QCOMPARE(size.slots_unused.value, int64_t{96});
        QCOMPARE(size.copy_on_write.value, int64_t{0});
        QCOMPARE(size.tokens_held.substituted, std::string("2,000 + 8 · 100 = 2,800"));
        QCOMPARE(size.blocks_held.formula, std::string("⌊P / B⌋ + n · ⌈(P mod B + G) / B⌉"));
        QCOMPARE(size.blocks_held.substituted,
                 std::string("⌊2,000 / 16⌋ + 8 · ⌈(0 + 100) / 16⌉ = 181"));
    }

    void copiesAPartialPromptBlock() {
        // The vLLM paper's picture: block size 4, a prompt of 7 tokens, two samples.
        const SamplesSize size = samplesOfOnePrompt(7, 1, 2, 4);
        QCOMPARE(size.copy_on_write.value, int64_t{1});
        QCOMPARE(size.tokens_copied.value, int64_t{3});
        QCOMPARE(size.blocks_held.value, int64_t{3});
        QCOMPARE(size.slots_unused.value, int64_t{0});
        const SamplesSize before = samplesOfOnePrompt(7, 0, 2, 4);
        QCOMPARE(before.copy_on_write.value, int64_t{0});
        QCOMPARE(before.blocks_held.value, int64_t{2});
        QCOMPARE(before.slots_unused.value, int64_t{1});
        QCOMPARE(before.blocks_held.formula, std::string("⌈P / B⌉"));
    }

    void agreesWithAPoolThatCountsReferences() {
        std::mt19937 random(7);
        for (int i = 0; i < 3000; ++i) {
            const auto prompt_len = static_cast<int64_t>(random() % 70);
            const auto written_len = static_cast<int64_t>(random() % 40);
            const auto num_samples = static_cast<int64_t>(1 + random() % 6);
            const auto block_size = static_cast<int64_t>(1 + random() % 20);
            const SamplesSize size =
                samplesOfOnePrompt(prompt_len, written_len, num_samples, block_size);
            const SimulatedSamples pool(prompt_len, written_len, num_samples, block_size);
            QCOMPARE(size.blocks_held.value, pool.blocks_held);
            QCOMPARE(size.copy_on_write.value, pool.copies);
            QCOMPARE(size.tokens_copied.value, pool.tokens_copied);
            QCOMPARE(size.slots_unused.value, pool.slots_unused);
            QCOMPARE(size.tokens_held.value + size.slots_unused.value, size.slots_allocated.value);
        }
    }

    void countsWhatFits() {
        // Llama-3-8B on 24 GiB: 74,075 tokens = 4,629 blocks; 92 sequences of 800 tokens; with 500
        // shared tokens 242.
        CapacityRequest request;
        request.memory_bytes = int64_t{24} << 30;
        request.utilisation = 1.0;
        request.weights_bytes = modelSpec("llama-3-8b").weights_bytes;
        request.seq_len = 800;
        const KvShape shape = shapeOf("llama-3-8b");
        Capacity capacity = kvCapacity(shape, KvDtype::kBF16, request);
        QCOMPARE(capacity.kv_bytes.value / 131072, int64_t{74075});
        QCOMPARE(capacity.blocks_fit.value, int64_t{4629});
        QCOMPARE(capacity.blocks_per_sequence.value, int64_t{50});
        QCOMPARE(capacity.sequences_fit.value, int64_t{92});
        QCOMPARE(capacity.sequences_fit.substituted, std::string("⌊4,629 / 50⌋ = 92"));
        request.shared_prefix_len = 500;
        capacity = kvCapacity(shape, KvDtype::kBF16, request);
        QCOMPARE(capacity.blocks_per_sequence.value, int64_t{19});
        QCOMPARE(capacity.sequences_fit.value, int64_t{242});
        request.shared_prefix_len = 0;
        request.utilisation = 0.9;
        request.memory_bytes = 80000000000;
        capacity = kvCapacity(shape, KvDtype::kBF16, request);
        QCOMPARE(capacity.kv_bytes.value, int64_t{72000000000 - 16060522496});
        QCOMPARE(capacity.kv_bytes.substituted,
                 std::string("max(⌊80,000,000,000 · 0.9⌋ − 16,060,522,496, 0) = 55,939,477,504"));
        QCOMPARE(capacity.blocks_fit.value, int64_t{55939477504} / 2097152);
        // Weights alone do not fit.
        request.weights_bytes = modelSpec("llama-3-70b").weights_bytes;
        capacity = kvCapacity(shapeOf("llama-3-70b"), KvDtype::kBF16, request);
        QCOMPARE(capacity.blocks_fit.value, int64_t{0});
        QCOMPARE(capacity.sequences_fit.value, int64_t{0});
    }

    void countsWindowsInWhatFits() {
        CapacityRequest request;
        request.memory_bytes = int64_t{1} << 40;
        request.utilisation = 1.0;
        request.seq_len = 32768;
        QCOMPARE(kvCapacity(shapeOf("mistral-7b-v0.1"), KvDtype::kF16, request).sequences_fit.value,
                 (int64_t{1} << 40) / 2097152 / 257);  // 4,096 tokens that begin within a block
        QCOMPARE(kvCapacity(shapeOf("mistral-7b-v0.3"), KvDtype::kF16, request).sequences_fit.value,
                 int64_t{256});
        QCOMPARE(kvCapacity(shapeOf("gemma-3-4b"), KvDtype::kF16, request).sequences_fit.value,
                 (int64_t{1} << 40) / (int64_t{4096} * (5 * 32768 + 29 * (1024 + 16))));
        const Capacity ten = kvCapacity(shapeOf("mistral-7b-v0.1"), KvDtype::kBF16,
                                        {5368709120, 1.0, 0, 16, 16384, 0});
        QCOMPARE(ten.blocks_per_sequence.substituted,
                 std::string("min(⌈16,384 / 16⌉, ⌈(4,096 − 1) / 16⌉ + 1) = 257"));
        QCOMPARE(ten.sequences_fit.substituted, std::string("⌊2,560 / 257⌋ = 9"));
        request.shared_prefix_len = 16;
        expectError(ErrorKind::kUnsupported, "windowed",
                    [&] { kvCapacity(shapeOf("gemma-3-4b"), KvDtype::kF16, request); });
    }

    // Counted token by token: the blocks between the first token that each one sees and itself. And
    // the engine asks for as many.
    void countsTheBlocksOfAWindowAsTheEngineDoes() {
        for (const int window : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 50}) {
            for (const int block_size : {1, 2, 8, 16}) {
                int64_t most = 0;
                for (int64_t seq_len = 1; seq_len <= 130; ++seq_len) {
                    const int64_t position = seq_len - 1;
                    const int64_t first = std::max<int64_t>(0, seq_len - std::max(window, 2));
                    most = std::max(most, position / block_size - first / block_size + 1);
                    const KvShape shape{2, 1, 4, 0, 2, window};
                    const Capacity capacity =
                        kvCapacity(shape, KvDtype::kF16, {1 << 20, 1.0, 0, block_size, seq_len, 0});
                    CacheConfig cache;
                    cache.block_size = block_size;
                    cache.window = window;
                    QCOMPARE(capacity.blocks_per_sequence.value, most);
                    QCOMPARE(capacity.blocks_per_sequence.value, cache.mostBlocks(seq_len));
                    QCOMPARE(capacity.sequences_fit.value, capacity.blocks_fit.value / most);
                }
            }
        }
    }

    void refusesTheImpossible() {
        const KvShape shape = shapeOf("llama-3-8b");
        const ErrorKind bad = ErrorKind::kBadArgument;
        const auto f16 = KvDtype::kF16;
        expectError(bad, "sequence length", [&] { kvBytesPerSequence(shape, f16, -1); });
        expectError(bad, "2^63", [&] { kvBytesPerSequence(shape, f16, kMax); });
        expectError(bad, "2^63", [&] { kvBytesTotal(shape, f16, 1 << 30, kMax / 2); });
        expectError(bad, "number of sequences", [&] { kvBytesTotal(shape, f16, 1, -1); });
        expectError(bad, "block size", [&] { kvBytesPerBlock(shape, f16, 0); });
        expectError(bad, "block size", [] { blocksForTokens(5, 0); });
        expectError(bad, "number of tokens", [] { blocksForTokens(-5, 16); });
        const int huge = std::numeric_limits<int>::max();
        expectError(bad, "2^63", [&] { kvBytesPerToken({huge, huge, huge, 0, 0, 0}, f16); });
        expectError(bad, "layers", [&] { kvBytesPerToken({0, 1, 1, 0, 0, 0}, f16); });
        expectError(bad, "KV heads", [&] { kvBytesPerToken({1, 0, 1, 0, 0, 0}, f16); });
        expectError(bad, "head size", [&] { kvBytesPerToken({1, 1, -1, 0, 0, 0}, f16); });
        expectError(bad, "latent", [&] { kvBytesPerToken({1, 0, 0, -1, 0, 0}, f16); });
        expectError(bad, "local", [&] { kvBytesPerToken({1, 1, 1, 0, 2, 5}, f16); });
        expectError(bad, "window", [&] { kvBytesPerToken({2, 1, 1, 0, 2, 0}, f16); });
        expectError(bad, "prompt", [] { samplesOfOnePrompt(-1, 0, 1, 16); });
        expectError(bad, "written", [] { samplesOfOnePrompt(1, -1, 1, 16); });
        expectError(bad, "samples", [] { samplesOfOnePrompt(1, 1, 0, 16); });
        expectError(bad, "block size", [] { samplesOfOnePrompt(1, 1, 1, 0); });
        expectError(bad, "2^63", [] { samplesOfOnePrompt(kMax, kMax, kMax, 16); });
        expectError(bad, "2^63", [] { samplesOfOnePrompt(kMax, 0, 1, 16); });
        const auto expectCapacity = [&](const char* part,
                                        const std::function<void(CapacityRequest&)>& change) {
            CapacityRequest request;
            request.memory_bytes = 1 << 30;
            request.seq_len = 100;
            change(request);
            expectError(bad, part, [&] { kvCapacity(shape, f16, request); });
        };
        expectCapacity("memory", [](CapacityRequest& r) { r.memory_bytes = -1; });
        expectCapacity("weights", [](CapacityRequest& r) { r.weights_bytes = -1; });
        expectCapacity("utilisation", [](CapacityRequest& r) { r.utilisation = 0.0; });
        expectCapacity("utilisation", [](CapacityRequest& r) { r.utilisation = 1.01; });
        expectCapacity("utilisation", [](CapacityRequest& r) { r.utilisation = std::nan(""); });
        expectCapacity("sequence length", [](CapacityRequest& r) { r.seq_len = 0; });
        expectCapacity("block size", [](CapacityRequest& r) { r.block_size = 0; });
        expectCapacity("prefix", [](CapacityRequest& r) { r.shared_prefix_len = 101; });
        expectCapacity("prefix", [](CapacityRequest& r) { r.shared_prefix_len = -1; });
        expectCapacity("own", [](CapacityRequest& r) { r.seq_len = r.shared_prefix_len = 96; });
        CapacityRequest largest;
        largest.memory_bytes = kMax;
        largest.utilisation = 1.0;
        largest.seq_len = kMax;
        QCOMPARE(kvCapacity(shape, f16, largest).kv_bytes.value, kMax);
        QCOMPARE(kvCapacity(shape, f16, largest).sequences_fit.value, int64_t{0});
    }

    void parsesMemorySizes_data() {
        QTest::addColumn<QString>("text");
        QTest::addColumn<qint64>("bytes");
        const auto row = [](const char* text, qint64 bytes) {
            QTest::newRow(text) << QString(text) << bytes;
        };
        row("80GB", 80000000000);
        row("80 gb", 80000000000);
        row("24GiB", qint64{24} << 30);
        row("1.5GiB", qint64{3} << 29);
        row("0.1KB", 100);
        row("512KiB", 524288);
        row("7MB", 7000000);
        row("3MiB", 3145728);
        row("2TB", 2000000000000);
        row("1TiB", qint64{1} << 40);
        row("4096", 4096);
        row("4096 B", 4096);
        row("0", 0);
        row("0.0000000019GB", 1);
        row("9223372036854775807", kMax);
    }
    void parsesMemorySizes() {
        QFETCH(QString, text);
        QFETCH(qint64, bytes);
        QCOMPARE(qint64{parseByteSize(text.toStdString())}, bytes);
    }

    void refusesOtherMemorySizes() {
        for (const char* text : {"", "GB", "-1GB", "80G", "80GBs", "1,5GB", "1.GB", ".5GB", "1e9",
                                 "80 G B", " 80GB", "0x10", "80GB\n"}) {
            expectError(ErrorKind::kBadArgument, "no memory size", [&] { parseByteSize(text); });
        }
        for (const char* text : {"9223372036854775808", "99999999999TB", "8388608TiB"}) {
            expectError(ErrorKind::kBadArgument, "2^63", [&] { parseByteSize(text); });
        }
    }
};

}  // namespace kvlab

using kvlab::KvSizeTest;
QTEST_GUILESS_MAIN(KvSizeTest)
#include "kv_size_test.moc"
