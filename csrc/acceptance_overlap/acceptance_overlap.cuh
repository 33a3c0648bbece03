// SPDX-License-Identifier: Apache-2.0
// acceptance_overlap on the device: the laws of both rows (row_stats), then
//   overlap kernel   grid: x = group of kBlockWarps chunks, y and z = row; warp -> chunk of the
//   target's
//                    vocabulary. The last block of a row adds its chunks.
// and before it, where an RDK kernel's leaked mass has to be summed, a block for each draft row,
// and with a low-rank kernel those of common/low_rank.cuh. Passes over memory: two reads of each
// row (one of the draft's where its stats are given). Numerics: float32 inside a chunk, float64
// across chunks.
#pragma once

#include "acceptance_overlap/acceptance_overlap_cuda.h"
#include "common/low_rank.cuh"
#include "common/rdk.cuh"
#include "common/row_law.cuh"

namespace hetero_spec {

struct OverlapArguments {
  AcceptanceOverlapCuda call;
  const RowStats* target_stats;  // [rows]
  const RowStats* draft_stats;   // [rows]
  const float* leaked_mass;      // [rows], where the kernel needs it; low rank [rows, n + 1]
  double* masses;                // [rows, chunks]
  unsigned* tickets;             // [rows], 0
};

// Grid: x = row.
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    overlap_leaked_mass_kernel(OverlapArguments arguments, float* leaked_mass) {
  const AcceptanceOverlapCuda& call = arguments.call;
  const int64_t row = blockIdx.x;
  const float mass = leaked_mass_by_block(
      call.kernel, {call.draft_logits, row, arguments.draft_stats[row], call.target_to_draft_ids});
  if (threadIdx.x == 0) leaked_mass[row] = mass;
}

// The rows of common/low_rank.cuh.
struct OverlapRows {
  OverlapArguments arguments;

  __device__ __forceinline__ int64_t row(int64_t index, int) const {
    return index < arguments.call.num_rows ? index : -1;
  }
  __device__ __forceinline__ DraftLaw law(int64_t row) const {
    const AcceptanceOverlapCuda& call = arguments.call;
    return DraftLaw({call.draft_logits, row, arguments.draft_stats[row], call.target_to_draft_ids});
  }
};

// Sum of min(target, draft) over one chunk, the draft law redistributed by a low-rank kernel, whose
// numbers of the row are in shared memory; as below.
template <class T>
__device__ __forceinline__ float chunk_low_rank_overlap(const AcceptanceOverlapCuda& call,
                                                        int64_t row, const RowStats& target_stats,
                                                        const DraftLaw& draft, int64_t chunk,
                                                        int lane) {
  constexpr int kStep = kWarpLanes * kPack<T>;
  const RowView<T> target_row = row_of<T>(call.target_logits, row, nullptr);
  const LawLoop target(target_stats);
  const RdkFactors& factors = call.kernel.low_rank;
  const float total = shared_kept()[factors.num_factors];
  const int64_t begin = chunk * kChunk, size = call.target_logits.vocab_size;
  float sum = 0.0f;
  for (int64_t first = begin; first < begin + kChunk && first < size; first += kStep) {
    float logit[1][kPack<T>];
    load_steps(target_row, first, lane, logit);
    const float* staged = stage_weights(factors, size, first, kStep, lane);
#pragma unroll
    for (int n = 0; n < kPack<T>; ++n) {
      const int id = static_cast<int>(first) + lane * kPack<T> + n;
      if (id >= size) continue;
      sum += fminf(target.prob(logit[0][n], id),
                   low_rank_prob(factors, total, staged[lane * kPack<T> + n], draft.at(id)));
    }
  }
  return warp_sum(sum);
}

// Sum of min(target, draft) over one chunk, the draft law redistributed by a mixture; as below.
template <class T>
__device__ __forceinline__ float chunk_rdk_overlap(const OverlapArguments& arguments, int64_t row,
                                                   const RowStats& target_stats,
                                                   const RowStats& draft_stats, int64_t chunk,
                                                   int lane) {
  constexpr int kStep = kWarpLanes * kPack<T>;
  const AcceptanceOverlapCuda& call = arguments.call;
  const RowView<T> target_row = row_of<T>(call.target_logits, row, nullptr);
  const DraftRow draft_row{call.draft_logits, row, draft_stats, call.target_to_draft_ids};
  const LawLoop target(target_stats), draft(draft_stats);
  const float leaked =
      call.kernel.needs_leaked_mass() ? arguments.leaked_mass[row] : leak_of(call.kernel, 0);
  const int64_t begin = chunk * kChunk, size = call.target_logits.vocab_size;
  float sum = 0.0f;
  for (int64_t first = begin; first < begin + kChunk && first < size; first += kStep) {
    float logit[1][kPack<T>];
    load_steps(target_row, first, lane, logit);
#pragma unroll
    for (int n = 0; n < kPack<T>; ++n) {
      const int id = static_cast<int>(first) + lane * kPack<T> + n;
      if (id >= size) continue;
      sum += fminf(target.prob(logit[0][n], id),
                   rdk_prob_in_loop(call.kernel, draft_row, draft, leaked, id));
    }
  }
  return warp_sum(sum);
}

// Sum of min(target, draft) over one chunk, by one warp; all lanes get it.
template <class T>
__device__ __forceinline__ float chunk_overlap(const AcceptanceOverlapCuda& call, int64_t row,
                                               const RowStats& target_stats,
                                               const RowStats& draft_stats, int64_t chunk,
                                               int lane) {
  constexpr int kSteps = kBatchSteps<T>, kStep = kWarpLanes * kPack<T>;
  const RowView<T> target_row = row_of<T>(call.target_logits, row, nullptr);
  const RowView<T> draft_row = row_of<T>(call.draft_logits, row, nullptr);
  const LawLoop target(target_stats), draft(draft_stats);
  const int size = static_cast<int>(call.target_logits.vocab_size);
  const int draft_size = static_cast<int>(call.draft_logits.vocab_size);
  const bool is_aligned =
      call.target_to_draft_ids == nullptr && call.draft_logits.dtype == call.target_logits.dtype;
  const int64_t begin = chunk * kChunk;
  float sum = 0.0f;
  for (int64_t first = begin; first < begin + kChunk && first < size; first += kSteps * kStep) {
    float logit[kSteps][kPack<T>], draft_logit[kSteps][kPack<T>];
    load_steps(target_row, first, lane, logit);
    if (is_aligned) load_steps(draft_row, first, lane, draft_logit);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int n = 0; n < kPack<T>; ++n) {
        const int id = static_cast<int>(first) + step * kStep + lane * kPack<T> + n;
        if (id >= size) continue;
        int draft_id = id;
        if (call.target_to_draft_ids != nullptr) draft_id = call.target_to_draft_ids[id];
        if (draft_id < 0 || draft_id >= draft_size) continue;
        const float drafted =
            is_aligned ? draft_logit[step][n] : logit_at(call.draft_logits, row, draft_id);
        sum += fminf(target.prob(logit[step][n], id), draft.prob(drafted, draft_id));
      }
    }
  }
  return warp_sum(sum);
}

template <class T, int kForm>
__global__ void __launch_bounds__(kBlockThreads, 2) overlap_kernel(OverlapArguments arguments) {
  const AcceptanceOverlapCuda& call = arguments.call;
  const int64_t row = blockIdx.y + static_cast<int64_t>(blockIdx.z) * gridDim.y;
  if (row >= call.num_rows) return;
  const int chunks = static_cast<int>(num_chunks(call.target_logits.vocab_size));
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpLanes;
  const int chunk = static_cast<int>(blockIdx.x) * kBlockWarps + thread / kWarpLanes;
  const RowStats target = arguments.target_stats[row], draft = arguments.draft_stats[row];
  double* masses = arguments.masses + row * chunks;
  if (is_invalid(target) || is_empty(target) || is_invalid(draft) || is_empty(draft)) {
    if (blockIdx.x == 0 && thread == 0) call.overlap[row] = quiet_nan();
    return;
  }
  if constexpr (kForm == kLowRank) {
    const RdkFactors& factors = call.kernel.low_rank;
    share_kept(factors, arguments.leaked_mass + row * factors.row_width());
  }
  if (chunk < chunks) {
    float mass;
    if constexpr (kForm == kLowRank) {
      mass = chunk_low_rank_overlap<T>(call, row, target, OverlapRows{arguments}.law(row), chunk,
                                       lane);
    } else if constexpr (kForm == kMixture) {
      mass = chunk_rdk_overlap<T>(arguments, row, target, draft, chunk, lane);
    } else {
      mass = chunk_overlap<T>(call, row, target, draft, chunk, lane);
    }
    if (lane == 0) masses[chunk] = mass;
  }
  if (!is_last_block(arguments.tickets + row, gridDim.x)) return;
  if (thread >= kWarpLanes) return;
  double sum = 0.0;
  for (int at = lane; at < chunks; at += kWarpLanes) sum += masses[at];
  sum = warp_sum(sum);
  if (thread == 0) call.overlap[row] = static_cast<float>(sum < 1.0 ? sum : 1.0);
}

}  // namespace hetero_spec
