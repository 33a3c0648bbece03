// SPDX-License-Identifier: Apache-2.0
// Which of a drafter's ids the target shares, as one bit an id: read with every row of a batch, it
// is a thirty-second of the map's size.
#pragma once

#include "common/gpu.cuh"
#include "common/reduce.cuh"

namespace hetero_spec {

constexpr int64_t mask_words_of(int64_t vocab_size) { return (vocab_size + 31) / 32; }

// mask[id / 32] bit id % 32 = (map[id] >= 0); *num_ids += their number. A warp writes one word. A
// template only so that several ops may include it.
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    mask_from_map_kernel(const int32_t* map, int64_t vocab_size, uint32_t* mask, int32_t* num_ids) {
  const int64_t id = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const bool counts = id < vocab_size && map[id] >= 0;
  const unsigned word = __ballot_sync(kAllLanes, counts);
  if (threadIdx.x % kWarpLanes == 0 && id < vocab_size) {
    mask[id / 32] = word;
    if (word != 0) atomicAdd(num_ids, __popc(word));
  }
}

// mask bit d = some target id maps to d. One thread a target id; mask and *num_ids start at 0.
template <int kThreads>
__global__ void __launch_bounds__(kThreads)
    mask_from_inverse_map_kernel(const int32_t* target_to_draft_ids, int64_t target_vocab_size,
                                 int64_t draft_vocab_size, uint32_t* mask, int32_t* num_ids) {
  const int64_t target_id = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t id = target_id < target_vocab_size ? target_to_draft_ids[target_id] : -1;
  bool is_new = false;
  if (id >= 0 && id < draft_vocab_size) {
    const uint32_t bit = 1u << (id % 32);
    is_new = (atomicOr(&mask[id / 32], bit) & bit) == 0;
  }
  const unsigned count = static_cast<unsigned>(__popc(__ballot_sync(kAllLanes, is_new)));
  if (threadIdx.x % kWarpLanes == 0 && count != 0) atomicAdd(num_ids, static_cast<int>(count));
}

}  // namespace hetero_spec
