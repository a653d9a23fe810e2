// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "app/cli/json_output.h"
#include "engine/clock.h"

namespace kvlab {

// `kvlab-cli bench --backend cuda`: what the kernels take of the GPU's bandwidth. `quick`: smallest
// sizes, one repeat; shows that everything runs, not how fast. After 100 s by `clock` each case
// that is left is timed once, after 120 s none is begun; those, and what the GPU's memory is too
// small for, are named under left_out. A part that fails keeps the cases it has, is named under
// failures and costs no other part. Prints a table as it goes, with `json` on stderr; returns what
// --json prints. Throws what makeCudaBackend does.
Json runCudaBench(const std::vector<std::string>& names,
                  bool quick,
                  bool json,
                  const Clock& clock = SteadyClock());

// "copy, decode_attention, …"
std::string cudaBenchNames();

}  // namespace kvlab
