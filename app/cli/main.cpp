// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "app/cli/commands.h"
#include "app/cli/later_options.h"
#include "engine/error.h"
#include "engine/model/utf8.h"

namespace {

// One line of valid UTF-8, whatever a file name or an argument holds.
void printProblem(std::string_view text) {
    std::string line = "kvlab-cli: ";
    while (!text.empty()) {
        const size_t length = kvlab::utf8CharacterLength(text);
        const auto byte = static_cast<unsigned char>(text.front());
        if (length == 0) {
            line += "?";
        } else if (byte < 0x20 || byte == 0x7f) {
            line += ' ';
        } else {
            line += text.substr(0, length);
        }
        text.remove_prefix(std::max<size_t>(length, 1));
    }
    while (line.back() == ' ') line.pop_back();
    std::fprintf(stderr, "%s\n", line.c_str());
}

// The command that was being read, "trace export"; empty: none yet.
std::string commandOf(const CLI::App& app) {
    std::string name;
    for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
        at = at->get_subcommands().front();
        name += (name.empty() ? "" : " ") + at->get_name();
    }
    return name;
}

// What the parser says, in the words of the other sentences. Its own lists what is left over from
// the last word to the first, so that a value stands in front of its option.
std::string sentenceOf(const CLI::App& app, const CLI::ParseError& error) {
    const std::string command = commandOf(app);
    const std::string see = "; see kvlab-cli " + (command.empty() ? "" : command + " ") + "--help";
    const std::string name = command.empty() ? "kvlab-cli" : command;
    const auto first_word = [](const std::string& text, size_t from) {
        return text.substr(from, text.find_first_of(" :", from) - from);
    };
    const std::string text = error.what();
    const std::vector<std::string> left = app.remaining(true);
    switch (static_cast<CLI::ExitCodes>(error.get_exit_code())) {
        case CLI::ExitCodes::RequiredError:
            if (text.find("subcommand") == std::string::npos) {
                const std::string missing = first_word(text, 0);
                return name + " wants " + (missing[0] == '-' ? "" : "a ") + missing + see;
            }
            if (left.empty()) return name + " wants a command" + see;
            [[fallthrough]];
        case CLI::ExitCodes::ExtrasError: {
            if (left.empty()) break;
            const bool is_option = left.front().size() > 1 && left.front()[0] == '-';
            return name + (is_option ? " has no option " : " does not take ") +
                   kvlab::quotedForMessage(left.front()) + see;
        }
        case CLI::ExitCodes::ArgumentMismatch:
            return first_word(text, 0) + " wants a value" + see;
        case CLI::ExitCodes::ConversionError:  // all values are read as text: it is a flag's
            return first_word(text, std::string_view("Could not convert: ").size()) +
                   " takes no value" + see;
        default:
            break;
    }
    return text + see;
}

// A closed descriptor would be given to the next file that is opened, and what is printed would
// land in it. In its place stands one that refuses to be written to or read.
void occupyClosedDescriptors() {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
        const int opened = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        if (opened >= 0 && opened != fd) close(opened);
    }
}

// A variable that is set and cannot be obeyed is told, not ignored.
void checkVectorVariable() {
    const char* const wanted = std::getenv("KVLAB_VECTOR");
    if (wanted == nullptr || *wanted == '\0') return;
    const std::string_view name = wanted;
    if (name == "avx2" || name == "baseline") return;
    printProblem("note: KVLAB_VECTOR is avx2 or baseline, not " + kvlab::quotedForMessage(name) +
                 "; the widest vector instructions of this machine are used");
}

// The arguments, last one first as the parser takes them. "--text=" becomes "--text" and an empty
// value, since the parser would take the next argument as the value.
std::vector<std::string> reversedArguments(int argc, char** argv) {
    std::vector<std::string> arguments;
    for (int i = 1; i < argc; ++i) {
        std::string argument = argv[i];
        const bool has_empty_value = argument.size() > 3 && argument.compare(0, 2, "--") == 0 &&
                                     argument.find('=') == argument.size() - 1;
        if (has_empty_value) {
            argument.pop_back();
            arguments.push_back(std::move(argument));
            arguments.emplace_back();
        } else {
            arguments.push_back(std::move(argument));
        }
    }
    std::reverse(arguments.begin(), arguments.end());
    return arguments;
}

int run(int argc, char** argv) {
    CLI::App app("KV Lab's engine without a window: a paged KV cache, measured.", "kvlab-cli");
    app.require_subcommand(1);
    app.set_version_flag("--version", KVLAB_VERSION);
    app.footer(
        "$KVLAB_MODEL names another model file, $KVLAB_LESSONS another lessons folder, "
        "$KVLAB_CUDA_PLUGIN another CUDA plugin; "
        "$KVLAB_VECTOR=avx2 or baseline holds wider vector instructions back.");
    // An option given twice: the last one counts, so that a script can override its own defaults.
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    kvlab::addSizeCommand(app);
    kvlab::addGenerateCommand(app);
    kvlab::addLogitsCommand(app);
    kvlab::addTokenizeCommand(app);
    kvlab::addCorpusCommand(app);
    kvlab::addEvalCommand(app);
    kvlab::addLessonsCommand(app);
    kvlab::addTraceCommand(app);
    kvlab::addDevicesCommand(app);
    kvlab::addBenchCommand(app);
    kvlab::addModelCommand(app);
    kvlab::addReplayCommand(app);
    kvlab::addSelfcheckCommand(app);
    kvlab::addLaterCommand(app, "prefix", "prefix reuse, scripted");
    kvlab::addLaterCommand(app, "workload", "what traffic repeats");
    try {
        app.parse(reversedArguments(argc, argv));
    } catch (const CLI::Success& success) {
        return app.exit(success);
    } catch (const CLI::ParseError& error) {
        const bool is_command = argc > 1 && !app.get_subcommands([&](CLI::App* command) {
                                                    return command->get_name() == argv[1];
                                                })
                                                 .empty();
        if (argc > 1 && argv[1][0] != '-' && !is_command) {
            printProblem("there is no command " + kvlab::quotedForMessage(argv[1]) +
                         "; see kvlab-cli --help");
        } else {
            printProblem(sentenceOf(app, error));
        }
        return 2;
    } catch (const kvlab::EngineError& error) {
        printProblem(error.what());
        return error.kind() == kvlab::ErrorKind::kBadArgument ? 2 : 1;
    } catch (const std::bad_alloc&) {
        printProblem(
            "there is not enough memory for that, or this process may not have more (ulimit -v); "
            "ask for less or raise the limit");
        return 1;
    } catch (const std::system_error& error) {
        // Threads that the system does not grant, above all.
        printProblem(std::string("the system refused what the run needs (") + error.what() +
                     "); ask for fewer threads or raise its limits (ulimit)");
        return 1;
    } catch (const std::exception& error) {
        printProblem(std::string("the run ended unexpectedly (") + error.what() +
                     "); please report this with the command");
        return 1;
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    occupyClosedDescriptors();
    // A file that grows beyond ulimit -f is a write that fails, with its sentence and no rest left.
    std::signal(SIGXFSZ, SIG_IGN);
    checkVectorVariable();
    const int status = run(argc, argv);
    // A full disk or a closed pipe must not look like success.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
        printProblem("the output could not be written; free some disk space, or write elsewhere");
        return status == 0 ? 1 : status;
    }
    return status;
}
