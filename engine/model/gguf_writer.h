// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/ids.h"
#include "kernels/tensor_type.h"

namespace kvlab {

struct ModelWeights;

// Kinds of vocabulary entries by the numbers of tokenizer.ggml.token_type (specification:
// ggml-org/ggml docs/gguf.md; the same numbers as in sentencepiece).
enum class TokenType : int32_t {
    kNormal = 1,
    kUnknown = 2,      // stands for text that nothing else covers
    kControl = 3,      // begin, end: never comes from text, adds no text
    kUserDefined = 4,  // matched before any merge
    kUnused = 5,       // padding, or a step between merges that is never output
    kByte = 6,         // "<0x00>" … "<0xFF>"
};

// Writes a GGUF version 3 file: collect keys and tensors, then write(). Tensor data is not copied
// and must live until write() returns.
class GgufWriter {
  public:
    void setUint32(const std::string& key, uint32_t value);
    void setFloat32(const std::string& key, float value);
    void setBool(const std::string& key, bool value);
    void setString(const std::string& key, std::string_view value);
    void setStrings(const std::string& key, const std::vector<std::string>& values);
    void setFloats(const std::string& key, const std::vector<float>& values);
    void setBools(const std::string& key, const std::vector<bool>& values);
    void setInts(const std::string& key, const std::vector<int32_t>& values);

    // `shape` outermost dimension first, as in GgufTensor; `data` stored as `type`, row-major.
    // Rows of a quantised type are a multiple of its block.
    void addTensor(const std::string& name,
                   std::vector<int64_t> shape,
                   TensorType type,
                   const void* data);

    // Writes to a temporary file beside `path` and renames it, so `path` never holds half a file.
    // Throws EngineError kBadFile where the system refuses (full disk, missing folder),
    // kBadArgument for a repeated name or an impossible shape.
    void write(const std::string& path) const;

  private:
    struct Entry {
        std::string key;
        std::string bytes;  // type and value as stored
    };
    struct Tensor {
        std::string name;
        std::vector<int64_t> shape;
        TensorType type;
        const void* data;
        uint64_t num_bytes;
    };
    void addEntry(const std::string& key, uint32_t type, const std::string& value_bytes);

    std::vector<Entry> entries_;
    std::vector<Tensor> tensors_;
};

// A SentencePiece vocabulary as a GGUF file stores it; the three arrays have one entry a token.
struct GgufVocabulary {
    std::vector<std::string> pieces;
    std::vector<float> scores;  // merge priority: higher first
    std::vector<TokenType> types;
    TokenId unknown{0};
    TokenId bos{1};
    TokenId eos{2};
    bool add_bos = true;           // encode() puts `bos` first
    bool add_space_prefix = true;  // encode() puts a space before the first word
    std::string chat_template;     // Jinja source; "": the key is left out

    // <unk>, <s>, </s>, the 256 bytes, the space mark ▁, then unused padding: enough to feed any
    // text to a generated model of `vocab_size` tokens. Below 260 tokens the bytes do not fit;
    // letters take their place and other text becomes <unk>. Throws kBadArgument below 3.
    static GgufVocabulary bytes(int vocab_size);
};

// Writes `weights` with its configuration and `vocabulary` so that GgufFile, ModelWeights::fromGguf
// and Tokenizer::fromGguf read it back. Throws kBadArgument when the vocabulary's size is not the
// model's, and as GgufWriter::write().
void writeModelGguf(const ModelWeights& weights,
                    const std::string& path,
                    const GgufVocabulary& vocabulary);
// With GgufVocabulary::bytes().
void writeModelGguf(const ModelWeights& weights, const std::string& path);

}  // namespace kvlab
