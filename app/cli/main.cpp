// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <cstdio>

#include "app/cli/commands.h"
#include "engine/error.h"

int main(int argc, char** argv) {
    CLI::App app("KV Lab's engine without a window: a paged KV cache, measured.", "kvlab-cli");
    app.require_subcommand(1);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& success) {
        return app.exit(success);
    } catch (const CLI::ParseError& error) {
        std::fprintf(stderr, "kvlab-cli: %s; see kvlab-cli --help\n", error.what());
        return 2;
    } catch (const kvlab::EngineError& error) {
        std::fprintf(stderr, "kvlab-cli: %s\n", error.what());
        return error.kind() == kvlab::ErrorKind::kBadArgument ? 2 : 1;
    } catch (const std::bad_alloc&) {
        std::fprintf(stderr, "kvlab-cli: this machine has not enough memory for that; ask for less\n");
        return 1;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "kvlab-cli: %s\n", error.what());
        return 1;
    }
    return 0;
}
