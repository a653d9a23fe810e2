// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>

#include "engine/backend/backend.h"

namespace kvlab {

struct CudaOptions {
    bool graphs = true;  // record the operations of a repeated shape once and replay them
    // Shapes that are remembered, recorded or seen once; the one that is longest unused goes first.
    size_t max_graphs = 64;
};

// A GPU that the plugin can use is there. Throws nothing.
bool cudaDeviceIsThere();

// The CUDA kernels on the first GPU (the driver's CUDA_VISIBLE_DEVICES chooses another one),
// through the plugin. Throws kUnsupported with the reason when there is none; every sentence names
// the way out, --backend cpu.
std::unique_ptr<Backend> makeCudaBackend(const CudaOptions& options);

}  // namespace kvlab
