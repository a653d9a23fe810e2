// SPDX-License-Identifier: MIT
#include <QJsonArray>
#include <QTemporaryDir>

#include "tests/app/cli/cli_test_support.h"

namespace kvlab {

class GenerateTest : public QObject {
    Q_OBJECT

  private slots:
    void initTestCase();
    void metricsHaveTheirKeys();
    void bestOfEightHoldsItsBlocks_data();
    void bestOfEightHoldsItsBlocks();
    void sameSeedSameTokens();
    void samplesPartAndGreedyDoesNot();
    void promptsComeFromTextAndFile();
    void readableOutputNamesTheAccount();
    void blockSizesAndThreadsChangeNoToken();
    void everyKvTypeHasItsBytes();
    void layoutsPoolsAndPreemptionChangeNoToken();
    void slabWasteIsCountedToTheEnd();
    void beamsComeBestFirst();
    void traceIsWrittenAndIntact();
    void traceNeverReplacesTheModel();
    void badCalls_data();
    void badCalls();
    void badFiles_data();
    void badFiles();

  private:
    CliResult generate(const QStringList& arguments) const {
        return runCli(QStringList{"generate", "--model", model_} + arguments);
    }

    QTemporaryDir folder_;
    QString model_;
};

void GenerateTest::initTestCase() {
    QVERIFY(folder_.isValid());
    model_ = folder_.filePath("tiny.gguf");
    writeTinyModel(model_);
}

void GenerateTest::metricsHaveTheirKeys() {
    const CliResult result =
        generate({"--prompt-tokens", "20", "--max-tokens", "5", "--ignore-eos", "--json"});
    KVLAB_VERIFY_SUCCESS(result);
    const QJsonObject json = result.json();
    QCOMPARE(json.keys(), (QStringList{"metrics", "texts", "token_ids"}));
    const QJsonObject metrics = json["metrics"].toObject();
    QStringList keys = {"blocks_held",    "tokens_held",          "slots_allocated",
                        "slots_unused",   "blocks_unshared",      "tokens_unshared",
                        "copy_on_write",  "blocks_peak",          "device_bytes",
                        "bytes_moved",    "preemptions",          "prompt_tokens",
                        "matched_tokens", "shared_tokens",        "copied_tokens",
                        "decode_tokens",  "prefill_ms",           "decode_ms",
                        "tokens_per_s",   "attention_bytes",      "sharing_saved",
                        "best",           "mean_log_probability", "attention_bytes_repeated",
                        "waste",          "concurrency",          "step_time"};
    keys.sort();
    QCOMPARE(metrics.keys(), keys);
    for (const char* key : {"matched_tokens", "shared_tokens", "copied_tokens"}) {
        QVERIFY2(metrics[key].isNull(), key);
    }
    QCOMPARE(metrics["preemptions"].toInt(-1), 0);
    QCOMPARE(metrics["bytes_moved"].toInt(-1), 0);
    // 2 layers of the tiny model may be any size; the ratio is exact: the prompt's chunk reads 20
    // tokens, the decode steps 21 to 24.
    QCOMPARE(metrics["attention_bytes"].toInteger() % (20 + 21 + 22 + 23 + 24), 0);
    QCOMPARE(metrics["prompt_tokens"].toInt(), 20);
    QCOMPARE(metrics["decode_tokens"].toInt(), 4);
    QCOMPARE(metrics["tokens_held"].toInt(), 24);
    QCOMPARE(metrics["blocks_held"].toInt(), 2);
    QCOMPARE(metrics["slots_unused"].toInt(), 8);
    QVERIFY(metrics["prefill_ms"].toDouble() > 0);
    QVERIFY(metrics["tokens_per_s"].toDouble() > 0);
    // 5 steps over a pool of 2 blocks: 20 to 24 of 32 slots are used, the rest is the tail.
    const QJsonObject waste = metrics["waste"].toObject();
    QCOMPARE(waste["used"].toDouble(), 110.0 / 160);
    QCOMPARE(waste["tail"].toDouble(), 50.0 / 160);
    for (const char* key : {"reserved_for_later", "never_used", "free", "external"}) {
        QVERIFY2(waste[key].toDouble(-1) == 0, key);
    }
    const QJsonObject concurrency = metrics["concurrency"].toObject();
    QCOMPARE(concurrency["running"].toObject()["mean"].toDouble(), 1.0);
    QCOMPARE(concurrency["waiting"].toObject()["max"].toInt(-1), 0);
    const QJsonObject time = metrics["step_time"].toObject();
    QCOMPARE(time["source"].toString(), QString("measured"));
    double sum = 0;
    for (const char* part : {"attention_ms", "matmul_ms", "sampling_ms", "copies_ms", "other_ms"}) {
        QVERIFY2(time[part].toDouble(-1) >= 0, part);
        sum += time[part].toDouble();
    }
    QVERIFY(time["matmul_ms"].toDouble() > 0);
    QVERIFY(std::abs(sum - time["total_ms"].toDouble()) <= 1e-6 * sum);
    QCOMPARE(json["texts"].toArray().size(), 1);
    QCOMPARE(json["token_ids"].toArray().at(0).toArray().size(), 5);

    // Of 4,096 tokens that the model was trained on, all may be read; the last one is not fed.
    const QStringList whole = {"--prompt-tokens", "4095", "--ignore-eos", "--max-tokens"};
    KVLAB_VERIFY_SUCCESS(generate(whole + QStringList{"2"}));
    const CliResult beyond = generate(whole + QStringList{"3"});
    QCOMPARE(beyond.exit_code, 0);
    QVERIFY2(beyond.hasOneLineError() && beyond.err.contains("up to 4,097 tokens"), beyond.err);

    // One token needs no decode step, so there is no decode time to tell.
    const CliResult one =
        generate({"--prompt-tokens", "20", "--max-tokens", "1", "--ignore-eos", "--json"});
    KVLAB_VERIFY_SUCCESS(one);
    QVERIFY(one.json()["metrics"].toObject()["decode_ms"].isNull());
    QVERIFY(one.json()["metrics"].toObject()["tokens_per_s"].isNull());
}

void GenerateTest::bestOfEightHoldsItsBlocks_data() {
    QTest::addColumn<int>("prompt_tokens");
    QTest::addColumn<int>("max_tokens");
    QTest::addColumn<QVariantMap>("expected");
    QTest::newRow("the 101st token drawn")
        << 2000 << 101
        << QVariantMap{{"tokens_held", 2800},     {"tokens_unshared", 16800}, {"blocks_held", 181},
                       {"blocks_unshared", 1056}, {"slots_unused", 96},       {"copy_on_write", 0}};
    QTest::newRow("the 100th token drawn")
        << 2000 << 100
        << QVariantMap{{"tokens_held", 2792}, {"blocks_held", 181}, {"slots_unused", 104}};
    // Seven copies of one token are seven tokens more in the pool.
    QTest::newRow("one more prompt token")
        << 2001 << 101
        << QVariantMap{{"tokens_held", 2808}, {"blocks_held", 181}, {"copy_on_write", 7}};
}

void GenerateTest::bestOfEightHoldsItsBlocks() {
    QFETCH(int, prompt_tokens);
    QFETCH(int, max_tokens);
    QFETCH(QVariantMap, expected);
    const CliResult result =
        generate({"--prompt-tokens", QString::number(prompt_tokens), "--samples", "8",
                  "--max-tokens", QString::number(max_tokens), "--ignore-eos", "--temperature", "1",
                  "--seed", "1", "--json"});
    KVLAB_VERIFY_SUCCESS(result);
    const QJsonObject metrics = result.json()["metrics"].toObject();
    QVariantMap measured;
    for (const QString& key : expected.keys()) measured[key] = metrics[key].toInt(-1);
    QCOMPARE(measured, expected);
    QCOMPARE(metrics["slots_allocated"].toInt(), metrics["blocks_held"].toInt() * 16);
    QCOMPARE(result.json()["texts"].toArray().size(), 8);
    for (const QJsonValue& tokens : result.json()["token_ids"].toArray()) {
        QCOMPARE(tokens.toArray().size(), max_tokens);
    }
}

void GenerateTest::sameSeedSameTokens() {
    const QStringList call = {
        "--prompt", "Mira keeps the code", "--samples", "3",      "--max-tokens",
        "20",       "--temperature",       "1",         "--json", "--seed"};
    const CliResult first = generate(call + QStringList{"7"});
    const CliResult again = generate(call + QStringList{"7"});
    const CliResult other = generate(call + QStringList{"8"});
    KVLAB_VERIFY_SUCCESS(first);
    KVLAB_VERIFY_SUCCESS(other);
    QCOMPARE(first.json()["token_ids"], again.json()["token_ids"]);
    QVERIFY(first.json()["token_ids"] != other.json()["token_ids"]);
}

void GenerateTest::samplesPartAndGreedyDoesNot() {
    const QStringList call = {"--prompt",     "A day",  "--samples",    "2", "--max-tokens", "20",
                              "--ignore-eos", "--json", "--temperature"};
    const QJsonArray drawn = generate(call + QStringList{"1"}).json()["token_ids"].toArray();
    QCOMPARE(drawn.size(), 2);
    QVERIFY(drawn.at(0) != drawn.at(1));
    const QJsonArray greedy = generate(call + QStringList{"0"}).json()["token_ids"].toArray();
    QCOMPARE(greedy.size(), 2);
    QCOMPARE(greedy.at(0), greedy.at(1));
}

void GenerateTest::promptsComeFromTextAndFile() {
    const QString file = folder_.filePath("prompt.txt");
    QVERIFY(writeBytes(file, "Grüße an Mira"));
    const QStringList end = {"--max-tokens", "5", "--json"};
    const CliResult text = generate(QStringList{"--prompt", QStringLiteral("Grüße an Mira")} + end);
    const CliResult from_file = generate(QStringList{"--prompt-file", file} + end);
    KVLAB_VERIFY_SUCCESS(text);
    KVLAB_VERIFY_SUCCESS(from_file);
    QCOMPARE(text.json()["token_ids"], from_file.json()["token_ids"]);
}

void GenerateTest::readableOutputNamesTheAccount() {
    const CliResult result =
        generate({"--prompt-tokens", "20", "--max-tokens", "5", "--ignore-eos", "--samples", "2"});
    KVLAB_VERIFY_SUCCESS(result);
    for (const char* word :
         {"[A] ", "[B] ", "prompt", "K/V held", "unshared", "pool", "slots", "steps", "time"}) {
        QVERIFY2(result.out.contains(word), word);
    }
}

void GenerateTest::blockSizesAndThreadsChangeNoToken() {
    const QStringList call = {
        "--prompt-tokens", "50", "--samples", "2", "--max-tokens", "30", "--ignore-eos",
        "--temperature",   "1",  "--json"};
    const CliResult base = generate(call);
    KVLAB_VERIFY_SUCCESS(base);
    for (const QStringList& variant :
         {QStringList{"--block-size", "1"}, QStringList{"--block-size", "256"},
          QStringList{"--threads", "1"}, QStringList{"--threads", "3"},
          QStringList{"--token-budget", "7"}, QStringList{"--blocks", "500"}}) {
        const CliResult result = generate(call + variant);
        KVLAB_VERIFY_SUCCESS(result);
        QVERIFY2(result.json()["token_ids"] == base.json()["token_ids"],
                 qPrintable(variant.join(' ')));
    }
}

// 2 blocks of 16 tokens; K and V of 2 layers and 2 KV heads; 8 values each, in int8 with a scale.
void GenerateTest::everyKvTypeHasItsBytes() {
    for (const auto& [name, row_bytes] : {std::pair{"f32", 32}, std::pair{"f16", 16},
                                          std::pair{"bf16", 16}, std::pair{"int8", 12}}) {
        const CliResult result =
            generate({"--prompt-tokens", "20", "--max-tokens", "5", "--ignore-eos", "--blocks", "2",
                      "--block-size", "16", "--kv-dtype", name, "--json"});
        KVLAB_VERIFY_SUCCESS(result);
        QCOMPARE(result.json()["metrics"].toObject()["device_bytes"].toInt(),
                 2 * 16 * 2 * 2 * 2 * row_bytes);
    }
}

void GenerateTest::layoutsPoolsAndPreemptionChangeNoToken() {
    const QStringList call = {
        "--prompt-tokens", "50", "--samples", "3", "--max-tokens", "30", "--ignore-eos",
        "--temperature",   "1",  "--json"};
    const CliResult base = generate(call);
    KVLAB_VERIFY_SUCCESS(base);
    // One sample needs 5 blocks of 16, all three 3 + 3 · 2.
    struct Variant {
        QStringList options;
        bool preempts;
        bool moves;
    };
    for (const Variant& variant :
         {Variant{{"--layout", "slab"}, false, false},
          Variant{{"--layout", "slab", "--max-len", "100", "--blocks", "9"}, false, false},
          Variant{{"--layout", "slab", "--slab-length", "request"}, false, false},
          Variant{{"--blocks", "5"}, true, false},
          Variant{{"--blocks", "6", "--preempt", "recompute", "--host-blocks", "9"}, true, false},
          Variant{{"--blocks", "6", "--host-blocks", "9"}, true, true}}) {
        const CliResult result = generate(call + variant.options);
        KVLAB_VERIFY_SUCCESS(result);
        const QByteArray words = variant.options.join(' ').toUtf8();
        QVERIFY2(result.json()["token_ids"] == base.json()["token_ids"], words);
        const QJsonObject metrics = result.json()["metrics"].toObject();
        QVERIFY2((metrics["preemptions"].toInt() > 0) == variant.preempts, words);
        QVERIFY2((metrics["bytes_moved"].toInt() > 0) == variant.moves, words);
    }
}

// A slab for 40 tokens (3 blocks of 16) whose sequence ends with 24: what it never used is known
// although the run ends before the sequence is released.
void GenerateTest::slabWasteIsCountedToTheEnd() {
    const CliResult result =
        generate({"--prompt-tokens", "20", "--max-tokens", "5", "--ignore-eos", "--layout", "slab",
                  "--max-len", "40", "--blocks", "4", "--json"});
    KVLAB_VERIFY_SUCCESS(result);
    const QJsonObject waste = result.json()["metrics"].toObject()["waste"].toObject();
    const double pool_slots = 5 * 4 * 16;
    QCOMPARE(waste["used"].toDouble(), (20 + 21 + 22 + 23 + 24) / pool_slots);
    QCOMPARE(waste["reserved_for_later"].toDouble(), (4 + 3 + 2 + 1) / pool_slots);
    QCOMPARE(waste["never_used"].toDouble(), 5 * (48 - 24) / pool_slots);
    QCOMPARE(waste["free"].toDouble(), 5 * 16 / pool_slots);
    QCOMPARE(waste["used_of_held"].toDouble(), 110.0 / (5 * 48));
}

void GenerateTest::beamsComeBestFirst() {
    const QStringList call = {"--prompt-tokens", "20",    "--max-tokens", "6",
                              "--ignore-eos",    "--json"};
    const CliResult result = generate(call + QStringList{"--beam", "4"});
    KVLAB_VERIFY_SUCCESS(result);
    const QJsonArray means = result.json()["metrics"].toObject()["mean_log_probability"].toArray();
    QCOMPARE(means.size(), 4);
    for (int i = 1; i < 4; ++i) QVERIFY(means.at(i - 1).toDouble() >= means.at(i).toDouble());
    QVERIFY(result.json()["metrics"].toObject()["sharing_saved"].toDouble() > 0);
    const CliResult greedy = generate(call);
    QVERIFY(means.at(0).toDouble() >=
            greedy.json()["metrics"].toObject()["mean_log_probability"].toArray()[0].toDouble());
}

void GenerateTest::traceIsWrittenAndIntact() {
    const QString trace = folder_.filePath("run.trace");
    const CliResult result = generate(
        {"--prompt-tokens", "20", "--max-tokens", "5", "--ignore-eos", "--trace", trace, "--json"});
    KVLAB_VERIFY_SUCCESS(result);
    const CliResult verify = runCli({"trace", "verify", trace});
    KVLAB_VERIFY_SUCCESS(verify);
}

void GenerateTest::traceNeverReplacesTheModel() {
    const QByteArray before = readBytes(model_);
    KVLAB_VERIFY_REFUSAL(generate({"--prompt", "x", "--trace", model_}), 2);
    const QString link = folder_.filePath("link.gguf");
    QVERIFY(QFile::link(model_, link));
    KVLAB_VERIFY_REFUSAL(generate({"--prompt", "x", "--trace", link}), 2);
    QCOMPARE(readBytes(model_), before);
}

void GenerateTest::badCalls_data() {
    QTest::addColumn<QStringList>("arguments");
    const QStringList prompt = {"--prompt", "x", "--max-tokens", "2"};
    QTest::newRow("no prompt") << QStringList{};
    QTest::newRow("two prompts") << QStringList{"--prompt", "x", "--prompt-tokens", "5"};
    QTest::newRow("no prompt tokens") << QStringList{"--prompt-tokens", "0"};
    QTest::newRow("negative prompt tokens") << QStringList{"--prompt-tokens", "-5"};
    QTest::newRow("huge prompt tokens") << QStringList{"--prompt-tokens", "99999999999"};
    struct Bad {
        const char* option;
        QStringList values;
    };
    const QStringList not_whole = {"-1", "x", "", "nan", "1.5", "99999999999999999999", "0x10"};
    const Bad bad[] = {{"--samples", not_whole + QStringList{"0", "1000000"}},
                       {"--max-tokens", not_whole + QStringList{"0", "99999999999"}},
                       {"--block-size", not_whole + QStringList{"0", "257"}},
                       {"--blocks", not_whole + QStringList{"0"}},
                       {"--threads", not_whole + QStringList{"0", "99999"}},
                       {"--token-budget", not_whole + QStringList{"0"}},
                       {"--top-k", not_whole},
                       {"--seed", not_whole},
                       {"--temperature", {"-0.5", "nan", "inf", "x", "1e30", ""}},
                       {"--top-p", {"0", "-1", "1.5", "nan", "x"}},
                       {"--kv-dtype", {"f8", "", "F16"}},
                       {"--backend", {"tpu", ""}},
                       {"--layout", {"ring"}},
                       {"--beam", not_whole + QStringList{"0", "1000"}},
                       {"--host-blocks", not_whole},
                       {"--max-len", {"100", "0", "x"}},
                       {"--slab-length", {"max", "request", "x"}},
                       {"--preempt", {"swap", "never"}},
                       {"--policy", {"random"}},
                       {"--prefix-cache", {"on"}},
                       {"--model", {""}},
                       {"--trace", {""}},
                       {"--unknown", {"1"}}};
    for (const Bad& entry : bad) {
        for (const QString& value : entry.values) {
            QTest::addRow("%s \"%s\"", entry.option, qPrintable(value))
                << prompt + QStringList{entry.option, value};
        }
    }
    QTest::newRow("pool too small") << QStringList{"--prompt-tokens", "200", "--blocks", "2"};
    QTest::newRow("more tokens than a day draws")
        << QStringList{"--prompt", "x", "--samples", "4096", "--max-tokens", "1000000"};
    QTest::newRow("slab too short")
        << QStringList{"--prompt-tokens", "20", "--layout", "slab", "--max-len", "20"};
    QTest::newRow("two lengths of a slab") << QStringList{
        "--prompt", "x", "--layout", "slab", "--slab-length", "request", "--max-len", "100"};
    QTest::newRow("beams that are drawn")
        << QStringList{"--prompt", "x", "--beam", "2", "--samples", "2"};
    QTest::newRow("beams with a temperature")
        << QStringList{"--prompt", "x", "--beam", "2", "--temperature", "1"};
    for (const QStringList& backend : {QStringList{}, QStringList{"--backend", "auto"}}) {
        QTest::addRow("--cpu-fallback beside %lld words", qlonglong(backend.size()))
            << prompt + backend + QStringList{"--cpu-fallback"};
    }
    QTest::newRow("--top-k without a draw") << prompt + QStringList{"--top-k", "5"};
    QTest::newRow("--top-p without a draw") << prompt + QStringList{"--top-p", "0.5"};
    QTest::newRow("beams in slabs")
        << QStringList{"--prompt", "x", "--beam", "2", "--layout", "slab"};
    QTest::newRow("option without value") << QStringList{"--prompt"};
}

void GenerateTest::badCalls() {
    QFETCH(QStringList, arguments);
    // A repeated --model would be refused for another reason.
    const bool has_model = arguments.contains("--model");
    KVLAB_VERIFY_REFUSAL(
        has_model ? runCli(QStringList{"generate"} + arguments) : generate(arguments), 2);
}

void GenerateTest::badFiles_data() {
    QTest::addColumn<QStringList>("arguments");
    const QString missing = "/nowhere/at/all";
    const QString directory = QDir::tempPath();
    const QStringList short_run = {"--max-tokens", "2"};
    QTest::newRow("missing prompt") << short_run + QStringList{"--prompt-file", missing};
    QTest::newRow("directory as prompt") << short_run + QStringList{"--prompt-file", directory};
    QTest::newRow("trace in a missing folder")
        << short_run + QStringList{"--prompt", "x", "--trace", missing};
    QTest::newRow("trace onto a directory")
        << short_run + QStringList{"--prompt", "x", "--trace", directory};
    QTest::newRow("missing model") << QStringList{"--prompt", "x", "--model", missing};
    QTest::newRow("directory as model") << QStringList{"--prompt", "x", "--model", directory};
}

void GenerateTest::badFiles() {
    QFETCH(QStringList, arguments);
    const bool has_model = arguments.contains("--model");
    KVLAB_VERIFY_REFUSAL(
        has_model ? runCli(QStringList{"generate"} + arguments) : generate(arguments), 1);
}

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::GenerateTest)
#include "generate_test.moc"
