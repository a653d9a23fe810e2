// SPDX-License-Identifier: MIT
//
// A model file from anywhere: header, vocabulary, weights. What is accepted must lie inside the
// file, and its tokenizer must work.
#include "engine/model/gguf.h"
#include "engine/model/tokenizer.h"
#include "engine/model/weights.h"
#include "tests/fuzz/fuzz_support.h"

using namespace kvlab;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const MemoryFile memory(asText(data, size));
    std::shared_ptr<const GgufFile> file;
    try {
        file = GgufFile::open(memory.path());
    } catch (const EngineError& error) {
        checkRefusal(error);
        return 0;
    }
    unsigned sum = 0;  // reads the first and last byte of every tensor
    for (const GgufTensor& tensor : file->tensors()) {
        const auto num_bytes = static_cast<size_t>(tensor.numBytes());
        const auto* bytes = reinterpret_cast<const unsigned char*>(tensor.data);
        sum += bytes[0] + bytes[num_bytes - 1];
    }
    [[maybe_unused]] static volatile unsigned sink;
    sink = sum;
    try {
        const Tokenizer tokenizer = Tokenizer::fromGguf(*file);
        const std::vector<TokenId> tokens = tokenizer.encode("The brass key \xE2\x82\xAC", true);
        tokenizer.decode(tokens);
        for (const TokenId token : tokens) {
            if (token.value < 0 || token.value >= tokenizer.vocabSize()) {
                fuzzFinding("a token outside the vocabulary");
            }
        }
    } catch (const EngineError& error) {
        checkRefusal(error);
    }
    try {
        ModelWeights::fromGguf(file);
    } catch (const EngineError& error) {
        checkRefusal(error);
    }
    return 0;
}
