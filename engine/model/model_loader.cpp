// SPDX-License-Identifier: MIT
#include "engine/model/model_loader.h"

#include "engine/asset_paths.h"
#include "engine/model/gguf.h"
#include "engine/model/tokenizer.h"
#include "engine/model/weights.h"

namespace kvlab {

std::string bundledModelPath() { return assetPath("model/village.gguf", "KVLAB_MODEL"); }

namespace {

std::shared_ptr<const GgufFile> openModel(const std::string& path) {
    return GgufFile::open(path.empty() ? bundledModelPath() : path);
}

}  // namespace

LoadedModel loadModel(const std::string& path) {
    const std::shared_ptr<const GgufFile> file = openModel(path);
    LoadedModel model;
    model.tokenizer = std::make_shared<const Tokenizer>(Tokenizer::fromGguf(*file));
    model.weights = ModelWeights::fromGguf(file);
    return model;
}

std::shared_ptr<const Tokenizer> loadTokenizer(const std::string& path) {
    return std::make_shared<const Tokenizer>(Tokenizer::fromGguf(*openModel(path)));
}

}  // namespace kvlab
