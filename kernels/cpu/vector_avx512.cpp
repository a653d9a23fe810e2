// SPDX-License-Identifier: MIT
#include <cstdint>
#include <immintrin.h>

#include "kernels/cpu/vector_paths.h"
#include "kernels/half.h"

namespace kvlab {
namespace {
#include "kernels/cpu/vector_body.inc"
}  // namespace

extern const VectorPaths kVectorPaths_avx512;
const VectorPaths kVectorPaths_avx512 = pathsNamed("avx512");

}  // namespace kvlab
