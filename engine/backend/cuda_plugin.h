// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "kernels/cuda/plugin.h"

namespace kvlab {

// The oldest GPUs that the plugin is compiled for: Turing.
constexpr int kMinComputeCapability = 75;

// The CUDA plugin as found, or why not. The plugin libkvlab_cuda.so is looked for beside the
// program, in ../lib/kvlab, ../lib and ../../lib of it (installed, build tree); or at the path in
// the environment variable KVLAB_CUDA_PLUGIN alone. Once loaded it stays: the CUDA runtime inside
// registers what runs when the program ends.
struct CudaPlugin {
    bool exists = false;    // a file is there, whether it loads or not
    bool is_named = false;  // KVLAB_CUDA_PLUGIN says which one
    const CudaTable* table = nullptr;
    CudaProbe probe{};   // its devices, when there is a table
    std::string reason;  // why there is no table, or no device
};
CudaPlugin loadCudaPlugin();

// Why this device cannot be used; empty when it can.
std::string cudaDeviceProblem(const CudaDevice& device);

}  // namespace kvlab
