// SPDX-License-Identifier: Apache-2.0
// rejection_sample on the device, in two kernels (three where the draft laws have to be made
// first, one more where the mass that an RDK kernel leaks has to be summed; a low-rank kernel
// takes those of common/low_rank.cuh, where its coefficients are not given, and one for the draft
// probabilities of the draft tokens).
//
//   rows kernel   block -> (position, request, group of kBlockWarps chunks), warp -> chunk. The
//   last
//                 block of a row makes the row's law and tests the row's draft token. Blocks are
//                 numbered position by position, and those of a request that is known to have
//                 stopped earlier leave at once (early exit without waiting).
//   draw kernel   block -> (request, group of chunks): masses of the chunks of the row at which the
//                 request stopped, as far as they are not known; the last block of a request draws.
//                 The block rule needs the residual masses of every row: there
//                 block -> (position, request, group).
//
// Reads: each target row once, as far as it is needed; for a rejection the row and its draft row
// once more; one chunk again for the draw. Draft rows of accepted tokens are never read, but for
// one logit. Numerics: float32 inside a chunk, float64 across chunks; a test is u * draft_prob <
// target_prob.
#pragma once

#include "common/low_rank.cuh"
#include "common/rdk.cuh"
#include "common/row_law.cuh"
#include "common/verify.cuh"
#include "rejection_sample/rejection_sample_cuda.h"

namespace hetero_spec {

struct RejectionSampleArguments {
  RejectionSampleCuda call;
  ChunkSum* target_sums;   // [R, chunks]
  RowStats* target_stats;  // [R]
  RowTest* tests;          // [R]
  unsigned* row_tickets;   // [R], 0
  ChunkSum* draft_sums;   // [N, draft chunks], draft_stats [N] and draft_tickets [N], 0: only where
  RowStats* draft_stats;  // the laws are made here
  unsigned* draft_tickets;
  const float* leaked_mass;  // [N], where the kernel needs it; low rank [N, n + 1]
  float* draft_probs;        // [N], of the draft tokens, with a low-rank kernel
  const uint32_t* mask;      // of the drafter's ids, with their number; null without a map
  const int32_t* num_ids;
  int32_t* stop_at;        // [B], larger than any position
  double* masses;          // [B, positions, chunks]; positions = K for the block rule, else 1
  unsigned* draw_tickets;  // [B], 0
};

// ---- laws of the draft rows ---------------------------------------------------------------------

// Grid: x = group of chunks, y and z = position * B + request.
template <class T, bool kTruncate>
__global__ void __launch_bounds__(kBlockThreads, 2)
    draft_laws_kernel(RejectionSampleArguments arguments) {
  const RejectionSampleCuda& call = arguments.call;
  const int64_t idx = blockIdx.y + static_cast<int64_t>(blockIdx.z) * gridDim.y;
  const int64_t position = idx / call.ragged.batch_size;
  const int64_t request_idx = idx % call.ragged.batch_size;
  if (position >= call.ragged.max_draft_tokens) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  if (position >= count_draft_tokens(call.ragged, request_idx, lane)) return;
  const int64_t row = first_token(call.ragged, request_idx) + position;
  const int64_t num_ids =
      arguments.num_ids == nullptr ? call.draft_logits.vocab_size : *arguments.num_ids;
  RowStats stats;
  if (!row_law<kTruncate>(row_of<T>(call.draft_logits, row, arguments.mask),
                          request_params(call.params, request_idx), num_ids, blockIdx.x, gridDim.x,
                          arguments.draft_sums + row * num_chunks(call.draft_logits.vocab_size),
                          arguments.draft_tickets + row, &stats)) {
    return;
  }
  if (threadIdx.x == 0) arguments.draft_stats[row] = stats;
}

// Whether the draft laws are others than the drafter's.
__device__ __forceinline__ bool is_redistributed(const RejectionSampleCuda& call) {
  return call.kernel.is_given() && !call.kernel.is_identity();
}

__device__ __forceinline__ DraftRow draft_row_of(const RejectionSampleCuda& call, int64_t draft_row,
                                                 const RowStats& stats) {
  return {call.draft_logits, draft_row, stats, call.target_to_draft_ids};
}

// What leaks from a draft row; the row itself may be no law.
__device__ __forceinline__ float leaked_mass_of(const RejectionSampleArguments& arguments,
                                                int64_t draft_row) {
  const RdkKernel& kernel = arguments.call.kernel;
  return kernel.needs_leaked_mass() ? arguments.leaked_mass[draft_row] : leak_of(kernel, 0);
}

// Grid: x = position * B + request; a block sums one draft row.
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    leaked_mass_kernel(RejectionSampleArguments arguments, float* leaked_mass) {
  const RejectionSampleCuda& call = arguments.call;
  const int64_t position = blockIdx.x / call.ragged.batch_size;
  const int64_t request_idx = blockIdx.x % call.ragged.batch_size;
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  if (position >= count_draft_tokens(call.ragged, request_idx, lane)) return;
  const int64_t row = first_token(call.ragged, request_idx) + position;
  const float mass =
      leaked_mass_by_block(call.kernel, draft_row_of(call, row, arguments.draft_stats[row]));
  if (threadIdx.x == 0) leaked_mass[row] = mass;
}

// What is kept of a draft row, n + 1 floats of a low-rank kernel.
__device__ __forceinline__ const float* kept_of(const RejectionSampleArguments& arguments,
                                                int64_t draft_row) {
  return arguments.leaked_mass + draft_row * arguments.call.kernel.low_rank.row_width();
}

// The rows of common/low_rank.cuh: those of draft tokens that count, position by position.
struct DraftedRows {
  RejectionSampleArguments arguments;

  __device__ __forceinline__ int64_t row(int64_t index, int lane) const {
    const RejectionSampleCuda& call = arguments.call;
    const int64_t position = index / call.ragged.batch_size;
    const int64_t request_idx = index % call.ragged.batch_size;
    if (position >= count_draft_tokens(call.ragged, request_idx, lane)) return -1;
    return first_token(call.ragged, request_idx) + position;
  }
  __device__ __forceinline__ DraftLaw law(int64_t row) const {
    return DraftLaw(draft_row_of(arguments.call, row, arguments.draft_stats[row]));
  }
};

// Draft probabilities of the draft tokens under a low-rank kernel. Grid: y and z as above; one warp
// a block.
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    low_rank_probs_kernel(RejectionSampleArguments arguments) {
  const RejectionSampleCuda& call = arguments.call;
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t row = DraftedRows{arguments}.row(grid_row(), lane);
  if (row < 0) return;
  const int64_t token = call.ragged.draft_token_ids[row];
  if (!has_id(call.kernel, token)) return;  // rejected, whatever the draft law
  const float prob =
      low_rank_prob_at(call.kernel.low_rank, kept_of(arguments, row),
                       draft_row_of(call, row, arguments.draft_stats[row]), token, lane);
  if (lane == 0) arguments.draft_probs[row] = prob;
}

// ---- target rows --------------------------------------------------------------------------------

__device__ __forceinline__ RowTest test_row(const RejectionSampleArguments& arguments,
                                            int64_t request_idx, int64_t position, bool has_draft,
                                            const RowStats& stats) {
  const RejectionSampleCuda& call = arguments.call;
  if (is_invalid(stats)) return {RowTest::kTargetInvalid, 0.0f, 0.0f};
  if (is_empty(stats)) return {RowTest::kTargetEmpty, 0.0f, 0.0f};
  if (!has_draft) return {RowTest::kNoDraft, 0.0f, 0.0f};
  const int64_t draft_row = first_token(call.ragged, request_idx) + position;
  const int64_t token = call.ragged.draft_token_ids[draft_row];
  if (token < 0 || token >= call.target_logits.vocab_size) {
    return {RowTest::kOutOfRange, 0.0f, 0.0f};
  }
  const int64_t row = target_row(call.ragged, request_idx, position);
  const float target_prob = law_prob(stats, logit_at(call.target_logits, row, token), token);
  float draft_prob = 1.0f;  // of a one-hot draft
  if (arguments.draft_probs != nullptr) {
    draft_prob = arguments.draft_probs[draft_row];
  } else if (call.draft_logits.data != nullptr && is_redistributed(call)) {
    draft_prob =
        rdk_prob_at(call.kernel, draft_row_of(call, draft_row, arguments.draft_stats[draft_row]),
                    leaked_mass_of(arguments, draft_row), token);
  } else if (call.draft_logits.data != nullptr) {
    const int64_t id =
        call.target_to_draft_ids == nullptr ? token : call.target_to_draft_ids[token];
    draft_prob = 0.0f;
    if (id >= 0 && id < call.draft_logits.vocab_size) {
      draft_prob = law_prob(arguments.draft_stats[draft_row],
                            logit_at(call.draft_logits, draft_row, id), id);
    }
  }
  return {draft_prob > 0.0f ? RowTest::kSound : RowTest::kDraftZero, target_prob, draft_prob};
}

// Grid: x = group of chunks, y and z = position * B + request: position by position.
template <class T, bool kTruncate>
__global__ void __launch_bounds__(kBlockThreads, kTruncate ? 2 : 3)
    target_rows_kernel(RejectionSampleArguments arguments) {
  struct Shared {
    int64_t num_drafts;
    bool is_needed;
  };
  Shared& shared = gpu::shared<Shared>();
  const RejectionSampleCuda& call = arguments.call;
  const int64_t idx = blockIdx.y + static_cast<int64_t>(blockIdx.z) * gridDim.y;
  const int64_t position = idx / call.ragged.batch_size;
  const int64_t request_idx = idx % call.ragged.batch_size;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kWarpLanes) {
    const int64_t num_drafts = count_draft_tokens(call.ragged, request_idx, thread);
    if (thread == 0) {
      // One thread looks: others might see the request stop a moment later, and half a block go on.
      shared.num_drafts = num_drafts;
      shared.is_needed =
          position <= num_drafts && gpu::load_relaxed(&arguments.stop_at[request_idx]) >= position;
    }
  }
  __syncthreads();
  if (!shared.is_needed) return;
  const int64_t row = target_row(call.ragged, request_idx, position);
  RowStats stats;
  if (!row_law<kTruncate>(row_of<T>(call.target_logits, row, nullptr),
                          request_params(call.params, request_idx), call.target_logits.vocab_size,
                          blockIdx.x, gridDim.x,
                          arguments.target_sums + row * num_chunks(call.target_logits.vocab_size),
                          arguments.row_tickets + row, &stats)) {
    return;
  }
  if (thread != 0) return;
  const RowTest test =
      test_row(arguments, request_idx, position, position < shared.num_drafts, stats);
  arguments.target_stats[row] = stats;
  arguments.tests[row] = test;
  if (call.block_rule) {
    // Every row counts up to the first that cannot be gone beyond.
    if (test.state != RowTest::kSound) {
      atomicMin(&arguments.stop_at[request_idx], static_cast<int>(position));
    }
    return;
  }
  const bool accepted = test.accepts(accept_uniform(call.uniforms, request_idx, row, position));
  if (!accepted) atomicMin(&arguments.stop_at[request_idx], static_cast<int>(position));
}

// ---- where a request stops ----------------------------------------------------------------------

// Position at which the pass over the rows saw the request stop. Held inside its draft: with broken
// offsets two requests share rows, and neither may have been seen to stop.
__device__ __forceinline__ int64_t stop_position(const RejectionSampleArguments& arguments,
                                                 int64_t request_idx) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  const int64_t most = count_draft_tokens(arguments.call.ragged, request_idx, lane);
  const int64_t seen = arguments.stop_at[request_idx];
  return seen < most ? seen : most;
}

// The row from which a request's last token is drawn.
struct Stop {
  int64_t position;
  int64_t row;        // target row
  int64_t draft_row;  // of the residual
  bool is_residual;   // else the target law
  float scale;        // of the target law in the residual
  int32_t status;
  RowStats target, draft;
  float leaked_mass;  // of the draft row
};

// Fills in what follows from the position; the scale is the caller's.
__device__ __forceinline__ Stop stop_at_position(const RejectionSampleArguments& arguments,
                                                 int64_t request_idx, int64_t position) {
  const RejectionSampleCuda& call = arguments.call;
  Stop stop{};
  stop.position = position;
  stop.row = target_row(call.ragged, request_idx, position);
  stop.draft_row = first_token(call.ragged, request_idx) + position;
  stop.scale = 1.0f;
  stop.target = arguments.target_stats[stop.row];
  const RowTest test = arguments.tests[stop.row];
  const RowTest::State state = test.state;
  stop.status = test.status();
  if (state == RowTest::kTargetInvalid) {
    const float inv_temperature = request_params(call.params, request_idx).inv_temperature;
    if (inv_temperature != inv_temperature) stop.status = kInvalidParameter;
  }
  stop.is_residual = state == RowTest::kDraftZero || state == RowTest::kSound;
  // Broken offsets again: the test may be that of another request's token.
  const int64_t token = stop.draft_row < call.ragged.num_tokens
                            ? call.ragged.draft_token_ids[stop.draft_row]
                            : kPlaceholderTokenId;
  stop.is_residual &= token >= 0 && token < call.target_logits.vocab_size;
  if (stop.is_residual && call.draft_logits.data != nullptr) {
    stop.draft = arguments.draft_stats[stop.draft_row];
    if (is_redistributed(call) && !call.kernel.is_low_rank()) {
      stop.leaked_mass = leaked_mass_of(arguments, stop.draft_row);
    }
  }
  return stop;
}

// Weights of kSteps warp steps from id `first` on: max(0, scale * target - draft), or the target
// law; 0 beyond the row. NaN of an invalid draft row is kept. kForm: what
// redistributes the draft.
template <int kSteps, class T, int kForm>
__device__ __forceinline__ void load_weights(const RejectionSampleCuda& call, const Stop& stop,
                                             bool is_residual, int64_t first, int lane,
                                             float (&weight)[kSteps][kPack<T>]) {
  constexpr int kStep = kWarpLanes * kPack<T>;
  const int size = static_cast<int>(call.target_logits.vocab_size);
  const int base = static_cast<int>(first) + lane * kPack<T>;
  load_steps(row_of<T>(call.target_logits, stop.row, nullptr), first, lane, weight);
  const LawLoop target(stop.target);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int n = 0; n < kPack<T>; ++n) {  // beyond the row the logit is -inf
      weight[step][n] = target.prob(weight[step][n], base + step * kStep + n);
    }
  }
  if (!is_residual) return;
  if (call.draft_logits.data == nullptr) {  // one-hot
    const int token = call.ragged.draft_token_ids[stop.draft_row];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int n = 0; n < kPack<T>; ++n) {
        const float rest =
            stop.scale * weight[step][n] - (base + step * kStep + n == token ? 1.0f : 0.0f);
        weight[step][n] = rest < 0.0f ? 0.0f : rest;
      }
    }
    return;
  }
  const int draft_size = static_cast<int>(call.draft_logits.vocab_size);
  const LawLoop draft(stop.draft);
  if constexpr (kForm == kLowRank) {
    if (is_empty(stop.draft)) return;  // nothing to take away
    const DraftRow row = draft_row_of(call, stop.draft_row, stop.draft);
    const RdkFactors& factors = call.kernel.low_rank;
    const float* staged = stage_weights(factors, size, first, kSteps * kStep, lane);
    const float total = shared_kept()[factors.num_factors];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int n = 0; n < kPack<T>; ++n) {
        const int id = base + step * kStep + n;
        if (id >= size) continue;
        const int64_t draft_id = draft_id_of(row, id);
        float law = is_invalid(stop.draft) ? quiet_nan() : 0.0f;
        if (draft_id >= 0) {
          law = draft.prob(logit_at(row.logits, row.row, draft_id), static_cast<int>(draft_id));
        }
        const float drafted = staged[step * kStep + lane * kPack<T> + n];
        const float rest =
            stop.scale * weight[step][n] - low_rank_prob(factors, total, drafted, law);
        weight[step][n] = rest < 0.0f ? 0.0f : rest;  // NaN stays
      }
    }
    return;
  }
  if constexpr (kForm == kMixture) {
    if (is_empty(stop.draft)) return;  // nothing to take away
    const DraftRow row = draft_row_of(call, stop.draft_row, stop.draft);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int n = 0; n < kPack<T>; ++n) {
        const int id = base + step * kStep + n;
        if (id >= size) continue;
        const float draft_prob = is_invalid(stop.draft) ? quiet_nan()
                                                        : rdk_prob_in_loop(call.kernel, row, draft,
                                                                           stop.leaked_mass, id);
        const float rest = stop.scale * weight[step][n] - draft_prob;
        weight[step][n] = rest < 0.0f ? 0.0f : rest;  // NaN stays
      }
    }
    return;
  }
  if (call.target_to_draft_ids == nullptr && call.draft_logits.dtype == call.target_logits.dtype) {
    float logit[kSteps][kPack<T>];
    load_steps(row_of<T>(call.draft_logits, stop.draft_row, nullptr), first, lane, logit);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int n = 0; n < kPack<T>; ++n) {
        const int id = base + step * kStep + n;
        const float rest = stop.scale * weight[step][n] - draft.prob(logit[step][n], id);
        if (id < size) weight[step][n] = rest < 0.0f ? 0.0f : rest;  // NaN stays
      }
    }
    return;
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int n = 0; n < kPack<T>; ++n) {
      const int id = base + step * kStep + n;
      if (id >= size) continue;
      const int draft_id = call.target_to_draft_ids == nullptr ? id : call.target_to_draft_ids[id];
      float draft_prob = is_invalid(stop.draft) ? quiet_nan() : 0.0f;
      if (draft_id >= 0 && draft_id < draft_size) {
        draft_prob = draft.prob(logit_at(call.draft_logits, stop.draft_row, draft_id), draft_id);
      }
      const float rest = stop.scale * weight[step][n] - draft_prob;
      weight[step][n] = rest < 0.0f ? 0.0f : rest;
    }
  }
}

// Mass of one chunk, by one warp; all lanes get it.
template <class T, int kForm>
__device__ __forceinline__ float chunk_mass(const RejectionSampleCuda& call, const Stop& stop,
                                            bool is_residual, int64_t chunk, int lane) {
  // Two rows are loaded together, so half of a batch of each.
  constexpr int kSteps = 2, kStep = kWarpLanes * kPack<T>;
  const int64_t begin = chunk * kChunk;
  float mass = 0.0f;
  for (int64_t first = begin; first < begin + kChunk && first < call.target_logits.vocab_size;
       first += kSteps * kStep) {
    float weight[kSteps][kPack<T>];
    load_weights<kSteps, T, kForm>(call, stop, is_residual, first, lane, weight);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int n = 0; n < kPack<T>; ++n) mass += weight[step][n];
    }
  }
  return warp_sum(mass);
}

// Masses of the target law at the stop, by the whole block: the pass over the rows left them. Not
// of a greedy law.
__device__ __forceinline__ void target_masses(const RejectionSampleArguments& arguments,
                                              const Stop& stop, double* masses) {
  const int chunks = static_cast<int>(num_chunks(arguments.call.target_logits.vocab_size));
  const ChunkSum* sums = arguments.target_sums + stop.row * chunks;
  for (int chunk = static_cast<int>(threadIdx.x); chunk < chunks; chunk += kBlockThreads) {
    masses[chunk] = mass_of_chunk(stop.target, sums[chunk]);
  }
  __syncthreads();  // within the block only: others do not read them
}

// Draws from the masses of one law, by the whole block; -1 if they are no law.
template <class T, int kForm>
__device__ int draw(const RejectionSampleCuda& call, const Stop& stop, bool is_residual,
                    const double* masses, double uniform) {
  const int chunks = static_cast<int>(num_chunks(call.target_logits.vocab_size));
  return draw_by_masses<kBatchSteps<T>, kPack<T>>(
      masses, chunks, uniform,
      [&](int64_t first, int lane, float (&weight)[kBatchSteps<T>][kPack<T>]) {
#pragma unroll
        for (int step = 0; step < kBatchSteps<T>; ++step) {  // one at a time: registers
          float one[1][kPack<T>];
          load_weights<1, T, kForm>(call, stop, is_residual, first + step * kWarpLanes * kPack<T>,
                                    lane, one);
#pragma unroll
          for (int n = 0; n < kPack<T>; ++n) weight[step][n] = one[0][n];
        }
      });
}

// The id of a greedy row, in range whatever it holds: broken offsets can leave a row without a law.
__device__ __forceinline__ int greedy_token(const RejectionSampleCuda& call,
                                            const RowStats& stats) {
  const int64_t id = greedy_id(stats), size = call.target_logits.vocab_size;
  return static_cast<int>(id < 0 ? 0 : (id < size ? id : size - 1));
}

// Draft probability at the one id of a greedy target row, by whole warps.
template <int kForm>
__device__ __forceinline__ float draft_prob_at(const RejectionSampleArguments& arguments,
                                               const Stop& stop, int64_t id) {
  const RejectionSampleCuda& call = arguments.call;
  if (call.draft_logits.data == nullptr) {
    return call.ragged.draft_token_ids[stop.draft_row] == id ? 1.0f : 0.0f;
  }
  if (is_invalid(stop.draft)) return quiet_nan();
  if constexpr (kForm == kLowRank) {
    return low_rank_prob_at(call.kernel.low_rank, kept_of(arguments, stop.draft_row),
                            draft_row_of(call, stop.draft_row, stop.draft), id,
                            static_cast<int>(threadIdx.x) % kWarpLanes);
  }
  if constexpr (kForm == kMixture) {
    return rdk_prob_at(call.kernel, draft_row_of(call, stop.draft_row, stop.draft),
                       stop.leaked_mass, id);
  }
  const int64_t draft_id = call.target_to_draft_ids == nullptr ? id : call.target_to_draft_ids[id];
  if (draft_id < 0 || draft_id >= call.draft_logits.vocab_size) return 0.0f;
  return law_prob(stop.draft, logit_at(call.draft_logits, stop.draft_row, draft_id), draft_id);
}

// Whether the masses of the draw take a pass over the row, by many blocks. Not so where the pass
// over the rows left them: a bonus, and the residual of a one-hot draft, in which one chunk
// differs.
__device__ __forceinline__ bool needs_pass(const RejectionSampleCuda& call, const Stop& stop) {
  if (is_invalid(stop.target) || is_empty(stop.target) || is_greedy(stop.target)) return false;
  return stop.is_residual && call.draft_logits.data != nullptr;
}

// The id to emit at a stop whose target row is a law, by the whole block. `masses` are those of the
// draw if the stop needed a pass, else scratch. Adds to the stop's status.
template <class T, int kForm>
__device__ int draw_token(const RejectionSampleArguments& arguments, Stop& stop, double* masses,
                          bool is_ready, double uniform) {
  const RejectionSampleCuda& call = arguments.call;
  if (is_greedy(stop.target)) {
    const int id = greedy_token(call, stop.target);
    if (stop.is_residual) {
      const float rest = stop.scale - draft_prob_at<kForm>(arguments, stop, id);
      if (rest != rest) {
        stop.status |= kDraftZero;
      } else if (!(rest > 0.0f)) {
        stop.status |= kResidualEmpty;
      }
    }
    return id;
  }
  if (!is_ready) target_masses(arguments, stop, masses);
  if (!stop.is_residual) return draw<T, kAsDrawn>(call, stop, false, masses, uniform);
  if (!is_ready) {  // a one-hot draft
    const int64_t chunk = call.ragged.draft_token_ids[stop.draft_row] / kChunk;
    if (threadIdx.x < kWarpLanes) {
      const float mass =
          chunk_mass<T, kForm>(call, stop, true, chunk, static_cast<int>(threadIdx.x));
      if (threadIdx.x == 0) masses[chunk] = mass;
    }
    __syncthreads();
  }
  const int token = draw<T, kForm>(call, stop, true, masses, uniform);
  if (token >= 0) return token;
  // Target and draft equal but for rounding, or a draft row with NaN: the target law instead.
  stop.status |= is_invalid(stop.draft) ? kDraftZero : kResidualEmpty;
  target_masses(arguments, stop, masses);
  return draw<T, kAsDrawn>(call, stop, false, masses, uniform);
}

// Draws the request's last token and writes its outputs, by the whole block.
template <class T, int kForm>
__device__ void emit(const RejectionSampleArguments& arguments, int64_t request_idx, Stop stop,
                     double* masses, bool is_ready) {
  const RejectionSampleCuda& call = arguments.call;
  int token = 0;
  if (is_invalid(stop.target)) {
    token = lowest_argmax(row_of<T>(call.target_logits, stop.row, nullptr));
  } else if (!is_empty(stop.target)) {
    token =
        draw_token<T, kForm>(arguments, stop, masses, is_ready,
                             resample_uniform(call.uniforms, request_idx, stop.row, stop.position));
  }
  write_results(call.ragged, {call.output_token_ids, call.num_accepted_tokens, call.status},
                request_idx, stop.position, token, stop.status);
}

// Token rule. Grid: x = group of chunks, y and z = request.
template <class T, int kForm>
__global__ void __launch_bounds__(kBlockThreads, 2)
    draw_kernel(RejectionSampleArguments arguments) {
  const RejectionSampleCuda& call = arguments.call;
  const int64_t request_idx = blockIdx.y + static_cast<int64_t>(blockIdx.z) * gridDim.y;
  if (request_idx >= call.ragged.batch_size) return;
  const Stop stop = stop_at_position(arguments, request_idx, stop_position(arguments, request_idx));
  const int chunks = static_cast<int>(num_chunks(call.target_logits.vocab_size));
  double* masses = arguments.masses + request_idx * chunks;
  if (needs_pass(call, stop)) {
    if constexpr (kForm == kLowRank) {
      share_kept(call.kernel.low_rank, kept_of(arguments, stop.draft_row));
    }
    const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpLanes;
    const int chunk = static_cast<int>(blockIdx.x) * kBlockWarps + thread / kWarpLanes;
    if (chunk < chunks) {
      const float mass = chunk_mass<T, kForm>(call, stop, stop.is_residual, chunk, lane);
      if (lane == 0) masses[chunk] = mass;
    }
    if (!is_last_block(arguments.draw_tickets + request_idx, gridDim.x)) return;
  } else if (blockIdx.x != 0) {
    return;
  }
  emit<T, kForm>(arguments, request_idx, stop, masses, needs_pass(call, stop));
}

// ---- block rule ---------------------------------------------------------------------------------

// Grid: x = group of chunks, y and z = position * B + request. Every block of a request takes a
// ticket, also those whose position lies beyond its draft; the last decides and draws.
template <class T, int kForm>
__global__ void __launch_bounds__(kBlockThreads, 2)
    block_rule_kernel(RejectionSampleArguments arguments) {
  struct Shared {
    int64_t kept;
  };
  const RejectionSampleCuda& call = arguments.call;
  const int64_t idx = blockIdx.y + static_cast<int64_t>(blockIdx.z) * gridDim.y;
  const int64_t most = call.ragged.max_draft_tokens > 1 ? call.ragged.max_draft_tokens : 1;
  const int64_t position = idx / call.ragged.batch_size;
  const int64_t request_idx = idx % call.ragged.batch_size;
  if (position >= most) return;
  const int64_t length = stop_position(arguments, request_idx);
  const int chunks = static_cast<int>(num_chunks(call.target_logits.vocab_size));
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpLanes;
  double* masses = arguments.masses + request_idx * most * chunks;
  const RowTest* tests = arguments.tests + target_row(call.ragged, request_idx, 0);
  if (position < length) {
    Stop stop = stop_at_position(arguments, request_idx, position);
    stop.scale = kept_together(tests, position);
    if constexpr (kForm == kLowRank) {
      share_kept(call.kernel.low_rank, kept_of(arguments, stop.draft_row));
    }
    const int chunk = static_cast<int>(blockIdx.x) * kBlockWarps + thread / kWarpLanes;
    if (chunk < chunks) {
      const float mass = chunk_mass<T, kForm>(call, stop, true, chunk, lane);
      if (lane == 0) masses[position * chunks + chunk] = mass;
    }
  }
  const unsigned blocks = gridDim.x * static_cast<unsigned>(most);
  if (!is_last_block(arguments.draw_tickets + request_idx, blocks)) return;
  Shared& shared = gpu::shared<Shared>();
  if (thread < kWarpLanes) {
    const int64_t kept =
        kept_block(call.ragged, call.uniforms, request_idx, length, tests, masses, chunks, lane);
    if (thread == 0) shared.kept = kept;
  }
  __syncthreads();
  const int64_t kept = shared.kept;
  Stop stop = stop_at_position(arguments, request_idx, kept);
  stop.scale = kept_together(tests, kept);
  stop.is_residual = kept < length;
  if constexpr (kForm == kLowRank) {
    if (stop.is_residual) {
      share_kept(call.kernel.low_rank, kept_of(arguments, stop.draft_row));
    }
  }
  // The rule has read the row that ended the draft, whatever it keeps.
  stop.status |= stop_at_position(arguments, request_idx, length).status;
  emit<T, kForm>(arguments, request_idx, stop, masses + (stop.is_residual ? kept * chunks : 0),
                 stop.is_residual);
}

}  // namespace hetero_spec
