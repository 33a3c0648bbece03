// SPDX-License-Identifier: Apache-2.0
// Draws by inverse CDF in vocabulary order: first the chunk, from the masses of the chunks, then
// the id, from the weights of that chunk alone.
#pragma once

#include "common/gpu.cuh"
#include "common/reduce.cuh"
#include "common/row_law.h"
#include "common/vector_load.cuh"

namespace hetero_spec {

// Sum of the masses of a row's chunks, by one warp; all lanes get it.
template <class Mass>
__device__ __forceinline__ double sum_of_chunks(const Mass* masses, int chunks, int lane) {
  double sum = 0.0;
  for (int chunk = lane; chunk < chunks; chunk += kWarpLanes) sum += masses[chunk];
  return warp_sum(sum);
}

struct ChosenChunk {
  int chunk;    // -1: no mass, or none that is finite
  double goal;  // of the cumulative weight inside the chunk
  double total;
};

// By one warp; all lanes get the result. masses[chunk] >= 0, or NaN.
__device__ __forceinline__ ChosenChunk choose_chunk(const double* masses, int chunks,
                                                    double uniform, int lane) {
  double total = 0.0;
  for (int first = 0; first < chunks; first += kWarpLanes) {
    const int chunk = first + lane;
    total += warp_sum(chunk < chunks ? masses[chunk] : 0.0);
  }
  if (!(total > 0.0) || total == INFINITY) return {-1, 0.0, total};
  const double goal = uniform * total;
  double passed = 0.0, passed_before_last = 0.0;
  int last = -1;
  for (int first = 0; first < chunks; first += kWarpLanes) {
    const int chunk = first + lane;
    const double mass = chunk < chunks ? masses[chunk] : 0.0;
    const double to_here = passed + warp_inclusive_sum(mass, lane);
    const unsigned above = __ballot_sync(kAllLanes, mass > 0.0 && to_here > goal);
    if (above != 0) {
      const int chosen = __ffs(static_cast<int>(above)) - 1;
      const double before = __shfl_sync(kAllLanes, to_here - mass, chosen);
      return {first + chosen, goal - before, total};
    }
    const unsigned with_mass = __ballot_sync(kAllLanes, mass > 0.0);
    if (with_mass != 0) {
      const int latest = 31 - __clz(static_cast<int>(with_mass));
      last = first + latest;
      passed_before_last = __shfl_sync(kAllLanes, to_here - mass, latest);
    }
    passed = __shfl_sync(kAllLanes, to_here, kWarpLanes - 1);
  }
  return {last, goal - passed_before_last, total};  // the sums were rounded to below the goal
}

// The first id of the chunk at which the cumulative weight exceeds `goal`, else the last with
// weight, -1 if there is none. Called by the whole block, every thread gets it. load_weights(first,
// lane, weights) gives a warp the weights of kSteps steps from id `first` on, 0 beyond the row.
constexpr int kNoId = 0x7fffffff;
template <int kSteps, int kWidth, class LoadWeights>
__device__ int choose_in_chunk(int chunk, double goal, LoadWeights load_weights) {
  constexpr int kStep = kWarpLanes * kWidth, kIdsAWarp = kChunk / kBlockWarps;
  static_assert(kIdsAWarp == kSteps * kStep, "one batch is a warp's share of a chunk");
  struct Shared {
    double warp[kBlockWarps];
    int chosen, last;
  };
  Shared& shared = gpu::shared<Shared>();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpLanes, warp = thread / kWarpLanes;
  const int64_t begin = static_cast<int64_t>(chunk) * kChunk + warp * kIdsAWarp;

  float weight[kSteps][kWidth];
  load_weights(begin, lane, weight);
  double own[kSteps], mass = 0.0;  // of this lane's ids in each step
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    own[step] = 0.0;
#pragma unroll
    for (int n = 0; n < kWidth; ++n) own[step] += weight[step][n];
    mass += own[step];
  }
  mass = warp_sum(mass);
  if (lane == 0) shared.warp[warp] = mass;
  if (thread == 0) {
    shared.chosen = kNoId;
    shared.last = -1;
  }
  __syncthreads();  // masses of the warps are there
  double before = 0.0;
  for (int other = 0; other < warp; ++other) before += shared.warp[other];

  // Every warp looks in its own share. Only that in which the goal lies finds it, or by rounding
  // two neighbours do: the first counts.
  int chosen = kNoId, last = -1;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const double to_here = warp_inclusive_sum(own[step], lane);
    double cumulative = before + (to_here - own[step]);
    const int id = static_cast<int>(begin) + step * kStep + lane * kWidth;
#pragma unroll
    for (int n = 0; n < kWidth; ++n) {
      if (!(weight[step][n] > 0.0f)) continue;
      cumulative += weight[step][n];
      last = id + n;
      if (cumulative > goal && chosen == kNoId) chosen = id + n;
    }
    before += __shfl_sync(kAllLanes, to_here, kWarpLanes - 1);
  }
  chosen = warp_min(chosen);
  last = -warp_min(-last);
  if (lane == 0) {
    atomicMin(&shared.chosen, chosen);
    atomicMax(&shared.last, last);
  }
  __syncthreads();  // all warps have looked
  const int found = shared.chosen != kNoId ? shared.chosen : shared.last;
  __syncthreads();  // before another draw of this block
  return found;
}

// Draws an id from the masses of the chunks and the weights of the one chosen, by the whole block;
// -1 if there is no mass, or none that is finite. load_weights as in choose_in_chunk.
template <int kSteps, int kWidth, class LoadWeights>
__device__ int draw_by_masses(const double* masses, int chunks, double uniform,
                              LoadWeights load_weights) {
  struct Shared {
    ChosenChunk chunk;
  };
  Shared& shared = gpu::shared<Shared>();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kWarpLanes) {
    const ChosenChunk chosen = choose_chunk(masses, chunks, uniform, thread);
    if (thread == 0) shared.chunk = chosen;
  }
  __syncthreads();
  const ChosenChunk chosen = shared.chunk;
  __syncthreads();  // before another draw of this block
  if (chosen.chunk < 0) return -1;
  return choose_in_chunk<kSteps, kWidth>(chosen.chunk, chosen.goal, load_weights);
}

}  // namespace hetero_spec
