// SPDX-License-Identifier: MIT
#include "app/cli/json_output.h"

#include <cstdio>
#include <string>

namespace kvlab {

namespace {

std::string compact(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

void printJson(const Json& object) {
    std::string text = "{";
    const char* separator = "\n";
    for (const auto& [key, value] : object.items()) {
        text += separator;
        text += "  " + compact(Json(key)) + ": " + compact(value);
        separator = ",\n";
    }
    text += "\n}\n";
    std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace kvlab
