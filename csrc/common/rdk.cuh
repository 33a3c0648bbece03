// SPDX-License-Identifier: Apache-2.0
// A draft law over the target's ids on the device: a drafter's row law read through the map and
// redistributed by an RDK kernel (common/rdk.h).
#pragma once

#include "common/device_logits.cuh"
#include "common/rdk.h"
#include "common/reduce.cuh"
#include "common/row_law.cuh"

namespace hetero_spec {

// A drafter's row, its law, and the map through which it is read.
struct DraftRow {
  DeviceLogits logits;
  int64_t row;
  RowStats stats;
  const int32_t* target_to_draft_ids;  // [V] or null: same ids
};

// The drafter's id of a target id, or -1.
__device__ __forceinline__ int64_t draft_id_of(const DraftRow& draft, int64_t token) {
  const int64_t id =
      draft.target_to_draft_ids == nullptr ? token : draft.target_to_draft_ids[token];
  return id >= 0 && id < draft.logits.vocab_size ? id : -1;
}

// Probability of a target id under the drafter's own law, which is neither invalid nor empty.
__device__ __forceinline__ float draft_law_at(const DraftRow& draft, int64_t token) {
  const int64_t id = draft_id_of(draft, token);
  return id < 0 ? 0.0f : law_prob(draft.stats, logit_at(draft.logits, draft.row, id), id);
}

// Draft probability of one target id under a mixture, to the last bit the same wherever it is asked
// for.
__device__ __forceinline__ float rdk_prob_at(const RdkKernel& kernel, const DraftRow& draft,
                                             float leaked_mass, int64_t token) {
  if (is_invalid(draft.stats)) return quiet_nan();
  if (is_empty(draft.stats)) return 0.0f;
  return rdk_prob(kernel, token, leaked_mass,
                  [&](int64_t target_id) { return draft_law_at(draft, target_id); });
}

// The same in a loop over many ids, with a law made ready for it; no bits are promised. The row is
// neither invalid nor empty.
__device__ __forceinline__ float rdk_prob_in_loop(const RdkKernel& kernel, const DraftRow& draft,
                                                  const LawLoop& law, float leaked_mass,
                                                  int64_t token) {
  return rdk_prob(kernel, token, leaked_mass, [&](int64_t target_id) {
    const int64_t id = draft_id_of(draft, target_id);
    if (id < 0) return 0.0f;
    return law.prob(logit_at(draft.logits, draft.row, id), static_cast<int>(id));
  });
}

// s, the mass that leaks from a row, by the whole block; every thread gets it. A warp takes a
// chunk, in float32, chunks are added in float64: the same bits in every kernel.
__device__ __forceinline__ float leaked_mass_by_block(const RdkKernel& kernel,
                                                      const DraftRow& draft) {
  if (is_invalid(draft.stats)) return quiet_nan();
  if (is_empty(draft.stats)) return 0.0f;
  if (!kernel.needs_leaked_mass()) return leak_of(kernel, 0);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpLanes, warp = thread / kWarpLanes;
  const LawLoop law(draft.stats);
  double mass = 0.0;
  for (int64_t chunk = warp; chunk < num_chunks(kernel.vocab_size); chunk += kBlockWarps) {
    const int64_t begin = chunk * kChunk;
    const int64_t end = begin + kChunk < kernel.vocab_size ? begin + kChunk : kernel.vocab_size;
    float sum = 0.0f;
    for (int64_t token = begin + lane; token < end; token += kWarpLanes) {
      const int64_t id = draft_id_of(draft, token);
      if (id < 0) continue;
      const float prob = law.prob(logit_at(draft.logits, draft.row, id), static_cast<int>(id));
      sum = fmaf(prob, kernel.leak[token], sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) mass += sum;
  }
  return static_cast<float>(block_sum(mass));
}

}  // namespace hetero_spec
