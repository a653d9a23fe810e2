// SPDX-License-Identifier: MIT
#include "engine/asset_paths.h"

#include <cstdlib>
#include <filesystem>

namespace kvlab {

std::string executableFolder() {
    std::error_code code;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", code);
    return code ? std::string() : self.parent_path().string();
}

std::string assetPath(const std::string& relative, const char* environment_variable) {
    if (environment_variable != nullptr) {
        const char* value = std::getenv(environment_variable);
        if (value != nullptr && *value != '\0') return value;
    }
    std::error_code code;
    const std::filesystem::path installed =
        std::filesystem::path(executableFolder()) / ".." / "share" / "kvlab" / relative;
    if (std::filesystem::exists(installed, code)) return installed.lexically_normal().string();
    return std::string(KVLAB_SOURCE_ASSETS) + "/" + relative;
}

}  // namespace kvlab
