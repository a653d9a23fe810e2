// SPDX-License-Identifier: MIT
#include <cstddef>
#include <dlfcn.h>
#include <mutex>
#include <string>

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/cublas_plugin.h"
#include "kernels/matmul/matmul_kernel.cuh"
#include "kernels/matmul/matmul_split_kernel.cuh"

namespace kvlab {
namespace {

// libkvlab_cublas.so beside the library that this is part of; null where it or cuBLAS is missing.
struct Cublas {
    CublasPrepareFunction* prepare = nullptr;
    CublasProductFunction* product = nullptr;

    Cublas() {
        Dl_info here;
        if (dladdr(reinterpret_cast<const void*>(&matmulCuda), &here) == 0) return;
        const std::string path = here.dli_fname;
        void* const library =
            dlopen((path.substr(0, path.rfind('/') + 1) + "libkvlab_cublas.so").c_str(),
                   RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) return;
        prepare = reinterpret_cast<CublasPrepareFunction*>(dlsym(library, kCublasPrepareName));
        product = reinterpret_cast<CublasProductFunction*>(dlsym(library, kCublasProductName));
    }
};

bool isCapturing(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
           status != cudaStreamCaptureStatusNone;
}

// Scratch memory in the order of the stream.
class Scratch {
  public:
    Scratch(size_t bytes, cudaStream_t stream) : stream_(stream) {
        if (cudaMallocAsync(&memory_, bytes, stream) != cudaSuccess) {
            memory_ = nullptr;
            cudaGetLastError();  // our own kernel does without
        }
    }
    ~Scratch() {
        // What fails here stays for cudaGetLastError: the next checkLaunch tells it.
        if (memory_ != nullptr) cudaFreeAsync(memory_, stream_);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    std::byte* memory() const { return static_cast<std::byte*>(memory_); }

  private:
    void* memory_ = nullptr;
    cudaStream_t stream_;
};

// Many rows of plain weights, through cuBLAS. False: nothing has been written, our kernel must.
bool multiplyWithCublas(const MatmulParams& params, void* stream) {
    if (params.num_rows <= kMatmulFewRows || isQuantised(params.type)) return false;
    static std::mutex mutex;
    static bool broken = false;
    const std::lock_guard lock(mutex);
    if (broken) return false;
    // Loading it and making it ready would break a graph that is being recorded.
    const auto cuda_stream = static_cast<cudaStream_t>(stream);
    static bool prepared[16] = {};
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess || device >= 16) return false;
    if (!prepared[device] && isCapturing(cuda_stream)) return false;
    static const Cublas cublas;
    if (cublas.prepare == nullptr || cublas.product == nullptr ||
        (!prepared[device] && cublas.prepare(kCublasPluginVersion) != 0)) {
        broken = true;
        return false;
    }
    prepared[device] = true;

    const bool split = params.type != TensorType::kF32;
    const auto aligned = [](size_t bytes) { return (bytes + 255) / 256 * 256; };
    const auto rows = static_cast<size_t>(params.num_rows);
    const size_t sum_bytes = aligned(rows * static_cast<size_t>(params.num_outputs) * 4);
    const size_t half_bytes =
        split ? aligned(rows * static_cast<size_t>(params.num_inputs) * 2) : 0;
    const size_t scale_bytes = split ? aligned(rows * 4) : 0;
    const Scratch scratch(sum_bytes + 2 * half_bytes + scale_bytes + kCublasWorkspaceBytes,
                          cuda_stream);
    if (scratch.memory() == nullptr) return false;

    CublasProduct product{};
    product.weight_type = params.type == TensorType::kF32   ? 0
                          : params.type == TensorType::kF16 ? 1
                                                            : 2;
    product.num_rows = params.num_rows;
    product.num_inputs = params.num_inputs;
    product.num_outputs = params.num_outputs;
    product.weight = params.weight;
    product.high = params.input;
    product.sums = reinterpret_cast<float*>(scratch.memory());
    product.stream = stream;
    product.workspace = scratch.memory() + sum_bytes + 2 * half_bytes + scale_bytes;
    product.workspace_bytes = kCublasWorkspaceBytes;
    float* scales = nullptr;
    if (split) {
        MatmulSplitParams parts;
        parts.input = params.input;
        parts.high = scratch.memory() + sum_bytes;
        parts.low = scratch.memory() + sum_bytes + half_bytes;
        parts.scales = scales =
            reinterpret_cast<float*>(scratch.memory() + sum_bytes + 2 * half_bytes);
        parts.num_rows = params.num_rows;
        parts.num_inputs = params.num_inputs;
        launchMatmulSplit(parts, params.type, stream);
        checkLaunch("matmulSplitKernel");
        product.high = parts.high;
        product.low = parts.low;
    }
    if (cublas.product(&product) != 0) {
        broken = true;
        return false;
    }
    launchMatmulFinish(params, product.sums, scales, stream);
    checkLaunch("matmulFinishKernel");
    return true;
}

}  // namespace

void matmulCuda(const MatmulParams& params, ExecutionContext& context) {
    matmul_detail::checkShapes(params);
    if (params.num_rows == 0 || multiplyWithCublas(params, context.stream)) return;
    launchMatmul(params, context.stream);
    checkLaunch("matmul kernels");
}

void matmulGroupCuda(const MatmulGroupParams& params, ExecutionContext& context) {
    const bool done = launchMatmulGroup(params, context.stream);
    checkLaunch("matmul kernels");
    if (done) return;
    if (params.norm_weight != nullptr) {
        launchRmsNorm(rmsNormOfGroup(params), context.stream);
        checkLaunch("rmsNormKernel");
        return matmulGroupCuda(groupOfNormed(params), context);
    }
    for (int i = 0; i < params.num_parts; ++i) matmulCuda(matmulOfPart(params, i), context);
    if (!params.silu_mul) return;
    launchSiluMul(siluMulOfGroup(params), context.stream);
    checkLaunch("siluMulKernel");
}

}  // namespace kvlab
