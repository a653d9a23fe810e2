// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace kvlab {

// What passes between libkvlab_cuda.so and libkvlab_cublas.so, the part that links cuBLAS. It is
// loaded when the first product of many rows comes, so that a machine without cuBLAS only loses
// speed, and one with it does not wait half a second for it before it is needed. Plain C types
// only.

// sums[r, o] = sum_k (high[r, k] + low[r, k]) * weight[o, k], in f32; all in device memory.
struct CublasProduct {
    int32_t weight_type;  // 0 f32, 1 f16, 2 bf16: of weight, high and low
    int32_t num_rows;
    int32_t num_inputs;
    int32_t num_outputs;
    const void* weight;  // [num_outputs, num_inputs]
    const void* high;    // [num_rows, num_inputs]
    const void* low;     // [num_rows, num_inputs], or null: none
    float* sums;         // [num_rows, num_outputs]
    void* stream;        // cudaStream_t
    // Device memory in the order of the stream, on 256 bytes. cuBLAS's own workspace belongs to the
    // handle: two streams would share it, and while a graph is recorded cuBLAS would allocate one
    // (cuBLAS documentation, cublasSetWorkspace).
    void* workspace;
    uint64_t workspace_bytes;
};

// A part of another build is refused.
constexpr int32_t kCublasPluginVersion =
    2 * 1'000'000 + static_cast<int32_t>(sizeof(CublasProduct));

// What cuBLAS recommends for Hopper; 4 MiB would do before.
constexpr uint64_t kCublasWorkspaceBytes = uint64_t{32} << 20;

// extern "C", under these names. Both return 0, or a cublasStatus_t, or -1 for another version;
// they never throw. Prepare makes the current device ready, which must not happen while a stream
// records a graph; the product may.
using CublasPrepareFunction = int32_t(int32_t version);
using CublasProductFunction = int32_t(const CublasProduct* product);
constexpr const char* kCublasPrepareName = "kvlabCublasPrepare";
constexpr const char* kCublasProductName = "kvlabCublasProduct";

}  // namespace kvlab
