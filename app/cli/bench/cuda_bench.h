// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

namespace kvlab {

// `kvlab-cli bench --backend cuda`: what the kernels take of the GPU's bandwidth. `quick`: smallest
// sizes, one repeat; shows that everything runs, not how fast. Throws what makeCudaBackend does.
void runCudaBench(const std::vector<std::string>& names, bool quick, bool json);

}  // namespace kvlab
