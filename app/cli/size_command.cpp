// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "app/cli/commands.h"
#include "app/cli/json_output.h"
#include "app/cli/option_text.h"
#include "app/cli/quantity_text.h"
#include "engine/error.h"
#include "engine/sizing/kv_size.h"
#include "engine/sizing/model_table.h"
#include "engine/text_format.h"

namespace kvlab {

namespace {

struct SizeOptions {
    std::optional<std::string> model, seq, batch, dtype, vram, utilisation, weights_bytes,
        block_size;
    bool json = false;
};

constexpr int64_t kMost = 1'000'000'000'000;

void runSize(const SizeOptions& options) {
    const ModelSpec& spec = modelSpec(options.model.value_or(""));
    const KvShape shape = KvShape::of(spec);
    const KvDtype dtype = parseKvDtype(options.dtype.value_or("bf16"));
    const int64_t seq_len = parseWhole("--seq", options.seq, 1, kMost, spec.context_len);
    const int64_t num_sequences = parseWhole("--batch", options.batch, 1, kMost, 1);
    if (!options.vram && (options.utilisation || options.weights_bytes || options.block_size)) {
        throw EngineError(ErrorKind::kBadArgument,
                          "--utilisation, --weights-bytes and --block-size ask what fits; name "
                          "the memory with --vram 80GB");
    }

    const Quantity per_token = kvBytesPerToken(shape, dtype);
    const Quantity per_sequence = kvBytesPerSequence(shape, dtype, seq_len);
    const Quantity total = kvBytesTotal(shape, dtype, seq_len, num_sequences);
    const int64_t block_size = parseWhole("--block-size", options.block_size, 1, 256, 16);
    std::optional<Capacity> capacity;
    if (options.vram) {
        CapacityRequest request;
        request.memory_bytes = parseByteSize(*options.vram);
        if (request.memory_bytes < 1) {
            throw EngineError(ErrorKind::kBadArgument, "--vram wants at least one byte");
        }
        request.utilisation = parseReal("--utilisation", options.utilisation, 0, 1, 0.9);
        request.weights_bytes =
            parseBytes("--weights-bytes", options.weights_bytes, 0, int64_t{1'000'000} * kMost, 0);
        request.block_size = block_size;
        request.seq_len = seq_len;
        capacity = kvCapacity(shape, dtype, request);
    }

    if (options.json) {
        const bool is_latent = spec.attention == AttentionKind::kMla;
        Json object = {{"layers", spec.num_layers},
                       {"kv_heads", is_latent ? Json(nullptr) : Json(spec.num_kv_heads)},
                       {"head_dim", is_latent ? Json(nullptr) : Json(spec.head_dim)}};
        if (is_latent) object["latent_dim"] = spec.latent_dim;
        object["bytes_per_token"] = per_token.value;
        object["bytes_per_sequence"] = per_sequence.value;
        object["bytes_total"] = total.value;
        if (capacity) {
            object["blocks_fit"] = capacity->blocks_fit.value;
            object["sequences_fit"] = capacity->sequences_fit.value;
        }
        printJson(object);
        return;
    }
    std::printf("%s: %s, %d layers", spec.name.c_str(), attentionKindName(spec.attention),
                spec.num_layers);
    if (spec.latent_dim > 0) {
        std::printf(", %d latent values a token and layer", spec.latent_dim);
    } else {
        std::printf(", %d KV heads of %d", spec.num_kv_heads, spec.head_dim);
    }
    if (spec.num_local_layers > 0) {
        std::printf("; %d layers see a window of %s tokens", spec.num_local_layers,
                    formatCount(spec.window).c_str());
    }
    std::printf("\n");
    printQuantity("one token", per_token);
    printQuantity("one sequence", per_sequence);
    printQuantity("all sequences", total);
    if (!capacity) return;
    printCapacity(*capacity);
    if (spec.num_local_layers > 0 && spec.num_local_layers < spec.num_layers) {
        printMixedWindows(*capacity, seq_len, block_size);
    }
    if (!options.weights_bytes) {
        std::printf("The weights are left out; --weights-bytes counts them%s.\n",
                    spec.weights_bytes > 0
                        ? (" (in bf16: " + formatBytes(spec.weights_bytes) + ")").c_str()
                        : "");
    }
}

}  // namespace

void addSizeCommand(CLI::App& app) {
    CLI::App* command =
        app.add_subcommand("size", "bytes of a published model's KV cache, or what fits in memory");
    const auto options = std::make_shared<SizeOptions>();
    command->add_option("--model", options->model, "lower-case name, such as llama-3-70b")
        ->type_name("SLUG")
        ->required();
    command->add_option("--seq", options->seq, "tokens of a sequence (default: the most it can)")
        ->type_name("S");
    command->add_option("--batch", options->batch, "sequences, default 1")->type_name("N");
    command->add_option("--dtype", options->dtype, "f32, f16, bf16 (default) or int8")
        ->type_name("TYPE");
    command->add_option("--vram", options->vram, "ask what fits in this memory: 80GB, 24GiB")
        ->type_name("BYTES");
    command->add_option("--utilisation", options->utilisation, "share of it to use, default 0.9")
        ->type_name("U");
    command
        ->add_option("--weights-bytes", options->weights_bytes,
                     "taken by the weights first: 141GB, default 0")
        ->type_name("BYTES");
    command->add_option("--block-size", options->block_size, "tokens per block, default 16")
        ->type_name("B");
    command->add_flag("--json", options->json, "print JSON");
    command->callback([options] { runSize(*options); });
}

}  // namespace kvlab
