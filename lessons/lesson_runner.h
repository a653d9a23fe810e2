// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>

#include "engine/session/generation.h"
#include "lessons/lesson.h"

namespace kvlab {

// Fills formula, formula_value and formula_substituted of every claim from engine/sizing.
void computeFormulas(Lesson& lesson);
// Writes what a finished run measured into the claims of that run and decides pass.
void recordMeasurement(Lesson& lesson, const std::string& run_id, const RunMetrics& metrics);
// Plays every run of the lesson without a window and fills all claims.
void checkLesson(Lesson& lesson,
                 const std::function<void(const std::string& progress)>& on_progress = {});

}  // namespace kvlab
