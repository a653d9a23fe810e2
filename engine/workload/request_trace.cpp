// SPDX-License-Identifier: MIT
#include "engine/workload/request_trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/error.h"
#include "engine/input_file.h"
#include "engine/model/counter_random.h"
#include "engine/model/utf8.h"
#include "engine/text_format.h"

namespace kvlab {

namespace {

using nlohmann::json;

// --- reading
// --------------------------------------------------------------------------------------

constexpr const char* kExampleLine = R"({"arrival_ms": 0, "prompt": "Once", "max_tokens": 8})";

[[noreturn]] void refuse(const std::string& what) { throw EngineError(ErrorKind::kBadFile, what); }

[[noreturn]] void refuseField(const char* key, const std::string& what) {
    refuse(std::string("\"") + key + "\" " + what);
}

int64_t wholeNumber(const json& value, const char* key, int64_t low, int64_t high) {
    const std::string wanted =
        "is not a whole number from " + formatCount(low) + " to " + formatCount(high);
    if (!value.is_number_integer()) refuseField(key, wanted);
    if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
        refuseField(key, wanted);
    }
    const int64_t number = value.get<int64_t>();
    if (number < low || number > high) refuseField(key, wanted);
    return number;
}

double milliseconds(const json& value, const char* key) {
    // The comparison is false for what is not a number, too.
    if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() <= kMaxRequestMs)) {
        refuseField(key, "is not a number of milliseconds from 0 to 10^12");
    }
    return value.get<double>();
}

void readPromptTokens(const json& value, TraceRequest& request) {
    if (!value.is_array()) {
        request.prompt_num_tokens =
            static_cast<int>(wholeNumber(value, "prompt_tokens", 1, kMaxRequestTokens));
        return;
    }
    if (value.empty()) refuseField("prompt_tokens", "is an empty list; give at least one token id");
    std::vector<TokenId> ids;
    ids.reserve(value.size());
    for (const json& item : value)
        ids.emplace_back(wholeNumber(item, "prompt_tokens", 0, INT32_MAX));
    request.prompt_tokens = std::move(ids);
}

json parseObject(const std::string& line) {
    std::set<std::string> keys;
    std::string repeated;
    bool too_deep = false;
    // Depth 0 is the request, 1 its lists. A discarded value is freed at once, so nested brackets
    // cannot build a tall tree; the parser itself does not recurse.
    const auto filter = [&](int depth, json::parse_event_t event, json& parsed) {
        if (event == json::parse_event_t::key && depth == 1) {
            const std::string& key = parsed.get_ref<const std::string&>();
            if (!keys.insert(key).second && repeated.empty()) repeated = key;
        }
        const bool opens =
            event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
        if (opens && depth > 1) too_deep = true;
        return !too_deep;
    };
    json object = json::parse(line, filter, false);
    if (too_deep) refuse("the line nests deeper than a request does; write one flat object a line");
    if (object.is_discarded())
        refuse(std::string("the line is not JSON; write one object such as ") + kExampleLine);
    if (!object.is_object())
        refuse(std::string("the line is not a JSON object; write one such as ") + kExampleLine);
    if (!repeated.empty())
        refuse("the field " + quotedForMessage(repeated) + " appears twice; give it once");
    return object;
}

TraceRequest parseRequest(const std::string& line) {
    const json object = parseObject(line);
    TraceRequest request;
    bool has_arrival = false;
    bool has_max_tokens = false;
    for (const auto& [key, value] : object.items()) {
        if (key == "arrival_ms") {
            request.arrival_ms = milliseconds(value, "arrival_ms");
            has_arrival = true;
        } else if (key == "prompt") {
            if (!value.is_string()) refuseField("prompt", "is not a text; put it in double quotes");
            request.prompt_text = value.get<std::string>();
        } else if (key == "prompt_tokens") {
            readPromptTokens(value, request);
        } else if (key == "max_tokens") {
            request.max_tokens =
                static_cast<int>(wholeNumber(value, "max_tokens", 1, kMaxRequestTokens));
            has_max_tokens = true;
        } else if (key == "num_samples") {
            request.num_samples =
                static_cast<int>(wholeNumber(value, "num_samples", 1, kMaxRequestSamples));
        } else if (key == "priority") {
            request.priority = static_cast<int>(
                wholeNumber(value, "priority", -kMaxRequestPriority, kMaxRequestPriority));
        } else if (key == "salt") {
            if (!value.is_string() || value.get_ref<const std::string&>().size() > kMaxSaltBytes) {
                refuseField("salt",
                            "is not a text of at most " + std::to_string(kMaxSaltBytes) + " bytes");
            }
            request.salt = value.get<std::string>();
        } else if (key == "cancel_ms") {
            request.cancel_ms = milliseconds(value, "cancel_ms");
        } else {
            refuse("there is no field " + quotedForMessage(key) +
                   "; a request has arrival_ms, prompt or prompt_tokens, max_tokens, num_samples, "
                   "priority, salt and cancel_ms");
        }
    }
    if (!has_arrival) refuse("\"arrival_ms\" is missing; give each request one");
    if (!has_max_tokens) refuse("\"max_tokens\" is missing; give each request one");
    const int prompts = request.prompt_text.has_value() + request.prompt_num_tokens.has_value() +
                        request.prompt_tokens.has_value();
    if (prompts != 1)
        refuse("a request needs either \"prompt\" or \"prompt_tokens\"; give one of them");
    if (request.cancel_ms && *request.cancel_ms < request.arrival_ms) {
        refuse(
            "the request is cancelled before it arrives; cancel_ms counts from the start of the "
            "run, as arrival_ms does");
    }
    return request;
}

// One line without its break; false at the end. Throws before more than a line may hold is kept.
bool readLine(std::istream& in, std::string& line) {
    line.clear();
    std::array<char, 65536> chunk;
    for (;;) {
        in.getline(chunk.data(), chunk.size());
        const auto count = static_cast<size_t>(in.gcount());
        if (in.bad()) refuse("the file cannot be read to its end; check the disk it is on");
        const bool ended = in.eof();
        const bool complete = !in.fail() && !ended;  // gcount() counts the line break then
        line.append(chunk.data(), complete ? count - 1 : count);
        if (line.size() > kMaxRequestLineBytes) {
            refuse("the line has more than " + formatBytes(kMaxRequestLineBytes) +
                   "; make its prompt shorter, or give prompt_tokens as a number, for corpus text");
        }
        if (complete) return true;
        if (ended) return !line.empty();
        in.clear();
    }
}

// --- drawing
// --------------------------------------------------------------------------------------

// Own logarithm and exponential: sums and products of doubles in a fixed order, which IEEE 754
// fixes to the last bit (engine/CMakeLists.txt keeps the compiler from fusing them). Both are
// within a few units of the last place, far below the rounding to tokens and microseconds.

constexpr double kLn2High = 0x1.62e42fefa3800p-1;  // 42 bits of ln 2, so n * kLn2High is exact
constexpr double kLn2Low = 0x1.ef35793c76730p-45;

// x > 0 and finite.
double portableLog(double x) {
    int exponent = 0;
    double mantissa = std::frexp(x, &exponent);  // exact; [0.5, 1)
    if (mantissa < 0.70710678118654752) {
        mantissa *= 2;
        --exponent;
    }
    // ln m = 2 artanh s with s = (m - 1) / (m + 1), |s| < 0.172: 12 terms reach 2^-60.
    const double s = (mantissa - 1) / (mantissa + 1);
    const double square = s * s;
    double sum = 0;
    for (int k = 12; k >= 1; --k) sum = sum * square + 1.0 / (2 * k + 1);
    sum = 2 * s * (1 + sum * square);
    return exponent * kLn2High + (exponent * kLn2Low + sum);
}

// |x| < 700.
double portableExp(double x) {
    const double n = std::floor(x / (kLn2High + kLn2Low) + 0.5);
    const double rest = (x - n * kLn2High) - n * kLn2Low;  // |rest| < 0.35: 16 terms reach 2^-60
    double sum = 1;
    for (int k = 16; k >= 1; --k) sum = 1 + sum * rest / k;
    return std::ldexp(sum, static_cast<int>(n));
}

// Purposes of draws: the streams of the counter.
enum Stream : uint64_t { kGaps = 1, kOnTimes, kOffTimes, kPromptLengths, kOutputLengths };

// Mean 1. The uniform is below 1, so the logarithm is finite.
double exponential(uint64_t seed, Stream stream, int64_t index) {
    return -portableLog(1 - counterUniform(seed, stream, static_cast<uint64_t>(index)));
}

// Standard normal by the polar method (Marsaglia and Bray, SIAM Review 6 (3), 1964): it needs a
// logarithm and a square root, but no cosine. One value of the pair is used.
double normal(uint64_t seed, Stream stream, int64_t index) {
    // An attempt fails with probability 1 - π/4; 128 failures do not happen.
    for (uint64_t attempt = 0; attempt < 128; ++attempt) {
        const uint64_t counter = static_cast<uint64_t>(index) * 256 + attempt * 2;
        const double u = 2 * counterUniform(seed, stream, counter) - 1;
        const double v = 2 * counterUniform(seed, stream, counter + 1) - 1;
        const double square = u * u + v * v;
        if (square > 0 && square < 1) return u * std::sqrt(-2 * portableLog(square) / square);
    }
    return 0;
}

int drawLength(const LengthDistribution& lengths, uint64_t seed, Stream stream, int64_t index) {
    double length = lengths.median;
    if (lengths.sigma > 0) length *= portableExp(lengths.sigma * normal(seed, stream, index));
    return static_cast<int>(std::floor(
        std::clamp(length, static_cast<double>(lengths.low), static_cast<double>(lengths.high)) +
        0.5));
}

[[noreturn]] void refuseOption(const std::string& what) {
    throw EngineError(ErrorKind::kBadArgument, what);
}

void checkLengths(const LengthDistribution& lengths, const std::string& name) {
    if (!(lengths.median >= 1 && lengths.median <= kMaxRequestTokens)) {
        refuseOption("the median " + name + " must be 1 to " + formatCount(kMaxRequestTokens) +
                     " tokens");
    }
    if (!(lengths.sigma >= 0 && lengths.sigma <= 5)) {
        refuseOption("the spread (sigma) of the " + name + " must be 0 to 5");
    }
    if (lengths.low < 1 || lengths.high < lengths.low || lengths.high > kMaxRequestTokens) {
        refuseOption("the bounds of the " + name + " must be 1 to " +
                     formatCount(kMaxRequestTokens) + " tokens, the lower one first");
    }
}

// Arrivals one after the other, in seconds.
class ArrivalClock {
  public:
    explicit ArrivalClock(const RequestTraceOptions& options) : options_(options) {
        if (!options.bursts) return;
        const BurstOptions& bursts = *options.bursts;
        rate_ *= (bursts.mean_on_s + bursts.mean_off_s) / bursts.mean_on_s;
        on_left_ = bursts.mean_on_s * exponential(options.seed, kOnTimes, 0);
    }

    double next() {
        double gap = exponential(options_.seed, kGaps, num_arrivals_++) / rate_;
        if (options_.bursts) {
            // The gap is time in which the source is on; the exponential has no memory, so what is
            // left of it goes on in the next burst.
            while (gap > on_left_) {
                gap -= on_left_;
                now_ += on_left_ + options_.bursts->mean_off_s *
                                       exponential(options_.seed, kOffTimes, num_bursts_);
                ++num_bursts_;
                on_left_ =
                    options_.bursts->mean_on_s * exponential(options_.seed, kOnTimes, num_bursts_);
            }
            on_left_ -= gap;
        }
        now_ += gap;
        return now_;
    }

  private:
    const RequestTraceOptions& options_;
    double rate_ = options_.rate_per_s;
    double now_ = 0;
    double on_left_ = 0;
    int64_t num_arrivals_ = 0;
    int64_t num_bursts_ = 0;
};

}  // namespace

std::vector<TraceRequest> parseRequestTrace(std::istream& in, const std::string& name) {
    std::vector<TraceRequest> requests;
    std::string line;
    int64_t line_number = 0;
    try {
        for (;;) {
            ++line_number;
            if (!readLine(in, line)) break;
            if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
            if (static_cast<int64_t>(requests.size()) == kMaxTraceRequests) {
                refuse("the file has more than " + formatCount(kMaxTraceRequests) +
                       " requests; split it");
            }
            requests.push_back(parseRequest(line));
            if (requests.size() > 1 &&
                requests.back().arrival_ms < requests[requests.size() - 2].arrival_ms) {
                refuse("the request arrives before the one above it; sort the lines by arrival_ms");
            }
        }
    } catch (const EngineError& error) {
        // A field that is not what it must be: the sentence has said what it must be.
        std::string what = error.what();
        if (what.find("; ") == std::string::npos) what += "; correct it";
        refuse(quotedForMessage(name) + ", line " + formatCount(line_number) + ": " + what);
    }
    if (requests.empty()) {
        refuse(quotedForMessage(name) + " holds no request; write one object a line, such as " +
               kExampleLine);
    }
    return requests;
}

std::vector<TraceRequest> readRequestTrace(const std::string& path) {
    checkInputFile(path, "give the path of a request file");
    std::ifstream file(path, std::ios::binary);
    if (!file) refuse(quotedForMessage(path) + " cannot be read; check its permissions");
    return parseRequestTrace(file, path);
}

std::string requestTraceLine(const TraceRequest& request) {
    nlohmann::ordered_json line;
    line["arrival_ms"] = request.arrival_ms;
    if (request.prompt_text) line["prompt"] = *request.prompt_text;
    if (request.prompt_num_tokens) line["prompt_tokens"] = *request.prompt_num_tokens;
    if (request.prompt_tokens) {
        line["prompt_tokens"] = nlohmann::ordered_json::array();
        for (const TokenId& token : *request.prompt_tokens) {
            line["prompt_tokens"].push_back(token.value);
        }
    }
    line["max_tokens"] = request.max_tokens;
    if (request.num_samples != 1) line["num_samples"] = request.num_samples;
    if (request.priority != 0) line["priority"] = request.priority;
    if (!request.salt.empty()) line["salt"] = request.salt;
    if (request.cancel_ms) line["cancel_ms"] = *request.cancel_ms;
    return line.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<TraceRequest> generateRequestTrace(const RequestTraceOptions& options) {
    if (options.num_requests < 1 || options.num_requests > kMaxTraceRequests) {
        refuseOption("a trace has 1 to " + formatCount(kMaxTraceRequests) + " requests");
    }
    if (!(options.rate_per_s >= 1e-3 && options.rate_per_s <= 1e6)) {
        refuseOption("the rate must be 0.001 to 1,000,000 requests a second");
    }
    if (options.bursts) {
        // Bounded ratio: a gap of on-time then spans a bounded number of bursts.
        const auto possible = [](double seconds) { return seconds >= 1e-3 && seconds <= 1e6; };
        if (!possible(options.bursts->mean_on_s) || !possible(options.bursts->mean_off_s)) {
            refuseOption("bursts and pauses must last 0.001 to 1,000,000 seconds on average");
        }
        if (options.rate_per_s * (options.bursts->mean_on_s + options.bursts->mean_off_s) < 1e-2) {
            refuseOption(
                "fewer than one request in 100 bursts; make the bursts or the rate larger");
        }
    }
    checkLengths(options.prompt, "prompt");
    checkLengths(options.output, "output");

    std::vector<TraceRequest> requests(static_cast<size_t>(options.num_requests));
    ArrivalClock clock(options);
    for (int64_t i = 0; i < options.num_requests; ++i) {
        TraceRequest& request = requests[static_cast<size_t>(i)];
        request.arrival_ms = std::floor(clock.next() * 1e6 + 0.5) / 1e3;
        request.prompt_num_tokens = drawLength(options.prompt, options.seed, kPromptLengths, i);
        request.max_tokens = drawLength(options.output, options.seed, kOutputLengths, i);
        if (request.arrival_ms > kMaxRequestMs) {
            refuseOption("the trace lasts longer than 10^12 ms; raise the rate");
        }
    }
    return requests;
}

double meanLength(const LengthDistribution& lengths) {
    // E[clamp(X, a, b)] of a log-normal X: the mass below a sits at a, that above b at b, and
    // between them E[X; X <= x] = exp(μ + σ²/2) Φ((ln x - μ) / σ - σ).
    const double low = lengths.low;
    const double high = lengths.high;
    if (lengths.sigma <= 0) return std::clamp(lengths.median, low, high);
    const double sigma = lengths.sigma;
    const auto phi = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
    const double from = std::log(low / lengths.median) / sigma;
    const double to = std::log(high / lengths.median) / sigma;
    return low * phi(from) +
           lengths.median * std::exp(sigma * sigma / 2) * (phi(to - sigma) - phi(from - sigma)) +
           high * phi(-to);
}

}  // namespace kvlab
