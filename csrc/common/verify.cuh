// SPDX-License-Identifier: Apache-2.0
// What the kernels of rejection sampling share: a request's draft on the device, the test of a
// draft token, the block rule's arithmetic, the draw, the outputs. Whether a row holds logits or
// probabilities is the ops' business.
#pragma once

#include "common/draw.cuh"
#include "common/gpu.cuh"
#include "common/ragged.h"
#include "common/reduce.cuh"
#include "common/row_law.h"
#include "common/status.h"
#include "common/uniforms.h"
#include "common/vector_load.cuh"

namespace hetero_spec {

// Draft tokens that count, as ragged.h has it; by one warp, all lanes get it.
__device__ __forceinline__ int64_t count_draft_tokens(const Ragged& ragged, int64_t request_idx,
                                                      int lane) {
  const int64_t begin = first_token(ragged, request_idx);
  const int64_t end = clamp_offset(ragged.cu_num_draft_tokens[request_idx + 1], ragged.num_tokens);
  const int64_t limit =
      end - begin < ragged.max_draft_tokens ? end - begin : ragged.max_draft_tokens;
  for (int64_t first = 0; first < limit; first += kWarpLanes) {
    const int64_t at = first + lane;
    const bool ends = at < limit && ragged.draft_token_ids[begin + at] == kPlaceholderTokenId;
    const unsigned ended = __ballot_sync(kAllLanes, ends);
    if (ended != 0) return first + __ffs(static_cast<int>(ended)) - 1;
  }
  return limit > 0 ? limit : 0;
}

// What the pass over a target row found: whether it is a law, and what the test of its draft token
// has to go by.
struct RowTest {
  enum State : int32_t { kTargetInvalid, kTargetEmpty, kNoDraft, kOutOfRange, kDraftZero, kSound };
  State state;
  float target_prob;  // of the draft token, if sound
  float draft_prob;

  // Strictly less, with a uniform in [0, 1): a token that the target excludes is never accepted.
  __device__ __forceinline__ bool accepts(double uniform) const {
    return state == kSound && uniform * draft_prob < static_cast<double>(target_prob);
  }
  __device__ __forceinline__ int32_t status() const {
    switch (state) {
      case kTargetInvalid:
        return kTargetNan;
      case kTargetEmpty:
        return ::hetero_spec::kTargetEmpty;
      case kOutOfRange:
        return kDraftOutOfRange;
      case kDraftZero:
        return ::hetero_spec::kDraftZero;
      default:
        return 0;
    }
  }
};

// ---- block rule --------------------------------------------------------------------------------

// P_(i + 1) from P_i: the probability, capped at 1, that one token more is kept with those before.
__device__ __forceinline__ float kept_with_next(float prefix, const RowTest& test) {
  const double ratio = static_cast<double>(prefix) * test.target_prob / test.draft_prob;
  return static_cast<float>(ratio < 1.0 ? ratio : 1.0);
}

// P_position; `tests` are those of the request's rows, sound up to there.
__device__ __forceinline__ float kept_together(const RowTest* tests, int64_t position) {
  float prefix = 1.0f;
  for (int64_t at = 0; at < position; ++at) prefix = kept_with_next(prefix, tests[at]);
  return prefix;
}

// The longest block that is kept, of at most `length` tokens; by one warp, all lanes get it.
// masses[position, chunk] are those of the residuals of rows 0 .. length - 1.
__device__ __forceinline__ int64_t kept_block(const Ragged& ragged, const Uniforms& uniforms,
                                              int64_t request_idx, int64_t length,
                                              const RowTest* tests, const double* masses,
                                              int chunks, int lane) {
  int64_t kept = 0;
  float together = 1.0f;
  for (int64_t at = 1; at <= length; ++at) {
    together = kept_with_next(together, tests[at - 1]);
    double limit = together;
    if (at < length) {
      const double mass = sum_of_chunks(masses + at * chunks, chunks, lane);
      const double denominator = mass + 1.0 - limit;
      limit = denominator > 0.0 ? mass / denominator : 1.0;
    }
    const int64_t row = target_row(ragged, request_idx, at - 1);
    if (accept_uniform(uniforms, request_idx, row, at - 1) < limit) kept = at;
  }
  return kept;
}

// ---- the last token ----------------------------------------------------------------------------

// Lowest id whose value equals the largest that is not NaN, 0 if there is none; by the whole block.
template <class T>
__device__ int lowest_argmax(const RowView<T>& row) {
  struct Shared {
    float largest[kBlockWarps];
    int id[kBlockWarps];
  };
  Shared& shared = gpu::shared<Shared>();
  constexpr int kSteps = kBatchSteps<T>, kStep = kWarpLanes * kPack<T>;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpLanes, warp = thread / kWarpLanes;
  float largest = neg_inf();
  int lowest = kNoId;
  for (int64_t first = static_cast<int64_t>(warp) * kSteps * kStep; first < row.size;
       first += kBlockWarps * kSteps * kStep) {
    float value[kSteps][kPack<T>];
    load_steps(row, first, lane, value);
    for (int step = 0; step < kSteps; ++step) {
      for (int n = 0; n < kPack<T>; ++n) {  // ids grow, so the first of equals is the lowest
        if (value[step][n] > largest) {
          largest = value[step][n];
          lowest = static_cast<int>(first) + step * kStep + lane * kPack<T> + n;
        }
      }
    }
  }
  const float warp_largest = warp_max(largest);
  lowest = warp_min(largest == warp_largest ? lowest : kNoId);
  if (lane == 0) {
    shared.largest[warp] = warp_largest;
    shared.id[warp] = lowest;
  }
  __syncthreads();
  largest = neg_inf();
  lowest = kNoId;
  for (int other = 0; other < kBlockWarps; ++other) {
    if (shared.largest[other] > largest ||
        (shared.largest[other] == largest && shared.id[other] < lowest)) {
      largest = shared.largest[other];
      lowest = shared.id[other];
    }
  }
  __syncthreads();
  return lowest == kNoId ? 0 : lowest;
}

// Where a verification leaves its results; on the device.
struct VerifyResults {
  int32_t* output_token_ids;     // [B, K + 1]
  int32_t* num_accepted_tokens;  // [B]
  int32_t* status;               // [B]
};

// `position` draft tokens, the token after them, -1; by the whole block.
__device__ __forceinline__ void write_results(const Ragged& ragged, const VerifyResults& results,
                                              int64_t request_idx, int64_t position, int token,
                                              int32_t status) {
  const int64_t begin = first_token(ragged, request_idx);
  const int64_t width = ragged.max_draft_tokens + 1;
  int32_t* output = results.output_token_ids + request_idx * width;
  for (int64_t at = threadIdx.x; at < width; at += kBlockThreads) {
    output[at] = at < position    ? ragged.draft_token_ids[begin + at]
                 : at == position ? token
                                  : kPlaceholderTokenId;
  }
  if (threadIdx.x == 0) {
    results.num_accepted_tokens[request_idx] = static_cast<int32_t>(position);
    results.status[request_idx] = status;
  }
}

}  // namespace hetero_spec
