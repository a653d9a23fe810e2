// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvlab {

// A place where a backend could run.
struct DeviceInfo {
    std::string backend;  // cpu, simt, cuda: what --backend takes
    std::string name;     // of the hardware; empty when there is none
    bool available = false;
    std::string reason;  // why not available; empty when it is
    std::optional<int64_t> memory_bytes;
    std::string driver;  // CUDA version that a GPU's driver is for; empty: no driver is needed
};

// cpu, simt, and one entry for each CUDA device or one that says why there is none. Never throws
// for what is missing: no plugin (cuda_plugin.h says where it is looked for), driver or device is a
// reason.
std::vector<DeviceInfo> listDevices();

// Why --cpu-fallback has no place beside this --backend, and what to do; empty when it has.
std::string cpuFallbackProblem(const std::string& backend);

}  // namespace kvlab
