// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace kvlab {

class ThreadPool;
struct AttentionTap;

// Where an operation runs: the CPU functions use the threads, the CUDA launchers the rest.
struct ExecutionContext {
    ThreadPool* threads = nullptr;
    void* stream = nullptr;  // cudaStream_t
    // Device memory that operations on the stream may overwrite, 256-byte aligned. Attention says
    // what it has use for (pagedAttentionWorkspaceBytes); with less it splits its work less.
    void* workspace = nullptr;
    int64_t workspace_bytes = 0;
    AttentionTap* attention_tap = nullptr;  // simt only: attention_walk.h
    int num_simt_threads = 1;               // OS threads that simt spreads thread blocks over
    int num_multiprocessors = 132;          // of the GPU: how much work has to lie side by side
};

}  // namespace kvlab
