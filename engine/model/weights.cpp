// SPDX-License-Identifier: MIT
#include "engine/model/weights.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "engine/error.h"
#include "engine/model/counter_random.h"
#include "engine/model/utf8.h"
#include "kernels/half.h"

namespace kvlab {
namespace {

// Keeps every product of two sizes below 2^62 and every row count within int.
constexpr int64_t kMaxSize = int64_t{1} << 30;

std::string shapeText(const std::vector<int64_t>& shape) {
    std::string text = "[";
    for (size_t i = 0; i < shape.size(); ++i) {
        text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    }
    return text + "]";
}

// The first contradiction in `config`, or "".
std::string configProblem(const ModelConfig& config) {
    const auto problem = [](const char* name, int64_t value, const char* wanted) {
        return std::string(name) + " is " + std::to_string(value) + ", but must be " + wanted;
    };
    const std::pair<const char*, int> sizes[] = {{"the number of layers", config.num_layers},
                                                 {"the number of heads", config.num_heads},
                                                 {"the number of KV heads", config.num_kv_heads},
                                                 {"the head size", config.head_dim},
                                                 {"the embedding size", config.embedding_dim},
                                                 {"the feed-forward size", config.feed_forward_dim},
                                                 {"the vocabulary size", config.vocab_size},
                                                 {"the context length", config.context_len}};
    for (const auto& [name, value] : sizes) {
        if (value < 1 || value > kMaxSize) return problem(name, value, "from 1 to 2^30");
    }
    if (config.num_heads % config.num_kv_heads != 0) {
        return problem("the number of KV heads", config.num_kv_heads,
                       "a divisor of the number of heads");
    }
    if (int64_t{config.num_heads} * config.head_dim > kMaxSize) {
        return problem("the width of all heads", int64_t{config.num_heads} * config.head_dim,
                       "at most 2^30");
    }
    if (config.rope_dim < 0 || config.rope_dim % 2 != 0 || config.rope_dim > config.head_dim) {
        return problem("the number of rotated values", config.rope_dim,
                       "even and at most the head size");
    }
    if (!(config.rope_base > 0.f) || !std::isfinite(config.rope_base)) {
        return "the RoPE base must be a positive number";
    }
    if (!(config.rms_epsilon >= 0.f) || !std::isfinite(config.rms_epsilon)) {
        return "the RMS epsilon must be a number of at least 0";
    }
    return "";
}

// Calls visit(name, matrix, num_rows, num_cols) for every tensor of a layer, in file order;
// num_rows is 0 for a vector.
template <class Visitor>
void visitLayer(LayerWeights& layer, const ModelConfig& config, Visitor visit) {
    const int query_dim = config.num_heads * config.head_dim;
    const int kv_dim = config.num_kv_heads * config.head_dim;
    visit("attn_norm.weight", layer.attention_norm, 0, config.embedding_dim);
    visit("attn_q.weight", layer.query, query_dim, config.embedding_dim);
    visit("attn_k.weight", layer.key, kv_dim, config.embedding_dim);
    visit("attn_v.weight", layer.value, kv_dim, config.embedding_dim);
    visit("attn_output.weight", layer.output, config.embedding_dim, query_dim);
    visit("ffn_norm.weight", layer.ffn_norm, 0, config.embedding_dim);
    visit("ffn_gate.weight", layer.gate, config.feed_forward_dim, config.embedding_dim);
    visit("ffn_up.weight", layer.up, config.feed_forward_dim, config.embedding_dim);
    visit("ffn_down.weight", layer.down, config.embedding_dim, config.feed_forward_dim);
}

// Reads one file's configuration and tensors, with its path in every message.
class GgufModelReader {
  public:
    explicit GgufModelReader(std::shared_ptr<const GgufFile> file) : file_(std::move(file)) {}

    std::shared_ptr<const ModelWeights> read();

  private:
    struct Storage {
        std::shared_ptr<const GgufFile> file;
        std::vector<std::vector<float>> widened;
    };

    [[noreturn]] void fail(ErrorKind kind, const std::string& what) const {
        throw EngineError(
            kind, quotedForMessage(file_->path()) + " holds no model that can run here: " + what);
    }
    int readSize(const std::string& key, std::optional<int64_t> fallback) const {
        const int64_t value = file_->getInt(key, fallback.value_or(-1));
        if (value < 0 && !file_->metadata().contains(key)) {
            fail(ErrorKind::kBadFile, "the key " + key + " is missing");
        }
        if (value < 0 || value > kMaxSize) {
            fail(ErrorKind::kBadFile, key + " is " + std::to_string(value));
        }
        return static_cast<int>(value);
    }
    ModelConfig readConfig() const;
    void refuseWhatWouldBeIgnored() const;
    WeightMatrix readTensor(const std::string& name, int num_rows, int num_cols);

    std::shared_ptr<const GgufFile> file_;
    std::shared_ptr<Storage> storage_ = std::make_shared<Storage>();
    std::set<std::string_view> used_;
};

ModelConfig GgufModelReader::readConfig() const {
    ModelConfig config;
    config.architecture = file_->getString("general.architecture", "");
    if (config.architecture.empty()) fail(ErrorKind::kBadFile, "it names no architecture");
    if (config.architecture != "llama") {
        fail(ErrorKind::kUnsupported, "its architecture is " +
                                          quotedForMessage(config.architecture) +
                                          ", and only \"llama\" is supported");
    }
    config.name = file_->getString("general.name", "");
    config.num_layers = readSize("llama.block_count", {});
    config.embedding_dim = readSize("llama.embedding_length", {});
    config.feed_forward_dim = readSize("llama.feed_forward_length", {});
    config.context_len = readSize("llama.context_length", {});
    config.num_heads = readSize("llama.attention.head_count", {});
    config.num_kv_heads = readSize("llama.attention.head_count_kv", config.num_heads);
    if (config.num_heads < 1) fail(ErrorKind::kBadFile, "its number of heads is 0");
    config.head_dim =
        readSize("llama.attention.key_length", config.embedding_dim / config.num_heads);
    if (readSize("llama.attention.value_length", config.head_dim) != config.head_dim) {
        fail(ErrorKind::kUnsupported, "its keys and values differ in length");
    }
    config.rope_dim = readSize("llama.rope.dimension_count", config.head_dim);
    config.rope_base = static_cast<float>(file_->getFloat("llama.rope.freq_base", 10000.0));
    config.rms_epsilon =
        static_cast<float>(file_->getFloat("llama.attention.layer_norm_rms_epsilon", 1e-5));
    const GgufTensor* embedding = file_->find("token_embd.weight");
    if (embedding == nullptr || embedding->shape.size() != 2) {
        fail(ErrorKind::kBadFile, "the tensor token_embd.weight is missing or no matrix");
    }
    if (embedding->shape[0] > kMaxSize) {
        fail(ErrorKind::kBadFile, "token_embd.weight has " + shapeText(embedding->shape));
    }
    config.vocab_size = static_cast<int>(embedding->shape[0]);
    if (readSize("llama.vocab_size", config.vocab_size) != config.vocab_size) {
        fail(ErrorKind::kBadFile, "llama.vocab_size contradicts token_embd.weight with its " +
                                      std::to_string(config.vocab_size) + " rows");
    }
    const auto tokens = file_->metadata().find("tokenizer.ggml.tokens");
    if (tokens != file_->metadata().end()) {
        const auto* pieces = std::get_if<std::vector<std::string>>(&tokens->second);
        if (pieces == nullptr || pieces->size() != static_cast<size_t>(config.vocab_size)) {
            fail(ErrorKind::kBadFile, "its vocabulary does not have the " +
                                          std::to_string(config.vocab_size) +
                                          " tokens of token_embd.weight");
        }
    }
    const std::string problem = configProblem(config);
    if (!problem.empty()) fail(ErrorKind::kBadFile, problem);
    return config;
}

// A key or tensor that changes the arithmetic and that we would not read must stop us: wrong logits
// look like right ones.
void GgufModelReader::refuseWhatWouldBeIgnored() const {
    // A factor without a type means linear scaling; 0 stands for "not set" (llama.cpp's reading).
    const std::string scaling = file_->getString("llama.rope.scaling.type", "linear");
    const double factor = file_->getFloat("llama.rope.scaling.factor",
                                          file_->getFloat("llama.rope.scale_linear", 0.0));
    const bool unscaled =
        scaling == "none" || (scaling == "linear" && (factor == 0.0 || factor == 1.0));
    if (!unscaled) {
        fail(ErrorKind::kUnsupported,
             "it scales RoPE (" + quotedForMessage(scaling) + "), which is not supported");
    }
    for (const char* key : {"llama.expert_count", "llama.attention.sliding_window"}) {
        if (file_->getInt(key, 0) != 0) {
            fail(ErrorKind::kUnsupported, std::string(key) + " is set, which is not supported");
        }
    }
    for (const GgufTensor& tensor : file_->tensors()) {
        if (!used_.contains(tensor.name)) {
            fail(ErrorKind::kUnsupported, "the tensor " + quotedForMessage(tensor.name) +
                                              " is not part of the supported llama architecture");
        }
    }
}

WeightMatrix GgufModelReader::readTensor(const std::string& name, int num_rows, int num_cols) {
    const GgufTensor* tensor = file_->find(name);
    if (tensor == nullptr) fail(ErrorKind::kBadFile, "the tensor " + name + " is missing");
    const bool is_vector = num_rows == 0;
    const std::vector<int64_t> wanted =
        is_vector ? std::vector<int64_t>{num_cols} : std::vector<int64_t>{num_rows, num_cols};
    if (tensor->shape != wanted) {
        fail(ErrorKind::kBadFile, "the tensor " + name + " has the shape " +
                                      shapeText(tensor->shape) + " where the configuration needs " +
                                      shapeText(wanted));
    }
    used_.insert(tensor->name);
    WeightMatrix matrix{tensor->data, tensor->dtype, is_vector ? 1 : num_rows, num_cols};
    if (is_vector && tensor->dtype != DataType::kF32) {
        std::vector<float> values(static_cast<size_t>(num_cols));
        const auto* stored = reinterpret_cast<const uint16_t*>(tensor->data);
        for (size_t i = 0; i < values.size(); ++i) {
            values[i] = tensor->dtype == DataType::kF16 ? halfToFloat(stored[i])
                                                        : bfloat16ToFloat(stored[i]);
        }
        storage_->widened.push_back(std::move(values));
        matrix.data = storage_->widened.back().data();
        matrix.dtype = DataType::kF32;
    }
    return matrix;
}

std::shared_ptr<const ModelWeights> GgufModelReader::read() {
    auto weights = std::make_shared<ModelWeights>();
    weights->config = readConfig();
    const ModelConfig& config = weights->config;
    // Before the layers are allocated: a claimed count costs memory only if the file holds as much.
    if (static_cast<size_t>(config.num_layers) > file_->tensors().size()) {
        fail(ErrorKind::kBadFile, "it claims " + std::to_string(config.num_layers) +
                                      " layers but holds only " +
                                      std::to_string(file_->tensors().size()) + " tensors");
    }
    weights->token_embedding =
        readTensor("token_embd.weight", config.vocab_size, config.embedding_dim);
    weights->layers.resize(static_cast<size_t>(config.num_layers));
    for (size_t layer_idx = 0; layer_idx < weights->layers.size(); ++layer_idx) {
        const std::string prefix = "blk." + std::to_string(layer_idx) + ".";
        visitLayer(weights->layers[layer_idx], config,
                   [&](const char* name, WeightMatrix& matrix, int num_rows, int num_cols) {
                       matrix = readTensor(prefix + name, num_rows, num_cols);
                   });
    }
    weights->output_norm = readTensor("output_norm.weight", 0, config.embedding_dim);
    weights->output = file_->find("output.weight") == nullptr
                          ? weights->token_embedding
                          : readTensor("output.weight", config.vocab_size, config.embedding_dim);
    refuseWhatWouldBeIgnored();
    weights->sha256 = file_->sha256();
    storage_->file = file_;
    weights->storage = storage_;
    return weights;
}

// Sum of twelve 16-bit uniforms: mean 0, variance 1, tails to 6. Integer arithmetic until the last
// step, so that every machine generates the same model; a library's log and cos would not promise
// that.
float randomNormal(uint64_t seed, uint64_t tensor_idx, uint64_t element_idx) {
    int64_t sum = 0;
    for (uint64_t part = 0; part < 3; ++part) {
        const uint64_t bits = counterRandom(seed, tensor_idx, element_idx * 3 + part);
        sum += static_cast<int64_t>((bits & 0xffff) + ((bits >> 16) & 0xffff) +
                                    ((bits >> 32) & 0xffff) + (bits >> 48));
    }
    return static_cast<float>(sum - int64_t{6} * 65535) * 0x1p-16f;
}

}  // namespace

std::shared_ptr<const ModelWeights> ModelWeights::fromGguf(std::shared_ptr<const GgufFile> file) {
    return GgufModelReader(std::move(file)).read();
}

std::shared_ptr<const ModelWeights> ModelWeights::random(const ModelConfig& config,
                                                         uint64_t seed,
                                                         bool tied_output,
                                                         DataType dtype) {
    const std::string problem = configProblem(config);
    if (!problem.empty()) {
        throw EngineError(ErrorKind::kBadArgument, "cannot generate this model: " + problem);
    }
    auto weights = std::make_shared<ModelWeights>();
    weights->config = config;
    if (weights->config.architecture.empty()) weights->config.architecture = "llama";
    if (weights->config.name.empty()) weights->config.name = "random";

    auto storage = std::make_shared<std::vector<std::unique_ptr<std::byte[]>>>();
    uint64_t tensor_idx = 0;
    const auto generate = [&](WeightMatrix& matrix, int num_rows, int num_cols) {
        const bool is_vector = num_rows == 0;
        matrix.dtype = is_vector ? DataType::kF32 : dtype;
        matrix.num_rows = is_vector ? 1 : num_rows;
        matrix.num_cols = num_cols;
        const uint64_t num_elements = uint64_t{static_cast<unsigned>(matrix.num_rows)} *
                                      static_cast<unsigned>(matrix.num_cols);
        const auto value_bytes = static_cast<size_t>(dataTypeBytes(matrix.dtype));
        storage->emplace_back(new std::byte[num_elements * value_bytes]);
        std::byte* data = storage->back().get();
        matrix.data = data;
        // A power of two for the vectors: exact, so a fused multiply-add changes nothing.
        const float scale = is_vector ? 0.125f : 1.f / std::sqrt(static_cast<float>(num_cols));
        const float offset = is_vector ? 1.f : 0.f;
        for (uint64_t i = 0; i < num_elements; ++i) {
            const float value = offset + scale * randomNormal(seed, tensor_idx, i);
            if (matrix.dtype == DataType::kF32) {
                std::memcpy(data + i * value_bytes, &value, sizeof(value));
            } else {
                const uint16_t stored =
                    matrix.dtype == DataType::kF16 ? floatToHalf(value) : floatToBfloat16(value);
                std::memcpy(data + i * value_bytes, &stored, sizeof(stored));
            }
        }
        ++tensor_idx;
    };
    try {
        generate(weights->token_embedding, config.vocab_size, config.embedding_dim);
        weights->layers.resize(static_cast<size_t>(config.num_layers));
        for (LayerWeights& layer : weights->layers) {
            visitLayer(layer, config,
                       [&](const char*, WeightMatrix& matrix, int num_rows, int num_cols) {
                           generate(matrix, num_rows, num_cols);
                       });
        }
        generate(weights->output_norm, 0, config.embedding_dim);
        if (tied_output) {
            weights->output = weights->token_embedding;
        } else {
            generate(weights->output, config.vocab_size, config.embedding_dim);
        }
    } catch (const std::bad_alloc&) {
        throw EngineError(ErrorKind::kOutOfMemory,
                          "the generated model does not fit into memory; choose a smaller shape");
    }
    weights->storage = storage;
    return weights;
}

}  // namespace kvlab
