// SPDX-License-Identifier: Apache-2.0
// Reductions over a warp and over a block, in an order that depends on nothing but the lane
// numbers.
#pragma once

#include "common/gpu.cuh"
#include "common/vector_load.cuh"

namespace hetero_spec {

constexpr int kBlockThreads = 256;
constexpr int kBlockWarps = kBlockThreads / kWarpLanes;

// All lanes get the result. `merge` is symmetric, so that both partners compute the same bits.
template <class T, class Merge>
__device__ __forceinline__ T warp_reduce(T value, Merge merge) {
#pragma unroll
  for (int distance = kWarpLanes / 2; distance > 0; distance /= 2) {
    value = merge(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

template <class T>
__device__ __forceinline__ T warp_sum(T value) {
  return warp_reduce(value, [](T a, T b) { return a + b; });
}
__device__ __forceinline__ float warp_max(float value) {
  return warp_reduce(value, [](float a, float b) { return fmaxf(a, b); });
}
__device__ __forceinline__ int warp_min(int value) {
  return warp_reduce(value, [](int a, int b) { return a < b ? a : b; });
}

// Sum of the lanes up to and including this one.
template <class T>
__device__ __forceinline__ T warp_inclusive_sum(T value, int lane) {
#pragma unroll
  for (int distance = 1; distance < kWarpLanes; distance *= 2) {
    const T below = __shfl_up_sync(kAllLanes, value, distance);
    if (lane >= distance) value += below;
  }
  return value;
}

// All threads get the sum. Called by every thread of the block; begins and ends with a barrier, so
// that uses may follow each other.
template <class T>
__device__ __forceinline__ T block_sum(T value) {
  struct Partial {
    T warp[kBlockWarps];
  };
  Partial& partial = gpu::shared<Partial>();
  const int thread = static_cast<int>(threadIdx.x);
  value = warp_sum(value);
  if (thread % kWarpLanes == 0) partial.warp[thread / kWarpLanes] = value;
  __syncthreads();
  T sum = partial.warp[0];
#pragma unroll
  for (int warp = 1; warp < kBlockWarps; ++warp) sum += partial.warp[warp];
  __syncthreads();
  return sum;
}

}  // namespace hetero_spec
