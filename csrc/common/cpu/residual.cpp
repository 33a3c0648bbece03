// SPDX-License-Identifier: Apache-2.0
#include "common/cpu/residual.h"

#include <algorithm>
#include <cmath>

namespace hetero_spec {
namespace {

template <class IsDrafted>
float subtract_certain(float scale, IsDrafted is_drafted, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] = residual_weight(scale, out[i], is_drafted(i) ? 1.0f : 0.0f);
  return row_kernels().sum(out, n);
}

}  // namespace

float target_chunk_probs(const LogitRow& row, const RowStats& stats, int64_t chunk, float* out) {
  const int n = row.chunk_size(chunk);
  if (!is_greedy(stats)) {
    return row_kernels().law_probs[static_cast<int>(row.dtype)](row.chunk(chunk), n, nullptr, stats,
                                                                out);
  }
  std::fill_n(out, n, 0.0f);
  const int64_t at = greedy_id(stats) - chunk * kChunk;
  if (at < 0 || at >= n) return 0.0f;
  out[at] = 1.0f;
  return 1.0f;
}

float subtract_one_hot_chunk(int64_t drafted_id, float scale, int64_t chunk, int n, float* out) {
  const int64_t at = drafted_id - chunk * kChunk;
  return subtract_certain(scale, [at](int i) { return i == at; }, n, out);
}

float subtract_draft_chunk(const LogitRow& draft, const RowStats& stats,
                           const int32_t* target_to_draft_ids, float scale, int64_t chunk, int n,
                           float* out) {
  const int64_t first_id = chunk * kChunk;
  const int32_t* ids = target_to_draft_ids ? target_to_draft_ids + first_id : nullptr;
  if (is_invalid(stats)) {
    std::fill_n(out, n, NAN);
    return NAN;
  }
  if (is_greedy(stats)) {
    const int64_t drafted = greedy_id(stats);
    return subtract_certain(
        scale, [=](int i) { return (ids ? ids[i] : first_id + i) == drafted; }, n, out);
  }
  const RowKernels& kernels = row_kernels();
  const int dtype = static_cast<int>(draft.dtype);
  if (ids)
    return kernels.subtract_law[dtype](out, n, scale, draft.logits, draft.vocab_size, stats, ids);
  return kernels.subtract_aligned_law[dtype](out, n, scale, draft.chunk(chunk), stats);
}

float residual_chunk_sum(const LogitRow& target, const RowStats& target_stats,
                         const LogitRow& draft, const RowStats& draft_stats,
                         const int32_t* target_to_draft_ids, float scale, int64_t chunk,
                         float* out) {
  const int n = target.chunk_size(chunk);
  const bool plain =
      !is_greedy(target_stats) && !is_greedy(draft_stats) && !is_invalid(draft_stats);
  if (plain && !target_to_draft_ids) {
    return row_kernels()
        .residual_sum[static_cast<int>(target.dtype)][static_cast<int>(draft.dtype)](
            target.chunk(chunk), target_stats, scale, draft.chunk(chunk), draft_stats, n);
  }
  target_chunk_probs(target, target_stats, chunk, out);
  return subtract_draft_chunk(draft, draft_stats, target_to_draft_ids, scale, chunk, n, out);
}

}  // namespace hetero_spec
