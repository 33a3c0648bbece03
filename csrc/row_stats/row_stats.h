// SPDX-License-Identifier: Apache-2.0
// row_stats: the four numbers that turn a row of logits into a distribution (common/row_law.h).
//
//   logits               float32 | float16 | bfloat16 [rows, V], last stride 1, any row stride
//   params               one value, or one per row
//   draft_to_target_ids  int32 [V] or null: ids whose entry is < 0 do not count
//   stats                float32 [rows, 4] (max_logit, inv_temperature, log_normalizer, cutoff),
//   written
//
// Source: log-sum-exp with processors folded in; order temperature, top-k, top-p on what top-k
// left, min-p relative to the largest probability; the cutoff is the strictest of the three, ties
// with it are kept.
#pragma once

#include "common/cpu/parallel.h"
#include "common/cpu/row_law_cpu.h"

namespace hetero_spec {

void row_stats_cpu(const LogitMatrix& logits, int64_t num_rows, const int32_t* draft_to_target_ids,
                   const SamplingParams& params, RowStats* stats, const Parallel& parallel);

}  // namespace hetero_spec
