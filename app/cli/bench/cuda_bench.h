// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

namespace kvlab {

// `kvlab-cli bench --backend cuda`: what the kernels take of the GPU's bandwidth. `quick`: smallest
// sizes, one repeat; shows that everything runs, not how fast. After 100 s each case that is left
// is timed once. Throws what makeCudaBackend does.
void runCudaBench(const std::vector<std::string>& names, bool quick, bool json);

// "copy, decode_attention, …"
std::string cudaBenchNames();

}  // namespace kvlab
