// SPDX-License-Identifier: MIT
#pragma once

namespace kvlab {

class ThreadPool;

// Where an operation runs: the CPU functions use the threads, the CUDA launchers the stream.
struct ExecutionContext {
    ThreadPool* threads = nullptr;
    void* stream = nullptr;  // cudaStream_t
};

}  // namespace kvlab
