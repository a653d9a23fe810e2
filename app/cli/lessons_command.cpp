// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "app/cli/commands.h"
#include "app/cli/json_output.h"
#include "app/cli/later_options.h"
#include "engine/error.h"
#include "engine/text_format.h"
#include "lessons/lesson_loader.h"
#include "lessons/lesson_runner.h"

namespace kvlab {

namespace {

struct LessonsOptions {
    std::optional<std::string> id;  // one lesson; otherwise all
    bool json = false;
};

void listLessons(const LessonsOptions& options) {
    const std::vector<Lesson> lessons = loadLessons(lessonsFolder(), "en");
    if (!options.json) {
        for (const Lesson& lesson : lessons) {
            std::printf("%2d  %-14s %s\n", lesson.order, lesson.id.c_str(), lesson.title.c_str());
        }
        return;
    }
    Json list = Json::array();
    for (const Lesson& lesson : lessons) {
        list.push_back({{"id", lesson.id}, {"order", lesson.order}, {"title", lesson.title}});
    }
    printJson({{"lessons", std::move(list)}});
}

Json claimJson(const Lesson& lesson, const Claim& claim) {
    return {{"lesson", lesson.id},
            {"id", claim.id},
            {"text", claim.text},
            {"formula", numberOrNull(claim.formula_value)},
            {"measured", numberOrNull(claim.measured)},
            {"pass", claim.pass},
            {"provenance", provenanceName(claim.provenance)},
            {"quoted", numberOrNull(claim.quoted)},
            {"unit", claim.unit},
            {"formula_text", claim.formula},
            {"formula_substituted", claim.formula_substituted},
            {"tolerance", claim.tolerance}};
}

std::string figure(const std::optional<double>& value) {
    if (!value) return "-";
    if (*value == std::floor(*value) && std::abs(*value) < 1e15) {
        return formatCount(static_cast<int64_t>(*value));
    }
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.10g", *value);
    return text.data();
}

void checkLessons(const LessonsOptions& options) {
    std::vector<Lesson> lessons;
    if (!options.id) {
        lessons = loadLessons(lessonsFolder(), "en");
    } else {
        lessons.push_back(loadLesson(lessonsFolder(), *options.id, "en"));
    }
    Json claims = Json::array();
    std::string failed;
    for (Lesson& lesson : lessons) {
        checkLesson(lesson);
        for (const Claim& claim : lesson.claims) {
            claims.push_back(claimJson(lesson, claim));
            if (!claim.pass && failed.empty()) failed = lesson.id + "/" + claim.id;
            if (options.json) continue;
            std::printf("%s  %s/%s: the text %s, formula %s = %s, measured %s %s\n",
                        claim.pass ? "pass" : "FAIL", lesson.id.c_str(), claim.id.c_str(),
                        figure(claim.quoted).c_str(), claim.formula_substituted.c_str(),
                        figure(claim.formula_value).c_str(), figure(claim.measured).c_str(),
                        claim.unit.c_str());
        }
    }
    if (options.json) printJson({{"claims", std::move(claims)}});
    if (!failed.empty()) {
        throw EngineError(ErrorKind::kInternal,
                          "claim " + failed +
                              " failed: measurement and formula differ; please report it with the "
                              "output above");
    }
}

}  // namespace

void addLessonsCommand(CLI::App& app) {
    CLI::App* command = app.add_subcommand("lessons", "the lessons and what their claims measure");
    command->require_subcommand(1);
    const auto options = std::make_shared<LessonsOptions>();

    CLI::App* list = command->add_subcommand("list", "ids, order and titles");
    list->add_flag("--json", options->json, "print JSON");
    list->callback([options] { listLessons(*options); });

    CLI::App* check = command->add_subcommand(
        "check", "play the lessons and set formula and measurement side by side");
    check->add_option("id", options->id, "one lesson (default: all)")->type_name("ID");
    check->add_flag("--json", options->json, "print JSON");
    check->callback([options] { checkLessons(*options); });

    addLaterCommand(*command, "grade", "mark a folder of answers");
}

}  // namespace kvlab
