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
};

// cpu, simt, and one entry for each CUDA device or one that says why there is none. Never throws
// for what is missing: no plugin, driver or device is a reason.
//
// The CUDA plugin libkvlab_cuda.so is looked for beside the program, in ../lib/kvlab, ../lib and
// ../../lib of it (installed, build tree); or at the path in the environment variable
// KVLAB_CUDA_PLUGIN alone.
std::vector<DeviceInfo> listDevices();

}  // namespace kvlab
