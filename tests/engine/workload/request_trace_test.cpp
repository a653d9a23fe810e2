// SPDX-License-Identifier: MIT
#include "engine/workload/request_trace.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include <QTemporaryDir>
#include <QTest>

#include "engine/error.h"

using namespace kvlab;

namespace {

std::vector<TraceRequest> parsed(const std::string& text) {
    std::istringstream in(text);
    return parseRequestTrace(in, "requests.jsonl");
}

// The sentence with which a file is refused; "" when it is not.
std::string refusalOf(const std::string& text) {
    try {
        parsed(text);
        return "";
    } catch (const EngineError& error) {
        return error.kind() == ErrorKind::kBadFile ? error.what() : "another kind of error";
    }
}

const std::string kGood = R"({"arrival_ms": 1, "prompt_tokens": 9, "max_tokens": 2})";

std::vector<double> gapsOf(const std::vector<TraceRequest>& requests) {  // seconds
    std::vector<double> gaps;
    double before = 0;
    for (const TraceRequest& request : requests) {
        gaps.push_back((request.arrival_ms - before) / 1e3);
        before = request.arrival_ms;
    }
    return gaps;
}

struct Moments {
    double mean = 0;
    double variance = 0;
};

Moments momentsOf(const std::vector<double>& values) {
    Moments moments;
    for (const double value : values) moments.mean += value / static_cast<double>(values.size());
    for (const double value : values) {
        moments.variance += (value - moments.mean) * (value - moments.mean) /
                            static_cast<double>(values.size() - 1);
    }
    return moments;
}

// Largest distance between the values' own distribution and `cdf` (Kolmogorov and Smirnov), times
// the square root of their number: above 1.95 once in a thousand samples.
template <class Cdf>
double kolmogorov(std::vector<double> values, const Cdf& cdf) {
    std::sort(values.begin(), values.end());
    const double n = static_cast<double>(values.size());
    double largest = 0;
    for (size_t i = 0; i < values.size(); ++i) {
        const double p = cdf(values[i]);
        largest =
            std::max({largest, p - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - p});
    }
    return largest * std::sqrt(n);
}

double near(double measured, double expected) { return std::abs(measured / expected - 1); }

}  // namespace

class RequestTraceTest : public QObject {
    Q_OBJECT

  private slots:
    void everyFieldIsRead() {
        const std::vector<TraceRequest> requests = parsed(
            R"({"arrival_ms": 0, "prompt": "The br\u00e4ss key", "max_tokens": 64})"
            "\r\n\n  \t\n"
            R"({"cancel_ms": 900, "arrival_ms": 12.5, "prompt_tokens": 1020, "max_tokens": 1,)"
            " \"priority\": -3, \"num_samples\": 4096, \"salt\": \"tenant-7\"}"
            "\n"
            R"({"arrival_ms": 12.5, "prompt_tokens": [1, 2147483647, 0], "max_tokens": 1000000})");
        QCOMPARE(requests.size(), size_t{3});
        TraceRequest first;
        first.prompt_text = "The br\xC3\xA4ss key";
        first.max_tokens = 64;
        QVERIFY(requests[0] == first);
        TraceRequest second;
        second.arrival_ms = 12.5;
        second.prompt_num_tokens = 1020;
        second.max_tokens = 1;
        second.priority = -3;
        second.num_samples = 4096;
        second.salt = "tenant-7";
        second.cancel_ms = 900;
        QVERIFY(requests[1] == second);
        TraceRequest third;
        third.arrival_ms = 12.5;
        third.prompt_tokens = {TokenId(1), TokenId(2147483647), TokenId(0)};
        third.max_tokens = 1'000'000;
        QVERIFY(requests[2] == third);

        std::string again;
        for (const TraceRequest& request : requests) again += requestTraceLine(request) + "\n";
        QVERIFY(parsed(again) == requests);
    }

    void aFileIsReadAsItsText() {
        QTemporaryDir folder;
        const std::string path = folder.filePath("requests.jsonl").toStdString();
        std::ofstream(path) << kGood << "\n";
        QVERIFY(readRequestTrace(path) == parsed(kGood));
        for (const std::string& other : {folder.path().toStdString(), path + ".missing"}) {
            try {
                readRequestTrace(other);
                QFAIL("read what is no file");
            } catch (const EngineError& error) {
                QVERIFY(error.kind() == ErrorKind::kBadFile);
            }
        }
    }

    void hostileLinesAreRefused_data() {
        QTest::addColumn<QByteArray>("line");
        QTest::addColumn<QByteArray>("complaint");
        const auto add = [](const char* name, const QByteArray& line, const char* complaint) {
            QTest::newRow(name) << line << QByteArray(complaint);
        };
        const auto fields = [](const QByteArray& more) {
            return "{\"arrival_ms\":1,\"prompt_tokens\":9,\"max_tokens\":2," + more + "}";
        };
        add("text", "once upon a time", "not JSON");
        add("cut off", "{\"arrival_ms\": 1, \"prompt_to", "not JSON");
        add("two objects", "{} {}", "not JSON");
        add("invalid UTF-8", fields("\"salt\":\"\xff\""), "not JSON");
        add("zero byte", QByteArray("{\"arrival_ms\": 1\0}", 18), "not JSON");
        add("a list", "[1]", "not a JSON object");
        add("a number", "17", "not a JSON object");
        add("brackets", QByteArray(200'000, '['), "nests deeper");
        add("closed brackets", QByteArray(90'000, '[') + QByteArray(90'000, ']'), "nests deeper");
        add("braces", QByteArray("{\"a\":").repeated(50'000), "nests deeper");
        add("unknown field", fields(R"("max_token":3)"), "no field \"max_token\"");
        add("repeated field", fields(R"("max_tokens":3)"), "\"max_tokens\" appears twice");
        add("no arrival", R"({"prompt_tokens":9,"max_tokens":2})", "\"arrival_ms\" is missing");
        add("no length", R"({"arrival_ms":1,"prompt_tokens":9})", "\"max_tokens\" is missing");
        add("no prompt", R"({"arrival_ms":1,"max_tokens":2})", "needs either");
        add("two prompts", fields(R"("prompt":"a")"), "needs either");
        add("null arrival", R"({"arrival_ms":null})", "\"arrival_ms\" is not a number");
        add("negative arrival", R"({"arrival_ms":-0.1})", "\"arrival_ms\" is not a number");
        add("late arrival", R"({"arrival_ms":1.1e12})", "\"arrival_ms\" is not a number");
        add("endless arrival", R"({"arrival_ms":1e999})", "not JSON");
        add("prompt list", R"({"prompt":[1]})", "\"prompt\" is not a text");
        add("no tokens", R"({"prompt_tokens":0})", "\"prompt_tokens\" is not a whole number");
        add("half a token", R"({"prompt_tokens":1.5})", "\"prompt_tokens\" is not a whole number");
        add("too many", R"({"prompt_tokens":1000001})", "\"prompt_tokens\" is not a whole number");
        add("2^64 - 1", R"({"max_tokens":18446744073709551615})", "\"max_tokens\" is not a whole");
        add("2^70", R"({"max_tokens":1180591620717411303424})", "\"max_tokens\" is not a whole");
        add("empty list", R"({"prompt_tokens":[]})", "is an empty list");
        add("text as id", R"({"prompt_tokens":[1,"2"]})", "\"prompt_tokens\" is not a whole");
        add("negative id", R"({"prompt_tokens":[-1]})", "\"prompt_tokens\" is not a whole");
        add("nested ids", R"({"prompt_tokens":[[1]]})", "nests deeper");
        add("no sampling", R"({"max_tokens":0})", "\"max_tokens\" is not a whole number");
        add("no sample", fields(R"("num_samples":0)"), "\"num_samples\" is not a whole number");
        add("samples", fields(R"("num_samples":4097)"), "\"num_samples\" is not a whole number");
        add("priority", fields(R"("priority":1000001)"), "\"priority\" is not a whole number");
        add("salt number", fields(R"("salt":7)"), "\"salt\" is not a text");
        add("long salt", fields("\"salt\":\"" + QByteArray(257, 's') + "\""), "\"salt\" is not");
        add("early cancel", fields(R"("cancel_ms":0.5)"), "cancelled before it arrives");
        add("earlier", R"({"arrival_ms":0.5,"prompt_tokens":9,"max_tokens":2})", "above it");
        add("long line", "{\"prompt\":\"" + QByteArray(1 << 20, 'a'), "more than 1 MiB");
    }

    void hostileLinesAreRefused() {
        QFETCH(QByteArray, line);
        QFETCH(QByteArray, complaint);
        const std::string refusal =
            refusalOf("\n" + kGood + "\n" + line.toStdString() + "\n" + kGood + "\n");
        QVERIFY2(refusal.find(complaint.toStdString()) != std::string::npos, refusal.c_str());
        QVERIFY2(refusal.find("\"requests.jsonl\", line 3: ") == 0, refusal.c_str());
        QVERIFY2(refusal.find("; ") != std::string::npos, refusal.c_str());  // what to do
        QVERIFY(refusal.find('\n') == std::string::npos && refusal.size() < 300);
    }

    void aFileWithoutRequestsIsRefused() {
        QVERIFY(refusalOf("").find("holds no request") != std::string::npos);
        QVERIFY(refusalOf("\n\r\n  \n").find("holds no request") != std::string::npos);
        QCOMPARE(refusalOf(kGood), std::string());
    }

    void theLongestLineIsRead() {
        std::string line = "{\"arrival_ms\": 1, \"max_tokens\": 2, \"prompt\": \"";
        line += std::string(kMaxRequestLineBytes - line.size() - 2, 'a') + "\"}";
        QCOMPARE(line.size(), kMaxRequestLineBytes);
        QCOMPARE(parsed(line + "\n" + line).size(), size_t{2});
        QVERIFY(refusalOf(line + " ").find("line 1: the line has more than") != std::string::npos);
    }

    // Made by a program of its own (Python, the C library's logarithm) from the description in the
    // header.
    void tracesAreTheSameEverywhere() {
        struct Golden {
            double arrival_ms;
            int prompt_tokens;
            int max_tokens;
        };
        const Golden poisson[] = {{2053.931, 966, 610}, {2543.725, 1098, 125}, {2866.038, 874, 94},
                                  {3351.846, 320, 527}, {3544.162, 149, 384},  {3729.163, 612, 45}};
        const Golden bursts[] = {{513.483, 966, 610}, {635.931, 1098, 125}, {716.509, 874, 94},
                                 {837.962, 320, 527}, {886.041, 149, 384},  {932.291, 612, 45}};
        RequestTraceOptions options;
        options.num_requests = 6;
        options.seed = 7;
        options.rate_per_s = 2;
        const auto compare = [&](const Golden* golden) {
            const std::vector<TraceRequest> requests = generateRequestTrace(options);
            QCOMPARE(requests.size(), size_t{6});
            for (size_t i = 0; i < requests.size(); ++i) {
                TraceRequest expected;
                expected.arrival_ms = golden[i].arrival_ms;
                expected.prompt_num_tokens = golden[i].prompt_tokens;
                expected.max_tokens = golden[i].max_tokens;
                QVERIFY2(requests[i] == expected, requestTraceLine(requests[i]).c_str());
            }
        };
        compare(poisson);
        options.bursts = BurstOptions{5, 15};
        compare(bursts);

        options.num_requests = 10'000;
        const std::vector<TraceRequest> requests = generateRequestTrace(options);
        int64_t prompt_tokens = 0;
        int64_t max_tokens = 0;
        for (const TraceRequest& request : requests) {
            prompt_tokens += *request.prompt_num_tokens;
            max_tokens += request.max_tokens;
        }
        QCOMPARE(requests.back().arrival_ms, 4902138.156);
        QCOMPARE(prompt_tokens, int64_t{15'959'851});
        QCOMPARE(max_tokens, int64_t{2'075'334});
    }

    void longerTracesContinueShorterOnes() {
        RequestTraceOptions options;
        options.bursts = BurstOptions{1, 2};
        options.num_requests = 500;
        const std::vector<TraceRequest> longer = generateRequestTrace(options);
        options.num_requests = 123;
        const std::vector<TraceRequest> shorter = generateRequestTrace(options);
        QVERIFY(std::equal(shorter.begin(), shorter.end(), longer.begin()));
        options.prompt = {50, 0.3, 1, 200};
        const std::vector<TraceRequest> others = generateRequestTrace(options);
        options.seed = 1;
        const std::vector<TraceRequest> seeded = generateRequestTrace(options);
        int num_equal = 0;
        for (size_t i = 0; i < others.size(); ++i) {
            QCOMPARE(others[i].arrival_ms, shorter[i].arrival_ms);
            QCOMPARE(others[i].max_tokens, shorter[i].max_tokens);
            num_equal += seeded[i].arrival_ms == others[i].arrival_ms;
        }
        QCOMPARE(num_equal, 0);
        std::string text;
        for (const TraceRequest& request : longer) text += requestTraceLine(request) + "\n";
        QVERIFY(parsed(text) == longer);
    }

    void poissonArrivalsHaveExponentialGaps() {
        RequestTraceOptions options;
        options.num_requests = 100'000;
        options.rate_per_s = 4;
        options.seed = 11;
        const std::vector<TraceRequest> requests = generateRequestTrace(options);
        const std::vector<double> gaps = gapsOf(requests);
        const Moments moments = momentsOf(gaps);
        // Standard errors: mean 1 / sqrt(n) = 0.32 %, variance sqrt(8 / n) = 0.9 %.
        QVERIFY(near(moments.mean, 1 / 4.0) < 0.01);
        QVERIFY(near(moments.variance, 1 / 16.0) < 0.03);
        QVERIFY(kolmogorov(gaps, [](double x) { return 1 - std::exp(-4 * x); }) < 1.95);
        // Neighbouring gaps are uncorrelated: standard error 0.003.
        double product = 0;
        for (size_t i = 1; i < gaps.size(); ++i) {
            product += (gaps[i] - moments.mean) * (gaps[i - 1] - moments.mean);
        }
        QVERIFY(std::abs(product / static_cast<double>(gaps.size()) / moments.variance) < 0.012);
        // Counts of ten seconds: mean and variance are both 40.
        std::vector<double> counts(2400, 0.0);
        for (const TraceRequest& request : requests) {
            const auto window = static_cast<size_t>(request.arrival_ms / 1e4);
            if (window < counts.size()) ++counts[window];
        }
        const Moments count = momentsOf(counts);
        QVERIFY(near(count.mean, 40) < 0.02);
        QVERIFY(near(count.variance, 40) < 0.12);  // standard error sqrt(2 / 2400) = 2.9 %
    }

    // Kuczura's closed forms, with on-rate r, leaving "on" at rate g and "off" at rate w: gaps have
    // mean (g + w) / (r w), squared coefficient of variation 1 + 2 r g / (g + w)^2.
    void burstsKeepTheRateAndSpreadTheGaps() {
        for (const BurstOptions bursts : {BurstOptions{5, 15}, BurstOptions{0.5, 0.5}}) {
            RequestTraceOptions options;
            options.num_requests = 400'000;
            options.rate_per_s = 10;
            options.seed = 3;
            options.bursts = bursts;
            const Moments moments = momentsOf(gapsOf(generateRequestTrace(options)));
            const double g = 1 / bursts.mean_on_s;
            const double w = 1 / bursts.mean_off_s;
            const double r = 10 * (g + w) / w;
            QVERIFY(near(moments.mean, (g + w) / (r * w)) < 0.05);
            const double spread = moments.variance / (moments.mean * moments.mean);
            const double expected = 1 + 2 * r * g / ((g + w) * (g + w));
            QVERIFY2(near(spread, expected) < 0.08,
                     qPrintable(QStringLiteral("%1, not %2").arg(spread).arg(expected)));
        }
    }

    void lengthsAreLogNormal() {
        RequestTraceOptions options;
        options.num_requests = 100'000;
        options.seed = 5;
        options.prompt = {20'000, 0.5, 1, kMaxRequestTokens};  // the bounds are 6 sigmas away
        options.output = {300, 1, 100, 1000};
        const std::vector<TraceRequest> requests = generateRequestTrace(options);
        std::vector<double> standardised;
        std::vector<double> outputs;
        int num_low = 0;
        int num_high = 0;
        for (const TraceRequest& request : requests) {
            standardised.push_back(std::log(*request.prompt_num_tokens / 20'000.0) / 0.5);
            outputs.push_back(request.max_tokens);
            num_low += request.max_tokens == 100;
            num_high += request.max_tokens == 1000;
        }
        const auto phi = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
        QVERIFY(kolmogorov(standardised, phi) < 1.95);
        const Moments moments = momentsOf(standardised);
        QVERIFY(std::abs(moments.mean) < 0.013);  // four standard errors
        QVERIFY(near(moments.variance, 1) < 0.018);
        // What lies outside the bounds sits on them (with what rounds to them).
        QVERIFY(near(num_low / 1e5, phi(std::log(100.5 / 300))) < 0.04);
        QVERIFY(near(num_high / 1e5, phi(-std::log(999.5 / 300))) < 0.04);
        QVERIFY(near(momentsOf(outputs).mean, meanLength(options.output)) < 0.01);
    }

    void meanLengthIsTheIntegral_data() {
        QTest::addColumn<double>("median");
        QTest::addColumn<double>("sigma");
        QTest::addColumn<int>("low");
        QTest::addColumn<int>("high");
        QTest::newRow("prompt") << 1020.0 << 1.0 << 1 << 8192;
        QTest::newRow("tight") << 300.0 << 1.0 << 100 << 1000;
        QTest::newRow("median outside") << 50.0 << 0.7 << 100 << 1000;
        QTest::newRow("wide") << 10.0 << 3.0 << 1 << 1'000'000;
        QTest::newRow("fixed") << 77.0 << 0.0 << 1 << 100;
        QTest::newRow("fixed outside") << 77.0 << 0.0 << 1 << 50;
    }

    void meanLengthIsTheIntegral() {
        QFETCH(double, median);
        QFETCH(double, sigma);
        QFETCH(int, low);
        QFETCH(int, high);
        // Midpoint rule over the standard normal.
        const double step = 1e-4;
        double sum = 0;
        for (int i = -100'000; i < 100'000; ++i) {
            const double z = (i + 0.5) * step;
            sum += step * std::exp(-z * z / 2) / std::sqrt(2 * M_PI) *
                   std::clamp<double>(median * std::exp(sigma * z), low, high);
        }
        QVERIFY(near(meanLength({median, sigma, low, high}), sum) < 1e-6);
    }

    void impossibleOptionsAreRefused_data() {
        QTest::addColumn<int>("what");
        for (int what = 0; what < 14; ++what) QTest::addRow("%d", what) << what;
    }

    void impossibleOptionsAreRefused() {
        QFETCH(int, what);
        RequestTraceOptions options;
        options.bursts = BurstOptions{};
        generateRequestTrace(options);
        switch (what) {
            case 0:
                options.num_requests = 0;
                break;
            case 1:
                options.num_requests = kMaxTraceRequests + 1;
                break;
            case 2:
                options.rate_per_s = 0;
                break;
            case 3:
                options.rate_per_s = std::nan("");
                break;
            case 4:
                options.rate_per_s = INFINITY;
                break;
            case 5:
                options.bursts->mean_on_s = 0;
                break;
            case 6:
                options.bursts->mean_off_s = -1;
                break;
            case 7:
                options.bursts = BurstOptions{0.001, 0.001};
                break;
            case 8:
                options.prompt.median = 0;
                break;
            case 9:
                options.output.median = std::nan("");
                break;
            case 10:
                options.output.sigma = 5.1;
                break;
            case 11:
                options.prompt.low = 0;
                break;
            case 12:
                options.prompt.high = 0;
                break;
            case 13:
                options.output.high = kMaxRequestTokens + 1;
                break;
        }
        try {
            generateRequestTrace(options);
            QFAIL("made a trace");
        } catch (const EngineError& error) {
            QVERIFY(error.kind() == ErrorKind::kBadArgument);
        }
    }
};

QTEST_GUILESS_MAIN(RequestTraceTest)
#include "request_trace_test.moc"
