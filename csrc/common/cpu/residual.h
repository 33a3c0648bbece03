// SPDX-License-Identifier: Apache-2.0
// One chunk of a target row as probabilities, and of the residual (scale * target - draft)+.
// Handles greedy rows, foreign ids and rows of different widths; the vector loops are those of
// RowKernels.
#pragma once

#include <cstdint>

#include "common/cpu/cutoff.h"
#include "common/row_law.h"

namespace hetero_spec {

// Fills out[0, chunk size) with the law's probabilities; returns their sum.
float target_chunk_probs(const LogitRow& row, const RowStats& stats, int64_t chunk, float* out);

// out = max(0, scale * out - draft probability), for the n target ids of a chunk; returns the sum,
// NaN if the draft row is invalid. target_to_draft_ids: int32 [V] or null (same ids; ids beyond the
// drafter's width have probability 0).
float subtract_draft_chunk(const LogitRow& draft, const RowStats& stats,
                           const int32_t* target_to_draft_ids, float scale, int64_t chunk, int n,
                           float* out);

// The same for a draft that is certain of one target id.
float subtract_one_hot_chunk(int64_t drafted_id, float scale, int64_t chunk, int n, float* out);

// Sum of the residual over a chunk: what target_chunk_probs and subtract_draft_chunk would return,
// in one loop where both laws are plain and share their ids. `out` is scratch of a chunk.
float residual_chunk_sum(const LogitRow& target, const RowStats& target_stats,
                         const LogitRow& draft, const RowStats& draft_stats,
                         const int32_t* target_to_draft_ids, float scale, int64_t chunk,
                         float* out);

// max(0, scale * target_prob - draft_prob); NaN is kept.
inline float residual_weight(float scale, float target_prob, float draft_prob) {
  const float weight = scale * target_prob - draft_prob;
  return weight < 0.0f ? 0.0f : weight;
}

}  // namespace hetero_spec
