// SPDX-License-Identifier: MIT
#pragma once

#include <stdexcept>
#include <string>

#include <cuda_runtime.h>

namespace kvlab {

// A CUDA call or launch that failed, with what was being done.
class CudaError : public std::runtime_error {
  public:
    CudaError(const char* what, cudaError_t code)
        : std::runtime_error(std::string(what) + ": " + cudaGetErrorString(code)), code_(code) {}
    cudaError_t code() const { return code_; }

  private:
    cudaError_t code_;
};

inline void checkCuda(cudaError_t code, const char* what) {
    if (code != cudaSuccess) throw CudaError(what, code);
}

// Right after a launch: a bad configuration shows here, a fault inside the kernel only at the next
// synchronisation.
inline void checkLaunch(const char* kernel_name) { checkCuda(cudaGetLastError(), kernel_name); }

}  // namespace kvlab
