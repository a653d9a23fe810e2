// SPDX-License-Identifier: GPL-3.0-or-later
#include "app/gui/commands/export_command.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>

#include <QString>

#include "app/gui/export/figure.h"
#include "app/gui/panels/lesson_panel.h"
#include "app/gui/run/kernel_walks.h"
#include "engine/error.h"
#include "engine/model/utf8.h"
#include "engine/session/session.h"
#include "engine/trace/trace_io.h"
#include "lessons/lesson_loader.h"

namespace kvlab {

namespace {

namespace fs = std::filesystem;

struct Source {
    std::shared_ptr<RunLog> log;
    std::optional<int64_t> step;  // of the lesson's stop
    KernelWalks walks;            // where the view wants them
};

void list(const std::vector<Lesson>& lessons) {
    std::printf("views    ");
    for (const std::string& view : figureViews()) {
        std::printf(" %s", view.c_str());
    }
    std::printf("\nformats   svg png pdf\n");
    for (const Lesson& lesson : lessons) {
        std::printf("lesson    %s, stops 1 to %zu, runs", lesson.id.c_str(), lesson.stops.size());
        for (const LessonRun& run : lesson.runs) {
            std::printf(" %s", run.id.c_str());
        }
        std::printf("\n");
    }
}

Source playLesson(const Lesson& lesson, const ExportOptions& options) {
    Source source;
    std::string run_id = options.run;
    if (options.stop) {
        if (*options.stop < 1 || *options.stop > static_cast<int>(lesson.stops.size())) {
            throw EngineError(ErrorKind::kBadArgument, "lesson " + lesson.id + " has stops 1 to " +
                                                           std::to_string(lesson.stops.size()) +
                                                           "; give one of them with --stop");
        }
        for (int i = 0; i < *options.stop; ++i) {
            const LessonStop& stop = lesson.stops[static_cast<size_t>(i)];
            if (!stop.run.empty() && options.run.empty()) {
                run_id = stop.run;
            }
            if (stop.step >= 0) {
                source.step = stop.step;
            }
        }
    }
    const LessonRun* run = nullptr;
    std::string known;
    for (const LessonRun& candidate : lesson.runs) {
        known += (known.empty() ? "" : ", ") + candidate.id;
        if (!run && (run_id.empty() || candidate.id == run_id)) {
            run = &candidate;
        }
    }
    if (!run) {
        throw EngineError(ErrorKind::kBadArgument,
                          "lesson " + lesson.id + " has no run " + run_id + "; it has " + known);
    }
    SessionCallbacks callbacks;
    callbacks.on_started = [&](std::shared_ptr<const RunInfo> info) {
        source.log = std::make_shared<RunLog>(*info);
    };
    callbacks.on_step = [&](std::shared_ptr<const StepTrace> step) {
        source.log->append(std::move(step));
    };
    RunConfig config = run->config;
    StepWalks told;  // on the run thread, as the callbacks are
    if (options.view == "kernel-walk") {
        config.engine.backend = "simt";
        auto listener = std::make_shared<KernelWalkListener>();
        // The figure shows the first layer; nothing is computed after its moment.
        auto wanted = std::make_shared<bool>(true);
        listener->wants = [wanted](int layer) {
            if (!*wanted) throw EngineError(ErrorKind::kCancelled, "the figure has its moment");
            return layer == 0;
        };
        listener->on_walks = [&told](StepWalks walks) { told = std::move(walks); };
        config.engine.kernel_walks = std::move(listener);
        callbacks.on_step = [&, wanted](std::shared_ptr<const StepTrace> step) {
            // Only that of the figure is kept: the step before the moment asked for.
            const std::optional<int64_t> moment = options.step ? options.step : source.step;
            if (!told.empty() && (!moment || step->step + 1 <= *moment)) {
                source.walks = {};
                source.walks.add(step->step, told);
            }
            told.clear();
            *wanted = !moment || step->step + 1 < *moment;
            source.log->append(std::move(step));
        };
    }
    try {
        runToEnd(config, callbacks);
    } catch (const EngineError& error) {
        if (error.kind() != ErrorKind::kCancelled) throw;
    }
    return source;
}

Source loadSource(const ExportOptions& options) {
    const std::string folder = lessonsFolder();
    std::error_code error;
    const bool plain_name = options.source.find('/') == std::string::npos;
    if (plain_name && fs::is_directory(fs::path(folder) / options.source, error)) {
        return playLesson(loadLesson(folder, options.source, "en"), options);
    }
    if (!fs::exists(options.source, error)) {
        if (!fs::is_directory(folder, error)) {
            throw EngineError(ErrorKind::kBadFile, "the lessons folder " +
                                                       quotedForMessage(folder) +
                                                       " is missing; set KVLAB_LESSONS to the "
                                                       "right one");
        }
        throw EngineError(ErrorKind::kBadArgument,
                          quotedForMessage(options.source) +
                              " is neither a lesson nor a trace file; see kvlab export --list");
    }
    if (!options.run.empty() || options.stop) {
        throw EngineError(ErrorKind::kBadArgument,
                          "--run and --stop belong to lessons; a trace has --step");
    }
    if (options.view == "kernel-walk") {
        throw EngineError(ErrorKind::kBadArgument,
                          "a trace holds no kernel walk; export it from a lesson");
    }
    LoadedTrace trace = loadTrace(options.source);
    if (!trace.damage.empty()) {
        std::fprintf(stderr, "kvlab: the trace is used up to its damage: %s\n",
                     trace.damage.c_str());
    }
    return {trace.log, std::nullopt, {}};
}

FigureFormat formatOf(const ExportOptions& options) {
    std::string ending = fs::path(options.output).extension().string();
    std::transform(ending.begin(), ending.end(), ending.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (options.format.empty()) {
        if (ending.empty()) {
            throw EngineError(ErrorKind::kBadArgument,
                              "the name " + quotedForMessage(options.output) +
                                  " tells no format; add --format svg, png or pdf");
        }
        return figureFormatOf(ending);
    }
    const FigureFormat format = figureFormatOf(options.format);
    for (const char* known : {".svg", ".png", ".pdf", ".csv", ".json"}) {
        if (ending == known &&
            (ending == ".csv" || ending == ".json" || figureFormatOf(ending) != format)) {
            throw EngineError(ErrorKind::kBadArgument, "the file's name ends in " + ending +
                                                           " but --format is " + options.format +
                                                           "; leave one of them out");
        }
    }
    return format;
}

void checkView(const std::string& view) {
    const std::vector<std::string>& views = figureViews();
    if (std::find(views.begin(), views.end(), view) != views.end()) {
        return;
    }
    for (const char* later : {"tree", "radix", "prefix", "heatmap", "scores", "offload"}) {
        if (view == later) {
            throw EngineError(
                ErrorKind::kUnsupported,
                "the view " + view + " is not built yet; kvlab export --list names those that are");
        }
    }
    throw EngineError(ErrorKind::kBadArgument,
                      "there is no view " + quotedForMessage(view) + "; see kvlab export --list");
}

void printFigure(const QByteArray& bytes) {
    const size_t size = static_cast<size_t>(bytes.size());
    if (std::fwrite(bytes.constData(), 1, size, stdout) != size || std::fflush(stdout) != 0) {
        throw EngineError(ErrorKind::kBadFile,
                          "the figure could not be written to the standard output; use -o FILE");
    }
}

}  // namespace

int runExport(const ExportOptions& options) {
    try {
        if (options.list) {
            list(loadLessons(lessonsFolder(), "en"));
            return 0;
        }
        // Both are checked before a run of seconds.
        const FigureFormat format = formatOf(options);
        checkView(options.view);
        FigureOptions figure;
        figure.theme = options.theme;
        figure.title = options.title;
        figure.footer = options.footer;
        figure.scale = options.scale;
        if (options.width > 0) {
            figure.width_px = options.width;
        }
        if (!options.select.empty()) {
            const auto link = parseLessonLink(QString::fromStdString(options.select));
            if (!link || link->kind != LessonLink::Kind::kBlock) {
                throw EngineError(ErrorKind::kBadArgument,
                                  "--select is written as kv:block/37; give a block of the pool");
            }
            figure.block = BlockId(link->number);
        }
        const Source source = loadSource(options);
        const std::optional<int64_t> step = options.step ? options.step : source.step;
        if (step && (*step < 0 || *step > source.log->numSteps())) {
            throw EngineError(ErrorKind::kBadArgument, "the run has steps 0 to " +
                                                           std::to_string(source.log->numSteps()) +
                                                           ", not " + std::to_string(*step) +
                                                           "; give one of them with --step");
        }
        const Cursor cursor = step ? Cursor{*step, 0, 0} : source.log->end();
        if (options.view == "kernel-walk") {
            const StepWalks* walks = source.walks.at(cursor.step - 1);
            if (walks != nullptr && !walks->empty()) figure.walk.walk = walks->front();
        }
        if (options.output.empty()) {
            printFigure(renderFigure(options.view, *source.log, cursor, figure, format));
        } else {
            exportFigure(options.view, *source.log, cursor, figure, format, options.output);
        }
        return 0;
    } catch (const EngineError& error) {
        std::fprintf(stderr, "kvlab: %s\n", error.what());
        return error.kind() == ErrorKind::kBadArgument || error.kind() == ErrorKind::kUnsupported
                   ? 2
                   : 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "kvlab: %s\n", error.what());
        return 1;
    }
}

}  // namespace kvlab
