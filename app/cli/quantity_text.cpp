// SPDX-License-Identifier: MIT
#include "app/cli/quantity_text.h"

#include <cstdio>

#include "engine/text_format.h"

namespace kvlab {

void printQuantity(const char* name, const Quantity& quantity) {
    const std::string shown = quantity.unit == "B"
                                  ? formatBytes(quantity.value)
                                  : formatCount(quantity.value) + " " + quantity.unit;
    std::printf("%-20s %-18s %s, with numbers %s\n", name, shown.c_str(), quantity.formula.c_str(),
                quantity.substituted.c_str());
}

void printCapacity(const Capacity& capacity) {
    printQuantity("left for the cache", capacity.kv_bytes);
    printQuantity("blocks that fit", capacity.blocks_fit);
    printQuantity("blocks a sequence", capacity.blocks_per_sequence);
    printQuantity("sequences that fit", capacity.sequences_fit);
}

void printMixedWindows(const Capacity& capacity, int64_t seq_len, int64_t block_size) {
    const int64_t held = blocksForTokens(seq_len, block_size).value;
    std::printf(
        "Assumed: each layer keeps the blocks of its own window.\n"
        "A block of this engine serves all layers, so the window frees none: %s in its %s.\n",
        counted(capacity.blocks_fit.value / held, "sequence fits", "sequences fit").c_str(),
        counted(capacity.blocks_fit.value, "block", "blocks").c_str());
}

}  // namespace kvlab
