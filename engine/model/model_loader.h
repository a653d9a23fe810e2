// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

namespace kvlab {

struct ModelWeights;
class Tokenizer;

struct LoadedModel {
    std::shared_ptr<const ModelWeights> weights;
    std::shared_ptr<const Tokenizer> tokenizer;
};

// The bundled model's file: $KVLAB_MODEL, beside the installed executable, or the source tree.
std::string bundledModelPath();
// "" loads the bundled model. Throws EngineError.
LoadedModel loadModel(const std::string& path);
// Likewise, without reading the weights.
std::shared_ptr<const Tokenizer> loadTokenizer(const std::string& path);

}  // namespace kvlab
