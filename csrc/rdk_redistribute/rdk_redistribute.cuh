// SPDX-License-Identifier: Apache-2.0
// rdk_redistribute on the device.
//
// A mixture takes two kernels:
//   leaked   block -> row: sum of leak * law
//   mix      grid: x = kBlockThreads ids, y and z = row; thread -> id
// A low-rank kernel takes those of common/low_rank.cuh, which leave the weights in place of the
// results, and
//   finish   block -> (chunk, row), thread -> id
// Numerics: float32 inside a chunk, float64 across chunks.
#pragma once

#include "common/low_rank.cuh"
#include "common/rdk.h"
#include "common/reduce.cuh"
#include "common/row_law.cuh"
#include "rdk_redistribute/rdk_redistribute_cuda.h"

namespace hetero_spec {

struct RdkRedistributeArguments {
  RdkRedistribute call;
  float* leaked_mass;  // [rows], of a mixture
  LowRankSpace space;
  float* kept;  // [rows, n + 1], of a low-rank kernel
};

// The rows of common/low_rank.cuh.
struct GivenLaws {
  const float* probs;
  int64_t row_stride;
  int64_t num_rows;

  struct Law {
    const float* probs;
    __device__ __forceinline__ float at(int64_t id) const { return probs[id]; }
  };
  __device__ __forceinline__ int64_t row(int64_t index, int) const {
    return index < num_rows ? index : -1;
  }
  __device__ __forceinline__ Law law(int64_t row) const { return {probs + row * row_stride}; }
};

// Sum over one row of law * leak (of the law itself where the leak is constant), by a block.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) rdk_leaked_kernel(RdkRedistributeArguments arguments) {
  const RdkRedistribute& call = arguments.call;
  const RdkKernel& kernel = call.kernel;
  const int64_t row = blockIdx.x;
  const float* law = call.draft_probs + row * call.row_stride;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpLanes, warp = thread / kWarpLanes;
  double mass = 0.0;
  for (int64_t chunk = warp; chunk < num_chunks(call.vocab_size); chunk += kBlockWarps) {
    const int64_t begin = chunk * kChunk;
    const int64_t end = begin + kChunk < call.vocab_size ? begin + kChunk : call.vocab_size;
    float sum = 0.0f;
    for (int64_t id = begin + lane; id < end; id += kWarpLanes) {
      sum = fmaf(law[id], leak_of(kernel, id), sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) mass += sum;
  }
  mass = block_sum(mass);
  if (thread == 0) arguments.leaked_mass[row] = static_cast<float>(mass);
}

template <int kThreads>
__global__ void __launch_bounds__(kThreads) rdk_mix_kernel(RdkRedistributeArguments arguments) {
  const RdkRedistribute& call = arguments.call;
  const int64_t row = grid_row();
  const int64_t id = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= call.num_rows || id >= call.vocab_size) return;
  const float* law = call.draft_probs + row * call.row_stride;
  call.probs[row * call.vocab_size + id] =
      rdk_prob(call.kernel, id, arguments.leaked_mass[row], [&](int64_t at) { return law[at]; });
}

// Grid: x = chunk, y and z = row.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) rdk_finish_kernel(RdkRedistributeArguments arguments) {
  const RdkRedistribute& call = arguments.call;
  const int64_t row = grid_row(), chunk = blockIdx.x, chunks = gridDim.x;
  if (row >= call.num_rows) return;
  double law_mass = 0.0;
  for (int64_t other = 0; other < chunks; ++other) {
    law_mass += arguments.space.law_masses[row * chunks + other];
  }
  const RdkFactors& factors = call.kernel.low_rank;
  const float* law = call.draft_probs + row * call.row_stride;
  const float total = arguments.kept[row * factors.row_width() + factors.num_factors];
  const int64_t begin = chunk * kChunk;
  const int64_t end = begin + kChunk < call.vocab_size ? begin + kChunk : call.vocab_size;
  for (int64_t id = begin + threadIdx.x; id < end; id += kThreads) {
    float* out = call.probs + row * call.vocab_size + id;
    *out = law_mass == 0.0 ? 0.0f : low_rank_prob(factors, total, *out, law[id]);
  }
}

}  // namespace hetero_spec
