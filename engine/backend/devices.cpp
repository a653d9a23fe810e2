// SPDX-License-Identifier: MIT
#include "engine/backend/devices.h"

#include <unistd.h>

#include "engine/backend/cuda_plugin.h"
#include "engine/backend/host_backend.h"

namespace kvlab {
namespace {

DeviceInfo cpuDevice() {
    DeviceInfo device{.backend = "cpu", .name = processorName(), .available = true};
    const long num_pages = sysconf(_SC_PHYS_PAGES);
    const long page_bytes = sysconf(_SC_PAGESIZE);
    if (num_pages > 0 && page_bytes > 0) device.memory_bytes = int64_t{num_pages} * page_bytes;
    return device;
}

std::vector<DeviceInfo> cudaDevices() {
    const auto none = [](const std::string& reason) {
        return std::vector<DeviceInfo>{{.backend = "cuda", .name = "", .reason = reason}};
    };
    const CudaPlugin plugin = loadCudaPlugin();
    if (!plugin.reason.empty()) return none(plugin.reason);
    std::vector<DeviceInfo> devices;
    for (int i = 0; i < plugin.probe.num_devices; ++i) {
        const CudaDevice& found = plugin.probe.devices[i];
        DeviceInfo device{.backend = "cuda", .name = found.name};
        device.memory_bytes = found.memory_bytes;
        device.driver = "CUDA " + std::to_string(found.driver_version / 1000) + "." +
                        std::to_string(found.driver_version % 1000 / 10);
        device.reason = cudaDeviceProblem(found);
        if (device.reason.empty() && i > 0) {
            device.reason =
                "KV Lab runs on the first GPU; CUDA_VISIBLE_DEVICES=" + std::to_string(i) +
                " makes this one the first";
        }
        device.available = device.reason.empty();
        devices.push_back(device);
    }
    return devices;
}

}  // namespace

std::vector<DeviceInfo> listDevices() {
    std::vector<DeviceInfo> devices = {cpuDevice()};
    DeviceInfo simt = devices.front();
    simt.backend = "simt";
    devices.push_back(simt);
    for (DeviceInfo& device : cudaDevices()) devices.push_back(std::move(device));
    return devices;
}

std::string cpuFallbackProblem(const std::string& backend) {
    if (backend == "cuda") return "";
    if (backend == "auto") {
        return "--cpu-fallback is for --backend cuda; --backend auto lets the CPU take over by "
               "itself, so leave it out";
    }
    return "--cpu-fallback is for a GPU that fails; add --backend cuda";
}

}  // namespace kvlab
