// SPDX-License-Identifier: MIT
#include "kernels/cpu/vector_paths.h"

#include <cstdlib>
#include <cstring>

namespace kvlab {

#if defined(__x86_64__)
extern const VectorPaths kVectorPaths_baseline;
extern const VectorPaths kVectorPaths_avx2;
extern const VectorPaths kVectorPaths_avx512;
#else
extern const VectorPaths kVectorPaths_portable;
#endif

namespace {

const VectorPaths& choose() {
#if defined(__x86_64__)
    // For tests and for comparing: KVLAB_VECTOR=avx2 or baseline holds the wider paths back.
    const char* wanted = std::getenv("KVLAB_VECTOR");
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f");
    const bool baseline = wanted != nullptr && std::strcmp(wanted, "baseline") == 0;
    const bool avx2 = wanted != nullptr && std::strcmp(wanted, "avx2") == 0;
    if (has_avx512 && !baseline && !avx2) return kVectorPaths_avx512;
    if (has_avx2 && !baseline) return kVectorPaths_avx2;
    return kVectorPaths_baseline;
#else
    return kVectorPaths_portable;
#endif
}

}  // namespace

const VectorPaths& vectorPaths() {
    static const VectorPaths& paths = choose();
    return paths;
}

}  // namespace kvlab
