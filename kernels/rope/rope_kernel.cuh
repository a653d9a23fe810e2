// SPDX-License-Identifier: MIT
#pragma once

// Turns the pairs of each head, in place, by
//
//   position * scale * base^(-2i / rope_dim) / divisors[i],  i < rope_dim / 2
//
// In   positions [num_tokens]; divisors [rope_dim / 2] or none
// Out  data [num_tokens, num_heads, head_dim] f32; more_data [num_tokens, num_more_heads, head_dim]
//      f32 or none, its heads after the others
//
// Who owns what
//   grid x   token
//   grid y   kRopeThreads pairs of the token, heads one after the other
//   thread   one pair of one head: two neighbours (8 bytes), or two values rope_dim / 2 apart
//
// Shared memory: none.
//
// Why so: an angle in f32 is wrong in its fourth digit at position 2,000, and sine and cosine in
// double cost hundreds of slow instructions. So the host computes each pair's frequency in half
// turns per position (1 KiB of arguments), the kernel multiplies and takes off the whole turns in
// double (five operations, one division more with divisors), and the rest, under one half turn, is
// exact enough for f32. Each head computes its token's angles again: that is cheaper than a barrier
// and keeps the grid wide for the one token of a decode step. Not good at: GPUs for games, where
// double runs at 1/64 of f32's rate; a decode step does not notice, a long prefill does.

#include <cmath>
#include <cstdint>

#include "kernels/launch_check.h"
#include "kernels/rope/rope.h"
#include "kernels/simt/simt.h"
#include "kernels/simt/storage_types.h"

namespace kvlab {

constexpr int kRopeThreads = 128;
constexpr int kRopeMaxDim = 256;

// Half turns (angle / pi) per position.
struct RopeFrequencies {
    double half_turns[kRopeMaxDim / 2];
};

template <RopeStyle kStyle>
__global__ void __launch_bounds__(kRopeThreads)
    ropeKernel(RopeParams params, RopeFrequencies frequencies) {
    waitForPredecessors();
    const int num_pairs = params.rope_dim / 2;
    const int at = static_cast<int>(blockIdx.y) * kRopeThreads + static_cast<int>(threadIdx.x);
    if (at >= num_pairs * (params.num_heads + params.num_more_heads)) return;
    const int head = at / num_pairs;
    const bool is_more = head >= params.num_heads;
    const int pair = at % num_pairs;
    const int64_t token = static_cast<int64_t>(blockIdx.x);

    double half_turns = params.positions[token] * frequencies.half_turns[pair];
    if (params.divisors != nullptr) half_turns /= static_cast<double>(params.divisors[pair]);
    half_turns -= 2. * rint(0.5 * half_turns);
    float sine;
    float cosine;
    sincospif(static_cast<float>(half_turns), &sine, &cosine);

    constexpr bool kHalves = kStyle == RopeStyle::kHalfSplit;
    float* const values =
        is_more ? params.more_data +
                      (token * params.num_more_heads + head - params.num_heads) * params.head_dim
                : params.data + (token * params.num_heads + head) * params.head_dim;
    float* const first = values + (kHalves ? pair : 2 * pair);
    float* const second = first + (kHalves ? num_pairs : 1);
    const float x = *first;
    const float y = *second;
    *first = x * cosine - y * sine;
    *second = x * sine + y * cosine;
}

// Checks the shapes and launches; no tokens or nothing to turn, no launch. `stream` is a
// cudaStream_t.
inline void launchRope(const RopeParams& params, void* stream) {
    constexpr LaunchCheck require{"rope"};
    require(params.num_tokens >= 0, "num_tokens is negative");
    if (params.num_tokens == 0 || params.rope_dim == 0) return;
    require(params.data != nullptr && params.positions != nullptr, "a pointer is null");
    require(params.num_heads >= 1 && params.head_dim >= 1, "there are no heads");
    require(
        params.num_more_heads >= 0 && (params.num_more_heads == 0 || params.more_data != nullptr),
        "more_data and num_more_heads go together");
    require(params.rope_dim >= 2 && params.rope_dim % 2 == 0 &&
                params.rope_dim <= params.head_dim && params.rope_dim <= kRopeMaxDim,
            "rope_dim must be even, at most head_dim and at most 256");
    const int num_pairs = params.rope_dim / 2;
    const int64_t num_thread_blocks =
        (num_pairs * (int64_t{params.num_heads} + params.num_more_heads) + kRopeThreads - 1) /
        kRopeThreads;
    require(num_thread_blocks <= 65535, "there are too many heads");

    // A power for the first and one multiplication for each other: off by 1e-14 at most after 128.
    RopeFrequencies frequencies{};
    const double ratio = std::pow(static_cast<double>(params.base), -2. / params.rope_dim);
    double frequency = static_cast<double>(params.scale) / 3.14159265358979323846;
    for (int i = 0; i < num_pairs; ++i, frequency *= ratio) frequencies.half_turns[i] = frequency;

    const dim3 grid(static_cast<unsigned>(params.num_tokens),
                    static_cast<unsigned>(num_thread_blocks));
    if (params.style == RopeStyle::kHalfSplit) {
        KVLAB_LAUNCH_EARLY(ropeKernel<RopeStyle::kHalfSplit>, grid, kRopeThreads, 0, stream, params,
                           frequencies);
    } else {
        KVLAB_LAUNCH_EARLY(ropeKernel<RopeStyle::kInterleaved>, grid, kRopeThreads, 0, stream,
                           params, frequencies);
    }
}

}  // namespace kvlab
