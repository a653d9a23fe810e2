// SPDX-License-Identifier: MIT
#include "kernels/reference/llama_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels/half.h"
#include "kernels/reference/attention_reference.h"

namespace kvlab {
namespace {

double weightAt(const ReferenceWeights& weights, int64_t index) {
    const auto* bytes = static_cast<const std::byte*>(weights.data);
    if (weights.dtype == DataType::kF32) {
        float value;
        std::memcpy(&value, bytes + index * 4, sizeof value);
        return value;
    }
    uint16_t bits;
    std::memcpy(&bits, bytes + index * 2, sizeof bits);
    return weights.dtype == DataType::kF16 ? halfToFloat(bits) : bfloat16ToFloat(bits);
}

// matrix [num_outputs, input.size()] times input
std::vector<double> multiply(const ReferenceWeights& matrix,
                             int num_outputs,
                             const std::vector<double>& input) {
    std::vector<double> output(static_cast<size_t>(num_outputs));
    int64_t index = 0;
    for (double& sum : output) {
        for (const double value : input) sum += weightAt(matrix, index++) * value;
    }
    return output;
}

std::vector<double> rmsNorm(const std::vector<double>& input,
                            const ReferenceWeights& weight,
                            double epsilon) {
    double sum_of_squares = 0;
    for (const double value : input) sum_of_squares += value * value;
    const double scale =
        1. / std::sqrt(sum_of_squares / static_cast<double>(input.size()) + epsilon);
    std::vector<double> output(input.size());
    for (size_t i = 0; i < input.size(); ++i) {
        output[i] = input[i] * scale * weightAt(weight, static_cast<int64_t>(i));
    }
    return output;
}

// data [num_heads * head_dim]
void rope(std::vector<double>& data, int head_dim, int rope_dim, double base, int position) {
    for (size_t head = 0; head < data.size(); head += static_cast<size_t>(head_dim)) {
        for (int pair = 0; pair < rope_dim; pair += 2) {
            const double angle = position * std::pow(base, -static_cast<double>(pair) / rope_dim);
            double& a = data[head + static_cast<size_t>(pair)];
            double& b = data[head + static_cast<size_t>(pair) + 1];
            const double turned_a = a * std::cos(angle) - b * std::sin(angle);
            b = a * std::sin(angle) + b * std::cos(angle);
            a = turned_a;
        }
    }
}

// As int8_row.h stores a row of head_dim values.
void roundRowsToInt8(int head_dim, std::vector<double>& data) {
    for (auto row = data.begin(); row != data.end(); row += head_dim) {
        double largest = 0;
        for (auto value = row; value != row + head_dim; ++value) {
            *value = static_cast<float>(*value);
            largest = std::max(largest, std::abs(*value));
        }
        const double scale = static_cast<float>(largest / 127);
        for (auto value = row; value != row + head_dim && scale > 0; ++value) {
            *value = scale * std::nearbyint(static_cast<float>(*value / scale));
        }
    }
}

void roundTo(DataType dtype, int head_dim, std::vector<double>& data) {
    if (dtype == DataType::kInt8) return roundRowsToInt8(head_dim, data);
    for (double& value : data) {
        const auto single = static_cast<float>(value);
        switch (dtype) {
            case DataType::kInt8:
            case DataType::kF32:
                value = single;
                break;
            case DataType::kF16:
                value = halfToFloat(floatToHalf(single));
                break;
            case DataType::kBF16:
                value = bfloat16ToFloat(floatToBfloat16(single));
                break;
        }
    }
}

void add(std::vector<double>& target, const std::vector<double>& values) {
    for (size_t i = 0; i < target.size(); ++i) target[i] += values[i];
}

void check(bool condition, const std::string& what) {
    if (!condition) throw std::invalid_argument("llamaReference: " + what);
}

void checkModel(const LlamaReferenceModel& model) {
    check(model.vocab_size > 0 && model.dim > 0 && model.head_dim > 0 && model.feed_forward_dim > 0,
          "a size is not positive");
    check(
        model.num_kv_heads > 0 && model.num_heads > 0 && model.num_heads % model.num_kv_heads == 0,
        "the number of heads is not a multiple of the number of KV heads");
    check(model.rope_dim >= 0 && model.rope_dim % 2 == 0 && model.rope_dim <= model.head_dim,
          "rope_dim is odd or above head_dim");
    bool complete = model.embedding.data != nullptr && model.output_norm.data != nullptr &&
                    model.head.data != nullptr;
    for (const LlamaReferenceLayer& layer : model.layers) {
        for (const ReferenceWeights* weights :
             {&layer.attention_norm, &layer.query, &layer.key, &layer.value, &layer.output,
              &layer.feed_forward_norm, &layer.gate, &layer.up, &layer.down}) {
            complete = complete && weights->data != nullptr;
        }
    }
    check(complete, "a weight is missing");
}

}  // namespace

std::vector<double> llamaReference(const LlamaReferenceModel& model,
                                   const std::vector<int32_t>& token_ids,
                                   bool last_only,
                                   std::optional<DataType> kv_dtype) {
    checkModel(model);
    const int num_tokens = static_cast<int>(token_ids.size());
    const int query_dim = model.num_heads * model.head_dim;
    const int kv_dim = model.num_kv_heads * model.head_dim;
    const double attention_scale = 1. / std::sqrt(static_cast<double>(model.head_dim));

    std::vector<std::vector<double>> x(token_ids.size());  // a row per token
    for (size_t t = 0; t < token_ids.size(); ++t) {
        const int64_t id = token_ids[t];
        check(id >= 0 && id < model.vocab_size,
              "token id " + std::to_string(id) + " is outside the vocabulary");
        for (int i = 0; i < model.dim; ++i) {
            x[t].push_back(weightAt(model.embedding, id * model.dim + i));
        }
    }

    for (const LlamaReferenceLayer& layer : model.layers) {
        std::vector<std::vector<double>> queries;
        std::vector<double> keys;  // [num_tokens, num_kv_heads, head_dim]
        std::vector<double> values;
        for (int t = 0; t < num_tokens; ++t) {
            const auto normed =
                rmsNorm(x[static_cast<size_t>(t)], layer.attention_norm, model.norm_epsilon);
            auto query = multiply(layer.query, query_dim, normed);
            auto key = multiply(layer.key, kv_dim, normed);
            auto value = multiply(layer.value, kv_dim, normed);
            rope(query, model.head_dim, model.rope_dim, model.rope_base, t);
            rope(key, model.head_dim, model.rope_dim, model.rope_base, t);
            if (kv_dtype) {
                roundTo(*kv_dtype, model.head_dim, key);
                roundTo(*kv_dtype, model.head_dim, value);
            }
            queries.push_back(std::move(query));
            keys.insert(keys.end(), key.begin(), key.end());
            values.insert(values.end(), value.begin(), value.end());
        }
        for (int t = 0; t < num_tokens; ++t) {
            std::vector<double>& row = x[static_cast<size_t>(t)];
            std::vector<double> attended(static_cast<size_t>(query_dim));
            denseAttention(queries[static_cast<size_t>(t)].data(), keys.data(), values.data(),
                           t + 1, model.num_heads, model.num_kv_heads, model.head_dim,
                           attention_scale, attended.data());
            add(row, multiply(layer.output, model.dim, attended));

            const auto normed = rmsNorm(row, layer.feed_forward_norm, model.norm_epsilon);
            auto hidden = multiply(layer.gate, model.feed_forward_dim, normed);
            const auto up = multiply(layer.up, model.feed_forward_dim, normed);
            for (size_t i = 0; i < hidden.size(); ++i) {
                hidden[i] = hidden[i] / (1. + std::exp(-hidden[i])) * up[i];
            }
            add(row, multiply(layer.down, model.dim, hidden));
        }
    }

    std::vector<double> logits;
    for (int t = last_only ? num_tokens - 1 : 0; t >= 0 && t < num_tokens; ++t) {
        const auto normed =
            rmsNorm(x[static_cast<size_t>(t)], model.output_norm, model.norm_epsilon);
        const auto row = multiply(model.head, model.vocab_size, normed);
        logits.insert(logits.end(), row.begin(), row.end());
    }
    return logits;
}

}  // namespace kvlab
