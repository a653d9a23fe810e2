// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "app/cli/commands.h"
#include "app/cli/option_text.h"
#include "engine/error.h"
#include "engine/model/model_loader.h"
#include "engine/model/tokenizer.h"
#include "engine/model/utf8.h"
#include "engine/workload/corpus.h"

namespace kvlab {

namespace {

struct CorpusCommandOptions {
    std::optional<std::string> documents, tokens, doc_tokens, doc_words, doc_layout, seed, first;
    std::optional<std::string> updates, unanswerable;
    bool held_out = false;
};

constexpr int64_t kMaxDocuments = 1'000'000'000;

DocumentLayout parseCorpusLayout(const std::string& name) {
    if (name == "stream") return DocumentLayout::kStream;
    if (name == "facts-first") return DocumentLayout::kFactsFirst;
    if (name == "mixed") return DocumentLayout::kMixed;
    throw EngineError(
        ErrorKind::kBadArgument,
        "--doc-layout wants stream, facts-first or mixed, not " + quotedForMessage(name));
}

int wordsPerDocument(const CorpusCommandOptions& options) {
    if (options.doc_tokens && options.doc_words) {
        throw EngineError(
            ErrorKind::kBadArgument,
            "--doc-tokens and --doc-words both say how long a document is; give one of them");
    }
    if (options.doc_words) {
        return static_cast<int>(parseWhole("--doc-words", *options.doc_words, 1, kMaxCorpusWords));
    }
    const int64_t tokens = parseWhole("--doc-tokens", options.doc_tokens, 2, kMaxCorpusWords, 1000);
    return std::max(1, static_cast<int>(static_cast<double>(tokens) / kCorpusTokensPerWord));
}

void runCorpus(const CorpusCommandOptions& options) {
    if (options.documents && options.tokens) {
        throw EngineError(ErrorKind::kBadArgument,
                          "--documents and --tokens both say how much to print; give one of them");
    }
    CorpusOptions corpus;
    corpus.layout = parseCorpusLayout(options.doc_layout.value_or("stream"));
    corpus.held_out = options.held_out;
    corpus.seed = parseSeed("--seed", options.seed);
    corpus.update_percent = static_cast<int>(parseWhole("--updates", options.updates, 0, 100, 0));
    corpus.unanswerable_percent =
        static_cast<int>(parseWhole("--unanswerable", options.unanswerable, 0, 100, 0));
    const int num_words = wordsPerDocument(options);
    const auto first = static_cast<uint64_t>(
        parseWhole("--first", options.first, 0, std::numeric_limits<int64_t>::max() / 2, 0));

    int64_t num_documents = 1;
    int64_t wanted_tokens = 0;
    std::shared_ptr<const Tokenizer> tokenizer;
    if (options.tokens) {
        wanted_tokens = parseWhole("--tokens", *options.tokens, 1, kMaxDocuments);
        num_documents = kMaxDocuments;
        // Loaded only here: training makes its tokenizer from this command's output.
        tokenizer = loadModel("").tokenizer;
    } else {
        num_documents = parseWhole("--documents", options.documents, 1, kMaxDocuments, 1);
    }

    int64_t num_tokens = 0;
    for (int64_t i = 0; i < num_documents; ++i) {
        const CorpusDocument document =
            generateDocument(corpus, first + static_cast<uint64_t>(i), num_words);
        if (std::puts(corpusDocumentJson(document).c_str()) < 0) return;  // main() reports it
        if (tokenizer) {
            num_tokens += static_cast<int64_t>(tokenizer->encode(document.text, true).size());
            if (num_tokens >= wanted_tokens) return;
        }
    }
}

}  // namespace

void addCorpusCommand(CLI::App& app) {
    CLI::App* command = app.add_subcommand(
        "corpus", "generated documents with questions and answers, one JSON object per line");
    const auto options = std::make_shared<CorpusCommandOptions>();
    command->add_option("--documents", options->documents, "how many documents, default 1")
        ->type_name("N");
    command
        ->add_option("--tokens", options->tokens,
                     "whole documents until they have N tokens of the bundled tokenizer")
        ->type_name("N");
    command
        ->add_option("--doc-tokens", options->doc_tokens,
                     "about so many per document, default 1000")
        ->type_name("N");
    command->add_option("--doc-words", options->doc_words, "at least so many words per document")
        ->type_name("N");
    command
        ->add_option("--doc-layout", options->doc_layout,
                     "stream (default), facts-first, or mixed: 30 % facts-first")
        ->type_name("L");
    command->add_flag("--held-out", options->held_out, "only facts that training never sees");
    command->add_option("--seed", options->seed, "of the whole corpus, default 0")->type_name("S");
    command->add_option("--first", options->first, "number of the first document, default 0")
        ->type_name("N");
    command->add_option("--updates", options->updates, "percent of documents in which facts change")
        ->type_name("P");
    command
        ->add_option("--unanswerable", options->unanswerable,
                     "percent of documents that also ask for what was never said")
        ->type_name("P");
    command->callback([options] { runCorpus(*options); });
}

}  // namespace kvlab
