// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

namespace kvlab {

// Keys stay in the order of DESIGN.md section 6.
using Json = nlohmann::ordered_json;

// A value that was not measured is null, never 0.
template <class T>
Json numberOrNull(const std::optional<T>& value) {
    return value ? Json(*value) : Json(nullptr);
}

// Prints an object with one line per key, so that a reader and a diff can follow it. Text that is
// not valid UTF-8 is printed with replacement characters.
void printJson(const Json& object);

}  // namespace kvlab
