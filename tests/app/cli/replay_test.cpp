// SPDX-License-Identifier: MIT
#include <cmath>

#include <QJsonArray>
#include <QTemporaryDir>

#include "tests/app/cli/cli_test_support.h"

namespace kvlab {

namespace {

// The virtual clock: every step takes a millisecond and what the tiny model needs, next to nothing.
const QStringList kVirtual = {"--clock", "virtual", "--step-overhead", "1"};
// Eight requests a second of a 70B model, in a pool that is too small for all of them.
const QStringList kAccounts = {"--no-weights", "--model", "llama-3-70b", "--poisson", "8",
                               "--count",      "40",      "--seed",      "3"};

}  // namespace

class ReplayTest : public QObject {
    Q_OBJECT

  private slots:
    void initTestCase();
    void outputHasItsKeys();
    void tokensAreThoseThatGenerateGives();
    void samplesAreThoseThatGenerateGives();
    void sameSeedSameOutput();
    void layoutsByHand();
    void whoGaveWayAndIsCancelledHoldsNothing();
    void refusedRequestsAreListed();
    void hugePromptsAreRefusedBeforeTheyAreMade();
    void cancelsAndPriorities();
    void percentilesAreThoseOfTheRequests();
    void accountsOfALargeModel();
    void theAssumedMachineIsStated();
    void burstsAndLengths();
    void listsAreBounded();
    void readableOutputSaysWhy();
    void traceIsWrittenAndIntact();
    void everyModelOfTheTable();
    void aRunOfRefusedRequestsTakesNoTime();
    void badCalls_data();
    void badCalls();
    void badFiles_data();
    void badFiles();

  private:
    CliResult replay(const QStringList& arguments) const {
        return runCli(QStringList{"replay", "--model", model_} + arguments);
    }
    CliResult accounts(const QStringList& arguments) const {
        return runCli(QStringList{"replay"} + kAccounts + arguments);
    }
    QString requestFile(const QByteArray& lines) const {
        const QString path = folder_.filePath("requests.jsonl");
        return writeBytes(path, lines) ? path : QString();
    }

    QTemporaryDir folder_;
    QString model_;
};

void ReplayTest::initTestCase() {
    QVERIFY(folder_.isValid());
    model_ = folder_.filePath("tiny.gguf");
    writeTinyModel(model_);
}

void ReplayTest::outputHasItsKeys() {
    const QString file = requestFile(
        "{\"arrival_ms\":0,\"prompt\":\"The brass key\",\"max_tokens\":4}\n"
        "{\"arrival_ms\":5,\"prompt_tokens\":[1,70,80],\"max_tokens\":1,\"salt\":\"a\"}\n");
    const CliResult result = replay({"--requests", file, "--ignore-eos", "--json"});
    KVLAB_VERIFY_SUCCESS(result);
    const QJsonObject json = result.json();
    QStringList keys = {"requests",     "requests_left_out",
                        "counts",       "clock",
                        "times",        "percentiles",
                        "duration_ms",  "sampled_tokens",
                        "tokens_per_s", "waste",
                        "concurrency",  "preemptions",
                        "bytes_moved",  "recomputed_tokens",
                        "steps",        "step_time",
                        "pool",         "model",
                        "backend",      "assumptions",
                        "decisions",    "why",
                        "why_left_out"};
    keys.sort();
    QCOMPARE(json.keys(), keys);
    QCOMPARE(json["clock"].toString(), QString("real"));
    QCOMPARE(json["times"].toString(), QString("measured"));
    QVERIFY(json["assumptions"].isNull());
    QCOMPARE(json["backend"].toString(), QString("cpu"));
    const QJsonArray requests = json["requests"].toArray();
    QCOMPARE(requests.size(), 2);
    const QJsonObject first = requests[0].toObject();
    QCOMPARE(first["token_ids"].toArray().size(), 4);
    QVERIFY(first["text"].isString());
    QCOMPARE(first["status"].toString(), QString("finished"));
    QCOMPARE(first["finish"].toString(), QString("length"));
    QVERIFY(first["refusal"].isNull());
    const QJsonObject timings = first["timings"].toObject();
    QStringList times = {"arrived_ms",        "admitted_ms",    "first_token_ms",
                         "finished_ms",       "queue_ms",       "time_to_first_token_ms",
                         "time_per_token_ms", "longest_gap_ms", "end_to_end_ms"};
    times.sort();
    QCOMPARE(timings.keys(), times);
    QVERIFY(timings["time_per_token_ms"].toDouble() > 0);
    // One token has no gap to a next one.
    const QJsonObject second = requests[1].toObject()["timings"].toObject();
    QVERIFY(second["time_per_token_ms"].isNull() && second["longest_gap_ms"].isNull());
    QVERIFY(second["arrived_ms"].toDouble() == 5 && second["admitted_ms"].toDouble() >= 5);
    QStringList kinds = {"used", "tail",     "reserved_for_later", "never_used",
                         "free", "external", "used_of_held"};
    kinds.sort();
    QCOMPARE(json["waste"].toObject().keys(), kinds);
    const QJsonObject step_time = json["step_time"].toObject();
    QCOMPARE(step_time["source"].toString(), QString("measured"));
    for (const char* part : {"attention_ms", "matmul_ms", "sampling_ms", "total_ms"}) {
        QVERIFY2(step_time[part].toDouble() > 0, part);
    }
    const QJsonObject why = json["why"].toArray()[0].toObject();
    QCOMPARE(why["decision"].toString(), QString("admitted"));
    QCOMPARE(why["reason"].toString(), QString("fits"));
    QVERIFY(why["text"].toString().startsWith("request 0 was admitted: it needs "));
    QVERIFY(why["blocks_needed"].toInt() > 0);
}

// In a pool where they preempt each other, drawn or greedy, with any clock: request i has the
// tokens of `generate --seed` S + i.
void ReplayTest::tokensAreThoseThatGenerateGives() {
    const QStringList prompts = {"Mira keeps the code", "A day in the village, long and warm", "x",
                                 "The baker's house stands at the mill"};
    QByteArray lines;
    for (int i = 0; i < prompts.size(); ++i) {
        lines += "{\"arrival_ms\":" + QByteArray::number(i) + ",\"prompt\":\"" +
                 prompts[i].toUtf8() + "\",\"max_tokens\":12}\n";
    }
    lines += "{\"arrival_ms\":4,\"prompt_tokens\":30,\"max_tokens\":12}\n";
    const QString file = requestFile(lines);
    for (const char* temperature : {"0", "1"}) {
        const QStringList draw = {"--ignore-eos", "--json", "--temperature", temperature};
        QJsonArray expected;
        for (int i = 0; i < 5; ++i) {
            const QStringList prompt =
                i < 4 ? QStringList{"--prompt", prompts[i]} : QStringList{"--prompt-tokens", "30"};
            const CliResult alone =
                runCli(QStringList{"generate", "--model", model_} + prompt + draw +
                       QStringList{"--max-tokens", "12", "--seed", QString::number(7 + i)});
            KVLAB_VERIFY_SUCCESS(alone);
            expected.append(alone.json()["token_ids"].toArray()[0]);
        }
        const QStringList call =
            QStringList{"--requests", file, "--seed", "7", "--block-size", "4"} + draw;
        for (const QStringList& variant :
             {QStringList{}, QStringList{"--blocks", "15"} + kVirtual,
              QStringList{"--blocks", "15", "--host-blocks", "20", "--token-budget", "9"} +
                  kVirtual,
              QStringList{"--layout", "slab", "--blocks", "30", "--clock", "wait"}}) {
            const CliResult result = replay(call + variant);
            KVLAB_VERIFY_SUCCESS(result);
            const QJsonArray requests = result.json()["requests"].toArray();
            QCOMPARE(requests.size(), 5);
            for (int i = 0; i < 5; ++i) {
                QCOMPARE(requests[i].toObject()["seed"].toInt(), 7 + i);
                QCOMPARE(requests[i].toObject()["token_ids"], expected[i]);
            }
            const bool is_tight = variant.contains("15");
            QCOMPARE(result.json()["preemptions"].toInt() > 0, is_tight);
            QCOMPARE(result.json()["bytes_moved"].toInt() > 0, variant.contains("--host-blocks"));
        }
    }
}

// Samples of a request that arrives among others, in a roomy pool and in one that makes them give
// way.
void ReplayTest::samplesAreThoseThatGenerateGives() {
    const QString file = requestFile(
        "{\"arrival_ms\":0,\"prompt\":\"x\",\"max_tokens\":9}\n"
        "{\"arrival_ms\":1,\"prompt\":\"Mira keeps the code\",\"max_tokens\":12,"
        "\"num_samples\":3}\n");
    const QStringList draw = {"--ignore-eos", "--json", "--temperature", "1", "--block-size", "4"};
    const CliResult alone =
        runCli(QStringList{"generate", "--model", model_, "--prompt", "Mira keeps the code",
                           "--samples", "3", "--max-tokens", "12", "--seed", "8"} +
               draw);
    KVLAB_VERIFY_SUCCESS(alone);
    for (const QStringList& pool :
         {QStringList{}, QStringList{"--blocks", "12"}, QStringList{"--layout", "slab"}}) {
        const CliResult result =
            replay(QStringList{"--requests", file, "--seed", "7"} + draw + pool + kVirtual);
        KVLAB_VERIFY_SUCCESS(result);
        const QJsonArray requests = result.json()["requests"].toArray();
        QVERIFY(requests[0].toObject()["samples"].isNull());
        const QJsonObject forked = requests[1].toObject();
        QCOMPARE(forked["num_samples"].toInt(), 3);
        QCOMPARE(forked["samples"], alone.json()["token_ids"]);
        QCOMPARE(forked["token_ids"], forked["samples"].toArray()[0]);
        QCOMPARE(forked["sampled_tokens"].toInt(), 36);
        QCOMPARE(result.json()["preemptions"].toInt() > 0, pool.contains("12"));
    }
    const CliResult drawn = replay(QStringList{"--poisson", "9", "--count", "4", "--samples", "2",
                                               "--output-median", "5", "--output-sigma", "0",
                                               "--prompt-max", "20", "--json", "--ignore-eos"} +
                                   kVirtual);
    KVLAB_VERIFY_SUCCESS(drawn);
    QCOMPARE(drawn.json()["sampled_tokens"].toInt(), 4 * 2 * 5);
}

void ReplayTest::sameSeedSameOutput() {
    const QStringList small = {
        "--poisson",    "200", "--count",         "12", "--prompt-median", "20",
        "--prompt-max", "60",  "--output-median", "8",  "--output-max",    "20",
        "--blocks",     "12",  "--block-size",    "8",  "--json",          "--ignore-eos",
        "--seed"};
    const CliResult first = replay(small + QStringList{"5"} + kVirtual);
    const CliResult again = replay(small + QStringList{"5"} + kVirtual);
    const CliResult other = replay(small + QStringList{"6"} + kVirtual);
    const CliResult real = replay(small + QStringList{"5"});
    KVLAB_VERIFY_SUCCESS(first);
    KVLAB_VERIFY_SUCCESS(real);
    // All but the time that the steps really took.
    QJsonObject a = first.json(), b = again.json();
    a.remove("step_time");
    b.remove("step_time");
    QVERIFY(a == b);
    QVERIFY(a["requests"] != other.json()["requests"]);
    // The machine's speed decides what runs together, and no token.
    const QJsonArray assumed = a["requests"].toArray();
    const QJsonArray measured = real.json()["requests"].toArray();
    for (int i = 0; i < 12; ++i) {
        QCOMPARE(measured[i].toObject()["token_ids"], assumed[i].toObject()["token_ids"]);
    }
    // Without weights there is no machine at all.
    QCOMPARE(accounts({"--json"}).out, accounts({"--json"}).out);
}

// As tests/engine/workload/replay_test.cpp computes it by hand: 4 together or 2, 12 steps or 20.
void ReplayTest::layoutsByHand() {
    QByteArray lines;
    for (int i = 0; i < 10; ++i) {
        lines += "{\"arrival_ms\":0,\"prompt_tokens\":[1,2,3,4,5],\"max_tokens\":4}\n";
    }
    const QString file = requestFile(lines);
    const QStringList call = QStringList{"--requests",   file, "--blocks",     "8",
                                         "--block-size", "4",  "--ignore-eos", "--json"} +
                             kVirtual;
    const QJsonObject paged = replay(call).json();
    const QJsonObject slab =
        replay(call + QStringList{"--layout", "slab", "--max-len", "16"}).json();
    const auto running = [](const QJsonObject& json, const char* key) {
        return json["concurrency"].toObject()["running"].toObject()[key].toDouble(-1);
    };
    QCOMPARE(paged["steps"].toObject()["count"].toInt(), 12);
    QCOMPARE(running(paged, "max"), 4.0);
    QCOMPARE(running(paged, "mean"), 40.0 / 12);
    QCOMPARE(slab["steps"].toObject()["count"].toInt(), 20);
    QCOMPARE(running(slab, "max"), 2.0);
    QCOMPARE(running(slab, "mean"), 2.0);
    const auto waste = [](const QJsonObject& json, const char* key) {
        return json["waste"].toObject()[key].toDouble(-1);
    };
    QCOMPARE(waste(paged, "used"), 260.0 / 384);
    QCOMPARE(waste(paged, "tail"), 60.0 / 384);
    QCOMPARE(waste(paged, "free"), 64.0 / 384);
    QCOMPARE(waste(slab, "used"), 260.0 / 640);
    QCOMPARE(waste(slab, "reserved_for_later"), 60.0 / 640);
    QCOMPARE(waste(slab, "never_used"), 320.0 / 640);
    QCOMPARE(waste(slab, "used_of_held"), 260.0 / 640);
    // Each of the 10 may grow to 9 tokens: 3 blocks, two runs, and 2 blocks too few for a third.
    const QJsonObject fitted =
        replay(call + QStringList{"--layout", "slab", "--slab-length", "request"}).json();
    QCOMPARE(fitted["pool"].toObject()["slab_length"].toString(), QString("request"));
    QVERIFY(fitted["pool"].toObject()["max_len"].isNull());
    QCOMPARE(running(fitted, "mean"), 2.0);
    QCOMPARE(waste(fitted, "used"), 260.0 / 640);
    QCOMPARE(waste(fitted, "reserved_for_later"), 60.0 / 640);
    QCOMPARE(waste(fitted, "never_used"), 160.0 / 640);
    QCOMPARE(waste(fitted, "free"), 160.0 / 640);
    QCOMPARE(waste(fitted, "external"), 16 * 8 / 640.0);
}

// The first request gives way to the second and is cancelled while it waits to come back.
void ReplayTest::whoGaveWayAndIsCancelledHoldsNothing() {
    const QString file = requestFile(
        "{\"arrival_ms\":0,\"prompt_tokens\":10,\"max_tokens\":40,\"priority\":0,\"cancel_ms\":20}"
        "\n"
        "{\"arrival_ms\":5,\"prompt_tokens\":10,\"max_tokens\":40,\"priority\":1}\n");
    for (const QStringList& host : {QStringList{}, QStringList{"--host-blocks", "8"}}) {
        const CliResult result = replay(QStringList{"--requests", file, "--layout", "slab",
                                                    "--blocks", "4", "--ignore-eos", "--json"} +
                                        kVirtual + host);
        KVLAB_VERIFY_SUCCESS(result);
        const QJsonObject json = result.json();
        QCOMPARE(json["counts"].toObject()["cancelled"].toInt(), 1);
        QVERIFY(json["preemptions"].toInt() >= 1);
        const QJsonObject running = json["concurrency"].toObject()["running"].toObject();
        QCOMPARE(running["max"].toDouble(), 1.0);
        const QJsonObject waste = json["waste"].toObject();
        double sum = 0;
        for (const char* part : {"used", "reserved_for_later", "never_used", "free"}) {
            const double share = waste[part].toDouble(-1);
            QVERIFY2(share >= 0, part);
            sum += share;
        }
        QVERIFY2(std::abs(sum - 1) < 1e-9, qPrintable(QString::number(sum)));
    }
}

void ReplayTest::hugePromptsAreRefusedBeforeTheyAreMade() {
    // Neither may take seconds for its words, nor gigabytes for its copies.
    QByteArray lines;
    for (int i = 0; i < 20; ++i) {
        lines += "{\"arrival_ms\":0,\"prompt_tokens\":1000000,\"max_tokens\":1}\n";
    }
    const CliResult long_ones = runCli(
        {"replay", "--requests", requestFile(lines), "--model", model_, "--blocks", "10", "--json"},
        {}, 10'000);
    KVLAB_VERIFY_SUCCESS(long_ones);
    QCOMPARE(long_ones.json()["counts"].toObject()["refused"].toInt(), 20);
    const CliResult copies =
        accounts({"--samples", "4096", "--prompt-median", "400000", "--prompt-sigma", "0",
                  "--prompt-max", "1000000", "--blocks", "100000"});
    KVLAB_VERIFY_REFUSAL(copies, 2);
    QVERIFY2(copies.err.contains("4,096 continuations of 400,000 tokens"), copies.err.constData());
}

void ReplayTest::refusedRequestsAreListed() {
    const QString file = requestFile(
        "{\"arrival_ms\":0,\"prompt_tokens\":2000,\"max_tokens\":241}\n"
        "{\"arrival_ms\":1,\"prompt_tokens\":[1,2],\"max_tokens\":3}\n"
        "{\"arrival_ms\":2,\"prompt_tokens\":[1,99999],\"max_tokens\":3}\n");
    const CliResult result =
        replay({"--requests", file, "--blocks", "128", "--ignore-eos", "--json"});
    KVLAB_VERIFY_SUCCESS(result);
    const QJsonObject json = result.json();
    const QJsonObject counts = json["counts"].toObject();
    QCOMPARE(counts["requests"].toInt(), 3);
    QCOMPARE(counts["finished"].toInt(), 1);
    QCOMPARE(counts["refused"].toInt(), 2);
    const QJsonObject large = json["requests"].toArray()[0].toObject();
    QCOMPARE(large["status"].toString(), QString("refused"));
    QVERIFY2(
        large["refusal"].toString().contains("needs 140 blocks of 16 tokens, the pool has 128"),
        qPrintable(large["refusal"].toString()));
    QVERIFY(large["finish"].isNull());
    QVERIFY(large["timings"].toObject()["queue_ms"].isNull());
    QVERIFY(json["requests"].toArray()[2].toObject()["refusal"].toString().contains(
        "token 99999 is not in the vocabulary"));
    const QJsonObject why = json["why"].toArray()[0].toObject();
    QCOMPARE(why["decision"].toString(), QString("refused"));
    QCOMPARE(why["blocks_needed"].toInt(), 140);
    QCOMPARE(why["blocks_free"].toInt(), 128);
    QVERIFY(why["text"].toString().contains("it needs 140 blocks, the pool has 128"));
}

void ReplayTest::cancelsAndPriorities() {
    // Each takes the whole pool, 3 blocks of 4.
    const QByteArray prompt = "\"prompt_tokens\":[1,2,3,4,5,6,7,8,9]";
    const QString file =
        requestFile("{\"arrival_ms\":0," + prompt + ",\"max_tokens\":4}\n" + "{\"arrival_ms\":0," +
                    prompt + ",\"max_tokens\":4,\"cancel_ms\":2.5}\n" + "{\"arrival_ms\":2," +
                    prompt + ",\"max_tokens\":2,\"priority\":5}\n");
    const CliResult result = replay(QStringList{"--requests", file, "--blocks", "3", "--block-size",
                                                "4", "--ignore-eos", "--json"} +
                                    kVirtual);
    KVLAB_VERIFY_SUCCESS(result);
    const QJsonObject json = result.json();
    QCOMPARE(json["counts"].toObject()["cancelled"].toInt(), 1);
    QCOMPARE(json["preemptions"].toInt(), 1);
    const QJsonArray requests = json["requests"].toArray();
    QCOMPARE(requests[0].toObject()["preemptions"].toInt(), 1);
    QCOMPARE(requests[1].toObject()["status"].toString(), QString("cancelled"));
    QCOMPARE(requests[1].toObject()["token_ids"].toArray().size(), 0);
    QCOMPARE(requests[2].toObject()["priority"].toInt(), 5);
    QVERIFY(requests[2].toObject()["timings"].toObject()["finished_ms"].toDouble() <
            requests[0].toObject()["timings"].toObject()["finished_ms"].toDouble());
}

// Recomputed from the listed requests, sorted and read off.
void ReplayTest::percentilesAreThoseOfTheRequests() {
    const CliResult result = accounts({"--blocks", "2000", "--json"});
    KVLAB_VERIFY_SUCCESS(result);
    const QJsonObject json = result.json();
    for (const char* key :
         {"queue_ms", "time_to_first_token_ms", "time_per_token_ms", "end_to_end_ms"}) {
        std::vector<double> values;
        for (const QJsonValue& request : json["requests"].toArray()) {
            const QJsonValue value = request.toObject()["timings"].toObject()[key];
            if (value.isDouble()) values.push_back(value.toDouble());
        }
        std::sort(values.begin(), values.end());
        const QJsonObject told = json["percentiles"].toObject()[key].toObject();
        QCOMPARE(told["count"].toInt(), static_cast<int>(values.size()));
        QVERIFY(values.size() >= 30);
        for (const auto& [name, percent] :
             {std::pair{"p50", 0.5}, std::pair{"p90", 0.9}, std::pair{"p99", 0.99}}) {
            const double rank = percent * static_cast<double>(values.size() - 1);
            const auto low = static_cast<size_t>(std::floor(rank));
            const size_t high = std::min(low + 1, values.size() - 1);
            const double expected =
                values[low] + (values[high] - values[low]) * (rank - std::floor(rank));
            QVERIFY2(std::abs(told[name].toDouble() - expected) <= 1e-9 * (1 + expected), key);
        }
        QCOMPARE(told["max"].toDouble(), values.back());
    }
}

// A pool of 640 GB · 0.9 less 141,107,412,992 B, in blocks of 16 tokens of 327,680 B.
void ReplayTest::accountsOfALargeModel() {
    const CliResult result = accounts({"--json"});
    KVLAB_VERIFY_SUCCESS(result);
    const QJsonObject json = result.json();
    const QJsonObject pool = json["pool"].toObject();
    QCOMPARE(pool["blocks"].toInteger(), (576'000'000'000 - 141'107'412'992) / (16 * 327'680));
    QCOMPARE(json["counts"].toObject()["finished"].toInt(), 40);
    QCOMPARE(json["clock"].toString(), QString("virtual"));
    QCOMPARE(json["times"].toString(), QString("assumed"));
    QCOMPARE(json["backend"].toString(), QString("accounting"));
    const QJsonObject request = json["requests"].toArray()[0].toObject();
    for (const char* key : {"token_ids", "text", "seed"}) QVERIFY2(request[key].isNull(), key);
    QCOMPARE(request["sampled_tokens"], request["max_tokens"]);
    const QJsonObject time = json["step_time"].toObject();
    QCOMPARE(time["source"].toString(), QString("assumed"));
    QVERIFY(time["sampling_ms"].isNull());
    QVERIFY(time["matmul_ms"].toDouble() > 0);
    // A token at a time, all weights are read: no step is faster than 141 GB at 26.8 TB/s.
    const double fastest = 1000 * 141107412992.0 / 26.8e12;
    QVERIFY(json["percentiles"].toObject()["time_per_token_ms"].toObject()["p50"].toDouble() >=
            fastest);
    // A smaller pool: waits, and who gives way.
    const QJsonObject tight =
        accounts({"--blocks", "400", "--host-blocks", "4000", "--json"}).json();
    QVERIFY(tight["preemptions"].toInt() > 0 && tight["bytes_moved"].toDouble() > 0);
    QVERIFY(tight["decisions"].toObject()["waiting"].toInt() > 0);
    QVERIFY(tight["concurrency"].toObject()["waiting"].toObject()["max"].toInt() > 0);
    // Four times the pool by int8 instead of f32, scales apart.
    const auto blocks = [&](const char* dtype) {
        return accounts({"--kv-dtype", dtype, "--vram", "300GB", "--json"})
            .json()["pool"]
            .toObject()["blocks"]
            .toDouble();
    };
    QVERIFY(std::abs(blocks("int8") / blocks("f32") - 128 * 4 / 132.0) < 1e-3);
}

void ReplayTest::theAssumedMachineIsStated() {
    const QStringList machine = {"--flops", "100",  "--bandwidth",     "1TB",
                                 "--link",  "20GB", "--step-overhead", "2.5"};
    const CliResult result = accounts(machine + QStringList{"--json"});
    KVLAB_VERIFY_SUCCESS(result);
    const QJsonObject assumed = result.json()["assumptions"].toObject();
    QCOMPARE(assumed["flops_per_s"].toDouble(), 1e14);
    QCOMPARE(assumed["memory_bytes_per_s"].toDouble(), 1e12);
    QCOMPARE(assumed["link_bytes_per_s"].toDouble(), 2e10);
    QCOMPARE(assumed["step_overhead_ms"].toDouble(), 2.5);
    QCOMPARE(assumed["weights_bytes"].toDouble(), 141107412992.0);
    QCOMPARE(assumed["parameters"].toDouble(), 141107412992.0 / 2);
    const QJsonObject json = result.json();
    QCOMPARE(json["step_time"].toObject()["other_ms"].toDouble(),
             2.5 * json["steps"].toObject()["count"].toInt());
    QVERIFY(json["duration_ms"].toDouble() > accounts({"--json"}).json()["duration_ms"].toDouble());
    const CliResult text = accounts(machine);
    QVERIFY(text.out.contains("100 TFLOP/s, memory 1 TB/s, link to the host 20 GB/s, 2.5 ms"));
}

void ReplayTest::burstsAndLengths() {
    const QStringList lengths = {"--prompt-median", "100", "--prompt-sigma", "0",
                                 "--output-median", "7",   "--output-sigma", "0",
                                 "--json"};
    const CliResult result = accounts(lengths);
    KVLAB_VERIFY_SUCCESS(result);
    for (const QJsonValue& request : result.json()["requests"].toArray()) {
        QCOMPARE(request.toObject()["prompt_tokens"].toInt(), 100);
        QCOMPARE(request.toObject()["max_tokens"].toInt(), 7);
    }
    // Lengths stay within the model's context of 8,192, and a limit is a limit.
    const CliResult wide = accounts({"--prompt-sigma", "4", "--output-max", "50", "--json"});
    KVLAB_VERIFY_SUCCESS(wide);
    int longest = 0;
    for (const QJsonValue& request : wide.json()["requests"].toArray()) {
        longest = std::max(longest, request.toObject()["prompt_tokens"].toInt());
        QVERIFY(request.toObject()["max_tokens"].toInt() <= 50);
    }
    QCOMPARE(longest, 8192 / 4 * 3);
    const auto lastArrival = [&](const QStringList& arguments) {
        return accounts(lengths + arguments)
            .json()["requests"]
            .toArray()
            .last()
            .toObject()["timings"]
            .toObject()["arrived_ms"]
            .toDouble();
    };
    QVERIFY(lastArrival({"--bursts"}) != lastArrival({}));
    QVERIFY(lastArrival({"--bursts", "--burst-on", "1"}) != lastArrival({"--bursts"}));
    QVERIFY(lastArrival({"--bursts", "--burst-off", "100"}) != lastArrival({"--bursts"}));
    QVERIFY(lastArrival({"--bursts", "--burst-on", "5"}) == lastArrival({"--bursts"}));
}

void ReplayTest::listsAreBounded() {
    const QJsonObject all = accounts({"--json"}).json();
    QCOMPARE(all["requests"].toArray().size(), 40);
    QCOMPARE(all["requests_left_out"].toInt(-1), 0);
    QCOMPARE(all["why_left_out"].toInt(-1), 0);
    const QJsonObject some = accounts({"--json", "--list", "3", "--why", "5"}).json();
    QCOMPARE(some["requests"].toArray().size(), 3);
    QCOMPARE(some["requests_left_out"].toInt(), 37);
    QCOMPARE(some["why"].toArray().size(), 5);
    QCOMPARE(some["why_left_out"].toInt(), all["why"].toArray().size() - 5);
    QCOMPARE(some["decisions"], all["decisions"]);
    QCOMPARE(some["percentiles"], all["percentiles"]);
}

void ReplayTest::readableOutputSaysWhy() {
    const CliResult result = accounts({"--blocks", "400"});
    KVLAB_VERIFY_SUCCESS(result);
    for (const char* words :
         {"40 requests of Llama-3-70B, accounts without weights: 40 finished", "pool ", "time ",
          "(assumed)", "running ", "tail of the last block", "attention", "p50", "p99", "queue",
          "first token", "per token", "end to end", "request 0 was admitted: it needs",
          "20 more; --list N shows N", "more; --why N shows N"}) {
        QVERIFY2(result.out.contains(words), words);
    }
    const CliResult quiet = accounts({"--blocks", "400", "--list", "0", "--why", "0"});
    KVLAB_VERIFY_SUCCESS(quiet);
    QVERIFY(!quiet.out.contains("more;") && !quiet.out.contains("request 0"));
    const CliResult slab = accounts({"--layout", "slab"});
    KVLAB_VERIFY_SUCCESS(slab);
    QVERIFY(slab.out.contains("reserved for later") && slab.out.contains("never used"));
}

void ReplayTest::traceIsWrittenAndIntact() {
    const QString trace = folder_.filePath("run.trace");
    const QStringList write = {"--trace", trace, "--blocks", "400"};
    KVLAB_VERIFY_SUCCESS(accounts(write));
    KVLAB_VERIFY_SUCCESS(runCli({"trace", "verify", trace}));
    const CliResult summary = runCli({"trace", "summary", trace, "--json"});
    KVLAB_VERIFY_SUCCESS(summary);
    const QString file =
        requestFile("{\"arrival_ms\":0,\"prompt\":\"The brass key\",\"max_tokens\":4}\n");
    KVLAB_VERIFY_SUCCESS(replay({"--requests", file, "--trace", trace}));
    KVLAB_VERIFY_SUCCESS(runCli({"trace", "verify", trace}));
    // Neither the model nor the requests are written over.
    const QByteArray before = readBytes(model_), lines = readBytes(file);
    KVLAB_VERIFY_REFUSAL(replay({"--requests", file, "--trace", model_}), 2);
    KVLAB_VERIFY_REFUSAL(replay({"--requests", file, "--trace", file}), 2);
    QCOMPARE(readBytes(model_), before);
    QCOMPARE(readBytes(file), lines);
}

// One latent a token, sliding windows, weights that the table does not know.
void ReplayTest::everyModelOfTheTable() {
    const QStringList few = {"replay", "--no-weights", "--poisson", "5", "--count", "5", "--json"};
    const QStringList weights = {"--weights-bytes", "1342000000000"};
    const CliResult latent =
        runCli(few + QStringList{"--model", "deepseek-v3", "--vram", "2TB"} + weights);
    KVLAB_VERIFY_SUCCESS(latent);
    const QJsonObject pool = latent.json()["pool"].toObject();
    QCOMPARE(pool["device_bytes"].toInteger(), pool["blocks"].toInteger() * 16 * 61 * 576 * 2);
    KVLAB_VERIFY_REFUSAL(runCli(few + QStringList{"--model", "deepseek-v3", "--kv-dtype", "int8"}),
                         1);
    // 1.3 TB of weights leave nothing of 640 GB.
    const CliResult too_large = runCli(few + QStringList{"--model", "deepseek-v3"} + weights);
    KVLAB_VERIFY_REFUSAL(too_large, 2);
    QVERIFY(too_large.err.contains("no block fits"));
    // The same shape with and without a window: 10,000 tokens at once, or no more than 4,095, one
    // block that they begin in, and the chunk of a prompt.
    const QStringList one_long = {
        "replay",          "--no-weights", "--poisson",      "5", "--count",      "1",
        "--prompt-median", "10000",        "--prompt-sigma", "0", "--prompt-max", "20000",
        "--output-max",    "10",           "--json"};
    const CliResult whole = runCli(one_long + QStringList{"--model", "mistral-7b-v0.3"});
    KVLAB_VERIFY_SUCCESS(whole);
    QVERIFY(whole.json()["pool"].toObject()["blocks_peak"].toInt() >= 10000 / 16);
    const CliResult windowed = runCli(one_long + QStringList{"--model", "mistral-7b-v0.1"});
    KVLAB_VERIFY_SUCCESS(windowed);
    const int peak = windowed.json()["pool"].toObject()["blocks_peak"].toInt();
    QVERIFY(peak >= 4095 / 16 && peak <= (4095 + 512) / 16 + 2);
    KVLAB_VERIFY_REFUSAL(runCli(few + QStringList{"--model", "gemma-3-4b"}), 2);
    const CliResult mixed =
        runCli(few + QStringList{"--model", "gemma-3-4b", "--weights-bytes", "8GB"});
    QCOMPARE(mixed.exit_code, 0);
    QVERIFY(mixed.err.contains("29 of 34 layers of Gemma-3-4B see a window of 1024 tokens"));
}

void ReplayTest::aRunOfRefusedRequestsTakesNoTime() {
    const QString file =
        requestFile("{\"arrival_ms\":50,\"prompt_tokens\":500,\"max_tokens\":2}\n");
    const QStringList call = {"replay", "--requests", file, "--model", model_, "--blocks", "2"};
    const CliResult json = runCli(call + QStringList{"--json"});
    KVLAB_VERIFY_SUCCESS(json);
    QCOMPARE(json.json()["requests"].toArray()[0].toObject()["status"].toString(),
             QString("refused"));
    QVERIFY(json.json().contains("duration_ms") && json.json()["duration_ms"].isNull());
    const CliResult text = runCli(call);
    KVLAB_VERIFY_SUCCESS(text);
    QVERIFY2(text.out.contains("time       - from the first arrival"), text.out);
}

void ReplayTest::badCalls_data() {
    QTest::addColumn<QStringList>("arguments");
    const QStringList accounts = {"--no-weights", "--model", "llama-3-70b", "--poisson", "2",
                                  "--count",      "3"};
    const QStringList drawn = {"--model", "@", "--poisson", "2", "--count", "3"};
    const QStringList filed = {"--model", "@", "--requests", "F"};
    QTest::newRow("nothing") << QStringList{};
    QTest::newRow("both sources") << drawn + QStringList{"--requests", "F"};
    QTest::newRow("no count") << QStringList{"--model", "@", "--poisson", "2"};
    QTest::newRow("count alone") << QStringList{"--model", "@", "--count", "2"};
    QTest::newRow("empty file name") << QStringList{"--model", "@", "--requests", ""};
    for (const char* option :
         {"--count", "--samples", "--burst-on", "--burst-off", "--prompt-median", "--prompt-sigma",
          "--prompt-max", "--output-median", "--output-sigma", "--output-max"}) {
        QTest::addRow("%s of a file", option) << filed + QStringList{option, "1"};
    }
    QTest::newRow("--bursts of a file") << filed + QStringList{"--bursts"};
    QTest::newRow("no slug") << QStringList{"--no-weights", "--poisson", "2", "--count", "3"};
    QTest::newRow("unknown slug") << QStringList{
        "--no-weights", "--model", "llama-9", "--poisson", "2", "--count", "3"};
    QTest::newRow("--ignore-eos of accounts") << accounts + QStringList{"--ignore-eos"};
    QTest::newRow("blocks and memory") << accounts + QStringList{"--blocks", "9", "--vram", "80GB"};
    QTest::newRow("blocks and utilisation")
        << accounts + QStringList{"--blocks", "9", "--utilisation", "0.5"};
    QTest::newRow("memory below the weights") << accounts + QStringList{"--vram", "80GB"};
    QTest::newRow("wait without weights") << accounts + QStringList{"--clock", "wait"};
    QTest::newRow("real without weights") << accounts + QStringList{"--clock", "real"};
    for (const char* option : {"--threads", "--temperature", "--top-k", "--top-p"}) {
        QTest::addRow("%s of accounts", option) << accounts + QStringList{option, "1"};
    }
    QTest::newRow("--cpu-fallback of accounts") << accounts + QStringList{"--cpu-fallback"};
    for (const char* option : {"--burst-on", "--burst-off"}) {
        QTest::addRow("%s without bursts", option) << accounts + QStringList{option, "2"};
        for (const char* value : {"-1", "x", "", "nan", "inf", "0", "1e9"}) {
            QTest::addRow("%s \"%s\" of bursts", option, value)
                << accounts + QStringList{"--bursts", option, value};
        }
    }
    for (const char* lengths : {"prompt", "output"}) {
        const QString prefix = QString("--") + lengths;
        QTest::addRow("%s median above the longest", lengths)
            << accounts + QStringList{prefix + "-max", "10", prefix + "-median", "11"};
        QTest::addRow("%s median above the default", lengths)
            << accounts + QStringList{prefix + "-median", "9000"};
    }
    QTest::newRow("--top-k without a draw") << drawn + QStringList{"--top-k", "5"};
    QTest::newRow("--top-p without a draw") << drawn + QStringList{"--top-p", "0.5"};
    QTest::newRow("--backend of accounts") << accounts + QStringList{"--backend", "cpu"};
    for (const char* option : {"--flops", "--bandwidth", "--link", "--step-overhead"}) {
        QTest::addRow("%s of a real clock", option) << drawn + QStringList{option, "10GB"};
    }
    for (const char* option : {"--vram", "--utilisation", "--weights-bytes"}) {
        QTest::addRow("%s with weights", option) << drawn + QStringList{option, "1"};
    }
    struct Bad {
        const char* option;
        QStringList values;
    };
    const QStringList not_whole = {"-1", "x", "", "nan", "1.5", "99999999999999999999"};
    const QStringList not_real = {"-1", "x", "", "nan", "inf"};
    const Bad bad[] = {{"--poisson", not_real + QStringList{"0", "1e9"}},
                       {"--count", not_whole + QStringList{"0", "1000001"}},
                       {"--prompt-median", not_whole + QStringList{"0", "1000001"}},
                       {"--prompt-sigma", not_real + QStringList{"6"}},
                       {"--prompt-max", not_whole + QStringList{"0", "1000001"}},
                       {"--output-median", not_whole + QStringList{"0"}},
                       {"--output-sigma", not_real + QStringList{"6"}},
                       {"--output-max", not_whole + QStringList{"0"}},
                       {"--seed", not_whole},
                       {"--watermark", not_real + QStringList{"1"}},
                       {"--utilisation", {"0", "1.5", "x"}},
                       {"--vram", {"", "x", "0", "-80GB", "80XB"}},
                       {"--weights-bytes", not_whole + QStringList{"0"}},
                       {"--flops", not_real + QStringList{"0"}},
                       {"--bandwidth", {"", "0", "x", "-1GB", "1KB"}},
                       {"--link", {"", "0", "x"}},
                       {"--step-overhead", not_real},
                       {"--clock", {"sundial", ""}},
                       {"--layout", {"ring"}},
                       {"--max-len", {"100"}},
                       {"--preempt", {"swap", "never"}},
                       {"--blocks", not_whole + QStringList{"0"}},
                       {"--block-size", not_whole + QStringList{"0", "257"}},
                       {"--host-blocks", not_whole},
                       {"--token-budget", not_whole + QStringList{"0"}},
                       {"--kv-dtype", {"f8"}},
                       {"--why", not_whole},
                       {"--list", not_whole},
                       {"--trace", {""}},
                       {"--unknown", {"1"}}};
    for (const Bad& entry : bad) {
        for (const QString& value : entry.values) {
            QTest::addRow("%s \"%s\"", entry.option, qPrintable(value))
                << accounts + QStringList{entry.option, value};
        }
    }
    QTest::newRow("more than a day's work") << QStringList{
        "--no-weights", "--model",         "llama-3-70b", "--poisson",      "2", "--count",
        "1000000",      "--output-median", "2000",        "--output-sigma", "0"};
    QTest::newRow("slab larger than the pool")
        << accounts + QStringList{"--layout", "slab", "--max-len", "2000", "--blocks", "10"};
}

void ReplayTest::badCalls() {
    QFETCH(QStringList, arguments);
    arguments.replaceInStrings("@", model_);
    KVLAB_VERIFY_REFUSAL(runCli(QStringList{"replay"} + arguments), 2);
}

void ReplayTest::badFiles_data() {
    QTest::addColumn<QByteArray>("lines");
    QTest::addColumn<QByteArray>("complaint");
    const QByteArray good = "{\"arrival_ms\":0,\"prompt_tokens\":5,\"max_tokens\":2}\n";
    QTest::newRow("empty") << QByteArray() << QByteArray("holds no request");
    QTest::newRow("no JSON") << good + "hello\n" << QByteArray("line 2");
    QTest::newRow("cut off") << good + "{\"arrival_ms\":" << QByteArray("line 2");
    QTest::newRow("zeros") << QByteArray(5000, '\0') << QByteArray("line 1");
    QTest::newRow("deep") << QByteArray(100000, '[') << QByteArray("line 1");
    QTest::newRow("endless line") << QByteArray(3 << 20, 'a') << QByteArray("line 1");
    QTest::newRow("backwards") << "{\"arrival_ms\":9,\"prompt_tokens\":5,\"max_tokens\":2}\n" + good
                               << QByteArray("sort the lines");
    QTest::newRow("huge prompt")
        << QByteArray("{\"arrival_ms\":0,\"prompt_tokens\":1e18,\"max_tokens\":2}\n")
        << QByteArray("prompt_tokens");
    QTest::newRow("unknown field")
        << QByteArray("{\"arrival_ms\":0,\"prompt_tokens\":5,\"max_tokens\":2,\"x\":1}\n")
        << QByteArray("there is no field");
    QTest::newRow("cancelled before it came")
        << QByteArray("{\"arrival_ms\":9,\"prompt_tokens\":5,\"max_tokens\":2,\"cancel_ms\":1}\n")
        << QByteArray("cancel_ms");
}

void ReplayTest::badFiles() {
    QFETCH(QByteArray, lines);
    QFETCH(QByteArray, complaint);
    const QString file = requestFile(lines);
    for (const QStringList& model :
         {QStringList{"--model", model_}, QStringList{"--no-weights", "--model", "llama-3-70b"}}) {
        const CliResult result =
            runCli(QStringList{"replay", "--requests", file, "--json"} + model, {}, 10'000);
        KVLAB_VERIFY_REFUSAL(result, 1);
        QVERIFY2(result.err.contains(complaint), result.err.constData());
    }
    const QStringList missing = {"replay", "--requests", "/nowhere/at/all"};
    KVLAB_VERIFY_REFUSAL(runCli(missing), 1);
    KVLAB_VERIFY_REFUSAL(runCli({"replay", "--requests", QDir::tempPath()}), 1);
    KVLAB_VERIFY_REFUSAL(replay({"--poisson", "2", "--count", "2", "--trace", "/nowhere/at/all"}),
                         1);
    KVLAB_VERIFY_REFUSAL(
        runCli({"replay", "--poisson", "2", "--count", "2", "--model", "/nowhere/at/all"}), 1);
}

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::ReplayTest)
#include "replay_test.moc"
