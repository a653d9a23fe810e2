// SPDX-License-Identifier: MIT
#include "engine/input_file.h"

#include <filesystem>
#include <system_error>

#include "engine/error.h"
#include "engine/model/utf8.h"

namespace kvlab {

std::string inputFileProblem(const std::string& path) {
    namespace fs = std::filesystem;
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    switch (status.type()) {
        case fs::file_type::regular:
            return "";
        case fs::file_type::not_found: {
            const bool is_link = fs::is_symlink(path, error);
            return is_link ? "is a link to something that does not exist" : "does not exist";
        }
        case fs::file_type::directory:
            return "is a folder";
        case fs::file_type::fifo:
            return "is a pipe, not a file";
        case fs::file_type::socket:
            return "is a socket, not a file";
        case fs::file_type::block:
        case fs::file_type::character:
            return "is a device, not a file";
        default:
            // A folder above it that may not be entered, a loop of links, an endless name.
            return "cannot be reached (" + error.message() + ")";
    }
}

void checkInputFile(const std::string& path, const char* advice) {
    const std::string problem = inputFileProblem(path);
    if (problem.empty()) return;
    throw EngineError(ErrorKind::kBadFile, quotedForMessage(path) + " " + problem + "; " + advice);
}

}  // namespace kvlab
