// SPDX-License-Identifier: MIT
#include "engine/model/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <limits>
#include <set>
#include <type_traits>
#include <utility>

#include "engine/error.h"
#include "engine/model/utf8.h"
#include "engine/model/weights.h"
#include "engine/temporary_file.h"

namespace kvlab {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF numbers are written as they lie");

constexpr uint64_t kAlignment = 32;  // bytes; the format's default
constexpr uint32_t kTypeUint32 = 4;
constexpr uint32_t kTypeInt32 = 5;
constexpr uint32_t kTypeFloat32 = 6;
constexpr uint32_t kTypeBool = 7;
constexpr uint32_t kTypeString = 8;
constexpr uint32_t kTypeArray = 9;

template <class T>
void appendNumber(std::string& bytes, T value) {
    static_assert(std::is_arithmetic_v<T>);
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    bytes.append(raw, sizeof(T));
}

void appendString(std::string& bytes, std::string_view text) {
    appendNumber(bytes, uint64_t{text.size()});
    bytes += text;
}

uint64_t alignedUp(uint64_t value) { return (value + kAlignment - 1) / kAlignment * kAlignment; }

uint32_t tensorTypeNumber(TensorType type) {
    switch (type) {
        case TensorType::kF32:
            return 0;
        case TensorType::kF16:
            return 1;
        case TensorType::kQ4_0:
            return 2;
        case TensorType::kQ8_0:
            return 8;
        case TensorType::kQ4_K:
            return 12;
        case TensorType::kQ6_K:
            return 14;
        case TensorType::kBF16:
            return 30;
    }
    return 0;
}

}  // namespace

void GgufWriter::addEntry(const std::string& key, uint32_t type, const std::string& value_bytes) {
    Entry entry{key, {}};
    appendNumber(entry.bytes, type);
    entry.bytes += value_bytes;
    entries_.push_back(std::move(entry));
}

void GgufWriter::setUint32(const std::string& key, uint32_t value) {
    std::string bytes;
    appendNumber(bytes, value);
    addEntry(key, kTypeUint32, bytes);
}

void GgufWriter::setFloat32(const std::string& key, float value) {
    std::string bytes;
    appendNumber(bytes, value);
    addEntry(key, kTypeFloat32, bytes);
}

void GgufWriter::setBool(const std::string& key, bool value) {
    addEntry(key, kTypeBool, std::string(1, value ? '\1' : '\0'));
}

void GgufWriter::setString(const std::string& key, std::string_view value) {
    std::string bytes;
    appendString(bytes, value);
    addEntry(key, kTypeString, bytes);
}

void GgufWriter::setStrings(const std::string& key, const std::vector<std::string>& values) {
    std::string bytes;
    appendNumber(bytes, kTypeString);
    appendNumber(bytes, uint64_t{values.size()});
    for (const std::string& value : values) appendString(bytes, value);
    addEntry(key, kTypeArray, bytes);
}

void GgufWriter::setFloats(const std::string& key, const std::vector<float>& values) {
    std::string bytes;
    appendNumber(bytes, kTypeFloat32);
    appendNumber(bytes, uint64_t{values.size()});
    for (const float value : values) appendNumber(bytes, value);
    addEntry(key, kTypeArray, bytes);
}

void GgufWriter::setBools(const std::string& key, const std::vector<bool>& values) {
    std::string bytes;
    appendNumber(bytes, kTypeBool);
    appendNumber(bytes, uint64_t{values.size()});
    for (const bool value : values) bytes += value ? '\1' : '\0';
    addEntry(key, kTypeArray, bytes);
}

void GgufWriter::setInts(const std::string& key, const std::vector<int32_t>& values) {
    std::string bytes;
    appendNumber(bytes, kTypeInt32);
    appendNumber(bytes, uint64_t{values.size()});
    for (const int32_t value : values) appendNumber(bytes, value);
    addEntry(key, kTypeArray, bytes);
}

void GgufWriter::addTensor(const std::string& name,
                           std::vector<int64_t> shape,
                           TensorType type,
                           const void* data) {
    int64_t num_values = 1;
    bool possible = !shape.empty() && shape.size() <= 4 && data != nullptr;
    for (const int64_t size : shape) {
        possible = possible && size > 0 && !__builtin_mul_overflow(num_values, size, &num_values);
    }
    possible = possible && num_values <= std::numeric_limits<int64_t>::max() / 4;
    if (!possible) {
        throw EngineError(ErrorKind::kBadArgument,
                          "the tensor " + quotedForMessage(name) +
                              " needs data and one to four dimensions of at least one value");
    }
    if (shape.back() % tensorBlockValues(type) != 0) {
        throw EngineError(ErrorKind::kBadArgument,
                          "the tensor " + quotedForMessage(name) + " has rows of " +
                              std::to_string(shape.back()) + " values, but " +
                              tensorTypeName(type) + " stores blocks of " +
                              std::to_string(tensorBlockValues(type)));
    }
    tensors_.push_back(
        {name, std::move(shape), type, data, static_cast<uint64_t>(tensorBytes(type, num_values))});
}

void GgufWriter::write(const std::string& path) const {
    std::set<std::string_view> names;
    for (const Entry& entry : entries_) {
        if (entry.key == "general.alignment") {
            throw EngineError(ErrorKind::kBadArgument, "the writer always aligns to 32 bytes");
        }
        if (!names.insert(entry.key).second) {
            throw EngineError(ErrorKind::kBadArgument,
                              "the key " + quotedForMessage(entry.key) + " is set twice");
        }
    }
    names.clear();
    for (const Tensor& tensor : tensors_) {
        if (!names.insert(tensor.name).second) {
            throw EngineError(ErrorKind::kBadArgument,
                              "the tensor " + quotedForMessage(tensor.name) + " is added twice");
        }
    }

    std::string header = "GGUF";
    appendNumber(header, uint32_t{3});
    appendNumber(header, uint64_t{tensors_.size()});
    appendNumber(header, uint64_t{entries_.size()});
    for (const Entry& entry : entries_) {
        appendString(header, entry.key);
        header += entry.bytes;
    }
    uint64_t offset = 0;
    for (const Tensor& tensor : tensors_) {
        appendString(header, tensor.name);
        appendNumber(header, static_cast<uint32_t>(tensor.shape.size()));
        for (size_t dim = tensor.shape.size(); dim-- > 0;) {  // innermost first in the file
            appendNumber(header, static_cast<uint64_t>(tensor.shape[dim]));
        }
        appendNumber(header, tensorTypeNumber(tensor.type));
        appendNumber(header, offset);
        offset = alignedUp(offset + tensor.num_bytes);
    }
    header.resize(alignedUp(header.size()), '\0');

    TemporaryFile file(path);
    file.write(header.data(), header.size());
    const std::string padding(kAlignment, '\0');
    for (const Tensor& tensor : tensors_) {
        file.write(tensor.data, tensor.num_bytes);
        file.write(padding.data(), alignedUp(tensor.num_bytes) - tensor.num_bytes);
    }
    file.finish();
}

GgufVocabulary GgufVocabulary::bytes(int vocab_size) {
    if (vocab_size < 3) {
        throw EngineError(ErrorKind::kBadArgument,
                          "a vocabulary needs at least the three tokens <unk>, <s> and </s>, not " +
                              std::to_string(vocab_size));
    }
    GgufVocabulary vocabulary;
    const auto add = [&](std::string piece, TokenType type) {
        vocabulary.pieces.push_back(std::move(piece));
        vocabulary.scores.push_back(0.f);
        vocabulary.types.push_back(type);
    };
    add("<unk>", TokenType::kUnknown);
    add("<s>", TokenType::kControl);
    add("</s>", TokenType::kControl);
    const int num_bytes = vocab_size >= 260 ? 256 : 0;
    for (int byte = 0; byte < num_bytes; ++byte) {
        char text[8];
        std::snprintf(text, sizeof(text), "<0x%02X>", static_cast<unsigned>(byte));
        add(text, TokenType::kByte);
    }
    if (vocab_size > 3) add("▁", TokenType::kNormal);
    for (char letter = '!'; num_bytes == 0 && letter <= '~'; ++letter) {
        // Lower case first: the likeliest text for a tiny test model.
        const char ordered =
            static_cast<char>('!' + (letter - '!' + ('a' - '!')) % ('~' - '!' + 1));
        if (static_cast<int>(vocabulary.pieces.size()) == vocab_size) break;
        add(std::string(1, ordered), TokenType::kNormal);
    }
    while (static_cast<int>(vocabulary.pieces.size()) < vocab_size) {
        add("<unused_" + std::to_string(vocabulary.pieces.size()) + ">", TokenType::kUnused);
    }
    return vocabulary;
}

namespace {

// One window size and, where not every layer has it, which layers do.
void writeWindows(const ModelConfig& config, const std::string& architecture, GgufWriter& writer) {
    int window = 0;
    std::vector<bool> has_window;
    for (int layer = 0; layer < config.num_layers; ++layer) {
        has_window.push_back(config.window(layer) > 0);
        if (has_window.back() && window != 0 && config.window(layer) != window) {
            throw EngineError(ErrorKind::kBadArgument,
                              "a model file has one size of sliding window, not several");
        }
        window = std::max(window, config.window(layer));
    }
    if (window == 0) return;
    writer.setUint32(architecture + ".attention.sliding_window", static_cast<uint32_t>(window));
    if (std::find(has_window.begin(), has_window.end(), false) != has_window.end()) {
        writer.setBools(architecture + ".attention.sliding_window_pattern", has_window);
    }
}

}  // namespace

void writeModelGguf(const ModelWeights& weights,
                    const std::string& path,
                    const GgufVocabulary& vocabulary) {
    const ModelConfig& config = weights.config;
    const auto vocab_size = static_cast<size_t>(config.vocab_size);
    if (vocabulary.pieces.size() != vocab_size || vocabulary.scores.size() != vocab_size ||
        vocabulary.types.size() != vocab_size) {
        throw EngineError(ErrorKind::kBadArgument,
                          "the vocabulary has " + std::to_string(vocabulary.pieces.size()) +
                              " tokens and the model " + std::to_string(config.vocab_size) +
                              "; they must be the same");
    }
    GgufWriter writer;
    const std::string architecture = config.architecture.empty() ? "llama" : config.architecture;
    const auto set = [&](const char* key, int value) {
        writer.setUint32(architecture + "." + key, static_cast<uint32_t>(value));
    };
    writer.setString("general.architecture", architecture);
    writer.setString("general.name", config.name);
    set("block_count", config.num_layers);
    set("context_length", config.context_len);
    set("embedding_length", config.embedding_dim);
    set("feed_forward_length", config.feed_forward_dim);
    set("attention.head_count", config.num_heads);
    set("attention.head_count_kv", config.num_kv_heads);
    set("attention.key_length", config.head_dim);
    set("attention.value_length", config.head_dim);
    set("rope.dimension_count", config.rope_dim);
    set("vocab_size", config.vocab_size);
    writer.setFloat32(architecture + ".rope.freq_base", config.rope_base);
    writer.setFloat32(architecture + ".attention.layer_norm_rms_epsilon", config.rms_epsilon);
    if (config.rope_scale != 1.f) {
        writer.setString(architecture + ".rope.scaling.type", "linear");
        writer.setFloat32(architecture + ".rope.scaling.factor", 1.f / config.rope_scale);
    }
    writeWindows(config, architecture, writer);

    std::vector<int32_t> types;
    for (const TokenType type : vocabulary.types) types.push_back(static_cast<int32_t>(type));
    writer.setString("tokenizer.ggml.model", "llama");
    writer.setStrings("tokenizer.ggml.tokens", vocabulary.pieces);
    writer.setFloats("tokenizer.ggml.scores", vocabulary.scores);
    writer.setInts("tokenizer.ggml.token_type", types);
    const auto setToken = [&](const char* key, TokenId token) {
        if (token.valid()) writer.setUint32(key, static_cast<uint32_t>(token.value));
    };
    setToken("tokenizer.ggml.unknown_token_id", vocabulary.unknown);
    setToken("tokenizer.ggml.bos_token_id", vocabulary.bos);
    setToken("tokenizer.ggml.eos_token_id", vocabulary.eos);
    writer.setBool("tokenizer.ggml.add_bos_token", vocabulary.add_bos);
    writer.setBool("tokenizer.ggml.add_space_prefix", vocabulary.add_space_prefix);
    if (!vocabulary.chat_template.empty()) {
        writer.setString("tokenizer.chat_template", vocabulary.chat_template);
    }

    const auto addMatrix = [&](const std::string& name, const WeightMatrix& matrix) {
        writer.addTensor(name, {matrix.num_rows, matrix.num_cols}, matrix.type, matrix.data);
    };
    const auto addVector = [&](const std::string& name, const WeightMatrix& matrix) {
        writer.addTensor(name, {matrix.num_cols}, matrix.type, matrix.data);
    };
    if (!config.rope_divisors.empty()) {
        writer.addTensor("rope_freqs.weight", {static_cast<int64_t>(config.rope_divisors.size())},
                         TensorType::kF32, config.rope_divisors.data());
    }
    addMatrix("token_embd.weight", weights.token_embedding);
    for (size_t layer_idx = 0; layer_idx < weights.layers.size(); ++layer_idx) {
        const LayerWeights& layer = weights.layers[layer_idx];
        const std::string prefix = "blk." + std::to_string(layer_idx) + ".";
        addVector(prefix + "attn_norm.weight", layer.attention_norm);
        addMatrix(prefix + "attn_q.weight", layer.query);
        addMatrix(prefix + "attn_k.weight", layer.key);
        addMatrix(prefix + "attn_v.weight", layer.value);
        if (config.has_attention_bias) {
            addVector(prefix + "attn_q.bias", layer.query_bias);
            addVector(prefix + "attn_k.bias", layer.key_bias);
            addVector(prefix + "attn_v.bias", layer.value_bias);
        }
        addMatrix(prefix + "attn_output.weight", layer.output);
        addVector(prefix + "ffn_norm.weight", layer.ffn_norm);
        addMatrix(prefix + "ffn_gate.weight", layer.gate);
        addMatrix(prefix + "ffn_up.weight", layer.up);
        addMatrix(prefix + "ffn_down.weight", layer.down);
    }
    addVector("output_norm.weight", weights.output_norm);
    if (weights.output.data != weights.token_embedding.data) {
        addMatrix("output.weight", weights.output);
    }
    writer.write(path);
}

void writeModelGguf(const ModelWeights& weights, const std::string& path) {
    writeModelGguf(weights, path, GgufVocabulary::bytes(weights.config.vocab_size));
}

}  // namespace kvlab
