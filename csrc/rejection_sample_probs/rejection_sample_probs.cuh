// SPDX-License-Identifier: Apache-2.0
// rejection_sample_probs on the device, in two kernels.
//
//   rows kernel   block -> (position, request, group of kBlockWarps chunks), warp -> chunk: its
//   sum.
//                 The last block of a row knows whether it is a law and tests the row's draft
//                 token. Blocks are numbered position by position, and those of a request that is
//                 known to have stopped earlier leave at once.
//   draw kernel   token rule: block -> (request, group of chunks): masses of the residual, where
//                 there is a draft row to subtract; block rule: the same for every position. The
//                 last block of a request decides and draws.
//
// Reads: each target row once up to the stop (block rule: all of them), whole, so that a NaN
// anywhere is seen; for a rejection the row and its draft row once more; one chunk again for the
// draw. Draft rows of accepted tokens are never read, but for one number. Numerics: float32 inside
// a chunk, float64 across chunks; a test is u * draft_prob < target_prob.
#pragma once

#include "common/row_law.cuh"
#include "common/verify.cuh"
#include "rejection_sample_probs/rejection_sample_probs_cuda.h"

namespace hetero_spec {

struct RejectionSampleProbsArguments {
  RejectionSampleProbsCuda call;
  float* sums;             // [R, chunks] of the target rows
  RowTest* tests;          // [R]
  unsigned* row_tickets;   // [R], 0
  int32_t* stop_at;        // [B], larger than any position
  double* masses;          // [B, positions, chunks]; positions = K for the block rule, else 1
  unsigned* draw_tickets;  // [B], 0
};

// What is negative counts as 0 (beyond a row loads give -inf); NaN is kept.
__device__ __forceinline__ float non_negative(float prob) { return prob < 0.0f ? 0.0f : prob; }

// Weights of a row's ids: the target's, or what is left of `scale` times them after the draft's.
struct ProbWeights {
  RowView<float> target;
  RowView<float> draft;  // logits null: no draft row
  int drafted_id;        // of a one-hot draft; kNoId: none
  float scale;
};

// Weights of kSteps warp steps from id `first` on, 0 beyond the row.
template <int kSteps>
__device__ __forceinline__ void load_prob_weights(const ProbWeights& weights, int64_t first,
                                                  int lane, float (&weight)[kSteps][kPack<float>]) {
  constexpr int kStep = kWarpLanes * kPack<float>;
  load_steps(weights.target, first, lane, weight);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int n = 0; n < kPack<float>; ++n) weight[step][n] = non_negative(weight[step][n]);
  }
  if (weights.draft.logits != nullptr) {
    float draft[kSteps][kPack<float>];
    load_steps(weights.draft, first, lane, draft);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int n = 0; n < kPack<float>; ++n) {
        weight[step][n] =
            non_negative(weights.scale * weight[step][n] - non_negative(draft[step][n]));
      }
    }
  } else if (weights.drafted_id != kNoId) {
    const int base = static_cast<int>(first) + lane * kPack<float>;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int n = 0; n < kPack<float>; ++n) {
        const float drafted = base + step * kStep + n == weights.drafted_id ? 1.0f : 0.0f;
        weight[step][n] = non_negative(weights.scale * weight[step][n] - drafted);
      }
    }
  }
}

// Sum of the weights of one chunk, by one warp; all lanes get it. The order of the sum does not
// depend on kSteps, the steps that are loaded together: half as many where there are two rows.
template <int kSteps>
__device__ __forceinline__ float chunk_weight(const ProbWeights& weights, int64_t chunk, int lane) {
  constexpr int kStep = kWarpLanes * kPack<float>;
  const int64_t begin = chunk * kChunk;
  float sum = 0.0f;
  for (int64_t first = begin; first < begin + kChunk && first < weights.target.size;
       first += kSteps * kStep) {
    float weight[kSteps][kPack<float>];
    load_prob_weights(weights, first, lane, weight);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int n = 0; n < kPack<float>; ++n) sum += weight[step][n];
    }
  }
  return warp_sum(sum);
}

__device__ __forceinline__ ProbWeights target_weights(const RejectionSampleProbsCuda& call,
                                                      int64_t row) {
  return {row_of<float>(call.target_probs, row, nullptr), {nullptr, 0, nullptr}, kNoId, 1.0f};
}

// ---- target rows -------------------------------------------------------------------------------

__device__ __forceinline__ RowTest test_probs(const RejectionSampleProbsCuda& call,
                                              int64_t request_idx, int64_t position, bool has_draft,
                                              double total) {
  if (!(total < INFINITY)) return {RowTest::kTargetInvalid, 0.0f, 0.0f};
  if (!(total > 0.0)) return {RowTest::kTargetEmpty, 0.0f, 0.0f};
  if (!has_draft) return {RowTest::kNoDraft, 0.0f, 0.0f};
  const int64_t draft_row = first_token(call.ragged, request_idx) + position;
  const int64_t token = call.ragged.draft_token_ids[draft_row];
  if (token < 0 || token >= call.target_probs.vocab_size) {
    return {RowTest::kOutOfRange, 0.0f, 0.0f};
  }
  const int64_t row = target_row(call.ragged, request_idx, position);
  const float target_prob = non_negative(logit_at(call.target_probs, row, token));
  const float draft_prob = call.draft_probs.data == nullptr  // one-hot
                               ? 1.0f
                               : non_negative(logit_at(call.draft_probs, draft_row, token));
  return {draft_prob > 0.0f ? RowTest::kSound : RowTest::kDraftZero, target_prob, draft_prob};
}

// Grid: x = group of chunks, y and z = position * B + request: position by position.
template <bool kBlockRule>
__global__ void __launch_bounds__(kBlockThreads, 3)
    prob_rows_kernel(RejectionSampleProbsArguments arguments) {
  struct Shared {
    int64_t num_drafts;
    bool is_needed;
  };
  Shared& shared = gpu::shared<Shared>();
  const RejectionSampleProbsCuda& call = arguments.call;
  const int64_t idx = blockIdx.y + static_cast<int64_t>(blockIdx.z) * gridDim.y;
  const int64_t position = idx / call.ragged.batch_size;
  const int64_t request_idx = idx % call.ragged.batch_size;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpLanes;
  if (thread < kWarpLanes) {
    const int64_t num_drafts = count_draft_tokens(call.ragged, request_idx, lane);
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
  const int chunks = static_cast<int>(num_chunks(call.target_probs.vocab_size));
  float* sums = arguments.sums + row * chunks;
  const int chunk = static_cast<int>(blockIdx.x) * kBlockWarps + thread / kWarpLanes;
  if (chunk < chunks) {
    const float sum = chunk_weight<kBatchSteps<float>>(target_weights(call, row), chunk, lane);
    if (lane == 0) sums[chunk] = sum;
  }
  if (!is_last_block(arguments.row_tickets + row, gridDim.x)) return;
  if (thread >= kWarpLanes) return;
  const double total = sum_of_chunks(sums, chunks, lane);
  if (thread != 0) return;
  const RowTest test = test_probs(call, request_idx, position, position < shared.num_drafts, total);
  arguments.tests[row] = test;
  // Block rule: every row counts up to the first that cannot be gone beyond.
  const bool goes_on =
      kBlockRule ? test.state == RowTest::kSound
                 : test.accepts(accept_uniform(call.uniforms, request_idx, row, position));
  if (!goes_on) atomicMin(&arguments.stop_at[request_idx], static_cast<int>(position));
}

// ---- where a request stops ---------------------------------------------------------------------

struct ProbStop {
  int64_t position;
  int64_t row;
  ProbWeights weights;  // of the draw
  bool is_residual;     // else of the target
  RowTest::State state;
  int32_t status;
};

// Position at which the pass over the rows saw the request stop. Held inside its draft: with broken
// offsets two requests share rows, and neither may have been seen to stop.
__device__ __forceinline__ int64_t prob_stop_position(
    const RejectionSampleProbsArguments& arguments, int64_t request_idx, int64_t num_drafts) {
  const int64_t seen = arguments.stop_at[request_idx];
  return seen < num_drafts ? seen : num_drafts;
}

// The stop at a position, and what is drawn there if it `may_be_residual`.
__device__ __forceinline__ ProbStop prob_stop(const RejectionSampleProbsArguments& arguments,
                                              int64_t request_idx, int64_t position,
                                              bool may_be_residual, float scale) {
  const RejectionSampleProbsCuda& call = arguments.call;
  const int64_t row = target_row(call.ragged, request_idx, position);
  const RowTest test = arguments.tests[row];
  ProbStop stop{position, row, target_weights(call, row), false, test.state, test.status()};
  if (!may_be_residual || (test.state != RowTest::kSound && test.state != RowTest::kDraftZero)) {
    return stop;
  }
  const int64_t draft_row = first_token(call.ragged, request_idx) + position;
  stop.weights.scale = scale;
  if (call.draft_probs.data != nullptr) {
    stop.weights.draft = row_of<float>(call.draft_probs, draft_row, nullptr);
  } else {
    const int token = call.ragged.draft_token_ids[draft_row];
    // Broken offsets again: the test may be that of another request's token.
    if (token < 0 || token >= call.target_probs.vocab_size) return stop;
    stop.weights.drafted_id = token;
  }
  stop.is_residual = true;
  return stop;
}

// Whether a draft row holds NaN or more than any law, by the whole block.
__device__ bool is_broken(const RowView<float>& draft) {
  constexpr int kSteps = kBatchSteps<float>, kStep = kWarpLanes * kPack<float>;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpLanes, warp = thread / kWarpLanes;
  float sum = 0.0f;
  for (int64_t first = static_cast<int64_t>(warp) * kSteps * kStep; first < draft.size;
       first += kBlockWarps * kSteps * kStep) {
    float prob[kSteps][kPack<float>];
    load_steps(draft, first, lane, prob);
    for (int step = 0; step < kSteps; ++step) {
      for (int n = 0; n < kPack<float>; ++n) {
        const int64_t id = first + step * kStep + lane * kPack<float> + n;
        if (id < draft.size) sum += prob[step][n];
      }
    }
  }
  sum = warp_sum(sum);
  return __syncthreads_or(!(fabsf(sum) < INFINITY)) != 0;
}

// Draws from the weights of a stop, by the whole block; -1 if they have no finite mass.
__device__ __forceinline__ int draw_prob(const ProbWeights& weights, const double* masses,
                                         int chunks, double uniform) {
  constexpr int kSteps = kBatchSteps<float>;
  return draw_by_masses<kSteps, kPack<float>>(
      masses, chunks, uniform, [&](int64_t first, int lane, float (&weight)[kSteps][kPack<float>]) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {  // one at a time: registers
          float one[1][kPack<float>];
          load_prob_weights(weights, first + step * kWarpLanes * kPack<float>, lane, one);
#pragma unroll
          for (int n = 0; n < kPack<float>; ++n) weight[step][n] = one[0][n];
        }
      });
}

// Draws the request's last token and writes its outputs, by the whole block. `masses` are those of
// the draw if it `is_ready`, else scratch.
__device__ void emit_prob(const RejectionSampleProbsArguments& arguments, int64_t request_idx,
                          ProbStop stop, double* masses, bool is_ready) {
  const RejectionSampleProbsCuda& call = arguments.call;
  const int chunks = static_cast<int>(num_chunks(call.target_probs.vocab_size));
  const int thread = static_cast<int>(threadIdx.x);
  const auto take_target_masses = [&] {
    const float* sums = arguments.sums + stop.row * chunks;
    for (int chunk = thread; chunk < chunks; chunk += kBlockThreads) masses[chunk] = sums[chunk];
    __syncthreads();  // within the block only: others do not read them
  };
  int token = 0;
  if (stop.state == RowTest::kTargetInvalid) {
    token = lowest_argmax(stop.weights.target);
  } else if (stop.state != RowTest::kTargetEmpty) {
    if (!is_ready) {
      take_target_masses();
      if (stop.is_residual) {  // of a one-hot draft: one chunk differs
        const int chunk = stop.weights.drafted_id / kChunk;
        if (thread < kWarpLanes) {
          const float mass = chunk_weight<kBatchSteps<float> / 2>(stop.weights, chunk, thread);
          if (thread == 0) masses[chunk] = mass;
        }
        __syncthreads();  // before the draw reads it
      }
    }
    const double uniform = resample_uniform(call.uniforms, request_idx, stop.row, stop.position);
    token = draw_prob(stop.weights, masses, chunks, uniform);
    if (token < 0 && stop.is_residual) {
      // Target and draft equal but for rounding, or a draft row that is no law: the target instead.
      const bool broken = stop.weights.draft.logits != nullptr && is_broken(stop.weights.draft);
      stop.status |= broken ? kDraftZero : kResidualEmpty;
      take_target_masses();
      token = draw_prob(target_weights(call, stop.row), masses, chunks, uniform);
    }
  }
  write_results(call.ragged, {call.output_token_ids, call.num_accepted_tokens, call.status},
                request_idx, stop.position, token, stop.status);
}

// Grid: x = group of chunks, y and z = position * B + request; the token rule has one position.
template <bool kBlockRule>
__global__ void __launch_bounds__(kBlockThreads, 2)
    prob_draw_kernel(RejectionSampleProbsArguments arguments) {
  struct Shared {
    int64_t kept;
  };
  const RejectionSampleProbsCuda& call = arguments.call;
  const int64_t most =
      kBlockRule && call.ragged.max_draft_tokens > 1 ? call.ragged.max_draft_tokens : 1;
  const int64_t idx = blockIdx.y + static_cast<int64_t>(blockIdx.z) * gridDim.y;
  const int64_t position = idx / call.ragged.batch_size;
  const int64_t request_idx = idx % call.ragged.batch_size;
  if (position >= most) return;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpLanes;
  const int chunks = static_cast<int>(num_chunks(call.target_probs.vocab_size));
  const int chunk = static_cast<int>(blockIdx.x) * kBlockWarps + thread / kWarpLanes;
  const int64_t num_drafts = count_draft_tokens(call.ragged, request_idx, lane);
  const int64_t length = prob_stop_position(arguments, request_idx, num_drafts);
  double* masses = arguments.masses + request_idx * most * chunks;
  if (!kBlockRule) {
    const ProbStop stop = prob_stop(arguments, request_idx, length, length < num_drafts, 1.0f);
    const bool needs_pass = stop.is_residual && stop.weights.draft.logits != nullptr;
    if (needs_pass) {
      if (chunk < chunks) {
        const float mass = chunk_weight<kBatchSteps<float> / 2>(stop.weights, chunk, lane);
        if (lane == 0) masses[chunk] = mass;
      }
      if (!is_last_block(arguments.draw_tickets + request_idx, gridDim.x)) return;
    } else if (blockIdx.x != 0) {
      return;
    }
    emit_prob(arguments, request_idx, stop, masses, needs_pass);
    return;
  }
  const RowTest* tests = arguments.tests + target_row(call.ragged, request_idx, 0);
  if (position < length && chunk < chunks) {
    const ProbStop row =
        prob_stop(arguments, request_idx, position, true, kept_together(tests, position));
    const float mass = chunk_weight<kBatchSteps<float> / 2>(row.weights, chunk, lane);
    if (lane == 0) masses[position * chunks + chunk] = mass;
  }
  // Every block of a request takes a ticket, also those whose position lies beyond its draft.
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
  ProbStop stop =
      prob_stop(arguments, request_idx, kept, kept < length, kept_together(tests, kept));
  // The rule has read the row that ended the draft, whatever it keeps.
  stop.status |= tests[length].status();
  emit_prob(arguments, request_idx, stop, masses + (stop.is_residual ? kept * chunks : 0),
            stop.is_residual);
}

}  // namespace hetero_spec
