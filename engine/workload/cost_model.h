// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "engine/config.h"
#include "engine/engine.h"
#include "engine/sizing/model_table.h"

namespace kvlab {

struct ModelWeights;

// What a machine is assumed to do. The defaults are eight H100 SXM in one, with nothing lost
// between them: each 989 TFLOP/s in bf16 without sparsity, 3.35 TB/s of memory and 64 GB/s each way
// to the host (NVIDIA H100 Tensor Core GPU data sheet; PCIe 5.0 x16).
struct AssumedMachine {
    double flops_per_s = 8 * 989e12;
    double memory_bytes_per_s = 8 * 3.35e12;
    double link_bytes_per_s = 8 * 64e9;  // between device and host
    double overhead_ms = 0;              // of every step: launches, planning, sampling
};
inline constexpr int64_t kAssumedMemoryBytes = int64_t{8} * 80'000'000'000;

// What a step computes with, whatever the batch.
struct ModelWork {
    double num_parameters = 0;  // mixtures of experts count all of theirs
    double weights_bytes = 0;   // read once a step
};
ModelWork modelWork(const ModelSpec& spec);  // bf16; 0 where the table knows no weights
ModelWork modelWork(const ModelWeights& weights);

// The parts of one step's time, in ms; they follow each other, nothing overlaps:
//
//   matmul     max(2 · parameters · tokens / FLOP/s, weights / memory bandwidth)
//   attention  K/V read / memory bandwidth (its arithmetic is left out)
//   copies     2 · bytes copied / memory bandwidth + bytes swapped / link bandwidth
struct StepCost {
    double matmul_ms = 0, attention_ms = 0, copy_ms = 0, overhead_ms = 0;

    double total() const { return matmul_ms + attention_ms + copy_ms + overhead_ms; }
    void add(const StepCost& other);
};
StepCost stepCost(const AssumedMachine& machine, const ModelWork& work, const StepShape& shape);

// The shape of a published model for an accounting run. A latent of C values counts as one head of
// C / 2, whose K and V are the same bytes. Local layers come first: which ones they are changes no
// count. A window of all layers frees blocks, one of some layers only spares reads.
// Throws kUnsupported for a latent in int8, which has one scale where K and V have two.
ModelConfig accountingModel(const ModelSpec& spec, DataType kv_dtype);

}  // namespace kvlab
