// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include "app/cli/commands.h"
#include "app/cli/later_options.h"
#include "engine/error.h"

namespace {

// One line, whatever a file name or an argument holds.
void printProblem(const char* text) {
    std::string line = "kvlab-cli: ";
    for (const char* at = text; *at != '\0'; ++at) {
        const auto byte = static_cast<unsigned char>(*at);
        line += byte < 0x20 || byte == 0x7f ? ' ' : *at;
    }
    while (line.back() == ' ') line.pop_back();
    std::fprintf(stderr, "%s\n", line.c_str());
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
            printProblem(("there is no command " + std::string(argv[1]).substr(0, 60) +
                          "; see kvlab-cli --help")
                             .c_str());
            return 2;
        }
        printProblem((std::string(error.what()) + "; see kvlab-cli --help").c_str());
        return 2;
    } catch (const kvlab::EngineError& error) {
        printProblem(error.what());
        return error.kind() == kvlab::ErrorKind::kBadArgument ? 2 : 1;
    } catch (const std::bad_alloc&) {
        printProblem("this machine has not enough memory for that; ask for less");
        return 1;
    } catch (const std::exception& error) {
        printProblem(error.what());
        return 1;
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    const int status = run(argc, argv);
    // A full disk or a closed pipe must not look like success.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
        printProblem("the output could not be written; is the disk full?");
        return status == 0 ? 1 : status;
    }
    return status;
}
