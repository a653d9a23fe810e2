// SPDX-License-Identifier: MIT
#include <cstdint>
#include <immintrin.h>

#include "kernels/cpu/vector_paths.h"
#include "kernels/half.h"

namespace kvlab {
namespace {
#include "kernels/cpu/vector_body.inc"
}  // namespace

extern const VectorPaths kVectorPaths_avx2;
const VectorPaths kVectorPaths_avx2 = pathsNamed("avx2");

}  // namespace kvlab
