// SPDX-License-Identifier: MIT
#include <cublas_v2.h>
#include <mutex>
#include <type_traits>

#include <cuda_runtime.h>

#include "kernels/cuda/cublas_plugin.h"

namespace {

constexpr int kMaxDevices = 16;

// A handle per device, for the life of the process; `mutex` because a handle carries its stream.
std::mutex mutex;
cublasHandle_t handles[kMaxDevices] = {};

cublasHandle_t* currentHandle() {
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess || device >= kMaxDevices) return nullptr;
    return &handles[device];
}

}  // namespace

extern "C" int32_t kvlabCublasPrepare(int32_t version) {
    if (version != kvlab::kCublasPluginVersion) return -1;
    const std::lock_guard lock(mutex);
    cublasHandle_t* const handle = currentHandle();
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (*handle != nullptr) return CUBLAS_STATUS_SUCCESS;
    const cublasStatus_t status = cublasCreate(handle);
    if (status != CUBLAS_STATUS_SUCCESS) *handle = nullptr;
    return status;
}

// cuBLAS counts columns first: to it our [rows, columns] matrices are transposed, so
// sums^T [outputs, rows] = weight [outputs, inputs] * input^T, with `weight` the transposed one.
extern "C" int32_t kvlabCublasProduct(const kvlab::CublasProduct* product) {
    const std::lock_guard lock(mutex);
    cublasHandle_t* const handle = currentHandle();
    if (handle == nullptr || *handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
    cublasStatus_t status = cublasSetStream(*handle, static_cast<cudaStream_t>(product->stream));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    // After each choice of a stream, which goes back to the handle's own.
    status = cublasSetWorkspace(*handle, product->workspace, product->workspace_bytes);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const cudaDataType_t type = product->weight_type == 0   ? CUDA_R_32F
                                : product->weight_type == 1 ? CUDA_R_16F
                                                            : CUDA_R_16BF;
    const float one = 1.f;
    const float zero = 0.f;
    const void* const inputs[] = {product->high, product->low};
    for (int i = 0; i < 2 && status == CUBLAS_STATUS_SUCCESS; ++i) {
        if (inputs[i] == nullptr) continue;
        status =
            cublasGemmEx(*handle, CUBLAS_OP_T, CUBLAS_OP_N, product->num_outputs, product->num_rows,
                         product->num_inputs, &one, product->weight, type, product->num_inputs,
                         inputs[i], type, product->num_inputs, i == 0 ? &zero : &one, product->sums,
                         CUDA_R_32F, product->num_outputs, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    }
    return status;
}

static_assert(std::is_same_v<decltype(kvlabCublasPrepare), kvlab::CublasPrepareFunction>);
static_assert(std::is_same_v<decltype(kvlabCublasProduct), kvlab::CublasProductFunction>);
