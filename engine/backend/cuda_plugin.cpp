// SPDX-License-Identifier: MIT
#include "engine/backend/cuda_plugin.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <filesystem>
#include <fstream>
#include <vector>

#include "engine/input_file.h"
#include "engine/model/utf8.h"

namespace kvlab {

namespace {

constexpr const char* kPluginFile = "libkvlab_cuda.so";
constexpr const char* kOtherVersion =
    "the CUDA plugin belongs to another version of KV Lab: build both together";

// What the user names; null: nothing.
const char* namedPlugin() {
    const char* const path = std::getenv("KVLAB_CUDA_PLUGIN");
    return path != nullptr && *path != '\0' ? path : nullptr;
}

std::vector<std::filesystem::path> pluginCandidates() {
    if (const char* const path = namedPlugin()) return {path};
    std::error_code error;
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error) return {};
    const std::filesystem::path folder = program.parent_path();
    return {folder / kPluginFile, folder / "../lib/kvlab" / kPluginFile,
            folder / "../lib" / kPluginFile, folder / "../../lib" / kPluginFile};
}

// Every entry is a function pointer; a table with a hole would crash at the first call.
bool isComplete(const CudaTable& table) {
    static_assert(sizeof(CudaTable) % sizeof(void*) == 0);
    void* entries[sizeof(CudaTable) / sizeof(void*)];
    std::memcpy(entries, &table, sizeof table);
    for (const void* entry : entries) {
        if (entry == nullptr) return false;
    }
    return true;
}

// Whether a file ends before its table of sections, which the linker writes last. Loading such a
// library ends the program: its pages are mapped, and not there.
bool isCutOff(const std::filesystem::path& path) {
    std::error_code error;
    const uint64_t size = std::filesystem::file_size(path, error);
    Elf64_Ehdr header{};
    std::ifstream file(path, std::ios::binary);
    // What has no header is no library, and dlopen says so.
    if (error || !file.read(reinterpret_cast<char*>(&header), sizeof header)) return false;
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return false;
    const uint64_t table = uint64_t{header.e_shnum} * header.e_shentsize;
    return header.e_shoff > size || table > size - header.e_shoff;
}

CudaPlugin loadFrom(const std::filesystem::path& path) {
    CudaPlugin plugin;
    plugin.exists = true;
    plugin.is_named = namedPlugin() != nullptr;
    std::error_code error;
    if (const std::string problem = inputFileProblem(path); !problem.empty()) {
        plugin.reason = "the CUDA plugin does not load: " + path.string() + " " + problem;
        return plugin;
    }
    if (isCutOff(path)) {
        plugin.reason = "the CUDA plugin does not load: " + path.string() +
                        " is cut off; build or copy it again";
        return plugin;
    }
    // Absolute: a bare name would be looked for on the linker's path.
    const std::filesystem::path place = std::filesystem::absolute(path, error);
    void* const library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char* const why = dlerror();
        plugin.reason =
            std::string("the CUDA plugin does not load: ") + (why != nullptr ? why : path.string());
        return plugin;
    }
    auto* const probe = reinterpret_cast<CudaProbeFunction*>(dlsym(library, kCudaProbeName));
    if (probe == nullptr) {
        plugin.reason = path.string() + " is not KV Lab's CUDA plugin";
        return plugin;
    }
    auto* const table = reinterpret_cast<CudaTableFunction*>(dlsym(library, kCudaTableName));
    if (table == nullptr) {
        plugin.reason = std::string("the CUDA plugin lacks ") + kCudaTableName +
                        ": build it and the program together";
        return plugin;
    }
    if (probe(kCudaPluginVersion, &plugin.probe) != kCudaPluginVersion) {
        plugin.probe = {};
        plugin.reason = kOtherVersion;
        return plugin;
    }
    const CudaTable* const entries = table(kCudaPluginVersion);
    if (entries == nullptr || !isComplete(*entries)) {
        plugin.probe = {};
        plugin.reason = entries == nullptr ? kOtherVersion
                                           : "the CUDA plugin lacks some of its functions: build "
                                             "it and the program together";
        return plugin;
    }
    plugin.table = entries;
    if (plugin.probe.num_devices == 0) plugin.reason = plugin.probe.reason;
    return plugin;
}

}  // namespace

CudaPlugin loadCudaPlugin() {
    for (const std::filesystem::path& path : pluginCandidates()) {
        std::error_code error;
        if (std::filesystem::exists(path, error)) return loadFrom(path);
    }
    CudaPlugin plugin;
    if (const char* const named = namedPlugin()) {
        plugin.is_named = true;
        plugin.reason = "KVLAB_CUDA_PLUGIN names " + quotedForMessage(named) +
                        ", which is not there: give the path of the CUDA plugin";
        return plugin;
    }
    plugin.reason = std::string("the CUDA plugin ") + kPluginFile +
                    " is not there: this copy was built without the CUDA toolkit";
    return plugin;
}

std::string cudaDeviceProblem(const CudaDevice& device) {
    const int capability = device.compute_capability;
    if (capability >= kMinComputeCapability) return "";
    return "compute capability " + std::to_string(capability / 10) + "." +
           std::to_string(capability % 10) + " is below 7.5";
}

}  // namespace kvlab
