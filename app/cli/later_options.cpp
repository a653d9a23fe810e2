// SPDX-License-Identifier: MIT
#include "app/cli/later_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "engine/error.h"
#include "engine/model/utf8.h"

namespace kvlab {

namespace {

[[noreturn]] void refuseLater(const std::string& what, const std::string& instead) {
    throw EngineError(ErrorKind::kBadArgument, what + " is not built yet; " + instead);
}

std::string joined(const std::vector<std::string>& words, const char* last) {
    std::string text;
    for (size_t i = 0; i < words.size(); ++i) {
        if (i > 0) text += i + 1 == words.size() ? last : ", ";
        text += words[i];
    }
    return text;
}

}  // namespace

void addLaterOption(CLI::App& app,
                    const std::string& name,
                    const std::string& instead,
                    bool takes_value) {
    if (takes_value) {
        app.add_option_function<std::string>(
               name, [=](const std::string&) { refuseLater(name, instead); }, "not built yet")
            ->group("Not built yet");
    } else {
        app.add_flag_callback(
               name, [=] { refuseLater(name, instead); }, "not built yet")
            ->group("Not built yet");
    }
}

void addChoice(CLI::App& app,
               const std::string& name,
               std::optional<std::string>* chosen,
               std::initializer_list<const char*> built,
               std::initializer_list<const char*> later,
               const std::string& help) {
    const std::vector<std::string> now(built.begin(), built.end());
    const std::vector<std::string> soon(later.begin(), later.end());
    const std::string text = help + " (" + joined(now, " or ") +
                             (soon.empty() ? "" : "; not built yet: " + joined(soon, ", ")) + ")";
    app.add_option_function<std::string>(
           name,
           [=](const std::string& value) {
               if (std::find(soon.begin(), soon.end(), value) != soon.end()) {
                   refuseLater(name + " " + value, "only " + name + " " + joined(now, " and ") +
                                                       (now.size() == 1 ? " is" : " are"));
               }
               if (std::find(now.begin(), now.end(), value) == now.end()) {
                   throw EngineError(
                       ErrorKind::kBadArgument,
                       name + " wants " + joined(now, " or ") + ", not " + quotedForMessage(value));
               }
               if (chosen) *chosen = value;
           },
           text)
        ->type_name("NAME");
}

void addLaterCommand(CLI::App& app, const std::string& name, const std::string& purpose) {
    CLI::App* command = app.add_subcommand(name, purpose + " (not built yet)");
    command->allow_extras();
    command->callback(
        [name] { refuseLater(name, "kvlab-cli --help lists the commands that are"); });
}

void addPolicyOptions(CLI::App& app) {
    addChoice(app, "--policy", nullptr, {"full"}, {"recent", "sink", "h2o", "infinigen"},
              "which tokens keep their K/V");
    for (const char* name : {"--granularity", "--budget", "--sinks", "--recent", "--heavy",
                             "--decay", "--alpha", "--partial", "--host-rule", "--gqa", "--kept"}) {
        addLaterOption(app, name, "only --policy full is");
    }
}

}  // namespace kvlab
