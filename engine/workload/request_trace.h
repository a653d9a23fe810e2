// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <vector>

#include "engine/ids.h"

namespace kvlab {

// One request of a workload and the moment it arrives. Exactly one of the three prompt fields is
// set (the names of GenerationRequest in engine/session/generation.h).
struct TraceRequest {
    double arrival_ms = 0;  // since the start of the run
    std::optional<std::string> prompt_text;
    std::optional<int> prompt_num_tokens;  // a prompt of that many tokens, whichever they are
    std::optional<std::vector<TokenId>> prompt_tokens;
    int max_tokens = 0;               // sampled, by each sample
    int num_samples = 1;              // that share the prompt
    int priority = 0;                 // higher goes first
    std::string salt;                 // requests of different salts share no prefix
    std::optional<double> cancel_ms;  // since the start of the run, not of the request
    bool operator==(const TraceRequest&) const = default;
};

// What a request file may hold. A longer one is refused before more than this is kept.
inline constexpr size_t kMaxRequestLineBytes = size_t{1} << 20;
inline constexpr int64_t kMaxTraceRequests = 1'000'000;
inline constexpr int kMaxRequestTokens = 1'000'000;  // prompt, and sampled tokens
inline constexpr int kMaxRequestSamples = 4096;
inline constexpr int kMaxRequestPriority = 1'000'000;
inline constexpr size_t kMaxSaltBytes = 256;
inline constexpr double kMaxRequestMs = 1e12;  // 32 years

// Reads JSON Lines: one object a line, empty lines skipped, in the order of arrival:
//
//   {"arrival_ms": 0, "prompt": "The brass key is", "max_tokens": 64}
//   {"arrival_ms": 12.5, "prompt_tokens": 1020, "max_tokens": 129, "priority": 1, "cancel_ms": 900}
//   {"arrival_ms": 20, "prompt_tokens": [1, 5, 9], "max_tokens": 1, "salt": "tenant-7"}
//   {"arrival_ms": 21, "prompt": "Once", "max_tokens": 40, "num_samples": 8}
//
// arrival_ms, max_tokens and one prompt are required; "prompt_tokens" is a number of tokens or a
// list of ids. Throws EngineError(kBadFile) with one sentence that names file and line: for damage,
// for an unknown or repeated field, for a number out of range, and for a file without a request.
std::vector<TraceRequest> readRequestTrace(const std::string& path);
// `name` stands for the file in messages.
std::vector<TraceRequest> parseRequestTrace(std::istream& in, const std::string& name);

// One line as readRequestTrace() reads it, without its line break.
std::string requestTraceLine(const TraceRequest& request);

// --- generators
// -----------------------------------------------------------------------------------
//
// Every draw is a function of (seed, purpose, index), as in engine/model/counter_random.h: more
// requests continue a shorter trace, other lengths do not move an arrival, and every platform makes
// the same trace (no std:: distributions, whose algorithms the standard leaves open, and no
// logarithm of the C library, whose last bit differs).

// Bursts: requests arrive only while the source is on; it starts on. On and off times are
// exponential (the interrupted Poisson process: Kuczura, Bell System Technical Journal 52 (3),
// 1973). The long-run rate stays rate_per_s, so within bursts it is
// rate_per_s * (mean_on_s + mean_off_s) / mean_on_s.
struct BurstOptions {
    double mean_on_s = 5;  // assumed, as is the next
    double mean_off_s = 15;
};

// Log-normal lengths: median * exp(sigma * standard normal), rounded to a whole number; what falls
// outside the bounds is set to the nearer bound.
struct LengthDistribution {
    double median = 0;  // tokens
    double sigma = 0;   // of the natural logarithm; 0 makes all lengths equal
    int low = 1;        // tokens
    int high = kMaxRequestTokens;
};

struct RequestTraceOptions {
    int64_t num_requests = 100;
    uint64_t seed = 0;
    double rate_per_s = 1;  // requests; gaps are exponential (Poisson arrivals)
    std::optional<BurstOptions> bursts;
    // All assumed; the medians are of the size that Patel et al. ("Splitwise", ISCA 2024) report
    // for a conversation service.
    LengthDistribution prompt{1020, 1.0, 1, 8192};
    LengthDistribution output{129, 1.0, 1, 2048};
};

// Requests with prompt_num_tokens, arrivals rounded to a microsecond. Throws
// EngineError(kBadArgument) naming the option that is out of range.
std::vector<TraceRequest> generateRequestTrace(const RequestTraceOptions& options);

// The mean of a length distribution before rounding, bounds included: for axes and checks.
double meanLength(const LengthDistribution& lengths);

}  // namespace kvlab
