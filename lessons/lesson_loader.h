// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "lessons/lesson.h"

namespace kvlab {

// Folder with one sub-folder per lesson, found at run time: $KVLAB_LESSONS, beside the executable,
// or the source.
std::string lessonsFolder();

// Lessons by order, with the texts of `language` ("en"). Throws EngineError(kBadFile) naming file
// and field.
std::vector<Lesson> loadLessons(const std::string& folder, const std::string& language);
Lesson loadLesson(const std::string& folder, const std::string& id, const std::string& language);

}  // namespace kvlab
