// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "app/cli/json_output.h"
#include "engine/config.h"
#include "engine/scheduling/step_totals.h"
#include "engine/scheduling/waste_account.h"
#include "engine/workload/cost_model.h"

namespace kvlab {

// What generate and replay say in the same words.

// "12.3 ms", "4.56 s", "3 min 20 s"; "-" for what was not measured.
std::string timeText(const std::optional<double>& ms);

// Where a run's time went; a part that was not measured is empty.
struct StepTime {
    const char* source = "measured";  // or "assumed"
    std::optional<double> attention_ms, matmul_ms, sampling_ms, copies_ms, other_ms, total_ms;
};
StepTime measuredStepTime(const StepTotals& steps);
StepTime assumedStepTime(const StepCost& cost);

// Shares of the pool, 0 … 1, mean over the steps: {used tail reserved_for_later never_used free
// external used_of_held}.
Json wasteJson(const WasteAccount& waste);
// {running {mean max} waiting {mean max}}
Json concurrencyJson(const WasteAccount& waste, const StepTotals& steps);
// {source attention_ms matmul_ms sampling_ms copies_ms other_ms total_ms}
Json stepTimeJson(const StepTime& time);

// One line each.
void printWaste(const WasteAccount& waste, CacheLayout layout);
void printStepTime(const StepTime& time);

}  // namespace kvlab
