// SPDX-License-Identifier: MIT
#include "engine/backend/devices.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "kernels/cuda/plugin.h"

namespace kvlab {
namespace {

constexpr const char* kPluginFile = "libkvlab_cuda.so";
// The oldest GPUs that the plugin is compiled for.
constexpr int kMinComputeCapability = 75;

std::string cpuName() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        // x86 says "model name", several ARM kernels "Model".
        if (!line.starts_with("model name") && !line.starts_with("Model")) continue;
        const size_t colon = line.find(':');
        if (colon == std::string::npos) continue;
        const size_t begin = line.find_first_not_of(" \t", colon + 1);
        if (begin != std::string::npos) return line.substr(begin);
    }
    return "CPU";
}

DeviceInfo cpuDevice() {
    DeviceInfo device{.backend = "cpu", .name = cpuName(), .available = true};
    const long num_pages = sysconf(_SC_PHYS_PAGES);
    const long page_bytes = sysconf(_SC_PAGESIZE);
    if (num_pages > 0 && page_bytes > 0) device.memory_bytes = int64_t{num_pages} * page_bytes;
    return device;
}

std::vector<std::filesystem::path> pluginCandidates() {
    if (const char* path = std::getenv("KVLAB_CUDA_PLUGIN"); path != nullptr && *path != '\0') {
        return {path};
    }
    std::error_code error;
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
    if (error) return {};
    const std::filesystem::path folder = program.parent_path();
    return {folder / kPluginFile, folder / "../lib/kvlab" / kPluginFile,
            folder / "../lib" / kPluginFile, folder / "../../lib" / kPluginFile};
}

struct Plugin {
    CudaProbeFunction* probe = nullptr;
    std::string reason;
};

Plugin loadPlugin() {
    for (const std::filesystem::path& path : pluginCandidates()) {
        std::error_code error;
        if (!std::filesystem::exists(path, error)) continue;
        // Stays loaded: the CUDA runtime inside registers what runs when the program ends.
        void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) {
            const char* const why = dlerror();
            return {nullptr, std::string("the CUDA plugin does not load: ") +
                                 (why != nullptr ? why : path.string())};
        }
        auto* const probe = reinterpret_cast<CudaProbeFunction*>(dlsym(library, kCudaProbeName));
        if (probe == nullptr) {
            return {nullptr, path.string() + " is not KV Lab's CUDA plugin"};
        }
        return {probe, ""};
    }
    return {nullptr, std::string("the CUDA plugin ") + kPluginFile +
                         " is not there: this copy was built without the CUDA toolkit"};
}

std::vector<DeviceInfo> cudaDevices() {
    const auto none = [](const std::string& reason) {
        return std::vector<DeviceInfo>{{.backend = "cuda", .name = "", .reason = reason}};
    };
    const Plugin plugin = loadPlugin();
    if (plugin.probe == nullptr) return none(plugin.reason);
    CudaProbe probe{};
    if (plugin.probe(kCudaPluginVersion, &probe) != kCudaPluginVersion) {
        return none("the CUDA plugin belongs to another version of KV Lab: build both together");
    }
    if (probe.num_devices == 0) return none(probe.reason);
    std::vector<DeviceInfo> devices;
    for (int i = 0; i < probe.num_devices; ++i) {
        const CudaDevice& found = probe.devices[i];
        DeviceInfo device{.backend = "cuda", .name = found.name};
        device.memory_bytes = found.memory_bytes;
        const int capability = found.compute_capability;
        if (capability < kMinComputeCapability) {
            device.reason = "compute capability " + std::to_string(capability / 10) + "." +
                            std::to_string(capability % 10) + " is below 7.5";
        } else {
            device.reason = "the GPU is there; the CUDA backend is not built yet";
        }
        devices.push_back(device);
    }
    return devices;
}

}  // namespace

std::vector<DeviceInfo> listDevices() {
    std::vector<DeviceInfo> devices = {cpuDevice()};
    devices.push_back({.backend = "simt",
                       .name = devices.front().name,
                       .reason =
                           "runs single CUDA kernels on the CPU to check them; a whole decode "
                           "through it is not built yet",
                       .memory_bytes = devices.front().memory_bytes});
    for (DeviceInfo& device : cudaDevices()) devices.push_back(std::move(device));
    return devices;
}

}  // namespace kvlab
