// SPDX-License-Identifier: MIT
#include "kernels/reference/llama_reference.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "kernels/half.h"
#include "kernels/reference/attention_reference.h"
#include "kernels/reference/dequantise_reference.h"

namespace kvlab {
namespace {

double weightAt(const ReferenceWeights& weights, int64_t index) {
    return dequantisedAt(weights.type, weights.data, index);
}

// [num_outputs, num_inputs], read once for all tokens.
struct Matrix {
    Matrix(const ReferenceWeights& weights, int num_outputs, int num_inputs)
        : values(
              dequantiseReference(weights.type, weights.data, int64_t{num_outputs} * num_inputs)) {}
    std::vector<double> values;
};

// matrix times input
std::vector<double> multiply(const Matrix& matrix, const std::vector<double>& input) {
    std::vector<double> output(matrix.values.size() / input.size());
    auto weight = matrix.values.begin();
    for (double& sum : output) {
        for (const double value : input) sum += *weight++ * value;
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

void addBias(std::vector<double>& output, const ReferenceWeights& bias) {
    for (size_t i = 0; bias.data != nullptr && i < output.size(); ++i) {
        output[i] += weightAt(bias, static_cast<int64_t>(i));
    }
}

// data [num_heads * head_dim]
void rope(std::vector<double>& data, const LlamaReferenceModel& model, int position) {
    const size_t half = static_cast<size_t>(model.rope_dim) / 2;
    const bool adjacent = model.rope_style == RopeStyle::kInterleaved;
    for (size_t head = 0; head < data.size(); head += static_cast<size_t>(model.head_dim)) {
        for (size_t pair = 0; pair < half; ++pair) {
            double angle =
                position * model.rope_scale *
                std::pow(model.rope_base, -2. * static_cast<double>(pair) / model.rope_dim);
            if (!model.rope_divisors.empty()) angle /= model.rope_divisors[pair];
            double& a = data[head + (adjacent ? 2 * pair : pair)];
            double& b = data[head + (adjacent ? 2 * pair + 1 : pair + half)];
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
    check(model.rope_divisors.empty() ||
              model.rope_divisors.size() * 2 == static_cast<size_t>(model.rope_dim),
          "there is not one RoPE divisor a pair");
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
    if (!kv_dtype) return llamaReference(model, token_ids, last_only, KvSubstitute{});
    return llamaReference(model, token_ids, last_only,
                          [&](int, std::vector<double>& keys, std::vector<double>& values) {
                              roundTo(*kv_dtype, model.head_dim, keys);
                              roundTo(*kv_dtype, model.head_dim, values);
                          });
}

std::vector<double> llamaReference(const LlamaReferenceModel& model,
                                   const std::vector<int32_t>& token_ids,
                                   bool last_only,
                                   const KvSubstitute& substitute) {
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
        const Matrix query_matrix(layer.query, query_dim, model.dim);
        const Matrix key_matrix(layer.key, kv_dim, model.dim);
        const Matrix value_matrix(layer.value, kv_dim, model.dim);
        const Matrix output_matrix(layer.output, model.dim, query_dim);
        const Matrix gate_matrix(layer.gate, model.feed_forward_dim, model.dim);
        const Matrix up_matrix(layer.up, model.feed_forward_dim, model.dim);
        const Matrix down_matrix(layer.down, model.dim, model.feed_forward_dim);
        std::vector<std::vector<double>> queries;
        std::vector<double> keys;  // [num_tokens, num_kv_heads, head_dim]
        std::vector<double> values;
        for (int t = 0; t < num_tokens; ++t) {
            const auto normed =
                rmsNorm(x[static_cast<size_t>(t)], layer.attention_norm, model.norm_epsilon);
            auto query = multiply(query_matrix, normed);
            auto key = multiply(key_matrix, normed);
            auto value = multiply(value_matrix, normed);
            addBias(query, layer.query_bias);
            addBias(key, layer.key_bias);
            addBias(value, layer.value_bias);
            rope(query, model, t);
            rope(key, model, t);
            queries.push_back(std::move(query));
            keys.insert(keys.end(), key.begin(), key.end());
            values.insert(values.end(), value.begin(), value.end());
        }
        if (substitute) {
            substitute(static_cast<int>(&layer - model.layers.data()), keys, values);
            check(keys.size() == values.size() &&
                      keys.size() == token_ids.size() * static_cast<size_t>(kv_dim),
                  "K or V has lost its shape");
        }
        for (int t = 0; t < num_tokens; ++t) {
            std::vector<double>& row = x[static_cast<size_t>(t)];
            std::vector<double> attended(static_cast<size_t>(query_dim));
            const int first = layer.window > 0 ? std::max(0, t + 1 - layer.window) : 0;
            const int64_t skipped = int64_t{first} * kv_dim;
            denseAttention(queries[static_cast<size_t>(t)].data(), keys.data() + skipped,
                           values.data() + skipped, t + 1 - first, model.num_heads,
                           model.num_kv_heads, model.head_dim, attention_scale, attended.data());
            add(row, multiply(output_matrix, attended));

            const auto normed = rmsNorm(row, layer.feed_forward_norm, model.norm_epsilon);
            auto hidden = multiply(gate_matrix, normed);
            const auto up = multiply(up_matrix, normed);
            for (size_t i = 0; i < hidden.size(); ++i) {
                hidden[i] = hidden[i] / (1. + std::exp(-hidden[i])) * up[i];
            }
            add(row, multiply(down_matrix, hidden));
        }
    }

    const Matrix head(model.head, model.vocab_size, model.dim);
    std::vector<double> logits;
    for (int t = last_only ? num_tokens - 1 : 0; t >= 0 && t < num_tokens; ++t) {
        const auto normed =
            rmsNorm(x[static_cast<size_t>(t)], model.output_norm, model.norm_epsilon);
        const auto row = multiply(head, normed);
        logits.insert(logits.end(), row.begin(), row.end());
    }
    return logits;
}

}  // namespace kvlab
