// SPDX-License-Identifier: MIT
#include <cmath>

#include "kernels/cpu/thread_pool.h"
#include "kernels/silu_mul/silu_mul.h"

namespace kvlab {

void siluMulCpu(const SiluMulParams& p, ExecutionContext& context) {
    context.threads->parallelFor(p.num_values, 2048, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            p.output[i] = p.gate[i] / (1.f + std::exp(-p.gate[i])) * p.up[i];
        }
    });
}

}  // namespace kvlab
