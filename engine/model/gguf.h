// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "kernels/tensor_type.h"

namespace kvlab {

// A tensor of a GGUF file. `shape` is outermost dimension first (the file stores innermost first),
// so a weight matrix is [num_outputs, num_inputs], rows contiguous.
struct GgufTensor {
    std::string name;
    std::vector<int64_t> shape;
    TensorType type = TensorType::kF32;  // quantised: rows are a multiple of tensorBlockValues
    const std::byte* data = nullptr;     // into the mapped file, numBytes() of it
    int64_t numElements() const;
    int64_t numBytes() const { return tensorBytes(type, numElements()); }
};

using GgufValue = std::variant<bool,
                               int64_t,
                               uint64_t,
                               double,
                               std::string,
                               std::vector<int64_t>,
                               std::vector<double>,
                               std::vector<std::string>,
                               std::vector<bool>>;

// Read-only view of a GGUF v2/v3 file (specification: ggml-org/ggml docs/gguf.md), memory-mapped.
// Every count, offset and size is checked against the file's size before use and before anything is
// allocated from it; a damaged or foreign file throws EngineError(kBadFile) with one sentence, an
// unknown tensor type throws kUnsupported and names it.
class GgufFile {
  public:
    static std::shared_ptr<const GgufFile> open(const std::string& path);
    ~GgufFile();

    const std::string& path() const;
    uint32_t version() const;
    const std::map<std::string, GgufValue>& metadata() const;
    const std::vector<GgufTensor>& tensors() const;
    const GgufTensor* find(const std::string& name) const;  // nullptr: absent
    // Hexadecimal SHA-256 of the whole file: names the weights in traces and exports.
    const std::string& sha256() const;

    // Typed access; a missing key returns the fallback, a key of another kind throws kBadFile.
    int64_t getInt(const std::string& key, int64_t fallback) const;
    double getFloat(const std::string& key, double fallback) const;
    bool getBool(const std::string& key, bool fallback) const;
    std::string getString(const std::string& key, const std::string& fallback) const;

  private:
    GgufFile();
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace kvlab
