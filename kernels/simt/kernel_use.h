// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvlab::simt {

// A kernel with its template arguments.
struct KernelUse {
    std::string name;  // "kvlab::rmsNormKernel<true>"
    int64_t num_launches = 0;
};

// Every kernel for which this program holds a launch, made or not, by name: what a check has left
// out stands there with 0.
std::vector<KernelUse> kernelUses();

}  // namespace kvlab::simt
