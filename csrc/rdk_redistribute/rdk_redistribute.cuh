// SPDX-License-Identifier: Apache-2.0
// rdk_redistribute on the device.
//
// A mixture takes two kernels:
//   leaked   block -> row: sum of leak * law
//   mix      grid: x = kBlockThreads ids, y and z = row; thread -> id
// A low-rank kernel takes three:
//   coefficients  block -> (chunk, row), thread -> factor: the chunk's part of U^T law
//   weights       block -> (chunk, row), warp -> id: max(0, 1 + scale * U coefficients), and their
//   sum finish        thread -> id
// Numerics: float32 inside a chunk, float64 across chunks.
#pragma once

#include "common/rdk.h"
#include "common/reduce.cuh"
#include "common/row_law.cuh"
#include "rdk_redistribute/rdk_redistribute_cuda.h"

namespace hetero_spec {

struct RdkRedistributeArguments {
  RdkRedistribute call;
  float* leaked_mass;   // [rows], of a mixture
  float* coefficients;  // [rows, chunks, n], each chunk's part
  double* law_masses;   // [rows, chunks], of the law
  double* masses;       // [rows, chunks], of the weights
};

__device__ __forceinline__ int64_t row_index() {
  return blockIdx.y + static_cast<int64_t>(blockIdx.z) * gridDim.y;
}

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
  const int64_t row = row_index();
  const int64_t id = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= call.num_rows || id >= call.vocab_size) return;
  const float* law = call.draft_probs + row * call.row_stride;
  call.probs[row * call.vocab_size + id] =
      rdk_prob(call.kernel, id, arguments.leaked_mass[row], [&](int64_t at) { return law[at]; });
}

// Grid: x = chunk, y and z = row.
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    rdk_coefficients_kernel(RdkRedistributeArguments arguments) {
  const RdkRedistribute& call = arguments.call;
  const int64_t row = row_index(), chunk = blockIdx.x;
  if (row >= call.num_rows) return;
  const int64_t factors = call.low_rank.num_factors, place = row * gridDim.x + chunk;
  const float* law = call.draft_probs + row * call.row_stride;
  const int64_t begin = chunk * kChunk;
  const int64_t end = begin + kChunk < call.vocab_size ? begin + kChunk : call.vocab_size;
  for (int64_t factor = threadIdx.x; factor < factors; factor += kThreads) {
    float sum = 0.0f;
    for (int64_t id = begin; id < end; ++id) {
      sum = fmaf(law[id], call.low_rank.factors[id * factors + factor], sum);
    }
    arguments.coefficients[place * factors + factor] = sum;
  }
  float mass = 0.0f;
  for (int64_t id = begin + threadIdx.x; id < end; id += kThreads) mass += law[id];
  const double total = block_sum(static_cast<double>(mass));
  if (threadIdx.x == 0) arguments.law_masses[place] = total;
}

// Grid: x = chunk, y and z = row. Dynamic shared memory: the row's coefficients, n floats.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) rdk_weights_kernel(RdkRedistributeArguments arguments) {
  const RdkRedistribute& call = arguments.call;
  const int64_t row = row_index(), chunk = blockIdx.x, chunks = gridDim.x;
  if (row >= call.num_rows) return;
  float* coefficients = gpu::shared_dynamic<float>();
  const int64_t factors = call.low_rank.num_factors;
  for (int64_t factor = threadIdx.x; factor < factors; factor += kThreads) {
    double sum = 0.0;
#pragma unroll 1  // registers
    for (int64_t other = 0; other < chunks; ++other) {
      sum += arguments.coefficients[(row * chunks + other) * factors + factor];
    }
    coefficients[factor] = static_cast<float>(sum);
  }
  __syncthreads();  // all coefficients are there
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpLanes, warp = thread / kWarpLanes;
  const int64_t begin = chunk * kChunk;
  const int64_t end = begin + kChunk < call.vocab_size ? begin + kChunk : call.vocab_size;
  double mass = 0.0;
  for (int64_t id = begin + warp; id < end; id += kBlockWarps) {
    float sum = 0.0f;
#pragma unroll 4
    for (int64_t factor = lane; factor < factors; factor += kWarpLanes) {
      sum = fmaf(call.low_rank.factors[id * factors + factor], coefficients[factor], sum);
    }
    float weight = fmaf(call.low_rank.scale, warp_sum(sum), 1.0f);
    if (weight < 0.0f) weight = 0.0f;  // NaN stays
    if (lane != 0) continue;
    call.probs[row * call.vocab_size + id] = weight;
    mass += weight;
  }
  mass = block_sum(mass);
  if (thread == 0) arguments.masses[row * chunks + chunk] = mass;
}

// Grid: x = chunk, y and z = row.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) rdk_finish_kernel(RdkRedistributeArguments arguments) {
  const RdkRedistribute& call = arguments.call;
  const int64_t row = row_index(), chunk = blockIdx.x, chunks = gridDim.x;
  if (row >= call.num_rows) return;
  double law_mass = 0.0, total = 0.0;
  for (int64_t other = 0; other < chunks; ++other) {
    law_mass += arguments.law_masses[row * chunks + other];
    total += arguments.masses[row * chunks + other];
  }
  const float* law = call.draft_probs + row * call.row_stride;
  const float share = static_cast<float>(call.low_rank.lam / total);
  const float keep = 1.0f - call.low_rank.lam;
  const int64_t begin = chunk * kChunk;
  const int64_t end = begin + kChunk < call.vocab_size ? begin + kChunk : call.vocab_size;
  for (int64_t id = begin + threadIdx.x; id < end; id += kThreads) {
    float* out = call.probs + row * call.vocab_size + id;
    *out = law_mass == 0.0 ? 0.0f : fmaf(share, *out, keep * law[id]);
  }
}

}  // namespace hetero_spec
