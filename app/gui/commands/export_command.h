// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <optional>
#include <string>

#include "app/gui/theme.h"

namespace kvlab {

struct ExportOptions {
    bool list = false;
    std::string source;  // a lesson's id, else a trace file
    std::string run;     // of the lesson; "": its first
    std::string view = "pool";
    std::string format;           // "": from the name of the output file, else svg
    std::optional<int64_t> step;  // the moment before this step; empty: the end
    std::string select;           // "kv:block/37": whose threads "tables" draws
    ThemeKind theme = ThemeKind::kLight;
    std::optional<int> stop;  // of the lesson, from 1: its run and its moment
    int width = 0;            // px; 0: the figure's own
    double scale = 1;         // PNG: pixels per px
    bool title = true;
    bool footer = true;
    std::string output;
};

// Needs a QApplication (fonts). Returns the exit code.
int runExport(const ExportOptions& options);

}  // namespace kvlab
