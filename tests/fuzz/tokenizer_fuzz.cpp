// SPDX-License-Identifier: MIT
//
// Any bytes through the byte vocabulary, where every text encodes: no crash, ids of the vocabulary,
// and the way back is exact.
#include "engine/model/gguf.h"
#include "engine/model/gguf_writer.h"
#include "engine/model/tokenizer.h"
#include "engine/model/weights.h"
#include "tests/fuzz/fuzz_support.h"
#include "tests/support/tiny_model.h"

using namespace kvlab;

namespace {

Tokenizer byteTokenizer() {
    ModelConfig config = tinyConfig(1, 1, 1, 2);
    config.vocab_size = 300;
    const std::string path = "/tmp/kvlab-tokenizer-fuzz-" + std::to_string(::getpid()) + ".gguf";
    writeModelGguf(*ModelWeights::random(config, 1, true, DataType::kF32), path);
    const Tokenizer tokenizer = Tokenizer::fromGguf(*GgufFile::open(path));
    ::unlink(path.c_str());
    return tokenizer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const Tokenizer tokenizer = byteTokenizer();
    const std::string text(asText(data, size));
    const std::vector<TokenId> tokens = tokenizer.encode(text, true);
    for (const TokenId token : tokens) {
        if (token.value < 0 || token.value >= tokenizer.vocabSize()) {
            fuzzFinding("a token outside the vocabulary");
        }
    }
    // The space mark U+2581 stands for a space in the vocabulary, so it alone does not come back.
    if (text.find("\xE2\x96\x81") == std::string::npos && tokenizer.decode(tokens) != text) {
        fuzzFinding("the text did not come back");
    }
    return 0;
}
