// SPDX-License-Identifier: MIT
#include "engine/backend/backend.h"

#include <cstring>

#include "engine/backend/cuda_backend.h"
#include "engine/error.h"

namespace kvlab {

// What follows is for backends whose operations read host memory.

Backend::Memory Backend::resident(const void* data, int64_t, const char*) {
    // Operations only read it; the pointer's type is that of all memory.
    return {const_cast<std::byte*>(static_cast<const std::byte*>(data)), [](std::byte*) {}};
}

void Backend::download(const std::byte* source, int64_t num_bytes, void* target) {
    std::memcpy(target, source, static_cast<size_t>(num_bytes));
}

void Backend::upload(std::span<const std::span<const int32_t>> arrays,
                     std::span<const int32_t*> places) {
    for (size_t i = 0; i < arrays.size(); ++i) places[i] = arrays[i].data();
}

void Backend::runRepeatable(std::span<const int64_t>, const std::function<void()>& work) { work(); }

const float* Backend::toHost(const float* data, int64_t) { return data; }

void Backend::copyBlocks(const CopyBlocksParams& params) { ops().copy_blocks(params, context()); }

void Backend::swapOut(std::span<const BlockSwap>, const PagedKvView&, const PagedKvView&) {
    KVLAB_CHECK(false, "this backend has one pool and swaps by copying blocks");
}

void Backend::swapIn(std::span<const BlockSwap>, const PagedKvView&, const PagedKvView&) {
    KVLAB_CHECK(false, "this backend has one pool and swaps by copying blocks");
}

std::unique_ptr<Backend> makeBackend(const std::string& name, int num_threads) {
    if (name == "cpu") return makeCpuBackend(num_threads);
    if (name == "simt") return makeSimtBackend(num_threads);
    if (name == "cuda") return makeCudaBackend({});
    throw EngineError(ErrorKind::kBadArgument,
                      "there is no backend \"" + name + "\"; use auto, cpu, cuda or simt");
}

}  // namespace kvlab
