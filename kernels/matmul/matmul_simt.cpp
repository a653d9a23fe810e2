// SPDX-License-Identifier: MIT
#include <vector>

#include "kernels/half.h"
#include "kernels/matmul/matmul_kernel.cuh"
#include "kernels/matmul/matmul_split_kernel.cuh"

namespace kvlab {

void matmulSimt(const MatmulParams& params, ExecutionContext& context) {
    launchMatmul(params, context.stream);
}

void matmulGroupSimt(const MatmulGroupParams& params, ExecutionContext& context) {
    if (launchMatmulGroup(params, context.stream)) return;
    if (params.norm_weight != nullptr) {
        launchRmsNorm(rmsNormOfGroup(params), context.stream);
        return matmulGroupSimt(groupOfNormed(params), context);
    }
    for (int i = 0; i < params.num_parts; ++i) matmulSimt(matmulOfPart(params, i), context);
    if (params.silu_mul) launchSiluMul(siluMulOfGroup(params), context.stream);
}

namespace {

double plainValue(TensorType type, const void* values, size_t at) {
    if (type == TensorType::kF32) return double{static_cast<const float*>(values)[at]};
    const uint16_t bits = static_cast<const uint16_t*>(values)[at];
    return double{type == TensorType::kF16 ? halfToFloat(bits) : bfloat16ToFloat(bits)};
}

}  // namespace

void matmulSplitSimt(const MatmulParams& params, ExecutionContext& context) {
    matmul_detail::checkShapes(params);
    matmul_detail::require(!isQuantised(params.type), "quantised weights are not split");
    if (params.num_rows == 0) return;
    const auto num_rows = static_cast<size_t>(params.num_rows);
    const auto num_inputs = static_cast<size_t>(params.num_inputs);
    const auto num_outputs = static_cast<size_t>(params.num_outputs);
    const bool split = params.type != TensorType::kF32;
    std::vector<uint16_t> high(split ? num_rows * num_inputs : 0), low(high.size());
    std::vector<float> scales(split ? num_rows : 0), sums(num_rows * num_outputs);
    if (split) {
        MatmulSplitParams parts;
        parts.input = params.input;
        parts.high = high.data();
        parts.low = low.data();
        parts.scales = scales.data();
        parts.num_rows = params.num_rows;
        parts.num_inputs = params.num_inputs;
        launchMatmulSplit(parts, params.type, context.stream);
    }
    for (size_t r = 0; r < num_rows; ++r) {
        for (size_t o = 0; o < num_outputs; ++o) {
            double sum = 0;
            for (size_t k = 0; k < num_inputs; ++k) {
                const size_t at = r * num_inputs + k;
                const double weight = plainValue(params.type, params.weight, o * num_inputs + k);
                sum += weight * (split ? plainValue(params.type, high.data(), at)
                                       : double{params.input[at]});
                if (split) sum += weight * plainValue(params.type, low.data(), at);
            }
            sums[r * num_outputs + o] = static_cast<float>(sum);
        }
    }
    launchMatmulFinish(params, sums.data(), split ? scales.data() : nullptr, context.stream);
}

}  // namespace kvlab
