// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <optional>
#include <string>

#include <QSize>
#include <QString>

#include "app/gui/theme.h"

namespace kvlab {

struct WindowOptions {
    std::string trace;  // "": a lesson
    std::string lesson = "best-of-8";
    std::string backend = "auto";    // auto, cpu, simt, cuda: of the lessons' runs
    bool cpu_fallback = false;       // may take over when cuda fails
    int stop = 1;                    // 1-based, as on the command line
    std::optional<ThemeKind> theme;  // empty: what was chosen last
    std::string screenshot;          // "": the window stays open
    QSize size{1600, 1000};          // px
    std::optional<int64_t> at_step;  // of a screenshot
    bool kernel_walk = false;        // show that panel
    std::string select;              // "kv:block/37", of a screenshot
};

// Needs a QApplication. Returns the exit code.
int runWindow(const WindowOptions& options);

}  // namespace kvlab
