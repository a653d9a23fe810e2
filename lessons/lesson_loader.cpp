// SPDX-License-Identifier: MIT
#include "lessons/lesson_loader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <tuple>

#include "engine/asset_paths.h"
#include "engine/error.h"
#include "engine/input_file.h"
#include "engine/model/utf8.h"
#include "engine/text_format.h"

namespace kvlab {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr size_t kMaxLessons = 1000;
constexpr size_t kMaxEntries = 100;  // runs, stops, questions, claims, expected answers: each
constexpr double kMaxNumber = 1e15;  // whole numbers up to here are exact in a double

[[noreturn]] void refuse(const std::string& file, const std::string& problem) {
    // Lesson and file name it; the folders above would only push them out of the sentence.
    const fs::path path(file);
    const std::string name = (path.parent_path().filename() / path.filename()).string();
    const bool says_what_to_do = problem.find("; ") != std::string::npos;
    throw EngineError(ErrorKind::kBadFile, "lesson file " + quotedForMessage(name) + ": " +
                                               problem + (says_what_to_do ? "" : "; correct it"));
}

// Lower-case letters, digits, "-"; such a name is safe in paths and links.
bool isIdentifier(std::string_view text) {
    if (text.empty() || text.size() > 40 || text.front() == '-') return false;
    return std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    });
}

// The shortest decimal text of a number: "175", "2.5", "100000", never "1e+05".
std::string shownNumber(double number) {
    std::array<char, 352> text{};  // the smallest double has 324 digits behind the point
    const auto [end, error] =
        std::to_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    return {text.data(), end};
}

std::string readFile(const fs::path& path) {
    const std::string name = path.string();
    if (const std::string not_a_file = inputFileProblem(name); !not_a_file.empty()) {
        refuse(name, "it " + not_a_file + "; put the lesson's file there");
    }
    std::ifstream in(path, std::ios::binary);
    if (!in) refuse(name, "it cannot be opened for reading; check its permissions");
    std::string text(kMaxFileBytes + 1, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (in.bad()) refuse(name, "it cannot be read");
    text.resize(static_cast<size_t>(in.gcount()));
    if (text.size() > kMaxFileBytes) refuse(name, "it is larger than 1 MiB");
    if (!isValidUtf8(text)) refuse(name, "it is not UTF-8 text");
    if (text.find('\0') != std::string::npos) refuse(name, "it holds a zero byte");
    return text;
}

// One JSON object of a lesson file: typed, bounded access that names the field in every error, and
// a list of the fields that were asked for, so that a misspelt one is refused and not ignored.
class ObjectReader {
  public:
    ObjectReader(const std::string& file, const json& object, std::string place)
        : file_(file), object_(object), place_(std::move(place)) {
        if (!object.is_object()) refuse(file_, (place_.empty() ? "it" : place_) + " wants {…}");
    }

    bool has(const char* key) {
        known_.insert(key);
        return object_.contains(key);
    }

    const json& value(const char* key) {
        if (!has(key)) refuse(file_, "field " + name(key) + " is missing");
        return object_.find(key).value();
    }

    std::string text(const char* key) {
        const json& found = value(key);
        if (!found.is_string()) fail(key, "wants text");
        const std::string& string = found.get_ref<const std::string&>();
        if (string.size() > 200) fail(key, "is longer than 200 bytes");
        return string;
    }

    std::string identifier(const char* key) {
        std::string id = text(key);
        if (!isIdentifier(id)) {
            fail(key, "wants lower-case letters, digits and \"-\", at most 40");
        }
        return id;
    }

    std::string identifierOr(const char* key, const std::string& fallback) {
        return has(key) ? identifier(key) : fallback;
    }

    int64_t whole(const char* key, int64_t low, int64_t high) {
        const json& found = value(key);
        const std::string wanted =
            "wants a whole number from " + formatCount(low) + " to " + formatCount(high);
        if (!found.is_number_integer()) fail(key, wanted);
        if (found.is_number_unsigned() &&
            found.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
            fail(key, wanted);
        }
        const auto number = found.get<int64_t>();
        if (number < low || number > high) fail(key, wanted);
        return number;
    }

    int64_t wholeOr(const char* key, int64_t low, int64_t high, int64_t fallback) {
        return has(key) ? whole(key, low, high) : fallback;
    }

    double number(const char* key, double low, double high) {
        const json& found = value(key);
        const double number = found.is_number() ? found.get<double>() : NAN;
        if (!(number >= low && number <= high)) {
            fail(key, "wants a number from " + shownNumber(low) + " to " + shownNumber(high));
        }
        return number;
    }

    double numberOr(const char* key, double low, double high, double fallback) {
        return has(key) ? number(key, low, high) : fallback;
    }

    bool flagOr(const char* key, bool fallback) {
        if (!has(key)) return fallback;
        const json& found = value(key);
        if (!found.is_boolean()) fail(key, "wants true or false");
        return found.get<bool>();
    }

    std::string choiceOr(const char* key,
                         const std::vector<std::string>& choices,
                         const std::string& fallback) {
        if (!has(key)) return fallback;
        std::string chosen = text(key);
        if (std::find(choices.begin(), choices.end(), chosen) == choices.end()) {
            std::string list;
            for (const std::string& choice : choices) list += (list.empty() ? "" : ", ") + choice;
            fail(key, "wants one of " + list);
        }
        return chosen;
    }

    // A reader for each object of the array `key`.
    std::vector<ObjectReader> objects(const char* key, size_t at_least) {
        const json& found = value(key);
        if (!found.is_array()) fail(key, "wants [{…}, …]");
        if (found.size() < at_least) fail(key, "wants at least one entry");
        if (found.size() > kMaxEntries) fail(key, "has more than 100 entries");
        std::vector<ObjectReader> readers;
        for (size_t i = 0; i < found.size(); ++i) {
            readers.emplace_back(file_, found[i], name(key) + "[" + std::to_string(i) + "]");
        }
        return readers;
    }

    // Call last: refuses what nobody asked for.
    void refuseUnknown() const {
        for (const auto& [key, unused] : object_.items()) {
            if (!known_.contains(key)) {
                const std::string shown_key = quotedForMessage(key);
                refuse(file_, "field " + shown_key + (place_.empty() ? "" : " of " + place_) +
                                  " is not known");
            }
        }
    }

    [[noreturn]] void fail(const char* key, const std::string& problem) const {
        refuse(file_, "field " + name(key) + " " + problem);
    }

  private:
    std::string name(const char* key) const { return place_.empty() ? key : place_ + "." + key; }

    const std::string& file_;
    const json& object_;
    std::string place_;  // "stops[2]", "" at the top
    std::set<std::string> known_;
};

// The texts of one language: a Markdown file in sections.
//
//   # title of the lesson
//   ## stop:ID title of the stop
//   ## question:ID
//   ### right        ### wrong        ### answer:175
//   ## claim:ID
//
// Every section must be named by lesson.json and the other way round.
class Texts {
  public:
    explicit Texts(const fs::path& path) : file_(path.string()) {
        const std::string text = readFile(path);
        std::string parent;
        std::string current;  // key of the section being read
        size_t line_number = 0;
        for (size_t begin = 0; begin < text.size();) {
            size_t end = text.find('\n', begin);
            if (end == std::string::npos) end = text.size();
            std::string line = text.substr(begin, end - begin);
            begin = end + 1;
            ++line_number;
            if (!line.empty() && line.back() == '\r') line.pop_back();
            // The licence line.
            if (current.empty() && line.starts_with("<!--") && line.ends_with("-->")) continue;
            if (line.starts_with("### ")) {
                if (parent.empty()) refuseLine(line_number, "### stands outside a question");
                current = parent + " " + line.substr(4);
                openSection(current, "", line_number);
            } else if (line.starts_with("## ")) {
                const size_t space = line.find(' ', 3);
                current = line.substr(3, space == std::string::npos ? space : space - 3);
                parent = current.starts_with("question:") ? current : "";
                openSection(current, space == std::string::npos ? "" : line.substr(space + 1),
                            line_number);
            } else if (line.starts_with("# ")) {
                parent.clear();
                current = "title";
                openSection(current, line.substr(2), line_number);
            } else if (current.empty()) {
                if (!line.empty()) refuseLine(line_number, "text stands before the first heading");
            } else {
                sections_[current].body += line + "\n";
            }
        }
        for (auto& [key, section] : sections_) trim(section.body);
    }

    // Heading text behind the section's key.
    std::string heading(const std::string& key) {
        const std::string& text = section(key).heading;
        if (text.empty()) refuse(file_, "section " + quotedForMessage(key) + " has no title");
        return text;
    }

    std::string body(const std::string& key) {
        const std::string& text = section(key).body;
        if (text.empty()) refuse(file_, "section " + quotedForMessage(key) + " has no text");
        return text;
    }

    void refuseUnused() const {
        for (const auto& [key, section] : sections_) {
            if (!section.used) {
                refuse(file_, "section " + quotedForMessage(key) + " is not named in lesson.json");
            }
        }
    }

  private:
    struct Section {
        std::string heading;
        std::string body;
        bool used = false;
    };

    Section& section(const std::string& key) {
        const auto found = sections_.find(key);
        if (found == sections_.end()) {
            refuse(file_, "section " + quotedForMessage(key) + " is missing");
        }
        found->second.used = true;
        return found->second;
    }

    void openSection(const std::string& key, const std::string& heading, size_t line_number) {
        if (sections_.size() >= 1000) refuse(file_, "it has more than 1,000 sections");
        if (!sections_.try_emplace(key, Section{heading, "", false}).second) {
            refuseLine(line_number, "section " + quotedForMessage(key) + " stands there twice");
        }
    }

    [[noreturn]] void refuseLine(size_t line_number, const std::string& problem) const {
        refuse(file_, "line " + std::to_string(line_number) + ": " + problem);
    }

    static void trim(std::string& text) {
        const size_t begin = text.find_first_not_of(" \n\t");
        const size_t end = text.find_last_not_of(" \n\t");
        text = begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
    }

    std::string file_;
    std::map<std::string, Section> sections_;
};

json parseJson(const fs::path& path) {
    const std::string text = readFile(path);
    // Counted before parsing: the parser keeps every level, and an error sentence wants one line.
    int depth = 0;
    for (const char c : text) {
        if (c == '{' || c == '[') ++depth;
        if (c == '}' || c == ']') --depth;
        if (depth > 32) refuse(path.string(), "it is nested deeper than 32 levels");
    }
    // A repeated key would silently win over the first one.
    std::vector<std::set<std::string>> keys;
    std::string repeated;
    const auto watch = [&](int, json::parse_event_t event, json& parsed) {
        if (event == json::parse_event_t::object_start) keys.emplace_back();
        if (event == json::parse_event_t::object_end && !keys.empty()) keys.pop_back();
        if (event == json::parse_event_t::key && !keys.empty() && repeated.empty()) {
            const std::string key = parsed.get<std::string>();
            if (!keys.back().insert(key).second) repeated = key;
        }
        return true;
    };
    try {
        json document = json::parse(text, watch);
        if (!repeated.empty()) {
            refuse(path.string(), "field " + quotedForMessage(repeated) + " stands there twice");
        }
        return document;
    } catch (const json::parse_error& error) {
        const size_t byte = std::min(error.byte, text.size());
        const auto line =
            std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(byte), '\n');
        refuse(path.string(), "line " + std::to_string(line + 1) + " is not valid JSON");
    } catch (const json::exception&) {
        refuse(path.string(), "it holds a number that is too large");
    }
}

template <class Item>
const Item* findById(const std::vector<Item>& items, const std::string& id) {
    for (const Item& item : items) {
        if (item.id == id) return &item;
    }
    return nullptr;
}

template <class Item>
void addItem(std::vector<Item>& items, Item item, const ObjectReader& reader) {
    if (findById(items, item.id)) reader.fail("id", "\"" + item.id + "\" stands there twice");
    items.push_back(std::move(item));
}

LessonRun readRun(ObjectReader& reader, const std::string& lesson_id) {
    LessonRun run;
    run.id = reader.identifier("id");
    run.config.title = lesson_id + ", run " + run.id;
    CacheConfig& cache = run.config.engine.cache;
    cache.block_size = static_cast<int>(reader.wholeOr("block_size", 1, 256, 16));
    cache.num_blocks = static_cast<int>(reader.wholeOr("num_blocks", 0, 1'000'000, 0));
    cache.kv_dtype =
        *dataTypeFromName(reader.choiceOr("kv_dtype", {"f32", "f16", "bf16", "int8"}, "f16"));
    run.config.engine.token_budget =
        static_cast<int>(reader.wholeOr("token_budget", 1, 100'000, 512));
    GenerationRequest request;
    request.prompt_num_tokens = static_cast<int>(reader.whole("prompt_tokens", 1, 100'000));
    request.num_samples = static_cast<int>(reader.wholeOr("samples", 1, 256, 1));
    request.max_tokens = static_cast<int>(reader.whole("max_tokens", 1, 100'000));
    request.ignore_eos = reader.flagOr("ignore_eos", false);
    request.sampling.temperature = static_cast<float>(reader.numberOr("temperature", 0, 100, 0));
    request.sampling.top_k = static_cast<int>(reader.wholeOr("top_k", 0, 1'000'000, 0));
    request.sampling.top_p = static_cast<float>(reader.numberOr("top_p", 0.000001, 1, 1));
    request.sampling.seed = static_cast<uint64_t>(reader.wholeOr("seed", 0, INT64_MAX, 0));
    request.corpus_seed = request.sampling.seed;
    run.config.requests.push_back(std::move(request));
    return run;
}

Claim readClaim(ObjectReader& reader, const Lesson& lesson, Texts& texts) {
    Claim claim;
    claim.id = reader.identifier("id");
    claim.text = texts.body("claim:" + claim.id);
    claim.unit = reader.text("unit");
    claim.metric =
        reader.choiceOr("metric",
                        {"blocks_held", "blocks_unshared", "copy_on_write", "slots_allocated",
                         "slots_unused", "tokens_held", "tokens_unshared"},
                        "");
    if (claim.metric.empty()) reader.value("metric");
    claim.run = reader.identifier("run");
    claim.minus_run = reader.identifierOr("minus_run", "");
    for (const auto& [key, id] : {std::pair<const char*, const std::string&>{"run", claim.run},
                                  {"minus_run", claim.minus_run}}) {
        if (!id.empty() && !findById(lesson.runs, id)) {
            reader.fail(key, "names the unknown run \"" + id + "\"");
        }
    }
    if (reader.has("quoted")) claim.quoted = reader.number("quoted", -kMaxNumber, kMaxNumber);
    claim.tolerance = reader.numberOr("tolerance", 0, kMaxNumber, 0);
    if (reader.choiceOr("provenance", {"measured", "built_in"}, "measured") == "built_in") {
        claim.provenance = Provenance::kBuiltIn;
    }
    return claim;
}

Question readQuestion(ObjectReader& reader, const Lesson& lesson, Texts& texts) {
    Question question;
    question.id = reader.identifier("id");
    const std::string key = "question:" + question.id;
    question.text = texts.body(key);
    question.reply_right = texts.body(key + " right");
    question.reply_wrong = texts.body(key + " wrong");
    question.unit = reader.text("unit");
    question.quantity = reader.identifier("quantity");
    if (!findById(lesson.claims, question.quantity)) {
        reader.fail("quantity", "names the unknown claim \"" + question.quantity + "\"");
    }
    question.tolerance = reader.numberOr("tolerance", 0, kMaxNumber, 0);
    if (reader.has("expected")) {
        for (ObjectReader& entry : reader.objects("expected", 0)) {
            ExpectedAnswer answer;
            answer.value = entry.number("value", -kMaxNumber, kMaxNumber);
            entry.refuseUnknown();
            // Written as in lesson.json, "answer:175" or "answer:2.5".
            answer.reply = texts.body(key + " answer:" + shownNumber(answer.value));
            question.expected.push_back(std::move(answer));
        }
    }
    return question;
}

LessonStop readStop(ObjectReader& reader, const Lesson& lesson, Texts& texts) {
    LessonStop stop;
    stop.id = reader.identifier("id");
    stop.title = texts.heading("stop:" + stop.id);
    stop.body = texts.body("stop:" + stop.id);
    stop.run = reader.identifierOr("run", "");
    if (!stop.run.empty() && !findById(lesson.runs, stop.run)) {
        reader.fail("run", "names the unknown run \"" + stop.run + "\"");
    }
    stop.step = reader.wholeOr("step", -1, 1'000'000'000, -1);
    stop.question = reader.identifierOr("question", "");
    if (!stop.question.empty() && !findById(lesson.questions, stop.question)) {
        reader.fail("question", "names the unknown question \"" + stop.question + "\"");
    }
    stop.show_claims = reader.flagOr("show_claims", false);
    return stop;
}

}  // namespace

std::string lessonsFolder() {
    if (const char* named = std::getenv("KVLAB_LESSONS"); named && *named != '\0') return named;
    std::error_code error;
    const fs::path installed =
        fs::path(executableFolder()).parent_path() / "share" / "kvlab" / "lessons";
    if (fs::is_directory(installed, error)) return installed.string();
    return KVLAB_LESSONS_SOURCE;
}

Lesson loadLesson(const std::string& folder, const std::string& id, const std::string& language) {
    if (!isIdentifier(id)) {
        throw EngineError(ErrorKind::kBadArgument, "there is no lesson " + quotedForMessage(id) +
                                                       "; kvlab-cli lessons list names them");
    }
    if (!isIdentifier(language)) {
        throw EngineError(ErrorKind::kBadArgument,
                          "there is no language " + quotedForMessage(language) + "; use en");
    }
    std::error_code error;
    const fs::path lesson_folder = fs::path(folder) / id;
    if (!fs::is_directory(lesson_folder, error)) {
        throw EngineError(ErrorKind::kBadArgument, "there is no lesson \"" + id + "\" in " +
                                                       quotedForMessage(folder) +
                                                       "; kvlab-cli lessons list names them");
    }
    const fs::path json_path = lesson_folder / "lesson.json";
    const std::string file = json_path.string();
    const json document = parseJson(json_path);
    Texts texts(lesson_folder / (language + ".md"));

    Lesson lesson;
    ObjectReader reader(file, document, "");
    lesson.id = reader.identifier("id");
    if (lesson.id != id) reader.fail("id", "must be the folder's name, \"" + id + "\"");
    lesson.order = static_cast<int>(reader.whole("order", 0, 10'000));
    lesson.title = texts.heading("title");
    for (ObjectReader& entry : reader.objects("runs", 1)) {
        addItem(lesson.runs, readRun(entry, id), entry);
        entry.refuseUnknown();
    }
    for (ObjectReader& entry : reader.objects("claims", 1)) {
        addItem(lesson.claims, readClaim(entry, lesson, texts), entry);
        entry.refuseUnknown();
    }
    for (ObjectReader& entry : reader.objects("questions", 0)) {
        addItem(lesson.questions, readQuestion(entry, lesson, texts), entry);
        entry.refuseUnknown();
    }
    for (ObjectReader& entry : reader.objects("stops", 1)) {
        addItem(lesson.stops, readStop(entry, lesson, texts), entry);
        entry.refuseUnknown();
    }
    reader.refuseUnknown();
    texts.refuseUnused();
    return lesson;
}

std::vector<Lesson> loadLessons(const std::string& folder, const std::string& language) {
    std::error_code error;
    fs::directory_iterator entries(folder, error);
    if (error) {
        throw EngineError(ErrorKind::kBadFile,
                          "the lessons folder " + quotedForMessage(folder) +
                              " cannot be opened; set KVLAB_LESSONS to the right one");
    }
    std::vector<Lesson> lessons;
    for (; entries != fs::directory_iterator(); entries.increment(error)) {
        std::error_code ignored;
        // A folder without lesson.json is no lesson (pictures, a lesson being written).
        if (!fs::exists(entries->path() / "lesson.json", ignored)) continue;
        if (lessons.size() >= kMaxLessons) refuse(folder, "it holds more than 1,000 lessons");
        lessons.push_back(loadLesson(folder, entries->path().filename().string(), language));
    }
    if (lessons.empty()) {
        throw EngineError(ErrorKind::kBadFile,
                          "the lessons folder " + quotedForMessage(folder) +
                              " holds no lesson; set KVLAB_LESSONS to the right one");
    }
    std::sort(lessons.begin(), lessons.end(), [](const Lesson& a, const Lesson& b) {
        return std::tie(a.order, a.id) < std::tie(b.order, b.id);
    });
    return lessons;
}

}  // namespace kvlab
