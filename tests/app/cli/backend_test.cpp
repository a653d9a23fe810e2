// SPDX-License-Identifier: MIT
#include <cmath>

#include <QElapsedTimer>
#include <QJsonArray>
#include <QTemporaryDir>

#include "tests/app/cli/cli_test_support.h"

namespace kvlab {

namespace {

const CliEnvironment kNoPlugin = {{"KVLAB_CUDA_PLUGIN", "/nowhere/libkvlab_cuda.so"}};

// The stand-in for the CUDA plugin (tests/support/simt_plugin.cpp), failing as told.
CliEnvironment standIn(const QString& failure = {}) {
    return {{"KVLAB_CUDA_PLUGIN", KVLAB_SIMT_PLUGIN}, {"KVLAB_SIMT_PLUGIN_FAIL", failure}};
}

const QStringList kLogits = {"logits", "--tokens", "1,5,9,12,40", "--json"};

QStringList with(QStringList arguments, const QStringList& more) { return arguments + more; }

double worstDifference(const QJsonArray& a, const QJsonArray& b) {
    double worst = a.size() == b.size() && !a.isEmpty() ? 0 : INFINITY;
    for (int i = 0; i < a.size() && i < b.size(); ++i) {
        worst = std::max(worst, std::abs(a[i].toDouble() - b[i].toDouble()));
    }
    return worst;
}

}  // namespace

class BackendTest : public QObject {
    Q_OBJECT

  private slots:
    void backendsAgree();
    void cudaWithoutAGpuNamesTheWayOut();
    void aNamedPluginThatIsNotUsedIsTold();
    void threadsAreForTheCpuAndSimt();
    void selfcheckOnSimtSaysThatItIsSlow();
    void cudaThatFailsNamesTheWayOut();
    void autoFallsBackWithALine();
    void theCpuTakesOverInTheMiddleOfARun();
    void theCpuThatCannotTakeOverIsSaid();
    void selfcheckOfTheCpuPasses();
    void selfcheckOfTheStandInPasses();
    void devicesNamesTheStandIn();
    void benchRunsOnTheStandIn();
};

void BackendTest::backendsAgree() {
    const CliResult cpu = runCli(with(kLogits, {"--backend", "cpu"}));
    KVLAB_VERIFY_SUCCESS(cpu);
    const CliResult simt = runCli(with(kLogits, {"--backend", "simt"}));
    QCOMPARE(simt.exit_code, 0);
    QVERIFY2(simt.hasOneLineError() && simt.err.contains("to check and to show"), simt.err);
    const CliResult cuda = runCli(with(kLogits, {"--backend", "cuda"}), standIn());
    KVLAB_VERIFY_SUCCESS(cuda);
    const QJsonArray expected = cpu.json()["logits"].toArray();
    QVERIFY(worstDifference(simt.json()["logits"].toArray(), expected) < 0.02);
    QVERIFY(worstDifference(cuda.json()["logits"].toArray(), expected) < 0.02);
}

void BackendTest::cudaWithoutAGpuNamesTheWayOut() {
    const CliResult result = runCli(with(kLogits, {"--backend", "cuda"}), kNoPlugin);
    KVLAB_VERIFY_REFUSAL(result, 1);
    QVERIFY2(result.err.contains("--backend cpu"), result.err);
    // Who asks for nothing hears nothing of a GPU that is not there.
    KVLAB_VERIFY_SUCCESS(runCli(kLogits, standIn("devices:0")));
}

void BackendTest::aNamedPluginThatIsNotUsedIsTold() {
    QTemporaryDir folder;
    for (const QString& path : {QString("/nowhere/libkvlab_cuda.so"), folder.path()}) {
        const CliEnvironment named = {{"KVLAB_CUDA_PLUGIN", path}};
        const CliResult result = runCli(kLogits, named);
        QCOMPARE(result.exit_code, 0);
        QVERIFY2(result.hasOneLineError() && result.err.contains("running on the CPU: ") &&
                     result.err.contains(path.toUtf8()) && !result.err.contains("--backend cpu"),
                 result.err);
        QVERIFY(!result.json()["logits"].toArray().isEmpty());
        KVLAB_VERIFY_SUCCESS(runCli(with(kLogits, {"--backend", "cpu"}), named));
    }
    KVLAB_VERIFY_SUCCESS(runCli(kLogits, {{"KVLAB_CUDA_PLUGIN", ""}}));
}

void BackendTest::threadsAreForTheCpuAndSimt() {
    const QStringList threads = {"--threads", "2", "--backend", "cuda"};
    KVLAB_VERIFY_REFUSAL(runCli(with(kLogits, threads), standIn()), 2);
    KVLAB_VERIFY_REFUSAL(runCli(with({"selfcheck"}, threads), standIn()), 2);
    const QByteArray one = runCli(with(kLogits, {"--backend", "simt", "--threads", "1"})).out;
    QVERIFY(!one.isEmpty());
    QCOMPARE(runCli(with(kLogits, {"--backend", "simt", "--threads", "3"})).out, one);
    KVLAB_VERIFY_SUCCESS(runCli(
        with(kLogits, {"--threads", "2", "--backend", "cuda", "--cpu-fallback"}), standIn()));
}

// Half a minute without a word would look like a hang. Only the line is waited for.
void BackendTest::selfcheckOnSimtSaysThatItIsSlow() {
    QProcess process;
    process.start(QStringLiteral(KVLAB_CLI_PATH), {"selfcheck", "--backend", "simt", "--json"});
    process.setReadChannel(QProcess::StandardError);
    QElapsedTimer waited;
    waited.start();
    while (!process.canReadLine() && waited.elapsed() < 60'000) process.waitForReadyRead(1000);
    const QByteArray line = process.readLine();
    process.kill();
    process.waitForFinished();
    QVERIFY2(line.startsWith("kvlab-cli: backend simt ") && line.contains("half a minute"), line);
    QVERIFY(process.readAllStandardOutput().isEmpty());
}

void BackendTest::cudaThatFailsNamesTheWayOut() {
    for (const char* failure : {"allocate:1:5", "operation:2:20", "synchronise:2:40"}) {
        const CliResult result = runCli(with(kLogits, {"--backend", "cuda"}), standIn(failure));
        KVLAB_VERIFY_REFUSAL(result, 1);
        QVERIFY2(result.err.contains("--backend cpu"), result.err);
    }
}

void BackendTest::autoFallsBackWithALine() {
    const CliResult result = runCli(kLogits, standIn("allocate:1:5"));
    QCOMPARE(result.exit_code, 0);
    QVERIFY2(result.hasOneLineError() && result.err.contains("running on the CPU"), result.err);
    QVERIFY2(!result.err.contains("use --backend cpu"), result.err);  // which has happened
    QVERIFY(!result.json()["logits"].toArray().isEmpty());
}

// The bundled model's two best never come close here: the same tokens as the CPU's alone.
void BackendTest::theCpuTakesOverInTheMiddleOfARun() {
    const QStringList generate = {"generate", "--prompt-tokens", "20", "--max-tokens",
                                  "6",        "--samples",       "2",  "--json"};
    const CliResult cpu = runCli(with(generate, {"--backend", "cpu"}));
    KVLAB_VERIFY_SUCCESS(cpu);
    const char* const failure = "launch_graph:2:2";
    const auto tookOver = [&](const CliResult& result) {
        QCOMPARE(result.exit_code, 0);
        QVERIFY2(result.hasOneLineError() && result.err.contains("running on the CPU: the GPU") &&
                     result.err.contains("2 running sequences are computed again"),
                 result.err);
        QVERIFY(result.json()["token_ids"] == cpu.json()["token_ids"]);
        QCOMPARE(result.json()["metrics"].toObject()["preemptions"].toInt(), 2);
    };
    tookOver(runCli(generate, standIn(failure)));
    tookOver(runCli(with(generate, {"--backend", "cuda", "--cpu-fallback"}), standIn(failure)));
    const CliResult alone = runCli(with(generate, {"--backend", "cuda"}), standIn(failure));
    KVLAB_VERIFY_REFUSAL(alone, 1);
    QVERIFY2(alone.err.contains("--backend cpu"), alone.err);
    KVLAB_VERIFY_REFUSAL(runCli(with(generate, {"--backend", "cpu", "--cpu-fallback"})), 2);
}

// A pool that the host has no room for either: one line says both.
void BackendTest::theCpuThatCannotTakeOverIsSaid() {
    const QStringList huge = {"generate", "--prompt-tokens", "20",        "--max-tokens",
                              "6",        "--blocks",        "100000000", "--backend"};
    for (const QStringList& backend :
         {QStringList{"auto"}, QStringList{"cuda", "--cpu-fallback"}}) {
        const CliResult result = runCli(with(huge, backend), standIn("allocate:1:5"));
        KVLAB_VERIFY_REFUSAL(result, 1);
        QVERIFY2(result.err.contains("the GPU has") &&
                     result.err.contains("the CPU cannot take over: the pool needs") &&
                     result.err.contains("ask for less"),
                 result.err);
    }
    // A model that no backend can load: the GPU's failure hides nothing.
    const CliResult missing = runCli({"generate", "--prompt-tokens", "4", "--model",
                                      "/nowhere/model.gguf", "--backend", "cuda", "--cpu-fallback"},
                                     standIn("allocate:1:1"));
    KVLAB_VERIFY_REFUSAL(missing, 1);
}

void BackendTest::selfcheckOfTheCpuPasses() {
    const CliResult result = runCli({"selfcheck", "--backend", "cpu", "--seed", "36", "--json"});
    KVLAB_VERIFY_SUCCESS(result);
    QCOMPARE(result.json()["pass"].toBool(), true);
    QCOMPARE(result.json()["seed"].toInt(), 36);
    int num_decodes = 0;
    for (const QJsonValue& row : result.json()["rows"].toArray()) {
        if (row["variant"].toString().startsWith("bundled model")) ++num_decodes;
        QVERIFY(row["worst_error"].toDouble() <= row["tolerance"].toDouble());
    }
    QCOMPARE(num_decodes, 8);  // logits, and K and V, of four types
}

// Every kernel through simt and the plugin's table, another draw each time; the seed is printed.
void BackendTest::selfcheckOfTheStandInPasses() {
    const CliResult result = runCli({"selfcheck", "--backend", "cuda"}, standIn());
    QVERIFY2(!result.crashed && result.exit_code == 0, result.out + result.err);
    QVERIFY(result.out.contains("seed") && result.out.contains("all within tolerance"));
}

void BackendTest::devicesNamesTheStandIn() {
    const CliResult result = runCli({"devices", "--json"}, standIn());
    KVLAB_VERIFY_SUCCESS(result);
    const QJsonObject cuda = result.json()["devices"].toArray().last().toObject();
    QCOMPARE(cuda["backend"].toString(), QString("cuda"));
    QCOMPARE(cuda["available"].toBool(), true);
    QCOMPARE(cuda["driver"].toString(), QString("CUDA 13.0"));
}

// Its clock stands still there: only that every part runs and gives numbers.
void BackendTest::benchRunsOnTheStandIn() {
    CliResult result = runCli({"bench", "--backend", "cuda", "--quick", "--json"}, standIn());
    QVERIFY(result.err.contains("\nswaps ") && result.err.contains("wanted: at least"));
    result.err.clear();  // the table as it goes
    KVLAB_VERIFY_SUCCESS(result);
    const QJsonObject json = result.json();
    QCOMPARE(json["device"].toString(), QString("simt stand-in"));
    QVERIFY(json.contains("threads"));
    QCOMPARE(json["model"].toString(), QString("generated"));
    QCOMPARE(json["rounds_cut"].toBool(true), false);
    QStringList names;
    QStringList wanted;
    for (const QJsonValue& bench : json["benches"].toArray()) {
        names.append(bench["name"].toString());
        for (const QJsonValue& value : bench["medians"].toObject()) QVERIFY(value.toDouble() > 0);
        const QJsonArray cases = bench["cases"].toArray();
        QVERIFY2(cases.size() >= (names.size() == 1 ? 1 : 2), qPrintable(names.last()));
        for (const QJsonValue& row : cases) {
            for (const QJsonValue& value : row.toObject()) {
                QVERIFY(value.isString() || value.toDouble() > 0);
            }
        }
        for (const QString& name : bench["targets"].toObject().keys()) {
            QVERIFY(bench["ratio"].toObject()[name].toDouble() > 0);
            wanted.append(name);
        }
    }
    QCOMPARE(names, (QStringList{"copy", "decode_attention", "prefill_attention", "model_decode",
                                 "swap"}));
    QCOMPARE(wanted, (QStringList{"llama-3-70b_share_of_copy_from_batch_32",
                                  "llama-3-8b_share_of_copy_from_batch_32",
                                  "paged_to_contiguous_from_4096", "batch_1_share_of_floor"}));
    CliResult one = runCli({"bench", "--backend", "cuda", "swap", "--quick", "--json"}, standIn());
    one.err.clear();
    KVLAB_VERIFY_SUCCESS(one);
    const CliResult failed =
        runCli({"bench", "--backend", "cuda", "--quick", "--json"},
               standIn() + CliEnvironment{{"KVLAB_SIMT_PLUGIN_FAIL", "copy_rows:4"}});
    QCOMPARE(failed.exit_code, 1);
    QCOMPARE(failed.json()["failures"].toArray().size(), 1);
    QCOMPARE(failed.json()["benches"].toArray().size(), names.size());
    QVERIFY2(failed.err.contains("kvlab-cli: bench swap failed: ") &&
                 failed.err.contains("; selfcheck --backend cuda tells"),
             failed.err);
    QCOMPARE(one.json()["benches"].toArray().size(), 2);  // and the copy
    const CliResult other = runCli({"bench", "--backend", "cuda", "pool", "--quick"}, standIn());
    KVLAB_VERIFY_REFUSAL(other, 2);
    QVERIFY2(other.err.contains("decode_attention"), other.err);
    const CliResult text = runCli({"bench", "--backend", "cuda", "--quick"}, standIn());
    KVLAB_VERIFY_SUCCESS(text);
    QVERIFY(text.out.contains("of copy") && text.out.contains("scattered"));
    KVLAB_VERIFY_REFUSAL(runCli({"bench", "--backend", "cuda"}, kNoPlugin), 1);
    KVLAB_VERIFY_REFUSAL(
        runCli({"bench", "--backend", "cuda", "--cpu-fallback", "--quick"}, standIn()), 2);
    QVERIFY(runCli({"bench", "--help"}).out.contains("decode_attention"));
}

}  // namespace kvlab

QTEST_GUILESS_MAIN(kvlab::BackendTest)
#include "backend_test.moc"
