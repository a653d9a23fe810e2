// SPDX-License-Identifier: GPL-3.0-or-later
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include <QApplication>
#include <QHashSeed>
#include <QIcon>

#include "app/gui/commands/bench_command.h"
#include "app/gui/commands/export_command.h"
#include "app/gui/commands/window_command.h"

namespace {

// What Qt says on every machine without a display and nobody can act on.
void dropKnownNoise(QtMsgType type, const QMessageLogContext&, const QString& message) {
    static const char* const kNoise[] = {"propagateSizeHints", "XDG_RUNTIME_DIR",
                                         "QStandardPaths: XDG_RUNTIME_DIR"};
    for (const char* noise : kNoise) {
        if (message.contains(QLatin1String(noise))) {
            return;
        }
    }
    std::fprintf(stderr, "%s\n", qPrintable(message));
    if (type == QtFatalMsg) {
        std::abort();
    }
}

bool isSet(const char* variable) {
    const char* value = std::getenv(variable);
    return value && *value;
}

bool hasDisplay() {
    return isSet("DISPLAY") || isSet("WAYLAND_DISPLAY") || isSet("QT_QPA_PLATFORM");
}

// Options that DESIGN.md promises and that come with later rooms.
void addLaterOptions(CLI::App* app, std::initializer_list<const char*> names) {
    for (const char* name : names) {
        app->add_option_function<std::vector<std::string>>(
               name,
               [name](const std::vector<std::string>&) {
                   throw CLI::ValidationError(std::string(name) + " is not built yet");
               },
               "(not built yet)")
            ->expected(0, 1)
            ->group("");
    }
}

CLI::Option* addTheme(CLI::App* app, std::optional<kvlab::ThemeKind>* theme) {
    return app
        ->add_option_function<std::string>(
            "--theme",
            [theme](const std::string& name) {
                *theme = name == "dark" ? kvlab::ThemeKind::kDark : kvlab::ThemeKind::kLight;
            },
            "light or dark")
        ->check(CLI::IsMember({"light", "dark"}));
}

}  // namespace

int main(int argc, char** argv) {
    using namespace kvlab;
    const auto started = std::chrono::steady_clock::now();

    CLI::App app{
        "KV Lab: a visual lab for paged KV caches.\nWithout arguments it opens the best-of-8 "
        "lesson and runs the bundled model."};
    app.set_version_flag("--version", KVLAB_VERSION);
    app.name("kvlab");
    WindowOptions window;
    std::string size;
    app.add_option("FILE", window.trace, "a recorded run to open");
    app.add_option("--lesson", window.lesson, "lesson to open")->capture_default_str();
    app.add_option("--stop", window.stop, "place in the lesson, from 1");
    addTheme(&app, &window.theme);
    double scale = 1;
    app.add_option("--scale", scale, "size of the whole window, 1 is normal")
        ->check(CLI::Range(0.5, 4.0));
    app.add_option("--screenshot", window.screenshot, "save a picture of the window and exit");
    app.add_option("--size", size, "of the window, as 1600x1000");
    app.add_option("--at-step", window.at_step, "moment of the picture: before this engine step");
    app.add_option("--select", window.select,
                   "what the picture selects: kv:block/37, kv:sequence/0");
    addLaterOptions(&app, {"--presenter", "--lang"});

    ExportOptions figure;
    std::optional<ThemeKind> figure_theme;
    CLI::App* export_app =
        app.add_subcommand("export", "save a figure, without a window or a display");
    export_app->add_option("SOURCE", figure.source, "a lesson's id or a trace file");
    export_app->add_flag("--list", figure.list, "list what can be exported");
    export_app->add_option("--run", figure.run, "which run of the lesson");
    export_app->add_option("--view", figure.view, "what to draw: see --list")
        ->capture_default_str();
    export_app->add_option("--format", figure.format, "see --list; default: by the file's name");
    auto* step_option = export_app->add_option("--step", figure.step,
                                               "moment before this engine step; default: the end");
    export_app->add_option("--stop", figure.stop, "place in the lesson, from 1: its run and moment")
        ->excludes(step_option);
    export_app->add_option("--select", figure.select, "kv:block/37: whose threads the tables show");
    addTheme(export_app, &figure_theme);
    export_app->add_option("--width", figure.width, "px")->check(CLI::Range(240, 8192));
    export_app->add_option("--scale", figure.scale, "PNG: pixels per px")
        ->check(CLI::Range(0.25, 8.0));
    export_app->add_flag_callback(
        "--no-title", [&] { figure.title = false; }, "leave the title out");
    export_app->add_flag_callback(
        "--no-footer", [&] { figure.footer = false; }, "leave the footer out");
    export_app->add_option("-o,--output", figure.output,
                           "file to write; without it the figure goes to the standard output");
    addLaterOptions(export_app, {"--all", "--check", "--background", "--lang", "--text-as-paths",
                                 "--span", "--animate", "--worksheet", "--slides", "--preset"});

    bool json = false;
    CLI::App* bench_app =
        app.add_subcommand("bench", "measure painting, seeking and the longest event-loop gap");
    bench_app->add_flag("--json", json, "as JSON");
    app.require_subcommand(0, 1);

    try {
        app.parse(argc, argv);
        if (!size.empty()) {
            int width = 0;
            int height = 0;
            char rest = 0;
            if (std::sscanf(size.c_str(), "%dx%d%c", &width, &height, &rest) != 2 || width < 320 ||
                height < 240 || width > 10000 || height > 10000) {
                throw CLI::ValidationError("--size is written as 1600x1000, not " + size);
            }
            window.size = QSize(width, height);
        }
        if (export_app->parsed() && !figure.list &&
            (figure.source.empty() || (figure.output.empty() && figure.format.empty()))) {
            throw CLI::ValidationError(
                "export needs a lesson or a trace, and -o FILE or --format (or --list)");
        }
    } catch (const CLI::CallForHelp& e) {
        return app.exit(e);
    } catch (const CLI::CallForVersion& e) {
        return app.exit(e);
    } catch (const CLI::ParseError& e) {
        std::fprintf(stderr, "kvlab: %s\n", e.what());
        return 2;
    }
    figure.theme = figure_theme.value_or(ThemeKind::kLight);

    const bool headless = export_app->parsed() || bench_app->parsed() || !window.screenshot.empty();
    if (!hasDisplay()) {
        if (!headless) {
            std::fprintf(
                stderr,
                "kvlab: there is no display to open a window on; use kvlab --screenshot F.png or "
                "kvlab export\n");
            return 1;
        }
        qputenv("QT_QPA_PLATFORM", "offscreen");
    }
    qInstallMessageHandler(dropKnownNoise);
    if (scale != 1) {
        qputenv("QT_SCALE_FACTOR", QByteArray::number(scale));
    }
    if (headless) {
        // The same file, byte for byte, on every call.
        QHashSeed::setDeterministicGlobalSeed();
        qputenv("TZ", "UTC");
    }
    QApplication::setStyle(QStringLiteral("Fusion"));
    QApplication qt(argc, argv);
    QCoreApplication::setApplicationName(QStringLiteral("kvlab"));
    QCoreApplication::setOrganizationName(QStringLiteral("kvlab"));
    QCoreApplication::setApplicationVersion(QStringLiteral(KVLAB_VERSION));
    QGuiApplication::setApplicationDisplayName(QStringLiteral("KV Lab"));
    QGuiApplication::setDesktopFileName(QStringLiteral("kvlab"));
    QGuiApplication::setWindowIcon(QIcon(QStringLiteral(":/icons/kvlab.svg")));
    if (export_app->parsed()) {
        return runExport(figure);
    }
    if (bench_app->parsed()) {
        return runBench(started, json);
    }
    return runWindow(window);
}
