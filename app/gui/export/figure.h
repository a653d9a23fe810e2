// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <QByteArray>

#include "app/gui/theme.h"
#include "engine/kernel_walk.h"
#include "engine/trace/run_log.h"

namespace kvlab {

enum class FigureFormat { kSvg, kPng, kPdf };
// By name or file ending: "svg", "plot.png". Throws EngineError: kUnsupported for what is to come
// (csv, json), kBadArgument for anything else.
FigureFormat figureFormatOf(const std::string& name);

// What "kernel-walk" shows: a layer's launches, and the place in them.
struct FigureWalk {
    std::shared_ptr<const KernelWalk> walk;
    int launch = 0, thread_block = 0;
    int step = -1;  // of the thread block's walk; -1: its middle
};

struct FigureOptions {
    ThemeKind theme = ThemeKind::kLight;
    int width_px = 960;  // 240 … 8192; the height follows from the content
    double scale = 1;    // PNG: pixels per px
    bool title = true;
    bool footer = true;            // preset, seed, build, device
    bool transparent = false;      // no background
    std::optional<BlockId> block;  // "tables": the block whose threads are drawn
    FigureWalk walk;               // "kernel-walk"
};

// "pool", "tables", "sharing", "timeline", "kernel-walk".
const std::vector<std::string>& figureViews();

// The figure is a scene of its own: title, picture, legend, units, the account, a caption with
// provenance, a footer. Needs a QGuiApplication (the offscreen platform will do), no window. The
// same log, cursor and options give the same bytes on one machine. Throws EngineError:
// kBadArgument for an unknown view, a width that cannot be or a kernel walk without one, kBadFile
// when the file cannot be written.
QByteArray renderFigure(const std::string& view,
                        const RunLog& log,
                        Cursor cursor,
                        const FigureOptions& options,
                        FigureFormat format);
// Writes it to a temporary file first and renames, so that no half figure is ever left behind;
// devices and pipes are written as they are.
void exportFigure(const std::string& view,
                  const RunLog& log,
                  Cursor cursor,
                  const FigureOptions& options,
                  FigureFormat format,
                  const std::string& path);

}  // namespace kvlab
