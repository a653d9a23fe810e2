// SPDX-License-Identifier: MIT
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace kvlab {

// The command line is fixed before all of it works: what belongs to a room that is not built yet is
// known, listed in --help, and refused with one sentence and exit status 2.

// An option, with or without a value, that only a later room understands. `instead` ends the
// sentence: "only --samples is".
void addLaterOption(CLI::App& app,
                    const std::string& name,
                    const std::string& instead,
                    bool takes_value = true);

// An option of which some values work and others will. `chosen` may be null.
void addChoice(CLI::App& app,
               const std::string& name,
               std::optional<std::string>* chosen,
               std::initializer_list<const char*> built,
               std::initializer_list<const char*> later,
               const std::string& help);

// A whole sub-command of a later room.
void addLaterCommand(CLI::App& app, const std::string& name, const std::string& purpose);

// Options of eviction policies: --policy, --budget, --kept, ….
void addPolicyOptions(CLI::App& app);

}  // namespace kvlab
