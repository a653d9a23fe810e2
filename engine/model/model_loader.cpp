// SPDX-License-Identifier: MIT
#include "engine/model/model_loader.h"

#include "engine/asset_paths.h"
#include "engine/model/gguf.h"
#include "engine/model/tokenizer.h"
#include "engine/model/weights.h"

namespace kvlab {

std::string bundledModelPath() { return assetPath("model/village.gguf", "KVLAB_MODEL"); }

LoadedModel loadModel(const std::string& path) {
    const std::shared_ptr<const GgufFile> file =
        GgufFile::open(path.empty() ? bundledModelPath() : path);
    LoadedModel model;
    model.tokenizer = std::make_shared<const Tokenizer>(Tokenizer::fromGguf(*file));
    model.weights = ModelWeights::fromGguf(file);
    return model;
}

}  // namespace kvlab
