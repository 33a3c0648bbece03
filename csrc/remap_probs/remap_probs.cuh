// SPDX-License-Identifier: Apache-2.0
// remap_probs on the device: the map inverted once, the laws of the rows (row_stats), then
//   write kernel   grid: x = kBlockThreads target ids, y and z = row; thread -> target id.
// Passes over memory: one read of each draft row for its law, one scattered read for the output,
// which is written once, in order.
#pragma once

#include "common/reduce.cuh"
#include "common/row_law.cuh"
#include "remap_probs/remap_probs_cuda.h"

namespace hetero_spec {

// target_to_draft_ids (-1 before) = the inverse of the map; the mask and the number of the ids that
// it names. Entries at or beyond V count as -1. A warp writes one word of the mask.
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    invert_map_kernel(const int32_t* draft_to_target_ids, int64_t draft_vocab_size,
                      int64_t target_vocab_size, int32_t* target_to_draft_ids, uint32_t* mask,
                      int32_t* num_ids) {
  const int64_t id = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t target_id = id < draft_vocab_size ? draft_to_target_ids[id] : -1;
  const bool counts = target_id >= 0 && target_id < target_vocab_size;
  // A map that is not injective breaks its contract; even then the outcome is one and the same.
  if (counts) atomicMax(&target_to_draft_ids[target_id], static_cast<int>(id));
  const unsigned word = __ballot_sync(kAllLanes, counts);
  if (threadIdx.x % kWarpLanes == 0 && id < draft_vocab_size) {
    mask[id / 32] = word;
    if (word != 0) atomicAdd(num_ids, __popc(word));
  }
}

struct RemapWriteArguments {
  RemapProbsCuda call;
  const int32_t* target_to_draft_ids;  // [V]
  const RowStats* stats;               // [rows]
};

template <int kThreads>
__global__ void __launch_bounds__(kThreads) remap_write_kernel(RemapWriteArguments arguments) {
  const RemapProbsCuda& call = arguments.call;
  const int64_t row = blockIdx.y + static_cast<int64_t>(blockIdx.z) * gridDim.y;
  const int64_t target_id = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= call.num_rows || target_id >= call.target_vocab_size) return;
  const RowStats stats = arguments.stats[row];
  const int64_t draft_id = arguments.target_to_draft_ids[target_id];
  float prob = 0.0f;
  if (is_invalid(stats)) {
    prob = quiet_nan();
  } else if (draft_id >= 0) {
    prob = law_prob(stats, logit_at(call.draft_logits, row, draft_id), draft_id);
  }
  call.probs[row * call.target_vocab_size + target_id] = prob;
}

}  // namespace hetero_spec
