// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace kvlab {

// What passes between the program and libkvlab_cuda.so, which is loaded at run time so that neither
// the program nor its start depends on a driver or toolkit. Plain C types only.

struct CudaDevice {
    char name[256];
    int64_t memory_bytes;
    int32_t compute_capability;  // 10 * major + minor
};

struct CudaProbe {
    static constexpr int32_t kMaxDevices = 16;
    int32_t num_devices;  // 0: `reason` says why
    CudaDevice devices[kMaxDevices];
    char reason[256];
};

// A plugin of another build is refused instead of misread: the first number goes up with every
// change of meaning, and the size changes by itself with most changes of shape.
constexpr int32_t kCudaPluginVersion = 1 * 1'000'000 + static_cast<int32_t>(sizeof(CudaProbe));

// extern "C" in the plugin, under this name. Fills `probe` if the caller's version is the plugin's
// own; returns the plugin's version. Never throws; without a driver or device it says so.
using CudaProbeFunction = int32_t(int32_t version, CudaProbe* probe);
constexpr const char* kCudaProbeName = "kvlabCudaProbe";

}  // namespace kvlab
