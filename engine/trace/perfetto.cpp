// SPDX-License-Identifier: MIT
#include "engine/trace/perfetto.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "engine/temporary_file.h"

namespace kvlab {

namespace {

using Json = nlohmann::ordered_json;

// The two groups of tracks ("processes" in the format's words).
constexpr int kEngineGroup = 1;
constexpr int kSequenceGroup = 2;
constexpr int kStepTrack = 1;

// A step that took no time (an accounting run, a damaged number) gets this much, so that the order
// stays visible.
constexpr double kShortestStepUs = 1;
constexpr double kLongestStepUs = 1e12;  // keeps sums exact enough whatever a file claims

// Streams {"traceEvents": [...]} to a file.
class EventFile {
  public:
    explicit EventFile(const std::string& path) : file_(path) {}

    void begin(const Json& other_data) {
        put("{\"displayTimeUnit\":\"ms\",\"otherData\":" + text(other_data) +
            ",\"traceEvents\":[\n");
    }

    void event(const Json& event) {
        put((num_events_ > 0 ? ",\n" : "") + text(event));
        ++num_events_;
    }

    int64_t finish() {
        put("\n]}\n");
        file_.write(pending_.data(), pending_.size());
        file_.finish();
        return num_events_;
    }

  private:
    static std::string text(const Json& json) {
        return json.dump(-1, ' ', false, Json::error_handler_t::replace);
    }

    void put(const std::string& bytes) {
        constexpr size_t kManyBytes = 1 << 16;
        pending_ += bytes;
        if (pending_.size() < kManyBytes) return;
        file_.write(pending_.data(), pending_.size());
        pending_.clear();
    }

    TemporaryFile file_;
    std::string pending_;
    int64_t num_events_ = 0;
};

double microseconds(double ms) {
    return std::isfinite(ms) && ms > 0 ? std::min(ms * 1000, kLongestStepUs) : 0;
}

Json slice(const std::string& name, int group, int64_t track, double ts, double dur, Json args) {
    return {{"name", name}, {"ph", "X"},  {"pid", group},           {"tid", track},
            {"ts", ts},     {"dur", dur}, {"args", std::move(args)}};
}

Json instant(const std::string& name, int64_t track, double ts, Json args) {
    return {{"name", name},           {"ph", "i"},    {"s", "t"},
            {"pid", kSequenceGroup},  {"tid", track}, {"ts", ts},
            {"args", std::move(args)}};
}

Json counter(const char* name, double ts, int64_t value) {
    return {{"name", name},
            {"ph", "C"},
            {"pid", kEngineGroup},
            {"ts", ts},
            {"args", {{"value", value}}}};
}

Json label(const char* kind, int group, int64_t track, const std::string& name) {
    return {
        {"name", kind}, {"ph", "M"}, {"pid", group}, {"tid", track}, {"args", {{"name", name}}}};
}

// What the log says about one sequence so far.
struct Track {
    int prompt_len = 0;  // tokens
    RequestId request;
    // Neighbouring steps with the same kind of work, not yet written.
    struct Span {
        bool prefill = false;
        int64_t first_step = 0;
        int64_t last_step = -1;
        int first_position = 0;
        int64_t num_tokens = 0;
        double begin_us = 0;
        double end_us = 0;
    };
    std::optional<Span> span;
};

class Exporter {
  public:
    Exporter(const RunLog& log, EventFile& file) : log_(log), file_(file) {}

    void run() {
        file_.event(label("process_name", kEngineGroup, 0, "engine"));
        file_.event(label("process_name", kSequenceGroup, 0, "sequences"));
        file_.event(label("thread_name", kEngineGroup, kStepTrack, "steps"));
        counters(accountOf(initialState(log_.info().cache)));
        for (int64_t i = 0; i < log_.numSteps(); ++i) {
            exportStep(log_.step(i));
            now_us_ += step_us_;
            counters(log_.accountAfter(i));
        }
        for (auto& [sequence, track] : tracks_) flush(sequence, track);
    }

  private:
    void counters(const PoolAccount& account) {
        file_.event(counter("free blocks", now_us_, account.free_blocks));
        file_.event(counter("active blocks", now_us_, account.active_blocks));
        file_.event(counter("shared blocks", now_us_, account.shared_blocks));
        file_.event(counter("tokens held", now_us_, account.tokens_held));
    }

    void exportStep(const StepTrace& step) {
        step_ = step.step;
        step_us_ = std::max(microseconds(step.stats.total_ms), kShortestStepUs);
        Json entries = Json::object();
        for (const Event& event : step.events) {
            Json& count = entries[eventName(event)];
            count = (count.is_null() ? int64_t{0} : count.get<int64_t>()) + numEntries(event);
        }
        file_.event(slice("step " + std::to_string(step.step), kEngineGroup, kStepTrack, now_us_,
                          step_us_,
                          {{"prefill_tokens", step.stats.num_prefill_tokens},
                           {"decode_tokens", step.stats.num_decode_tokens},
                           {"entries", std::move(entries)}}));
        // Where in the step the two lie is not recorded; they never reach beyond it.
        const double forward_us = std::min(microseconds(step.stats.forward_ms), step_us_);
        const double sample_us =
            std::min(microseconds(step.stats.sample_ms), step_us_ - forward_us);
        if (forward_us > 0) part("forward", now_us_, forward_us);
        if (sample_us > 0) part("sample", now_us_ + forward_us, sample_us);
        for (const Event& event : step.events) exportEvent(event);
    }

    void part(const char* name, double begin_us, double us) {
        file_.event(slice(name, kEngineGroup, kStepTrack, begin_us, us, Json::object()));
    }

    void exportEvent(const Event& event) {
        std::visit(
            Overloaded{
                [&](const SequenceStarted& e) {
                    start(e.sequence, e.request, static_cast<int>(e.prompt.size()), e.sample_idx);
                    mark("started", e.sequence,
                         {{"request", e.request.value}, {"prompt_tokens", e.prompt.size()}});
                },
                [&](const SequencesForked& e) {
                    for (size_t i = 0; i < e.child.size(); ++i) {
                        const Track& parent = tracks_[e.parent[i]];
                        start(e.child[i], parent.request, parent.prompt_len, e.sample_idx[i]);
                        mark("forked", e.child[i], {{"parent", ownerLetter(e.parent[i])}});
                    }
                },
                [&](const TokensWritten& e) {
                    for (size_t i = 0; i < e.sequence.size(); ++i) {
                        write(e.sequence[i], e.first_position[i], e.num_tokens[i]);
                    }
                },
                [&](const SequencesFinished& e) {
                    for (size_t i = 0; i < e.sequence.size(); ++i) {
                        finish(e.sequence[i], finishReasonName(e.reason[i]));
                    }
                },
                // Told by the counters and the entries of the step.
                [](const BlocksAllocated&) {},
                [](const BlocksCopied&) {},
                [](const BlocksReleased&) {},
                [](const BlocksLeftWindow&) {},
                [](const TokensSampled&) {},
                [](const SequencesRemoved&) {},
                // Whatever else happens to sequences is a mark with the event's name on their
                // tracks.
                [&](const auto& e) {
                    if constexpr (requires { std::vector<SequenceId>(e.sequence); }) {
                        const std::set<SequenceId> touched(e.sequence.begin(), e.sequence.end());
                        for (const SequenceId sequence : touched) {
                            if (tracks_.count(sequence) > 0) {
                                mark(eventName(event), sequence, Json::object());
                            }
                        }
                    }
                },
            },
            event);
    }

    void start(SequenceId sequence, RequestId request, int prompt_len, int sample_idx) {
        Track& track = tracks_[sequence];
        track = Track{};
        track.prompt_len = prompt_len;
        track.request = request;
        const int64_t id = trackId(sequence);
        file_.event(label("thread_name", kSequenceGroup, id,
                          ownerLetter(sequence) + " (request " + std::to_string(request.value) +
                              ", sample " + std::to_string(sample_idx) + ")"));
        file_.event({{"name", "thread_sort_index"},
                     {"ph", "M"},
                     {"pid", kSequenceGroup},
                     {"tid", id},
                     {"args", {{"sort_index", id}}}});
    }

    void write(SequenceId sequence, int first_position, int num_tokens) {
        Track& track = tracks_[sequence];
        const bool prefill = first_position < track.prompt_len || num_tokens > 1;
        std::optional<Track::Span>& span = track.span;
        const bool goes_on = span && span->prefill == prefill &&
                             (span->last_step == step_ || span->last_step + 1 == step_);
        if (!goes_on) {
            flush(sequence, track);
            span = Track::Span{prefill, step_, step_, first_position, 0, now_us_, 0};
        }
        span->last_step = step_;
        span->num_tokens += num_tokens;
        span->end_us = now_us_ + step_us_;
    }

    void finish(SequenceId sequence, const std::string& reason) {
        flush(sequence, tracks_[sequence]);
        file_.event(instant("finished", trackId(sequence), now_us_ + step_us_,
                            {{"reason", reason}, {"step", step_}}));
    }

    void mark(const char* name, SequenceId sequence, Json args) {
        args["step"] = step_;
        file_.event(instant(name, trackId(sequence), now_us_, std::move(args)));
    }

    void flush(SequenceId sequence, Track& track) {
        if (!track.span) return;
        const Track::Span& span = *track.span;
        file_.event(slice(span.prefill ? "prefill" : "decode", kSequenceGroup, trackId(sequence),
                          span.begin_us, span.end_us - span.begin_us,
                          {{"tokens", span.num_tokens},
                           {"first_position", span.first_position},
                           {"first_step", span.first_step},
                           {"last_step", span.last_step}}));
        track.span.reset();
    }

    // Track 0 of a group is the group itself in some viewers.
    static int64_t trackId(SequenceId sequence) { return int64_t{sequence.value} + 1; }

    const RunLog& log_;
    EventFile& file_;
    std::map<SequenceId, Track> tracks_;
    int64_t step_ = 0;
    double now_us_ = 0;   // start of the step
    double step_us_ = 0;  // its length
};

}  // namespace

int64_t writePerfettoTrace(const RunLog& log, const std::string& path) {
    const RunInfo& info = log.info();
    EventFile file(path);
    file.begin({{"title", info.title},
                {"model", info.model.name},
                {"backend", info.backend},
                {"device", info.device},
                {"build", info.build},
                {"block_size", info.cache.block_size},
                {"num_blocks", info.cache.num_blocks}});
    Exporter(log, file).run();
    return file.finish();
}

}  // namespace kvlab
