// SPDX-License-Identifier: Apache-2.0
// draft_sample on the device. Grid: x = group of kBlockWarps chunks, y and z = request. Warp ->
// chunk; the last block of a request makes the row's law, its entropy, and draws. Passes over
// memory: one read of the row, and one chunk of it again for the draw; a truncated row is read
// twice more at most by one block, for the cutoff and with it the masses of what it leaves.
// An RDK kernel adds a second launch, block -> request: the mass that leaks, if it has to be
// summed, and one thread moves the token; a low-rank one those of common/low_rank.cuh, and a block
// for each request that draws again. Numerics: float32 inside a chunk, float64 across chunks.
#pragma once

#include "common/draw.cuh"
#include "common/low_rank.cuh"
#include "common/philox.h"
#include "common/ragged.h"
#include "common/rdk.cuh"
#include "common/row_law.cuh"
#include "draft_sample/draft_sample_cuda.h"

namespace hetero_spec {

struct DraftSampleArguments {
  DraftSampleCuda call;
  const uint32_t* mask;    // or null
  const int32_t* num_ids;  // that the mask leaves; null without a mask
  ChunkSum* chunk_sums;    // [B, chunks]
  float* weighted_sums;    // [B, chunks], of exp(y) * y
  double* masses;          // [B, chunks]
  unsigned* tickets;       // [B], 0
};

// The request's random number of one stream.
__device__ __forceinline__ double uniform_of(const DraftSampleCuda& call, int64_t request_idx,
                                             Stream stream) {
  if (call.uniform_samples == nullptr) {
    return uniform_sample(call.seeds[request_idx], call.positions[request_idx], stream);
  }
  if (!call.kernel.is_given()) return call.uniform_samples[request_idx];
  const int column = stream == Stream::kPropose ? 0 : (stream == Stream::kLeak ? 1 : 2);
  return call.uniform_samples[3 * request_idx + column];
}

template <class T>
__device__ __forceinline__ void sum_chunk_for_entropy(const RowView<T>& row, int chunk, int lane,
                                                      float scale, ChunkSum* sums,
                                                      float* weighted_sums) {
  const LawSum sum = sum_chunk<true>(row, chunk, lane, scale, neg_inf());
  if (lane != 0) return;
  sums[chunk] = {sum.max_logit, sum.sum};
  weighted_sums[chunk] = sum.weighted * kLn2;  // exponents of two -> nats
}

// Draws an id from a law that is not greedy, by the whole block.
template <class T>
__device__ int draw_id(const RowView<T>& row, const RowStats& stats, const ChunkSum* sums,
                       double* masses, double uniform) {
  struct Shared {
    ChosenChunk chunk;
  };
  Shared& shared = gpu::shared<Shared>();
  const int thread = static_cast<int>(threadIdx.x);
  const int chunks = static_cast<int>(num_chunks(row.size));
  for (int chunk = thread; chunk < chunks; chunk += kBlockThreads) {
    masses[chunk] = mass_of_chunk(stats, sums[chunk]);
  }
  __syncthreads();
  if (thread < kWarpLanes) {
    const ChosenChunk chosen = choose_chunk(masses, chunks, uniform, thread);
    if (thread == 0) shared.chunk = chosen;
  }
  __syncthreads();
  const ChosenChunk chosen = shared.chunk;
  if (chosen.chunk < 0) return -1;
  const LawLoop law(stats);
  return choose_in_chunk<kBatchSteps<T>, kPack<T>>(
      chosen.chunk, chosen.goal,
      [&](int64_t first, int lane, float (&weight)[kBatchSteps<T>][kPack<T>]) {
        load_steps(row, first, lane, weight);
#pragma unroll
        for (int step = 0; step < kBatchSteps<T>; ++step) {
#pragma unroll
          for (int n = 0; n < kPack<T>; ++n) weight[step][n] = law.prob(weight[step][n], kNoId - 1);
        }
      });
}

template <class T, bool kTruncate>
__global__ void __launch_bounds__(kBlockThreads, 2)
    draft_sample_kernel(DraftSampleArguments arguments) {
  const DraftSampleCuda& call = arguments.call;
  const int64_t request_idx = blockIdx.y + static_cast<int64_t>(blockIdx.z) * gridDim.y;
  if (request_idx >= call.batch_size) return;
  const RowView<T> row = row_of<T>(call.draft_logits, request_idx, arguments.mask);
  const RequestParams params = request_params(call.params, request_idx);
  const int chunks = static_cast<int>(num_chunks(row.size));
  ChunkSum* sums = arguments.chunk_sums + request_idx * chunks;
  float* weighted_sums = arguments.weighted_sums + request_idx * chunks;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpLanes;
  const int own_chunk = static_cast<int>(blockIdx.x) * kBlockWarps + thread / kWarpLanes;
  const float scale = exponent_scale(params.inv_temperature);
  if (own_chunk < chunks) {
    sum_chunk_for_entropy(row, own_chunk, lane, scale, sums, weighted_sums);
  }
  if (!is_last_block(arguments.tickets + request_idx, gridDim.x)) return;

  const int64_t num_ids = arguments.num_ids == nullptr ? row.size : *arguments.num_ids;
  RowSum sum;
  const RowStats stats =
      finish_row<kTruncate, true>(row, params, sums, weighted_sums, num_ids, &sum);
  const bool is_law = !is_invalid(stats) && !is_empty(stats);
  int id = -1;
  float entropy = 0.0f;
  if (is_law && is_greedy(stats)) {
    id = static_cast<int>(greedy_id(stats));
  } else if (is_law) {
    const double nats = log(sum.total) - sum.weighted / sum.total;
    entropy = nats > 0.0 ? static_cast<float>(nats) : 0.0f;
    id = draw_id(row, stats, sums, arguments.masses + request_idx * chunks,
                 uniform_of(call, request_idx, Stream::kPropose));
  }
  if (thread != 0) return;
  const bool is_drawn = id >= 0;
  call.stats[request_idx] = stats;
  call.draft_token_ids[request_idx] = id;
  call.target_token_ids[request_idx] =
      is_drawn && call.draft_to_target_ids != nullptr ? call.draft_to_target_ids[id] : id;
  call.probs[request_idx] = is_drawn ? law_prob(stats, to_float(row.logits[id]), id) : 0.0f;
  call.entropy[request_idx] = entropy;
  call.max_prob[request_idx] =
      is_drawn ? law_prob(stats, stats.max_logit, is_greedy(stats) ? id : 0) : 0.0f;
}

__device__ __forceinline__ DraftRow draft_row_of(const DraftSampleCuda& call, int64_t request_idx) {
  return {call.draft_logits, request_idx, call.stats[request_idx], call.target_to_draft_ids};
}

// After draft_sample_kernel. Grid: x = request. kThreads only so that it is a template.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) redistribute_kernel(DraftSampleCuda call) {
  const int64_t request_idx = blockIdx.x;
  const int64_t source = call.target_token_ids[request_idx];
  const DraftRow draft = draft_row_of(call, request_idx);
  float leaked = 0.0f;
  if (has_id(call.kernel, source)) leaked = leaked_mass_by_block(call.kernel, draft);
  __syncthreads();  // all have read the source
  if (threadIdx.x != 0) return;
  call.leaked_mass[request_idx] = leaked;
  if (!has_id(call.kernel, source)) return;
  const int64_t token =
      redistributed(call.kernel, source, uniform_of(call, request_idx, Stream::kLeak),
                    uniform_of(call, request_idx, Stream::kRedraw));
  call.target_token_ids[request_idx] = static_cast<int32_t>(token);
  call.draft_token_ids[request_idx] = static_cast<int32_t>(draft_id_of(draft, token));
  call.probs[request_idx] = rdk_prob_at(call.kernel, draft, leaked, token);
}

// The rows of common/low_rank.cuh: those of requests that have drawn.
struct DrawnRows {
  DraftSampleCuda call;

  __device__ __forceinline__ int64_t row(int64_t index, int) const {
    if (index >= call.batch_size) return -1;
    return has_id(call.kernel, call.target_token_ids[index]) ? index : -1;
  }
  __device__ __forceinline__ DraftLaw law(int64_t row) const {
    return DraftLaw(draft_row_of(call, row));
  }
};

// After draft_sample_kernel and what makes `leaked_mass`. Grid: x = request. Dynamic shared memory:
// n + 1 floats.
template <int kThreads>
__global__ void __launch_bounds__(kThreads, 2)  // with no number the compiler spills for a third
    low_rank_draw_kernel(DraftSampleCuda call, const double* masses) {
  const int64_t request_idx = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  const RdkFactors& factors = call.kernel.low_rank;
  const int64_t source = call.target_token_ids[request_idx];
  if (!has_id(call.kernel, source)) return;
  share_kept(factors, call.leaked_mass + request_idx * factors.row_width());  // all have the source
  const float total = shared_kept()[factors.num_factors];
  const bool is_law = total > 0.0f && total < INFINITY;
  int64_t token = is_law ? source : -1;
  if (is_law && uniform_of(call, request_idx, Stream::kLeak) < factors.lam) {
    token = draw_low_rank(factors, call.kernel.vocab_size,
                          masses + request_idx * num_chunks(call.kernel.vocab_size),
                          uniform_of(call, request_idx, Stream::kRedraw));
  }
  if (thread >= kWarpLanes) return;
  if (token < 0) {  // broken factors: there is no law to draw from
    if (thread != 0) return;
    call.target_token_ids[request_idx] = call.draft_token_ids[request_idx] = kPlaceholderTokenId;
    call.probs[request_idx] = call.entropy[request_idx] = call.max_prob[request_idx] = 0.0f;
    return;
  }
  const DraftRow draft = draft_row_of(call, request_idx);
  const float prob = low_rank_prob_at(factors, shared_kept(), draft, token, thread);
  if (thread != 0) return;
  call.target_token_ids[request_idx] = static_cast<int32_t>(token);
  call.draft_token_ids[request_idx] = static_cast<int32_t>(draft_id_of(draft, token));
  call.probs[request_idx] = prob;
}

}  // namespace hetero_spec
