// SPDX-License-Identifier: GPL-3.0-or-later
#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <QApplication>
#include <QHashSeed>
#include <QIcon>
#include <QRawFont>

#include "app/gui/commands/bench_command.h"
#include "app/gui/commands/export_command.h"
#include "app/gui/commands/window_command.h"
#include "app/gui/main_window.h"
#include "engine/backend/devices.h"
#include "engine/model/utf8.h"
#include "lessons/lesson_loader.h"

namespace {

// What Qt says while it starts, held back until it has started: a display that cannot be
// reached would bring six lines of them and an abort.
bool qt_starts = false;
std::vector<std::string> held_messages;

// One line, whatever a file name or an argument holds.
void printProblem(const std::string& text) {
    std::string line = "kvlab: " + text;
    for (char& c : line) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte == 0x7f) {
            c = ' ';
        }
    }
    std::fprintf(stderr, "%s\n", line.c_str());
}

std::string environment(const char* variable) {
    const char* value = std::getenv(variable);
    return value ? value : "";
}

std::string whyQtCannotStart() {
    const std::string platform = environment("QT_QPA_PLATFORM");
    if (!platform.empty()) {
        return "Qt has no platform " + kvlab::quotedForMessage(platform) +
               " that works here; unset QT_QPA_PLATFORM";
    }
    const bool x11 = !environment("DISPLAY").empty();
    const char* variable = x11 ? "DISPLAY" : "WAYLAND_DISPLAY";
    return "the display " + kvlab::quotedForMessage(environment(variable)) +
           " cannot be opened; check " + variable +
           ", or use kvlab --screenshot F.png or kvlab export";
}

void dropKnownNoise(QtMsgType type, const QMessageLogContext&, const QString& message) {
    if (qt_starts && type == QtFatalMsg) {
        printProblem(whyQtCannotStart());
        std::_Exit(1);
    }
    // What Qt says on every machine without a display and nobody can act on.
    static const char* const kNoise[] = {"propagateSizeHints", "XDG_RUNTIME_DIR",
                                         "QStandardPaths: XDG_RUNTIME_DIR"};
    for (const char* noise : kNoise) {
        if (message.contains(QLatin1String(noise))) {
            return;
        }
    }
    if (qt_starts) {
        held_messages.push_back(message.toStdString());
        return;
    }
    std::fprintf(stderr, "%s\n", qPrintable(message));
    if (type == QtFatalMsg) {
        std::abort();
    }
}

// The list of families holds names such as "Sans Serif" even then.
bool hasFonts() { return !QRawFont::fromFont(QGuiApplication::font()).fontTable("head").isEmpty(); }

// A full disk or a closed pipe must not look like success.
int withOutputWritten(int status) {
    const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
    if (!written && status == 0) {
        printProblem("the output could not be written; free some disk space, or write elsewhere");
        return 1;
    }
    return status;
}

// What the parser says, in the words of the other sentences.
// `left`: the words that no option took, in the order of the call; the parser's own text has them
// from the last to the first.
std::string sentenceOf(const CLI::ParseError& error, const std::vector<std::string>& left) {
    static const std::regex kTwice("(.*): At Most .* required but received .*");
    static const std::regex kMissing("(.*): [0-9]+ required .* missing");
    static const std::regex kNumber("Could not convert: (.*) = (.*)");
    const std::string text = error.what();
    std::smatch found;
    std::string sentence = text;
    if (std::regex_match(text, found, kTwice)) {
        sentence = found.str(1) + " was given more than once; give it once";
    } else if (std::regex_match(text, found, kMissing)) {
        sentence = found.str(1) + " needs a value";
    } else if (std::regex_match(text, found, kNumber)) {
        sentence =
            found.str(1) + " wants a whole number, not " + kvlab::quotedForMessage(found.str(2));
    } else if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) &&
               !left.empty()) {
        sentence = kvlab::quotedForMessage(left.front()) + " is not understood here";
    }
    const bool says_what_to_do = sentence.find("; ") != std::string::npos;
    return says_what_to_do ? sentence : sentence + "; see kvlab --help";
}

[[noreturn]] void refuse(const std::string& sentence) { throw CLI::ValidationError(sentence); }

// Options that DESIGN.md promises and that come with later rooms.
void addLaterOptions(CLI::App* app, std::initializer_list<const char*> names) {
    for (const char* name : names) {
        app->add_option_function<std::vector<std::string>>(
               name,
               [name](const std::vector<std::string>&) {
                   refuse(std::string(name) + " is not built yet");
               },
               "not built yet")
            ->expected(0, 1)
            ->type_name("")
            ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
            ->group("Not built yet");
    }
}

CLI::Option* addTheme(CLI::App* app, std::optional<kvlab::ThemeKind>* theme) {
    return app
        ->add_option_function<std::string>(
            "--theme",
            [theme](const std::string& name) {
                if (name == "both") {
                    refuse("--theme both is not built yet; use light or dark");
                }
                if (name != "light" && name != "dark") {
                    refuse("--theme wants light or dark, not " + kvlab::quotedForMessage(name));
                }
                *theme = name == "dark" ? kvlab::ThemeKind::kDark : kvlab::ThemeKind::kLight;
            },
            "light or dark")
        ->type_name("NAME");
}

// The whole text as a number; the parser's own ranges let "nan" pass.
template <class Number>
std::optional<Number> numberIn(const std::string& text, Number low, Number high) {
    Number value{};
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || rest != end || !(value >= low && value <= high)) {
        return std::nullopt;
    }
    return value;
}

CLI::Option* addScale(
    CLI::App* app, double* scale, double low, double high, const std::string& help) {
    std::ostringstream range;
    range << low << " to " << high;
    const std::string wanted = "a number from " + range.str();
    return app
        ->add_option_function<std::string>(
            "--scale",
            [=](const std::string& text) {
                const auto value = numberIn(text, low, high);
                if (!value) {
                    refuse("--scale wants " + wanted + ", not " + kvlab::quotedForMessage(text));
                }
                *scale = *value;
            },
            help + ", " + range.str())
        ->type_name("NUMBER");
}

void addWidth(CLI::App* app, int* width) {
    app->add_option_function<std::string>(
           "--width",
           [=](const std::string& text) {
               if (text.size() > 2 && text.compare(text.size() - 2, 2, "mm") == 0) {
                   refuse("--width in millimetres is not built yet; give pixels");
               }
               const auto value = numberIn(text, 240, 8192);
               if (!value) {
                   refuse("--width wants pixels from 240 to 8192, not " +
                          kvlab::quotedForMessage(text));
               }
               *width = *value;
           },
           "px, 240 to 8192")
        ->type_name("NUMBER");
}

// In front of the command's name they would have no effect.
void refuseOptionsBefore(const CLI::App& app, const CLI::App* command) {
    for (const CLI::Option* option : app.get_options()) {
        if (command->parsed() && option->count() > 0) {
            refuse(option->get_name() + " opens a window and does nothing for kvlab " +
                   command->get_name() + "; leave it out or write it behind " +
                   command->get_name());
        }
    }
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
    app.footer(
        "Environment:\n"
        "  KVLAB_LESSONS               folder of the lessons, instead of the installed one\n"
        "  KVLAB_MODEL                 model file, instead of the bundled one\n"
        "  KVLAB_CUDA_PLUGIN           CUDA plugin, instead of the one beside the program\n");
    WindowOptions window;
    std::string size;
    app.add_option("FILE", window.trace, "a recorded run to open");
    app.add_option("--lesson", window.lesson, "lesson to open")->capture_default_str();
    app.add_option("--stop", window.stop, "place in the lesson, from 1");
    addTheme(&app, &window.theme);
    app.add_option_function<std::string>(
           "--backend",
           [&window](const std::string& name) {
               if (name != "auto" && name != "cpu" && name != "cuda" && name != "simt") {
                   refuse("--backend wants auto, cpu, cuda or simt, not " + quotedForMessage(name));
               }
               window.backend = name;
           },
           "where the model runs: auto (a GPU if there is one), cpu, cuda, or simt, which runs the "
           "CUDA kernels on the CPU, slowly, to check and to show them")
        ->type_name("NAME");
    app.add_flag("--cpu-fallback", window.cpu_fallback,
                 "with --backend cuda: let the CPU take over when the GPU fails, unasked");
    double scale = 1;
    addScale(&app, &scale, 0.5, 4, "size of the whole window, 1 is normal");
    app.add_option("--screenshot", window.screenshot, "save a picture of the window and exit");
    app.add_option("--size", size, "of the window, as 1600x1000");
    app.add_option("--at-step", window.at_step, "moment of the picture: before this engine step");
    app.add_option("--select", window.select,
                   "what the picture selects: kv:block/37, kv:sequence/0");
    app.add_flag("--kernel-walk", window.kernel_walk, "show the kernel walk, for --backend simt");
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
    addWidth(export_app, &figure.width);
    addScale(export_app, &figure.scale, 0.25, 8, "PNG: pixels per px");
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
        refuseOptionsBefore(app, export_app);
        refuseOptionsBefore(app, bench_app);
        for (const char* name : {"FILE", "--screenshot"}) {
            const CLI::Option* given = app.get_option(name);
            if (given->count() > 0 && given->as<std::string>().empty()) {
                refuse(std::string(name) + " is empty; name a file or leave it out");
            }
        }
        for (const char* name : {"--at-step", "--select"}) {
            if (app.get_option(name)->count() > 0 && window.screenshot.empty()) {
                refuse(std::string(name) + " is of a picture; add --screenshot F.png");
            }
        }
        if (const std::string problem = cpuFallbackProblem(window.backend);
            window.cpu_fallback && !problem.empty()) {
            refuse(problem);
        }
        if (!size.empty()) {
            int width = 0;
            int height = 0;
            char rest = 0;
            if (std::sscanf(size.c_str(), "%dx%d%c", &width, &height, &rest) != 2) {
                refuse("--size is written as 1600x1000, not " + quotedForMessage(size));
            }
            const QSize least = MainWindow::kMinimumSize;
            if (width < least.width() || height < least.height() || width > 10000 ||
                height > 10000) {
                refuse("--size wants " + std::to_string(least.width()) + "x" +
                       std::to_string(least.height()) + " to 10000x10000, not " +
                       quotedForMessage(size) + "; --scale makes the picture smaller or larger");
            }
            window.size = QSize(width, height);
        }
        if (export_app->parsed() && !figure.list &&
            (figure.source.empty() || (figure.output.empty() && figure.format.empty()))) {
            throw CLI::ValidationError(
                "export needs a lesson or a trace, and -o FILE or --format (or --list)");
        }
    } catch (const CLI::CallForHelp& e) {
        return withOutputWritten(app.exit(e));
    } catch (const CLI::CallForVersion& e) {
        return withOutputWritten(app.exit(e));
    } catch (const CLI::ParseError& e) {
        printProblem(sentenceOf(e, app.remaining(true)));
        return 2;
    }
    figure.theme = figure_theme.value_or(ThemeKind::kLight);

    const bool headless = export_app->parsed() || bench_app->parsed() || !window.screenshot.empty();
    if (bench_app->parsed() || (!export_app->parsed() && window.trace.empty())) {
        std::error_code error;
        const std::string folder = lessonsFolder();
        if (!std::filesystem::is_directory(folder, error)) {
            printProblem("the lessons folder " + quotedForMessage(folder) +
                         " is missing; set KVLAB_LESSONS to the right one");
            return 1;
        }
    }
    if (environment("QT_QPA_PLATFORM").empty()) {
        if (headless) {
            qputenv("QT_QPA_PLATFORM", "offscreen");
        } else if (environment("DISPLAY").empty() && environment("WAYLAND_DISPLAY").empty()) {
            printProblem(
                "there is no display to open a window on; use kvlab --screenshot F.png or kvlab "
                "export");
            return 1;
        }
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
    qt_starts = true;
    QApplication qt(argc, argv);
    qt_starts = false;
    for (const std::string& message : held_messages) {
        std::fprintf(stderr, "%s\n", message.c_str());
    }
    if (!figure.list && !hasFonts()) {
        printProblem(
            "no fonts are installed, so texts will be missing or boxes; install "
            "fonts-inter or fonts-dejavu");
    }
    QCoreApplication::setApplicationName(QStringLiteral("kvlab"));
    QCoreApplication::setOrganizationName(QStringLiteral("kvlab"));
    QCoreApplication::setApplicationVersion(QStringLiteral(KVLAB_VERSION));
    QGuiApplication::setApplicationDisplayName(QStringLiteral("KV Lab"));
    QGuiApplication::setDesktopFileName(QStringLiteral("kvlab"));
    QGuiApplication::setWindowIcon(QIcon(QStringLiteral(":/icons/kvlab.svg")));
    if (export_app->parsed()) {
        return withOutputWritten(runExport(figure));
    }
    if (bench_app->parsed()) {
        return withOutputWritten(runBench(started, json));
    }
    return runWindow(window);
}
