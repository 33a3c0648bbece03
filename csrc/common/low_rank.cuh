// SPDX-License-Identifier: Apache-2.0
// Low-rank RDK kernels (common/low_rank.h) on the device. What is kept of each row, its
// coefficients and its total weight, takes three kernels:
//
//   parts    block -> (chunk, row): the chunk's law into shared memory, then thread -> factor (and
//            a share of the ids): the chunk's part of U^T law. Factors are read where the law has
//            mass.
//   masses   block -> (chunk, row), warp -> id: the coefficients, and the mass of the chunk's
//            weights
//   totals   block -> row
//
// Reads of U: two a row, which rows that are worked on together share as far as the cache goes. A
// weight is made by a warp, lane -> factor, and by nothing else: the same bits wherever it is asked
// for. Numerics: float32 inside a chunk, float64 across chunks.
#pragma once

#include "common/draw.cuh"
#include "common/launch.cuh"
#include "common/low_rank.h"
#include "common/rdk.cuh"
#include "common/reduce.cuh"

namespace hetero_spec {

// ---- one weight
// -----------------------------------------------------------------------------------

// w of a target id, by one warp; all lanes get it.
__device__ __forceinline__ float low_rank_weight_at(const RdkFactors& factors,
                                                    const float* coefficients, int64_t token,
                                                    int lane) {
  const float* row = factors.factors + token * factors.num_factors;
  const int width = static_cast<int>(factors.num_factors);
  float product = 0.0f;
#pragma unroll 4
  for (int factor = lane; factor < width; factor += kWarpLanes) {
    product = fmaf(row[factor], coefficients[factor], product);
  }
  return low_rank_weight(factors, warp_sum(product));
}

// Draft probability of one target id, by one warp; all lanes get it. `kept` is the row's.
__device__ __forceinline__ float low_rank_prob_at(const RdkFactors& factors, const float* kept,
                                                  const DraftRow& draft, int64_t token, int lane) {
  if (is_invalid(draft.stats)) return quiet_nan();
  if (is_empty(draft.stats)) return 0.0f;
  const float weight = low_rank_weight_at(factors, kept, token, lane);
  return low_rank_prob(factors, kept[factors.num_factors], weight, draft_law_at(draft, token));
}

// ---- many weights, by a warp into shared memory
// ---------------------------------------------------

// What is kept of a row in the launch's dynamic shared memory: n + 1 floats.
__device__ __forceinline__ float* shared_kept() { return gpu::shared_dynamic<float>(); }

inline std::size_t shared_kept_bytes(const RdkFactors& factors) {
  return static_cast<std::size_t>(factors.row_width()) * sizeof(float);
}

// By the whole block; barriers before, so that uses may follow each other, and behind.
__device__ __forceinline__ void share_kept(const RdkFactors& factors, const float* kept) {
  __syncthreads();
  for (int at = static_cast<int>(threadIdx.x); at < factors.row_width(); at += kBlockThreads) {
    shared_kept()[at] = kept[at];
  }
  __syncthreads();  // the row's numbers are there
}

constexpr int kStagedWeights = 512;  // that a warp holds at once

// Weights of `count` ids from `first` on, 0 beyond the vocabulary, by one warp from the row in
// shared memory; they last until the warp's next call. count is a multiple of the lanes.
__device__ __forceinline__ const float* stage_weights(const RdkFactors& factors, int64_t vocab_size,
                                                      int64_t first, int count, int lane) {
  struct Staged {
    float weight[kBlockWarps][kStagedWeights];
  };
  float* staged = gpu::shared<Staged>().weight[static_cast<int>(threadIdx.x) / kWarpLanes];
  __syncwarp();  // all lanes have read what was there
#pragma unroll 1
  for (int begin = 0; begin < count; begin += kWarpLanes) {
    float own = 0.0f;
#pragma unroll 1
    for (int other = 0; other < kWarpLanes && first + begin + other < vocab_size; ++other) {
      const float weight = low_rank_weight_at(factors, shared_kept(), first + begin + other, lane);
      if (other == lane) own = weight;
    }
    staged[begin + lane] = own;
  }
  __syncwarp();  // all lanes have written
  return staged;
}

// Draws an id from the weights of the row in shared memory, by the whole block; -1 if they have no
// mass that is finite. masses [chunks] are those of the masses kernel.
__device__ __forceinline__ int draw_low_rank(const RdkFactors& factors, int64_t vocab_size,
                                             const double* masses, double uniform) {
  constexpr int kWidth = 4, kSteps = kStagedWeights / (kWarpLanes * kWidth);
  const int chunks = static_cast<int>(num_chunks(vocab_size));
  return draw_by_masses<kSteps, kWidth>(
      masses, chunks, uniform, [&](int64_t first, int lane, float (&weight)[kSteps][kWidth]) {
        const float* staged = stage_weights(factors, vocab_size, first, kStagedWeights, lane);
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
#pragma unroll
          for (int n = 0; n < kWidth; ++n) {
            weight[step][n] = staged[(step * kWarpLanes + lane) * kWidth + n];
          }
        }
      });
}

// ---- what is kept of each row
// -----------------------------------------------------------------------

// Scratch of the three kernels.
struct LowRankSpace {
  float* parts;        // [rows, chunks, n], each chunk's part of the coefficients
  double* masses;      // [rows, chunks], of the weights
  double* law_masses;  // [rows, chunks] or null
};

// Takes a workspace's arrays for it; `Layout` is WorkspaceLayout.
template <class Layout>
LowRankSpace take_low_rank_space(Layout& layout, const RdkFactors& factors, int64_t num_rows,
                                 int64_t vocab_size, bool wants_law_masses) {
  const int64_t places = num_rows * num_chunks(vocab_size);
  LowRankSpace out{};
  out.parts = layout.template take<float>(places * factors.num_factors);
  out.masses = layout.template take<double>(places);
  if (wants_law_masses) out.law_masses = layout.template take<double>(places);
  return out;
}

struct LowRankArguments {
  RdkFactors factors;
  int64_t vocab_size;
  LowRankSpace space;
  float* kept;     // [rows, n + 1]
  float* weights;  // [rows, V] or null
};

// The law of a draft row, for loops over many ids.
class DraftLaw {
 public:
  __device__ explicit DraftLaw(const DraftRow& draft) : draft_(draft), law_(draft.stats) {}
  __device__ __forceinline__ float at(int64_t token) const {
    const int64_t id = draft_id_of(draft_, token);
    if (id < 0) return 0.0f;
    return law_.prob(logit_at(draft_.logits, draft_.row, id), static_cast<int>(id));
  }

 private:
  DraftRow draft_;
  LawLoop law_;
};

// Index of a row in a row_grid.
__device__ __forceinline__ int64_t grid_row() {
  return blockIdx.y + static_cast<int64_t>(blockIdx.z) * gridDim.y;
}

// Rows: row(index, lane) is the row of an index of the grid, or -1 if there is nothing to do (the
// same for all threads of a block); law(row).at(token) its law.

// Grid: x = chunk, y and z = index of the row.
template <int kThreads, class Rows>
__global__ void __launch_bounds__(kThreads)
    low_rank_parts_kernel(LowRankArguments arguments, Rows rows) {
  struct Shared {
    float law[kChunk];
    float sums[kThreads];
  };
  Shared& shared = gpu::shared<Shared>();
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t row = rows.row(grid_row(), thread % kWarpLanes), chunk = blockIdx.x;
  if (row < 0) return;
  const int factors = static_cast<int>(arguments.factors.num_factors);
  const int64_t place = row * gridDim.x + chunk, begin = chunk * kChunk;
  const int64_t left = arguments.vocab_size - begin;
  const int count = left < kChunk ? static_cast<int>(left) : kChunk;
  {
    const auto law = rows.law(row);
    for (int at = thread; at < count; at += kThreads) shared.law[at] = law.at(begin + at);
  }
  __syncthreads();  // the chunk's law is there
  // Threads in groups of `width` factors, whole warps; each group takes every groups-th id. Where
  // the factors take more than one turn, there is one group only.
  int width = kWarpLanes;
  while (width < factors && width < kThreads) width *= 2;
  const int groups = kThreads / width, group = thread / width;
  for (int first = 0; first < factors; first += width) {
    const int factor = first + thread % width;
    float sum = 0.0f;
    if (factor < factors) {
#pragma unroll 4
      for (int at = group; at < count; at += groups) {
        const float prob = shared.law[at];
        if (prob == 0.0f) continue;  // not read
        sum = fmaf(prob, arguments.factors.factors[(begin + at) * factors + factor], sum);
      }
    }
    shared.sums[thread] = sum;
    __syncthreads();  // sums of all groups are there
    if (group == 0 && factor < factors) {
      for (int other = 1; other < groups; ++other) sum += shared.sums[other * width + thread];
      arguments.space.parts[place * factors + factor] = sum;
    }
  }
  if (arguments.space.law_masses == nullptr) return;
  float mass = 0.0f;
  for (int at = thread; at < count; at += kThreads) mass += shared.law[at];
  const double total = block_sum(static_cast<double>(mass));
  if (thread == 0) arguments.space.law_masses[place] = total;
}

// Grid: x = chunk, y and z = index of the row. Dynamic shared memory: n floats.
template <int kThreads, class Rows>
__global__ void __launch_bounds__(kThreads)
    low_rank_masses_kernel(LowRankArguments arguments, Rows rows) {
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpLanes, warp = thread / kWarpLanes;
  const int64_t row = rows.row(grid_row(), lane), chunk = blockIdx.x, chunks = gridDim.x;
  if (row < 0) return;
  float* coefficients = shared_kept();
  const int factors = static_cast<int>(arguments.factors.num_factors);
  for (int factor = thread; factor < factors; factor += kThreads) {
    double sum = 0.0;
#pragma unroll 1  // registers
    for (int64_t other = 0; other < chunks; ++other) {
      sum += arguments.space.parts[(row * chunks + other) * factors + factor];
    }
    coefficients[factor] = static_cast<float>(sum);
    if (chunk == 0) arguments.kept[row * (factors + 1) + factor] = static_cast<float>(sum);
  }
  __syncthreads();  // all coefficients are there
  const int64_t begin = chunk * kChunk;
  const int64_t end = begin + kChunk < arguments.vocab_size ? begin + kChunk : arguments.vocab_size;
  double mass = 0.0;
  for (int64_t id = begin + warp; id < end; id += kBlockWarps) {
    const float weight = low_rank_weight_at(arguments.factors, coefficients, id, lane);
    if (lane != 0) continue;
    if (arguments.weights != nullptr) arguments.weights[row * arguments.vocab_size + id] = weight;
    mass += weight;
  }
  mass = block_sum(mass);
  if (thread == 0) arguments.space.masses[row * chunks + chunk] = mass;
}

// Grid: y and z = index of the row. One warp a block.
template <int kThreads, class Rows>
__global__ void __launch_bounds__(kThreads)
    low_rank_totals_kernel(LowRankArguments arguments, Rows rows) {
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t row = rows.row(grid_row(), lane);
  if (row < 0) return;
  const int chunks = static_cast<int>(num_chunks(arguments.vocab_size));
  const double total = sum_of_chunks(arguments.space.masses + row * chunks, chunks, lane);
  const int64_t factors = arguments.factors.num_factors;
  if (lane == 0) arguments.kept[row * (factors + 1) + factors] = static_cast<float>(total);
}

// Launches the three for `num_indices` rows.
template <class Rows>
cudaError_t launch_low_rank_rows(const LowRankArguments& arguments, const Rows& rows,
                                 int64_t num_indices, cudaStream_t stream) {
  if (num_indices == 0) return cudaSuccess;
  const dim3 threads(kBlockThreads);
  const dim3 grid = row_grid(static_cast<unsigned>(num_chunks(arguments.vocab_size)), num_indices);
  cudaError_t error = gpu::launch(grid, threads, 0, stream,
                                  low_rank_parts_kernel<kBlockThreads, Rows>, arguments, rows);
  if (error != cudaSuccess) return error;
  error = gpu::launch(grid, threads, shared_kept_bytes(arguments.factors), stream,
                      low_rank_masses_kernel<kBlockThreads, Rows>, arguments, rows);
  if (error != cudaSuccess) return error;
  return gpu::launch(row_grid(1, num_indices), dim3(kWarpLanes), 0, stream,
                     low_rank_totals_kernel<kWarpLanes, Rows>, arguments, rows);
}

}  // namespace hetero_spec
