// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include "app/cli/commands.h"
#include "app/cli/json_output.h"
#include "app/cli/option_text.h"
#include "app/cli/quantity_text.h"
#include "engine/backend/devices.h"
#include "engine/error.h"
#include "engine/model/gguf.h"
#include "engine/model/model_loader.h"
#include "engine/model/utf8.h"
#include "engine/model/weights.h"
#include "engine/sizing/kv_size.h"
#include "engine/text_format.h"

namespace kvlab {

namespace {

struct ModelOptions {
    std::optional<std::string> file, seq, dtype, memory, utilisation, block_size;
    bool json = false;
};

struct TypeTotal {
    int64_t num_tensors = 0;
    int64_t num_bytes = 0;
};

// What the file says about its tokenizer; whether it is supported, `tokenize` tells.
std::string tokenizerName(const GgufFile& file) {
    const std::string model = file.getString("tokenizer.ggml.model", "none");
    const std::string pre = file.getString("tokenizer.ggml.pre", "");
    return pre.empty() ? model : model + ", pre-tokenizer " + pre;
}

int numWindowedLayers(const ModelConfig& config) {
    return static_cast<int>(std::count_if(config.layer_windows.begin(), config.layer_windows.end(),
                                          [](int window) { return window > 0; }));
}

int largestWindow(const ModelConfig& config) {
    return config.layer_windows.empty()
               ? 0
               : *std::max_element(config.layer_windows.begin(), config.layer_windows.end());
}

const char* ropeStyleName(RopeStyle style) {
    return style == RopeStyle::kInterleaved ? "interleaved" : "half-split";
}

std::string ropeScalingName(const ModelConfig& config) {
    const bool is_linear = config.rope_scale != 1.f;
    if (config.rope_divisors.empty()) return is_linear ? "linear" : "none";
    return is_linear ? "linear and by frequency" : "by frequency";
}

int64_t machineMemory() {
    for (const DeviceInfo& device : listDevices()) {
        if (device.backend == "cpu" && device.memory_bytes) return *device.memory_bytes;
    }
    throw EngineError(ErrorKind::kUnsupported,
                      "this machine does not tell its memory; name it with --vram 24GB");
}

void runModel(const ModelOptions& options) {
    const std::shared_ptr<const GgufFile> file =
        GgufFile::open(options.file ? *options.file : bundledModelPath());
    const ModelConfig config = ModelWeights::configOf(file);
    const KvShape shape = KvShape::of(config);
    const KvDtype dtype = parseKvDtype(options.dtype.value_or("f16"));

    std::map<TensorType, TypeTotal> types;
    CapacityRequest request;
    for (const GgufTensor& tensor : file->tensors()) {
        TypeTotal& total = types[tensor.type];
        ++total.num_tensors;
        total.num_bytes += tensor.numBytes();
        request.weights_bytes += tensor.numBytes();
    }
    request.memory_bytes = options.memory ? parseByteSize(*options.memory) : machineMemory();
    if (request.memory_bytes < 1) {
        throw EngineError(ErrorKind::kBadArgument, "--vram wants at least one byte");
    }
    request.utilisation = parseReal("--utilisation", options.utilisation, 0, 1, 0.9);
    request.block_size = parseWhole("--block-size", options.block_size, 1, 256, 16);
    request.seq_len = parseWhole("--seq", options.seq, 1, 1'000'000'000'000, config.context_len);
    const Capacity capacity = kvCapacity(shape, dtype, request);
    const int num_windowed = numWindowedLayers(config);

    if (options.json) {
        Json type_list = Json::object();
        for (const auto& [type, total] : types) {
            type_list[tensorTypeName(type)] = {{"tensors", total.num_tensors},
                                               {"bytes", total.num_bytes}};
        }
        Json per_token = Json::object();
        for (const char* name : {"f32", "f16", "bf16", "int8"}) {
            per_token[name] = kvBytesPerToken(shape, parseKvDtype(name)).value;
        }
        Json object;
        object["name"] = config.name;
        object["architecture"] = config.architecture;
        object["layers"] = config.num_layers;
        object["heads"] = config.num_heads;
        object["kv_heads"] = config.num_kv_heads;
        object["head_dim"] = config.head_dim;
        object["embedding_dim"] = config.embedding_dim;
        object["feed_forward_dim"] = config.feed_forward_dim;
        object["vocab_size"] = config.vocab_size;
        object["context_len"] = config.context_len;
        object["rope"] = {{"style", ropeStyleName(config.rope_style)},
                          {"base", config.rope_base},
                          {"dim", config.rope_dim},
                          {"scaling", ropeScalingName(config)},
                          {"scale", config.rope_scale},
                          {"divisors", config.rope_divisors}};
        object["attention_bias"] = config.has_attention_bias;
        object["tied_output"] = config.tied_output;
        object["sliding_window"] = num_windowed > 0 ? Json(largestWindow(config)) : Json(nullptr);
        object["windowed_layers"] = num_windowed;
        object["window_frees_blocks"] = config.uniformWindow() > 0;
        object["tokenizer"] = tokenizerName(*file);
        object["tensor_types"] = type_list;
        object["weights_bytes"] = request.weights_bytes;
        object["bytes_per_token"] = per_token;
        object["dtype"] = options.dtype.value_or("f16");
        object["memory_bytes"] = request.memory_bytes;
        object["seq"] = request.seq_len;
        object["blocks_fit"] = capacity.blocks_fit.value;
        object["sequences_fit"] = capacity.sequences_fit.value;
        printJson(object);
        return;
    }
    std::printf("%s: %s, %d layers, %d query heads and %d KV heads of %d\n",
                quotedForMessage(config.name).c_str(), config.architecture.c_str(),
                config.num_layers, config.num_heads, config.num_kv_heads, config.head_dim);
    std::printf("%-20s embedding %s, feed-forward %s, vocabulary %s, context %s\n", "sizes",
                formatCount(config.embedding_dim).c_str(),
                formatCount(config.feed_forward_dim).c_str(),
                formatCount(config.vocab_size).c_str(), formatCount(config.context_len).c_str());
    std::printf("%-20s %s pairs, base %g, %d of %d values turn, scaling %s\n", "rope",
                ropeStyleName(config.rope_style), static_cast<double>(config.rope_base),
                config.rope_dim, config.head_dim, ropeScalingName(config).c_str());
    std::printf("%-20s %s, output %s\n", "attention",
                config.has_attention_bias ? "biases on Q, K and V" : "no biases",
                config.tied_output ? "tied to the embedding" : "with a matrix of its own");
    if (num_windowed > 0) {
        std::printf("%-20s %d of %d layers see %s tokens; %s\n", "sliding window", num_windowed,
                    config.num_layers, formatCount(largestWindow(config)).c_str(),
                    config.uniformWindow() > 0
                        ? "blocks that have left it are freed"
                        : "the layers differ, so it only masks and frees no block");
    }
    std::printf("%-20s %s\n", "tokenizer", quotedForMessage(tokenizerName(*file)).c_str());
    for (const auto& [type, total] : types) {
        std::printf("%-20s %s in %s tensors\n",
                    (std::string("weights as ") + tensorTypeName(type)).c_str(),
                    formatBytes(total.num_bytes).c_str(), formatCount(total.num_tensors).c_str());
    }
    for (const char* name : {"f32", "f16", "bf16", "int8"}) {
        printQuantity((std::string("one token, ") + name).c_str(),
                      kvBytesPerToken(shape, parseKvDtype(name)));
    }
    std::printf("In %s, %s, with K/V in %s and sequences of %s tokens:\n",
                options.memory ? "that memory" : "this machine's memory",
                formatBytes(request.memory_bytes).c_str(), options.dtype.value_or("f16").c_str(),
                formatCount(request.seq_len).c_str());
    printCapacity(capacity);
    if (num_windowed > 0 && config.uniformWindow() == 0) {
        printMixedWindows(capacity, request.seq_len, request.block_size);
    }
}

}  // namespace

void addModelCommand(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "model", "what a model file holds, its K/V per token, and what fits in memory");
    const auto options = std::make_shared<ModelOptions>();
    command->add_option("file", options->file, "GGUF file (default: the bundled model)")
        ->type_name("F.gguf");
    command->add_option("--vram", options->memory, "memory: 80GB, 24GiB (default: this machine's)")
        ->type_name("BYTES");
    command->add_option("--utilisation", options->utilisation, "share of it to use, default 0.9")
        ->type_name("U");
    command
        ->add_option("--seq", options->seq, "tokens of a sequence (default: the model's context)")
        ->type_name("S");
    command->add_option("--dtype", options->dtype, "K/V in f32, f16 (default), bf16 or int8")
        ->type_name("TYPE");
    command->add_option("--block-size", options->block_size, "tokens per block, default 16")
        ->type_name("B");
    command->add_flag("--json", options->json, "print JSON");
    command->callback([options] { runModel(*options); });
}

}  // namespace kvlab
