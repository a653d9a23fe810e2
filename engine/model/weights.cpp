// SPDX-License-Identifier: MIT
#include "engine/model/weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <numbers>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "engine/error.h"
#include "engine/model/counter_random.h"
#include "engine/model/utf8.h"
#include "kernels/cpu/vector_paths.h"
#include "kernels/quantise.h"

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
    if (!(config.rope_scale > 0.f) || !std::isfinite(config.rope_scale)) {
        return "the RoPE scale must be a positive number";
    }
    const std::vector<float>& divisors = config.rope_divisors;
    if (!divisors.empty() && divisors.size() * 2 != static_cast<size_t>(config.rope_dim)) {
        return problem("the number of RoPE divisors", static_cast<int64_t>(divisors.size()),
                       "half the number of rotated values");
    }
    if (!std::all_of(divisors.begin(), divisors.end(),
                     [](float divisor) { return divisor > 0.f && std::isfinite(divisor); })) {
        return "every RoPE divisor must be a positive number";
    }
    if (!config.layer_windows.empty() &&
        config.layer_windows.size() != static_cast<size_t>(config.num_layers)) {
        return problem("the number of layer windows",
                       static_cast<int64_t>(config.layer_windows.size()), "one a layer");
    }
    for (const int window : config.layer_windows) {
        if (window < 0) return problem("the sliding window", window, "at least 1");
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
    if (config.has_attention_bias) {
        visit("attn_q.bias", layer.query_bias, 0, query_dim);
        visit("attn_k.bias", layer.key_bias, 0, kv_dim);
        visit("attn_v.bias", layer.value_bias, 0, kv_dim);
    }
}

// Reads one file's configuration and tensors, with its path in every message.
class GgufModelReader {
  public:
    explicit GgufModelReader(std::shared_ptr<const GgufFile> file) : file_(std::move(file)) {}

    // Everything but the file's hash.
    std::shared_ptr<ModelWeights> read();

  private:
    struct Storage {
        std::shared_ptr<const GgufFile> file;
        std::vector<std::vector<float>> widened;
    };

    [[noreturn]] void fail(ErrorKind kind, const std::string& what) const {
        const char* const advice = kind == ErrorKind::kUnsupported
                                       ? "; choose another model"
                                       : "; fetch or export the file again";
        throw EngineError(kind, quotedForMessage(file_->path()) +
                                    " holds no model that can run here: " + what + advice);
    }
    int readSize(const std::string& key, std::optional<int64_t> fallback) const {
        const int64_t value = file_->getInt(key, fallback.value_or(-1));
        if (value < 0 && !file_->metadata().contains(key)) {
            fail(ErrorKind::kBadFile, "the key " + key + " is missing");
        }
        if (value < 0 || value > kMaxSize) {
            fail(ErrorKind::kBadFile, key + " is " + std::to_string(value) + ", no possible size");
        }
        return static_cast<int>(value);
    }
    std::string key(const char* name) const { return architecture_ + "." + name; }
    ModelConfig readConfig();
    void readRopeScaling(ModelConfig& config);
    void readWindows(ModelConfig& config) const;
    void refuseWhatWouldBeIgnored() const;
    WeightMatrix readTensor(const std::string& name, int num_rows, int num_cols);

    std::shared_ptr<const GgufFile> file_;
    std::shared_ptr<Storage> storage_ = std::make_shared<Storage>();
    std::set<std::string_view> used_;
    std::string architecture_;  // also the prefix of its keys
};

ModelConfig GgufModelReader::readConfig() {
    ModelConfig config;
    architecture_ = file_->getString("general.architecture", "");
    if (architecture_.empty()) fail(ErrorKind::kBadFile, "it names no architecture");
    if (architecture_ != "llama" && architecture_ != "mistral" && architecture_ != "qwen2") {
        fail(ErrorKind::kUnsupported, "its architecture is " + quotedForMessage(architecture_) +
                                          ", and only llama, mistral and qwen2 are supported");
    }
    config.architecture = architecture_;
    config.name = file_->getString("general.name", "");
    config.num_layers = readSize(key("block_count"), {});
    config.embedding_dim = readSize(key("embedding_length"), {});
    config.feed_forward_dim = readSize(key("feed_forward_length"), {});
    config.context_len = readSize(key("context_length"), {});
    config.num_heads = readSize(key("attention.head_count"), {});
    config.num_kv_heads = readSize(key("attention.head_count_kv"), config.num_heads);
    if (config.num_heads < 1) fail(ErrorKind::kBadFile, "its number of heads is 0");
    config.head_dim =
        readSize(key("attention.key_length"), config.embedding_dim / config.num_heads);
    if (readSize(key("attention.value_length"), config.head_dim) != config.head_dim) {
        fail(ErrorKind::kUnsupported, "its keys and values differ in length");
    }
    config.rope_dim = readSize(key("rope.dimension_count"), config.head_dim);
    config.rope_base = static_cast<float>(file_->getFloat(key("rope.freq_base"), 10000.0));
    config.rms_epsilon =
        static_cast<float>(file_->getFloat(key("attention.layer_norm_rms_epsilon"), 1e-5));
    if (architecture_ == "qwen2") {
        config.has_attention_bias = true;
        config.rope_style = RopeStyle::kHalfSplit;
    }
    config.tied_output = file_->find("output.weight") == nullptr;
    const GgufTensor* embedding = file_->find("token_embd.weight");
    if (embedding == nullptr || embedding->shape.size() != 2) {
        fail(ErrorKind::kBadFile, "the tensor token_embd.weight is missing or no matrix");
    }
    if (embedding->shape[0] > kMaxSize) {
        fail(ErrorKind::kBadFile, "token_embd.weight has " + shapeText(embedding->shape));
    }
    config.vocab_size = static_cast<int>(embedding->shape[0]);
    if (readSize(key("vocab_size"), config.vocab_size) != config.vocab_size) {
        fail(ErrorKind::kBadFile, key("vocab_size") + " contradicts token_embd.weight with its " +
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
    // Before the layers or windows are allocated: a claimed count costs memory only if the file
    // holds as much.
    if (static_cast<size_t>(config.num_layers) > file_->tensors().size()) {
        fail(ErrorKind::kBadFile, "it claims " + std::to_string(config.num_layers) +
                                      " layers but holds only " +
                                      std::to_string(file_->tensors().size()) + " tensors");
    }
    std::string problem = configProblem(config);
    if (problem.empty()) {
        readRopeScaling(config);
        readWindows(config);
        problem = configProblem(config);
    }
    if (!problem.empty()) fail(ErrorKind::kBadFile, problem);
    return config;
}

// Linear scaling is a factor on all positions; Llama 3.1's comes as one divisor a frequency
// (rope_freqs.weight, what converters write) or as the four numbers that make them. A file with
// both has the divisors twice, and the tensor counts.
void GgufModelReader::readRopeScaling(ModelConfig& config) {
    // A factor without a type means linear scaling; 0 stands for "not set" (llama.cpp's reading).
    const std::string type = file_->getString(key("rope.scaling.type"), "linear");
    double factor =
        file_->getFloat(key("rope.scaling.factor"), file_->getFloat(key("rope.scale_linear"), 0.0));
    if (factor == 0.0) factor = 1.0;
    if (!(factor > 0.0) || !std::isfinite(factor)) {
        fail(ErrorKind::kBadFile, key("rope.scaling.factor") + " is no positive number");
    }
    if (type == "linear") {
        config.rope_scale = static_cast<float>(1.0 / factor);
    } else if (type == "llama3") {
        const double low = file_->getFloat(key("rope.scaling.low_freq_factor"), 1.0);
        const double high = file_->getFloat(key("rope.scaling.high_freq_factor"), 4.0);
        const int original = readSize(key("rope.scaling.original_context_length"), {});
        if (!(low > 0.0) || !(high > low) || !std::isfinite(high) || original < 1) {
            fail(ErrorKind::kBadFile,
                 "its llama3 RoPE scaling needs 0 < low_freq_factor < high_freq_factor and an "
                 "original context");
        }
        config.rope_divisors =
            llama3RopeDivisors(config.rope_base, config.rope_dim, factor, low, high, original);
    } else if (type != "none") {
        fail(ErrorKind::kUnsupported, "it scales RoPE by the rule " + quotedForMessage(type) +
                                          ", and only linear and llama3 are supported");
    }
    if (file_->find("rope_freqs.weight") != nullptr && config.rope_dim > 0) {
        const WeightMatrix divisors = readTensor("rope_freqs.weight", 0, config.rope_dim / 2);
        const auto* values = static_cast<const float*>(divisors.data);
        config.rope_divisors.assign(values, values + divisors.num_cols);
    }
}

// One size; the pattern says which layers have it: a boolean each, or a period n of which the last
// layer sees everything (llama.cpp's reading). Without a pattern all layers have it.
void GgufModelReader::readWindows(ModelConfig& config) const {
    const int window = readSize(key("attention.sliding_window"), 0);
    if (window == 0) return;
    config.layer_windows.assign(static_cast<size_t>(config.num_layers), window);
    const std::string pattern_key = key("attention.sliding_window_pattern");
    const auto found = file_->metadata().find(pattern_key);
    if (found == file_->metadata().end()) return;
    if (const auto* pattern = std::get_if<std::vector<bool>>(&found->second)) {
        if (pattern->size() != config.layer_windows.size()) {
            fail(ErrorKind::kBadFile, pattern_key + " has " + std::to_string(pattern->size()) +
                                          " entries for " + std::to_string(config.num_layers) +
                                          " layers");
        }
        for (size_t layer = 0; layer < pattern->size(); ++layer) {
            if (!(*pattern)[layer]) config.layer_windows[layer] = 0;
        }
    } else if (const int period = readSize(pattern_key, {}); period > 0) {
        for (int layer = period - 1; layer < config.num_layers; layer += period) {
            config.layer_windows[static_cast<size_t>(layer)] = 0;
        }
    }
}

// A key or tensor that changes the arithmetic and that we would not read must stop us: wrong logits
// look like right ones.
void GgufModelReader::refuseWhatWouldBeIgnored() const {
    if (file_->getInt(key("expert_count"), 0) != 0) {
        fail(ErrorKind::kUnsupported, key("expert_count") + " is set, which is not supported");
    }
    for (const GgufTensor& tensor : file_->tensors()) {
        if (!used_.contains(tensor.name)) {
            fail(ErrorKind::kUnsupported, "the tensor " + quotedForMessage(tensor.name) +
                                              " is not part of the supported " + architecture_ +
                                              " architecture");
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
    WeightMatrix matrix{tensor->data, tensor->type, is_vector ? 1 : num_rows, num_cols};
    if (is_vector && tensor->type != TensorType::kF32) {
        std::vector<float> values(static_cast<size_t>(num_cols));
        vectorPaths().dequantise(tensor->data, tensor->type, num_cols, values.data());
        storage_->widened.push_back(std::move(values));
        matrix.data = storage_->widened.back().data();
        matrix.type = TensorType::kF32;
    }
    return matrix;
}

std::shared_ptr<ModelWeights> GgufModelReader::read() {
    auto weights = std::make_shared<ModelWeights>();
    weights->config = readConfig();
    const ModelConfig& config = weights->config;
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
    weights->output = config.tied_output
                          ? weights->token_embedding
                          : readTensor("output.weight", config.vocab_size, config.embedding_dim);
    refuseWhatWouldBeIgnored();
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
    std::shared_ptr<ModelWeights> weights = GgufModelReader(file).read();
    weights->file = std::move(file);
    return weights;
}

ModelConfig ModelWeights::configOf(std::shared_ptr<const GgufFile> file) {
    return GgufModelReader(std::move(file)).read()->config;
}

std::shared_ptr<const ModelWeights> ModelWeights::random(const ModelConfig& config,
                                                         uint64_t seed,
                                                         bool tied_output,
                                                         TensorType type) {
    const std::string problem = configProblem(config);
    if (!problem.empty()) {
        throw EngineError(ErrorKind::kBadArgument, "cannot generate this model: " + problem);
    }
    auto weights = std::make_shared<ModelWeights>();
    weights->config = config;
    if (weights->config.architecture.empty()) weights->config.architecture = "llama";
    if (weights->config.name.empty()) weights->config.name = "random";
    weights->config.tied_output = tied_output;

    auto storage = std::make_shared<std::vector<std::unique_ptr<std::byte[]>>>();
    uint64_t tensor_idx = 0;
    const auto generate = [&](WeightMatrix& matrix, int num_rows, int num_cols, float mean) {
        const bool is_vector = num_rows == 0;
        matrix.type = is_vector ? TensorType::kF32 : type;
        matrix.num_rows = is_vector ? 1 : num_rows;
        matrix.num_cols = num_cols;
        if (num_cols % tensorBlockValues(matrix.type) != 0) {
            throw EngineError(ErrorKind::kBadArgument,
                              std::string("cannot generate this model: ") +
                                  tensorTypeName(matrix.type) + " stores blocks of " +
                                  std::to_string(tensorBlockValues(matrix.type)) +
                                  " values, and a row has " + std::to_string(num_cols));
        }
        const int64_t num_elements = int64_t{matrix.num_rows} * matrix.num_cols;
        storage->emplace_back(
            new std::byte[static_cast<size_t>(tensorBytes(matrix.type, num_elements))]);
        std::byte* data = storage->back().get();
        matrix.data = data;
        // A power of two for the vectors: exact, so a fused multiply-add changes nothing.
        const float scale = is_vector ? 0.125f : 1.f / std::sqrt(static_cast<float>(num_cols));
        std::vector<float> row(static_cast<size_t>(num_cols));
        for (int64_t first = 0; first < num_elements; first += num_cols) {
            for (size_t i = 0; i < row.size(); ++i) {
                row[i] =
                    mean + scale * randomNormal(seed, tensor_idx, static_cast<uint64_t>(first) + i);
            }
            const std::vector<std::byte> stored = quantise(matrix.type, row.data(), num_cols);
            std::memcpy(data + tensorBytes(matrix.type, first), stored.data(), stored.size());
        }
        ++tensor_idx;
    };
    try {
        generate(weights->token_embedding, config.vocab_size, config.embedding_dim, 0.f);
        weights->layers.resize(static_cast<size_t>(config.num_layers));
        for (LayerWeights& layer : weights->layers) {
            visitLayer(
                layer, config,
                [&](std::string_view name, WeightMatrix& matrix, int num_rows, int num_cols) {
                    const bool is_norm = num_rows == 0 && !name.ends_with(".bias");
                    generate(matrix, num_rows, num_cols, is_norm ? 1.f : 0.f);
                });
        }
        generate(weights->output_norm, 0, config.embedding_dim, 1.f);
        if (tied_output) {
            weights->output = weights->token_embedding;
        } else {
            generate(weights->output, config.vocab_size, config.embedding_dim, 0.f);
        }
    } catch (const std::bad_alloc&) {
        throw EngineError(ErrorKind::kOutOfMemory,
                          "the generated model does not fit into memory; choose a smaller shape");
    }
    weights->storage = storage;
    return weights;
}

std::vector<float> llama3RopeDivisors(float rope_base,
                                      int rope_dim,
                                      double factor,
                                      double low_freq_factor,
                                      double high_freq_factor,
                                      double original_context) {
    std::vector<float> divisors;
    for (int i = 0; i < rope_dim / 2; ++i) {
        const double wavelength =
            2 * std::numbers::pi * std::pow(static_cast<double>(rope_base), 2.0 * i / rope_dim);
        const double turns = original_context / wavelength;  // within the original context
        double divisor = 1.0;
        if (turns < low_freq_factor) {
            divisor = factor;
        } else if (turns <= high_freq_factor) {
            const double smooth = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
            divisor = 1.0 / ((1.0 - smooth) / factor + smooth);
        }
        divisors.push_back(static_cast<float>(divisor));
    }
    return divisors;
}

}  // namespace kvlab
