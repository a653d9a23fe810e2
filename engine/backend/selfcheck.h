// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/backend/backend.h"

namespace kvlab {

struct ModelWeights;

// One operation in one storage type, or one decode, over all its shapes.
struct SelfcheckRow {
    std::string operation;  // "matmul"
    std::string variant;    // "Q4_K"
    int num_cases = 0;
    // The largest error of all cases, by the measure that `tolerance` bounds; infinite when a case
    // gave something that is no number, wrote where it must not, or refused.
    double worst_error = 0;
    double tolerance = 0;
    std::string worst_case;  // its shape, or what was wrong
    double seconds = 0;

    bool passed() const { return worst_error <= tolerance; }
};

struct SelfcheckReport {
    std::string backend;
    std::string device;
    uint64_t seed = 0;
    std::vector<SelfcheckRow> rows;

    bool passed() const;
};

struct SelfcheckOptions {
    uint64_t seed = 0;  // of shapes and values
    // Decoded beside small generated models; none: left out.
    std::shared_ptr<const ModelWeights> model;
    std::string model_name;
    std::vector<int32_t> tokens;   // a text that the model is given, at least 4 tokens
    bool decodes_only = false;     // leaves the single operations out
    bool operations_only = false;  // leaves the decodes out
    std::function<void(const SelfcheckRow&)> on_row;  // as each is done
};

// Every operation of a backend over a spread of shapes, types and ragged block tables against dense
// references in double precision, and then whole decodes against the reference forward pass
// (kernels/reference). Each output lies in memory that was filled with NaN, between margins that
// must stay so; what a kernel must not read is NaN too.
//
// Measures: max |a - b| / max |b| of an operation (a matrix product: also over the root of its
// summed squares, as a short row may cancel); K/V writes: the rounding of one value, as a share of
// its row's largest; copies and, where the host pool is a memory of its own, swaps: 0 or infinite.
// Of a decode, `decode`: one row of logits, against the reference over K and V as the backend has
// stored them, and infinite where the arg max differs though the reference's two best are further
// apart than twice the tolerance; `decode_kv`: how far what is stored lies outside half a step of
// its type from the reference's own K and V, as a share of the row's largest, and infinite where a
// row was written that no token has.
//
// Through simt a last row of the operations, `kernels`, names a kernel of the program (with its
// template arguments) that none of the cases has launched: infinite then.
//
// A wrong kernel makes a row fail; only a broken device throws.
SelfcheckReport selfcheck(Backend& backend, const SelfcheckOptions& options);

}  // namespace kvlab
