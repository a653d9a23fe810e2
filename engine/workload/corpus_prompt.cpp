// SPDX-License-Identifier: MIT
#include "engine/workload/corpus_prompt.h"

#include "engine/error.h"
#include "engine/model/tokenizer.h"
#include "engine/text_format.h"
#include "engine/workload/corpus.h"

namespace kvlab {

std::vector<TokenId> corpusPrompt(const Tokenizer& tokenizer, uint64_t seed, int num_tokens) {
    if (num_tokens < 1 || num_tokens > kMaxCorpusWords) {
        throw EngineError(ErrorKind::kBadArgument, "a prompt of " + formatCount(num_tokens) +
                                                       " tokens is not possible; choose 1 to " +
                                                       formatCount(kMaxCorpusWords));
    }
    CorpusOptions options;
    options.seed = seed;
    const CorpusDocument document = generateDocument(options, 0, num_tokens);
    std::vector<TokenId> tokens = tokenizer.encode(document.text, true);
    if (tokens.size() < static_cast<size_t>(num_tokens)) {
        throw EngineError(ErrorKind::kBadArgument,
                          "this model's tokenizer makes only " +
                              formatCount(static_cast<int64_t>(tokens.size())) +
                              " tokens of the document; ask for a shorter prompt");
    }
    tokens.resize(static_cast<size_t>(num_tokens));
    return tokens;
}

}  // namespace kvlab
