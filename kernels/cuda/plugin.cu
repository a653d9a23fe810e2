// SPDX-License-Identifier: MIT
#include <cstdio>
#include <type_traits>

#include <cuda_runtime.h>

#include "kernels/cuda/plugin.h"

namespace kvlab {
namespace {

void explain(cudaError_t code, CudaProbe* probe) {
    int driver = 0;
    int runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (code == cudaErrorInsufficientDriver && driver == 0) {
        std::snprintf(probe->reason, sizeof probe->reason, "no NVIDIA driver is installed");
    } else if (code == cudaErrorInsufficientDriver) {
        std::snprintf(probe->reason, sizeof probe->reason,
                      "the NVIDIA driver is for CUDA %d.%d and must be for CUDA %d.%d at least",
                      driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    } else if (code == cudaErrorNoDevice || code == cudaSuccess) {
        std::snprintf(probe->reason, sizeof probe->reason, "the NVIDIA driver finds no GPU");
    } else {
        std::snprintf(probe->reason, sizeof probe->reason, "CUDA does not start: %s",
                      cudaGetErrorString(code));
    }
}

}  // namespace
}  // namespace kvlab

extern "C" int32_t kvlabCudaProbe(int32_t version, kvlab::CudaProbe* probe) {
    using namespace kvlab;
    if (version != kCudaPluginVersion) return kCudaPluginVersion;
    *probe = {};
    int num_devices = 0;
    const cudaError_t code = cudaGetDeviceCount(&num_devices);
    if (code != cudaSuccess || num_devices == 0) {
        explain(code, probe);
        return kCudaPluginVersion;
    }
    for (int i = 0; i < num_devices && i < CudaProbe::kMaxDevices; ++i) {
        cudaDeviceProp properties;
        const cudaError_t device_code = cudaGetDeviceProperties(&properties, i);
        if (device_code != cudaSuccess) {
            explain(device_code, probe);
            continue;
        }
        CudaDevice& device = probe->devices[probe->num_devices++];
        std::snprintf(device.name, sizeof device.name, "%s", properties.name);
        device.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
        device.compute_capability = 10 * properties.major + properties.minor;
    }
    return kCudaPluginVersion;
}

static_assert(std::is_same_v<decltype(kvlabCudaProbe), kvlab::CudaProbeFunction>);
