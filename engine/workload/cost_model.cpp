// SPDX-License-Identifier: MIT
#include "engine/workload/cost_model.h"

#include <algorithm>

#include "engine/error.h"
#include "engine/model/weights.h"
#include "kernels/tensor_type.h"

namespace kvlab {

ModelWork modelWork(const ModelSpec& spec) {
    constexpr double kBytesPerParameter = 2;  // bf16, as the table counts
    const double bytes = static_cast<double>(spec.weights_bytes);
    return {bytes / kBytesPerParameter, bytes};
}

ModelWork modelWork(const ModelWeights& weights) {
    ModelWork work;
    const auto add = [&](const WeightMatrix& matrix) {
        if (matrix.data == nullptr) return;
        const int64_t count = int64_t{matrix.num_rows} * matrix.num_cols;
        work.num_parameters += static_cast<double>(count);
        work.weights_bytes += static_cast<double>(tensorBytes(matrix.type, count));
    };
    for (const LayerWeights& layer : weights.layers) {
        for (const WeightMatrix* matrix :
             {&layer.attention_norm, &layer.query, &layer.key, &layer.value, &layer.output,
              &layer.ffn_norm, &layer.gate, &layer.up, &layer.down, &layer.query_bias,
              &layer.key_bias, &layer.value_bias}) {
            add(*matrix);
        }
    }
    add(weights.output_norm);
    // The embedding is looked up, not multiplied by; a tied one is the head.
    add(weights.output);
    return work;
}

void StepCost::add(const StepCost& other) {
    matmul_ms += other.matmul_ms;
    attention_ms += other.attention_ms;
    copy_ms += other.copy_ms;
    overhead_ms += other.overhead_ms;
}

StepCost stepCost(const AssumedMachine& machine, const ModelWork& work, const StepShape& shape) {
    constexpr double kMsPerSecond = 1000;
    const auto memoryMs = [&](double bytes) {
        return kMsPerSecond * bytes / machine.memory_bytes_per_s;
    };
    StepCost cost;
    const double num_tokens = shape.num_prefill_tokens + shape.num_decode_tokens;
    if (num_tokens > 0) {
        cost.matmul_ms =
            std::max(kMsPerSecond * 2 * work.num_parameters * num_tokens / machine.flops_per_s,
                     memoryMs(work.weights_bytes));
    }
    cost.attention_ms = memoryMs(static_cast<double>(shape.attention_bytes));
    cost.copy_ms =
        memoryMs(2 * static_cast<double>(shape.copied_bytes)) +
        kMsPerSecond * static_cast<double>(shape.swapped_bytes) / machine.link_bytes_per_s;
    cost.overhead_ms = machine.overhead_ms;
    return cost;
}

ModelConfig accountingModel(const ModelSpec& spec, DataType kv_dtype) {
    ModelConfig model;
    model.name = spec.name;
    model.num_layers = spec.num_layers;
    model.num_heads = spec.num_heads;
    model.num_kv_heads = spec.num_kv_heads;
    model.head_dim = spec.head_dim;
    model.context_len = spec.context_len;
    if (spec.attention == AttentionKind::kMla) {
        if (kv_dtype == DataType::kInt8) {
            throw EngineError(ErrorKind::kUnsupported,
                              spec.name +
                                  " caches one latent a token, which an accounting run does "
                                  "not count in int8; use f32, f16 or bf16");
        }
        model.num_kv_heads = 1;
        model.head_dim = spec.latent_dim / 2;
    }
    if (spec.num_local_layers > 0) {
        model.layer_windows.assign(static_cast<size_t>(spec.num_layers), 0);
        std::fill_n(model.layer_windows.begin(), spec.num_local_layers, spec.window);
    }
    return model;
}

}  // namespace kvlab
