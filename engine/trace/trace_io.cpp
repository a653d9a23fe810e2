// SPDX-License-Identifier: MIT
#include "engine/trace/trace_io.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "engine/error.h"
#include "engine/input_file.h"
#include "engine/model/utf8.h"
#include "engine/sha256.h"
#include "engine/text_format.h"

namespace kvlab {

namespace {

using nlohmann::json;

constexpr int kSchemaVersion = 5;
// What each version did not know yet: README.md.
constexpr int kOldestVersion = 1;
constexpr size_t kSealLength = 16;  // hexadecimal digits of each record's seal
constexpr int64_t kMaxTraceBlocks =
    4'194'304;  // a header may not ask for more memory than this folds to
constexpr size_t kMaxRecordBytes = 64 << 20;  // a prompt of several million tokens
constexpr size_t kMaxNameBytes = 1024;        // title, model, device: they are shown on one line

// Each record is sealed with the SHA-256 of the seal before it and its own text, so that a changed,
// missing or swapped record is found.
std::string sealOf(const std::string& previous, const std::string& record) {
    return sha256Hex(previous + record).substr(0, kSealLength);
}

template <class Tag>
json idsToJson(const std::vector<Id<Tag>>& ids) {
    json array = json::array();
    for (const Id<Tag>& id : ids) array.push_back(id.value);
    return array;
}

[[noreturn]] void refuse(const std::string& what) { throw EngineError(ErrorKind::kBadFile, what); }

const json& field(const json& object, const char* key) {
    const auto found = object.find(key);
    if (found == object.end()) refuse(std::string("field \"") + key + "\" is missing");
    return *found;
}

int64_t intField(const json& value, const char* key, int64_t low, int64_t high) {
    if (!value.is_number_integer())
        refuse(std::string("field \"") + key + "\" is not a whole number");
    if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
        refuse(std::string("field \"") + key + "\" is out of range");
    }
    const int64_t number = value.get<int64_t>();
    if (number < low || number > high) refuse(std::string("field \"") + key + "\" is out of range");
    return number;
}

int64_t getInt(const json& object, const char* key, int64_t low, int64_t high) {
    return intField(field(object, key), key, low, high);
}

double getNumber(const json& object, const char* key) {
    const json& value = field(object, key);
    if (!value.is_number()) refuse(std::string("field \"") + key + "\" is not a number");
    return value.get<double>();
}

std::string getString(const json& object, const char* key) {
    const json& value = field(object, key);
    if (!value.is_string()) refuse(std::string("field \"") + key + "\" is not a text");
    return value.get<std::string>();
}

std::string getName(const json& object, const char* key) {
    std::string name = getString(object, key);
    if (name.size() > kMaxNameBytes) refuse(std::string("field \"") + key + "\" is too long");
    return name;
}

// One record without its line break; false at the end of the file. `complete`: a line break
// followed it. Throws before more than a record may hold is kept.
bool readLine(std::istream& in, std::string& line, bool& complete) {
    line.clear();
    complete = false;
    std::array<char, 65536> chunk;
    for (;;) {
        in.getline(chunk.data(), chunk.size());
        const size_t count = static_cast<size_t>(in.gcount());
        if (in.eof()) {
            line.append(chunk.data(), count);
            return !line.empty();
        }
        if (in.bad()) refuse("the file cannot be read to its end");
        complete = !in.fail();
        line.append(chunk.data(), complete ? count - 1 : count);  // the line break counts as read
        if (complete) return true;
        if (line.size() > kMaxRecordBytes) refuse("a record is too long");
        in.clear();
    }
}

std::vector<int> getInts(const json& object, const char* key, int64_t low = 0) {
    const json& value = field(object, key);
    if (!value.is_array()) refuse(std::string("field \"") + key + "\" is not a list");
    std::vector<int> numbers;
    numbers.reserve(value.size());
    for (const json& item : value) {
        numbers.push_back(static_cast<int>(intField(item, key, low, INT32_MAX)));
    }
    return numbers;
}

template <class IdType>
std::vector<IdType> getIds(const json& object, const char* key, int64_t low = 0) {
    std::vector<IdType> ids;
    for (const int number : getInts(object, key, low)) ids.push_back(IdType(number));
    return ids;
}

std::vector<int64_t> getCounts(const json& object, const char* key) {
    const json& value = field(object, key);
    if (!value.is_array()) refuse(std::string("field \"") + key + "\" is not a list");
    std::vector<int64_t> numbers;
    for (const json& item : value) numbers.push_back(intField(item, key, 0, INT64_MAX));
    return numbers;
}

// Names instead of numbers, so that a trace reads without this list.
template <class Enum>
json namesToJson(const std::vector<Enum>& values, const char* (*name)(Enum)) {
    json array = json::array();
    for (const Enum value : values) array.push_back(name(value));
    return array;
}

template <class Enum>
Enum valueOf(const json& value, const char* key, Enum last, const char* (*name)(Enum)) {
    for (int i = 0; i <= static_cast<int>(last); ++i) {
        const Enum candidate = static_cast<Enum>(i);
        if (value.is_string() && value.get_ref<const std::string&>() == name(candidate)) {
            return candidate;
        }
    }
    refuse(std::string("field \"") + key + "\" has an unknown name");
}

template <class Enum>
std::vector<Enum> getNames(const json& object,
                           const char* key,
                           Enum last,
                           const char* (*name)(Enum)) {
    const json& value = field(object, key);
    if (!value.is_array()) refuse(std::string("field \"") + key + "\" is not a list");
    std::vector<Enum> values;
    for (const json& item : value) values.push_back(valueOf(item, key, last, name));
    return values;
}

template <class First, class... Rest>
void requireEqualLength(const First& first, const Rest&... rest) {
    if (first.empty()) refuse("an event has no entries");
    if (((rest.size() != first.size()) || ...)) refuse("the lists of an event differ in length");
}

json eventToJson(const Event& event) {
    json object;
    object["event"] = eventName(event);
    std::visit(Overloaded{
                   [&](const SequenceStarted& e) {
                       object["sequence"] = e.sequence.value;
                       object["request"] = e.request.value;
                       object["sample"] = e.sample_idx;
                       object["prompt"] = idsToJson(e.prompt);
                   },
                   [&](const SequencesForked& e) {
                       object["parent"] = idsToJson(e.parent);
                       object["child"] = idsToJson(e.child);
                       object["sample"] = e.sample_idx;
                   },
                   [&](const BlocksAllocated& e) {
                       object["sequence"] = idsToJson(e.sequence);
                       object["block_idx"] = e.block_idx;
                       object["block"] = idsToJson(e.block);
                   },
                   [&](const BlocksCopied& e) {
                       object["sequence"] = idsToJson(e.sequence);
                       object["block_idx"] = e.block_idx;
                       object["source"] = idsToJson(e.source);
                       object["target"] = idsToJson(e.target);
                       object["num_slots"] = e.num_slots;
                   },
                   [&](const TokensWritten& e) {
                       object["sequence"] = idsToJson(e.sequence);
                       object["first_position"] = e.first_position;
                       object["num_tokens"] = e.num_tokens;
                   },
                   [&](const TokensSampled& e) {
                       object["sequence"] = idsToJson(e.sequence);
                       object["token"] = idsToJson(e.token);
                       object["log_probability"] = e.log_probability;
                   },
                   [&](const SequencesFinished& e) {
                       object["sequence"] = idsToJson(e.sequence);
                       object["reason"] = namesToJson(e.reason, finishReasonName);
                   },
                   [&](const BlocksReleased& e) {
                       object["sequence"] = idsToJson(e.sequence);
                       object["block_idx"] = e.block_idx;
                       object["block"] = idsToJson(e.block);
                   },
                   [&](const SequencesRemoved& e) { object["sequence"] = idsToJson(e.sequence); },
                   [&](const RequestsArrived& e) {
                       object["request"] = idsToJson(e.request);
                       object["priority"] = e.priority;
                       object["prompt_len"] = e.prompt_len;
                       object["num_samples"] = e.num_samples;
                       object["max_tokens"] = e.max_tokens;
                   },
                   [&](const RequestsWithdrawn& e) { object["request"] = idsToJson(e.request); },
                   [&](const DecisionsMade& e) {
                       object["kind"] = namesToJson(e.kind, decisionKindName);
                       object["reason"] = namesToJson(e.reason, decisionReasonName);
                       object["request"] = idsToJson(e.request);
                       object["sequence"] = idsToJson(e.sequence);
                       object["blocks_needed"] = e.blocks_needed;
                       object["blocks_free"] = e.blocks_free;
                       object["watermark"] = e.watermark;
                       object["priority"] = e.priority;
                       object["tokens_needed"] = e.tokens_needed;
                       object["tokens_free"] = e.tokens_free;
                       object["head"] = idsToJson(e.head);
                   },
                   [&](const TokensCopied& e) {
                       object["source"] = idsToJson(e.source);
                       object["target"] = idsToJson(e.target);
                       object["num_tokens"] = e.num_tokens;
                   },
                   [&](const SequencesPreempted& e) {
                       object["sequence"] = idsToJson(e.sequence);
                       object["kind"] = namesToJson(e.kind, preemptionKindName);
                   },
                   [&](const BlocksSwappedOut& e) {
                       object["block_idx"] = e.block_idx;
                       object["block"] = idsToJson(e.block);
                       object["host_block"] = idsToJson(e.host_block);
                   },
                   [&](const BlocksSwappedIn& e) {
                       object["block_idx"] = e.block_idx;
                       object["host_block"] = idsToJson(e.host_block);
                       object["block"] = idsToJson(e.block);
                   },
                   [&](const SequencesResumed& e) { object["sequence"] = idsToJson(e.sequence); },
                   [&](const HostBlocksReleased& e) {
                       object["sequence"] = idsToJson(e.sequence);
                       object["block_idx"] = e.block_idx;
                       object["host_block"] = idsToJson(e.host_block);
                   },
                   [&](const BlocksLeftWindow& e) {
                       object["sequence"] = idsToJson(e.sequence);
                       object["block_idx"] = e.block_idx;
                       object["block"] = idsToJson(e.block);
                   },
               },
               event);
    return object;
}

Event eventFromJson(const json& object, int64_t version) {
    if (!object.is_object()) refuse("an event is not an object");
    const std::string name = getString(object, "event");
    if (name == "sequence_started") {
        return SequenceStarted{SequenceId(getInt(object, "sequence", 0, INT32_MAX)),
                               RequestId(getInt(object, "request", 0, INT32_MAX)),
                               static_cast<int>(getInt(object, "sample", 0, INT32_MAX)),
                               getIds<TokenId>(object, "prompt")};
    }
    if (name == "sequences_forked") {
        SequencesForked e{getIds<SequenceId>(object, "parent"), getIds<SequenceId>(object, "child"),
                          getInts(object, "sample")};
        requireEqualLength(e.parent, e.child, e.sample_idx);
        return e;
    }
    if (name == "blocks_allocated") {
        BlocksAllocated e{getIds<SequenceId>(object, "sequence"), getInts(object, "block_idx"),
                          getIds<BlockId>(object, "block")};
        requireEqualLength(e.sequence, e.block_idx, e.block);
        return e;
    }
    if (name == "blocks_copied") {
        BlocksCopied e{getIds<SequenceId>(object, "sequence"), getInts(object, "block_idx"),
                       getIds<BlockId>(object, "source"), getIds<BlockId>(object, "target"),
                       getInts(object, "num_slots")};
        requireEqualLength(e.sequence, e.block_idx, e.source, e.target, e.num_slots);
        return e;
    }
    if (name == "tokens_written") {
        TokensWritten e{getIds<SequenceId>(object, "sequence"), getInts(object, "first_position"),
                        getInts(object, "num_tokens", 1)};
        requireEqualLength(e.sequence, e.first_position, e.num_tokens);
        return e;
    }
    if (name == "tokens_sampled") {
        TokensSampled e{
            getIds<SequenceId>(object, "sequence"), getIds<TokenId>(object, "token"), {}};
        const json& values = field(object, "log_probability");
        if (!values.is_array()) refuse("field \"log_probability\" is not a list");
        for (const json& value : values) {
            if (!value.is_number()) refuse("field \"log_probability\" is not a list of numbers");
            e.log_probability.push_back(value.get<float>());
        }
        requireEqualLength(e.sequence, e.token, e.log_probability);
        return e;
    }
    if (name == "sequences_finished") {
        SequencesFinished e{getIds<SequenceId>(object, "sequence"),
                            getNames(object, "reason", FinishReason::kPruned, finishReasonName)};
        requireEqualLength(e.sequence, e.reason);
        return e;
    }
    if (name == "blocks_released") {
        BlocksReleased e{getIds<SequenceId>(object, "sequence"), getInts(object, "block_idx"),
                         getIds<BlockId>(object, "block")};
        requireEqualLength(e.sequence, e.block_idx, e.block);
        return e;
    }
    if (name == "sequences_removed") {
        SequencesRemoved e{getIds<SequenceId>(object, "sequence")};
        requireEqualLength(e.sequence);
        return e;
    }
    if (name == "requests_arrived") {
        RequestsArrived e{getIds<RequestId>(object, "request"),
                          getInts(object, "priority", INT32_MIN), getInts(object, "prompt_len"),
                          getInts(object, "num_samples"), getInts(object, "max_tokens")};
        requireEqualLength(e.request, e.priority, e.prompt_len, e.num_samples, e.max_tokens);
        return e;
    }
    if (name == "requests_withdrawn") {
        RequestsWithdrawn e{getIds<RequestId>(object, "request")};
        requireEqualLength(e.request);
        return e;
    }
    if (name == "decisions_made") {
        DecisionsMade e;
        e.kind = getNames(object, "kind", DecisionKind::kDropped, decisionKindName);
        e.reason = getNames(object, "reason", DecisionReason::kUnknownToken, decisionReasonName);
        e.request = getIds<RequestId>(object, "request");
        e.sequence = getIds<SequenceId>(object, "sequence", -1);
        e.blocks_needed = getCounts(object, "blocks_needed");
        e.blocks_free = getCounts(object, "blocks_free");
        e.watermark = getCounts(object, "watermark");
        e.priority = getInts(object, "priority", INT32_MIN);
        if (version >= 4) {
            e.tokens_needed = getCounts(object, "tokens_needed");
            e.tokens_free = getCounts(object, "tokens_free");
            e.head = getIds<RequestId>(object, "head", -1);
        } else {
            e.tokens_needed.resize(e.kind.size());
            e.tokens_free.resize(e.kind.size());
            e.head.resize(e.kind.size());
        }
        requireEqualLength(e.kind, e.reason, e.request, e.sequence, e.blocks_needed, e.blocks_free,
                           e.watermark, e.priority, e.tokens_needed, e.tokens_free, e.head);
        return e;
    }
    if (name == "tokens_copied") {
        TokensCopied e{getIds<SequenceId>(object, "source"), getIds<SequenceId>(object, "target"),
                       getInts(object, "num_tokens", 1)};
        requireEqualLength(e.source, e.target, e.num_tokens);
        return e;
    }
    if (name == "sequences_preempted") {
        SequencesPreempted e{getIds<SequenceId>(object, "sequence"),
                             getNames(object, "kind", PreemptionKind::kSwap, preemptionKindName)};
        requireEqualLength(e.sequence, e.kind);
        return e;
    }
    if (name == "blocks_swapped_out") {
        BlocksSwappedOut e{getInts(object, "block_idx"), getIds<BlockId>(object, "block"),
                           getIds<HostBlockId>(object, "host_block")};
        requireEqualLength(e.block_idx, e.block, e.host_block);
        return e;
    }
    if (name == "blocks_swapped_in") {
        BlocksSwappedIn e{getInts(object, "block_idx"), getIds<HostBlockId>(object, "host_block"),
                          getIds<BlockId>(object, "block")};
        requireEqualLength(e.block_idx, e.host_block, e.block);
        return e;
    }
    if (name == "sequences_resumed") {
        SequencesResumed e{getIds<SequenceId>(object, "sequence")};
        requireEqualLength(e.sequence);
        return e;
    }
    if (name == "host_blocks_released") {
        HostBlocksReleased e{getIds<SequenceId>(object, "sequence"), getInts(object, "block_idx"),
                             getIds<HostBlockId>(object, "host_block")};
        requireEqualLength(e.sequence, e.block_idx, e.host_block);
        return e;
    }
    if (name == "blocks_left_window") {
        BlocksLeftWindow e{getIds<SequenceId>(object, "sequence"), getInts(object, "block_idx"),
                           getIds<BlockId>(object, "block")};
        requireEqualLength(e.sequence, e.block_idx, e.block);
        return e;
    }
    refuse("unknown event \"" + name.substr(0, 40) + "\"");
}

json stepToJson(const StepTrace& step) {
    json object;
    object["step"] = step.step;
    json events = json::array();
    for (const Event& event : step.events) events.push_back(eventToJson(event));
    object["events"] = std::move(events);
    if (!step.new_pieces.empty()) {
        // A piece may be part of a UTF-8 character, which JSON cannot hold: bytes as numbers then.
        json pieces = json::array();
        for (const auto& [token, text] : step.new_pieces) {
            json piece = text;
            if (!isValidUtf8(text)) {
                piece = json::array();
                for (const char c : text) piece.push_back(static_cast<unsigned char>(c));
            }
            pieces.push_back(json::array({token.value, std::move(piece)}));
        }
        object["pieces"] = std::move(pieces);
    }
    object["prefill_tokens"] = step.stats.num_prefill_tokens;
    object["decode_tokens"] = step.stats.num_decode_tokens;
    object["forward_ms"] = step.stats.forward_ms;
    object["sample_ms"] = step.stats.sample_ms;
    object["total_ms"] = step.stats.total_ms;
    object["attention_ms"] = step.stats.attention_ms;
    object["matmul_ms"] = step.stats.matmul_ms;
    object["copy_ms"] = step.stats.copy_ms;
    object["recomputed_tokens"] = step.stats.num_recomputed_tokens;
    object["running"] = step.stats.num_running;
    object["waiting"] = step.stats.num_waiting;
    object["attention_bytes"] = step.stats.attention_bytes;
    object["attention_bytes_repeated"] = step.stats.attention_bytes_repeated;
    return object;
}

StepTrace stepFromJson(const json& object, int64_t version) {
    StepTrace step;
    step.step = getInt(object, "step", 0, INT64_MAX);
    const json& events = field(object, "events");
    if (!events.is_array()) refuse("field \"events\" is not a list");
    for (const json& event : events) step.events.push_back(eventFromJson(event, version));
    if (const auto pieces = object.find("pieces"); pieces != object.end()) {
        if (!pieces->is_array()) refuse("field \"pieces\" is not a list");
        for (const json& pair : *pieces) {
            if (!pair.is_array() || pair.size() != 2) refuse("a piece is not a pair");
            const TokenId token(intField(pair[0], "pieces", 0, INT32_MAX));
            std::string text;
            if (pair[1].is_string()) {
                text = pair[1].get<std::string>();
            } else if (pair[1].is_array()) {
                for (const json& byte : pair[1]) {
                    text += static_cast<char>(intField(byte, "pieces", 0, 255));
                }
            } else {
                refuse("a piece is neither text nor bytes");
            }
            step.new_pieces.emplace_back(token, std::move(text));
        }
    }
    step.stats.num_prefill_tokens =
        static_cast<int>(getInt(object, "prefill_tokens", 0, INT32_MAX));
    step.stats.num_decode_tokens = static_cast<int>(getInt(object, "decode_tokens", 0, INT32_MAX));
    step.stats.forward_ms = getNumber(object, "forward_ms");
    step.stats.sample_ms = getNumber(object, "sample_ms");
    step.stats.total_ms = getNumber(object, "total_ms");
    if (version < 2) return step;
    step.stats.attention_ms = getNumber(object, "attention_ms");
    step.stats.matmul_ms = getNumber(object, "matmul_ms");
    step.stats.copy_ms = getNumber(object, "copy_ms");
    step.stats.num_recomputed_tokens =
        static_cast<int>(getInt(object, "recomputed_tokens", 0, INT32_MAX));
    step.stats.num_running = static_cast<int>(getInt(object, "running", 0, INT32_MAX));
    step.stats.num_waiting = static_cast<int>(getInt(object, "waiting", 0, INT32_MAX));
    step.stats.attention_bytes = getInt(object, "attention_bytes", 0, INT64_MAX);
    step.stats.attention_bytes_repeated = getInt(object, "attention_bytes_repeated", 0, INT64_MAX);
    return step;
}

json infoToJson(const RunInfo& info) {
    return json{{"kvlab_trace", kSchemaVersion},
                {"build", info.build},
                {"title", info.title},
                {"backend", info.backend},
                {"device", info.device},
                {"model",
                 {{"name", info.model.name},
                  {"architecture", info.model.architecture},
                  {"sha256", info.model_sha256},
                  {"num_layers", info.model.num_layers},
                  {"num_heads", info.model.num_heads},
                  {"num_kv_heads", info.model.num_kv_heads},
                  {"head_dim", info.model.head_dim},
                  {"rope_dim", info.model.rope_dim},
                  {"embedding_dim", info.model.embedding_dim},
                  {"feed_forward_dim", info.model.feed_forward_dim},
                  {"vocab_size", info.model.vocab_size},
                  {"context_len", info.model.context_len},
                  {"rope_base", info.model.rope_base},
                  {"rms_epsilon", info.model.rms_epsilon}}},
                {"cache",
                 {{"block_size", info.cache.block_size},
                  {"num_blocks", info.cache.num_blocks},
                  {"num_host_blocks", info.cache.num_host_blocks},
                  {"layout", cacheLayoutName(info.cache.layout)},
                  {"max_len", info.cache.max_len},
                  {"slab_per_request", info.cache.slab_per_request},
                  {"window", info.cache.window},
                  {"kv_dtype", dataTypeName(info.cache.kv_dtype)}}},
                {"sampling",
                 {{"temperature", info.sampling.temperature},
                  {"top_k", info.sampling.top_k},
                  {"top_p", info.sampling.top_p},
                  {"seed", info.sampling.seed},
                  {"num_samples", info.num_samples},
                  {"max_tokens", info.max_tokens}}}};
}

int64_t versionOf(const json& object) {
    if (!object.is_object() || !object.contains("kvlab_trace"))
        refuse("this is not a KV Lab trace");
    const int64_t version = getInt(object, "kvlab_trace", 1, INT32_MAX);
    if (version < kOldestVersion || version > kSchemaVersion) {
        refuse("the trace has schema version " + std::to_string(version) +
               ", this lab reads versions " + std::to_string(kOldestVersion) + " to " +
               std::to_string(kSchemaVersion));
    }
    return version;
}

RunInfo infoFromJson(const json& object, int64_t version) {
    RunInfo info;
    info.build = getName(object, "build");
    info.title = getName(object, "title");
    info.backend = getName(object, "backend");
    info.device = getName(object, "device");
    const json& model = field(object, "model");
    if (!model.is_object()) refuse("field \"model\" is not an object");
    info.model.name = getName(model, "name");
    info.model.architecture = getName(model, "architecture");
    info.model_sha256 = getName(model, "sha256");
    const auto size = [&](const char* key) {
        return static_cast<int>(getInt(model, key, 0, 1 << 24));
    };
    info.model.num_layers = size("num_layers");
    info.model.num_heads = size("num_heads");
    info.model.num_kv_heads = size("num_kv_heads");
    info.model.head_dim = size("head_dim");
    info.model.rope_dim = size("rope_dim");
    info.model.embedding_dim = size("embedding_dim");
    info.model.feed_forward_dim = size("feed_forward_dim");
    info.model.vocab_size = size("vocab_size");
    info.model.context_len = static_cast<int>(getInt(model, "context_len", 0, INT32_MAX));
    info.model.rope_base = static_cast<float>(getNumber(model, "rope_base"));
    info.model.rms_epsilon = static_cast<float>(getNumber(model, "rms_epsilon"));
    const json& cache = field(object, "cache");
    if (!cache.is_object()) refuse("field \"cache\" is not an object");
    info.cache.block_size = static_cast<int>(getInt(cache, "block_size", 1, 256));
    info.cache.num_blocks = static_cast<int>(getInt(cache, "num_blocks", 1, kMaxTraceBlocks));
    if (version >= 2) {
        info.cache.num_host_blocks =
            static_cast<int>(getInt(cache, "num_host_blocks", 0, kMaxTraceBlocks));
        info.cache.layout =
            valueOf(field(cache, "layout"), "layout", CacheLayout::kSlab, cacheLayoutName);
        info.cache.max_len = static_cast<int>(getInt(cache, "max_len", 0, INT32_MAX));
    }
    if (version >= 3) {
        info.cache.window = static_cast<int>(getInt(cache, "window", 0, INT32_MAX));
    }
    if (version >= 5) {
        const json& per_request = field(cache, "slab_per_request");
        if (!per_request.is_boolean()) refuse("field \"slab_per_request\" is not true or false");
        info.cache.slab_per_request = per_request.get<bool>();
    }
    const std::string dtype_name = getString(cache, "kv_dtype");
    const auto dtype = dataTypeFromName(dtype_name);
    if (!dtype) refuse("unknown KV type \"" + dtype_name.substr(0, 20) + "\"");
    info.cache.kv_dtype = *dtype;
    const json& sampling = field(object, "sampling");
    if (!sampling.is_object()) refuse("field \"sampling\" is not an object");
    info.sampling.temperature = static_cast<float>(getNumber(sampling, "temperature"));
    info.sampling.top_k = static_cast<int>(getInt(sampling, "top_k", 0, INT32_MAX));
    info.sampling.top_p = static_cast<float>(getNumber(sampling, "top_p"));
    const json& seed = field(sampling, "seed");
    if (!seed.is_number_integer()) refuse("field \"seed\" is not a whole number");
    info.sampling.seed = seed.get<uint64_t>();
    info.num_samples = static_cast<int>(getInt(sampling, "num_samples", 1, INT32_MAX));
    info.max_tokens = static_cast<int>(getInt(sampling, "max_tokens", 0, INT32_MAX));
    return info;
}

}  // namespace

namespace {

// A named pipe that nobody reads is an error: opening it must not wait for a reader.
std::FILE* openToWrite(const std::string& path) {
    const int fd =
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0) return nullptr;
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags >= 0) ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    std::FILE* const file = ::fdopen(fd, "wb");
    if (file == nullptr) ::close(fd);
    return file;
}

}  // namespace

// The file is not written beside and renamed: it must be readable while the run goes on. Its end
// record tells a whole trace from one that was cut off.
struct TraceWriter::Impl {
    std::string path;
    std::FILE* file = nullptr;
    std::string seal;

    ~Impl() {
        if (file != nullptr) std::fclose(file);
    }

    void write(const json& record) {
        // Texts from model files may hold bytes that are no UTF-8; they are replaced, not refused.
        const std::string text = record.dump(-1, ' ', false, json::error_handler_t::replace);
        seal = sealOf(seal, text);
        const std::string line = seal + " " + text + "\n";
        if (std::fwrite(line.data(), 1, line.size(), file) != line.size() ||
            std::fflush(file) != 0) {
            throw EngineError(ErrorKind::kBadFile,
                              "the trace " + quotedForMessage(path) + " could not be written (" +
                                  std::strerror(errno) +
                                  "); free some disk space or choose another place");
        }
    }
};

TraceWriter::TraceWriter(const std::string& path, const RunInfo& info)
    : impl_(std::make_unique<Impl>()) {
    for (const int64_t blocks :
         {int64_t{info.cache.num_blocks}, int64_t{info.cache.num_host_blocks}}) {
        if (blocks <= kMaxTraceBlocks) continue;
        throw EngineError(ErrorKind::kBadArgument,
                          "a trace keeps pools of at most " + formatCount(kMaxTraceBlocks) +
                              " blocks, this one has " + formatCount(blocks) +
                              "; take fewer or larger blocks, or write no trace");
    }
    impl_->path = path;
    impl_->file = openToWrite(path);
    if (impl_->file == nullptr) {
        throw EngineError(ErrorKind::kBadFile, "the trace " + quotedForMessage(path) +
                                                   " cannot be written (" + std::strerror(errno) +
                                                   "); choose another place");
    }
    impl_->write(infoToJson(info));
}

TraceWriter::~TraceWriter() = default;

void TraceWriter::append(const StepTrace& step) { impl_->write(stepToJson(step)); }

void TraceWriter::finish() { impl_->write(json{{"end", true}}); }

LoadedTrace loadTrace(const std::string& path) {
    checkInputFile(path, "give the path of a trace");
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw EngineError(ErrorKind::kBadFile,
                          quotedForMessage(path) + " cannot be read; check its permissions");
    }
    std::error_code code;

    LoadedTrace loaded;
    loaded.num_bytes = static_cast<int64_t>(std::filesystem::file_size(path, code));
    std::string seal;
    std::string line;
    int64_t line_number = 0;
    int64_t offset = 0;
    int64_t version = kSchemaVersion;
    bool ended = false;
    bool complete = false;
    const auto readRecord = [&]() -> json {
        if (!complete) refuse("the last record is cut off");
        if (line.size() < kSealLength + 2 || line[kSealLength] != ' ')
            refuse("a record has no seal");
        const std::string text = line.substr(kSealLength + 1);
        const std::string expected = sealOf(seal, text);
        if (line.compare(0, kSealLength, expected) != 0) {
            refuse("a record does not match its seal: it was changed, or one before it is missing");
        }
        seal = expected;
        json record = json::parse(text, nullptr, false);
        if (record.is_discarded() || !record.is_object()) refuse("a record is not a JSON object");
        return record;
    };
    try {
        while (readLine(file, line, complete)) {
            ++line_number;
            if (ended) refuse("there is something after the end record");
            const json record = readRecord();
            if (line_number == 1) {
                version = versionOf(record);
                loaded.log = std::make_shared<RunLog>(infoFromJson(record, version));
            } else if (record.contains("end")) {
                ended = true;
            } else {
                loaded.log->append(std::make_shared<StepTrace>(stepFromJson(record, version)));
            }
            offset += static_cast<int64_t>(line.size()) + 1;
        }
        if (!ended)
            refuse(line_number == 0 ? "the file is empty"
                                    : "the end record is missing: the run was cut off");
    } catch (const EngineError& error) {
        loaded.complete = false;
        loaded.damage = std::string(error.what()) + " (line " +
                        std::to_string(std::max<int64_t>(line_number, 1)) + ", byte " +
                        std::to_string(offset) + ")";
        if (!loaded.log) {
            throw EngineError(ErrorKind::kBadFile, quotedForMessage(path) +
                                                       " cannot be opened: " + loaded.damage +
                                                       "; give a file made with --trace");
        }
    }
    return loaded;
}

}  // namespace kvlab
