// SPDX-License-Identifier: MIT
#include <cmath>

#include "kernels/cpu/thread_pool.h"
#include "kernels/rms_norm/rms_norm.h"

namespace kvlab {

void rmsNormCpu(const RmsNormParams& p, ExecutionContext& context) {
    constexpr int kValuesPerChunk = 2048;
    context.threads->parallelFor(
        p.num_rows, kValuesPerChunk / p.dim, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                const float* input = p.input + row * p.dim;
                float* output = p.output + row * p.dim;
                double sum = 0;
                for (int i = 0; i < p.dim; ++i) sum += static_cast<double>(input[i]) * input[i];
                const float factor = static_cast<float>(
                    1.0 / std::sqrt(sum / p.dim + static_cast<double>(p.epsilon)));
                for (int i = 0; i < p.dim; ++i) output[i] = input[i] * factor * p.weight[i];
            }
        });
}

}  // namespace kvlab
