// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/execution_context.h"

namespace kvlab {

// output[i] = gate[i] / (1 + exp(-gate[i])) * up[i]   (SwiGLU, Shazeer 2020)
// Contract: element by element; never depends on batch or threads, on CUDA neither.
struct SiluMulParams {
    const float* gate = nullptr;  // [num_values]
    const float* up = nullptr;    // [num_values]
    float* output = nullptr;      // [num_values]; may be gate or up
    int64_t num_values = 0;       // num_tokens * feed_forward_dim
};

void siluMulCpu(const SiluMulParams& params, ExecutionContext& context);
// Through kernels/simt: the CUDA source, run thread block by thread block on the CPU.
void siluMulSimt(const SiluMulParams& params, ExecutionContext& context);
// Pointers are device memory. Present when KVLAB_CUDA is on.
void siluMulCuda(const SiluMulParams& params, ExecutionContext& context);

}  // namespace kvlab
